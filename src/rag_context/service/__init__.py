"""The service layer: one method per use case, request models in, response models out."""
