"""The command line: the same memory by hand, with or without a running server."""

import sys

__all__ = ["main"]

_INTERRUPTED = 130


def main() -> None:
    """Load the command line and run it; Ctrl-C while it loads is as quiet an end as later on."""
    try:
        from rag_context.cli.app import main as run  # noqa: PLC0415

        run()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
