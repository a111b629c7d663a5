"""The command line: the same memory by hand, with or without a running server."""

from rag_context.cli.app import main

__all__ = ["main"]
