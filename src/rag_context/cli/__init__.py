"""The command line: the same memory by hand, with or without a running server."""

import gc
import sys

from rag_context._version import __version__
from rag_context.settings.config_file import set_unless_given

__all__ = ["main"]

_INTERRUPTED = 130


def main() -> None:
    """Load the command line and run it; Ctrl-C while it loads is as quiet an end as later on.

    `--version` alone, which scripts run, is answered without loading anything, and so is a client of `mcp`.
    """
    try:
        if sys.argv[1:] == ["--version"]:
            sys.stdout.write(f"rag-context {__version__}\n")
            return
        gc.disable()  # until the command is loaded: what that makes is not garbage
        # Else pydantic reads the metadata of every installed package, in search of plug-ins.
        set_unless_given("PYDANTIC_DISABLE_PLUGINS", "__all__")
        conversation = None
        if sys.argv[1:2] == ["mcp"]:
            from rag_context.cli.mcp_opening import begin  # noqa: PLC0415

            conversation = begin(sys.argv[2:])
        from rag_context.cli.command_line import main as run  # noqa: PLC0415

        run(conversation)
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
