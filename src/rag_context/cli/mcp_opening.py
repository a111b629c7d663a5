"""The beginning of `rag-context mcp`: a client that starts it is answered before the command line is loaded.

A client waits a second or so for the list of tools. Loading the command line and the settings takes a tenth of that on
an idle machine, and all of it on a busy one.
"""

import os
import signal
import sys
from collections.abc import Sequence

from rag_context.api.toolsets import TOOLSET_NAMES, Toolset, toolsets_named
from rag_context.server.mcp.handshake import Opening, OpeningReader, claim_wire
from rag_context.settings.config_file import may_add_words


def begin(arguments: Sequence[str]) -> OpeningReader | None:
    """Answer the client's opening; returns once more than that is needed.

    Returns:
        None where the command line has to decide first: for other arguments than the usual ones, at a terminal, or for
        a configuration that may change what is listed.
    """
    opening = _opening(arguments)
    if opening is None or sys.stdin.isatty():
        return None
    # Until the loop runs there is nothing to finish.
    signal.signal(signal.SIGTERM, lambda _signal, _frame: sys.exit(0))
    conversation = OpeningReader(claim_wire(), opening)
    conversation.wait_until_needed()
    return conversation


def _opening(arguments: Sequence[str]) -> Opening | None:
    values = {"--tools": Toolset.MEMORY.value, "--config": "", "--data-dir": ""}
    is_structured = False
    rest = iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=")
        if argument == "--structured":
            is_structured = True
        elif name in values:
            values[name] = value if equals else next(rest, "")
        else:
            return None
    try:
        if may_add_words(values["--config"] or None, os.getcwd()) or {*values["--tools"].split(",")} - {*TOOLSET_NAMES}:
            return None
    except OSError:  # the command line reports it
        return None
    return Opening(toolsets_named(values["--tools"]), structured=is_structured)
