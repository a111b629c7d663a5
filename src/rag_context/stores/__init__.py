"""Adapters that store documents, chunks, vectors and metrics, one technology per module or package."""
