"""The agents' memory: one method per use case, request models in, response models out."""
