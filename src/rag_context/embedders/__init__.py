"""Adapters that turn text into vectors, each fitting `ports.Embedder`: one technology per package or module."""
