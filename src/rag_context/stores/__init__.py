"""Adapters that keep documents, chunks, vectors and metrics, one technology a module or package."""
