"""Adapters that turn text into vectors, each fitting `ports.Embedder`: one technology a file."""
