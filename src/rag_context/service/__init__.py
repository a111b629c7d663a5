"""The service layer: one method per use case, request models in, response models out."""

from rag_context.service.service import Service

__all__ = ["Service"]
