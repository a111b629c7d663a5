"""Blocks of code: definitions by syntax tree, with what lies between them.

Only nodes larger than a chunk are descended into, so the walk touches a small part of the tree. Comments,
decorators and attributes that stand directly before a definition belong to it. Without a grammar, blocks end at a
closing brace in the first column, units at blank lines and lines.
"""

import json
import logging
import re
from array import array
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import PurePosixPath

from rag_context.ingest.chunking import syntax
from rag_context.ingest.chunking.syntax import Mark, Outline
from rag_context.ingest.chunking.text_blocks import Boundary, Ruler, Strength, TextBlock
from rag_context.resilience.confinement import ProcessLimits
from rag_context.resilience.worker_processes import WorkerFailedError, WorkerProcesses

logger = logging.getLogger(__name__)

IN_PROCESS_CHARS = 4000
"""Longest source that is parsed in this process: the most memory that any of it was found to need is 28 MB."""

LIMITS = ProcessLimits(cpu_s=10, wall_s=60.0, memory_bytes=160 << 20)
"""Of one parse. Two megabytes of ordinary source need 52 MB (C) to 110 MB (JavaScript), the interpreter included."""

REUSED_CHARS = 500_000
"""A process that has parsed a longer source is ended: it would keep much of the memory."""

_WORD = re.compile(r"[^\W\d]\w*+|\d++")
_LINE_END = re.compile(r"[^\n]*+\n(?:[ \t\r]*+\n)*+")
_BRACE_END = re.compile(r"^\}[;,)]*+[ \t]*+\r?\n(?:[ \t\r]*+\n)*+", re.MULTILINE)
_BLANK_LINES = re.compile(r"\n(?:[ \t\r]*+\n)*+")
_CLOSERS = re.compile(r"[ \t]*+(?:[\])};,>]|end\b|fi\b|done\b|else\b|elif\b|except\b|finally\b|catch\b)")
"""A line that belongs to the lines above it."""


class SyntaxProcesses:
    """Parses sources in bounded processes, which start with the first source that needs one. A context manager."""

    def __init__(self, limits: ProcessLimits = LIMITS) -> None:
        # Two, so that a short source does not wait for a long one (see `Computing`).
        self._processes = WorkerProcesses("rag_context.ingest.chunking.syntax", limits, workers=2)

    def __enter__(self) -> "SyntaxProcesses":
        return self

    def __exit__(self, *_exc: object) -> None:
        self._processes.close()

    def outline(self, text: str, extension: str, token_starts: Sequence[int], max_tokens: int) -> list[Mark] | None:
        """As `syntax.marks`; None also for a source that needs more memory than one may. Blocking, from any thread."""
        if len(text) <= IN_PROCESS_CHARS:
            return syntax.marks(text, extension, token_starts, max_tokens)
        request = json.dumps({"extension": extension, "maxTokens": max_tokens}).encode()
        try:
            with self._processes.worker() as worker:
                frame = worker.request(request, text.encode("utf-8", "replace"), array("I", token_starts).tobytes())
                worker.is_ready = bool(frame) and len(text) <= REUSED_CHARS
        except WorkerFailedError as error:
            logger.warning("a source (%s) of %d characters is cut at its lines: %s", extension, len(text), error)
            return None
        return syntax.unpacked(frame) if frame else None


def definitions(ruler: Ruler, source: str, max_tokens: int, outline: Outline) -> list[TextBlock] | None:
    """The definitions of a source text and what lies between them, without gaps.

    None without a grammar for `source`, and for a text that `outline` cannot follow.
    A definition of more than `max_tokens` is given as its head, its inner definitions and its rest.
    """
    extension = PurePosixPath(source).suffix[1:].lower()
    if not syntax.has_grammar(extension):
        return None
    marks = outline(ruler.text, extension, ruler.token_starts, max_tokens)
    return None if marks is None else _blocks(ruler.text, marks)


def _blocks(text: str, marks: Sequence[Mark]) -> list[TextBlock]:
    """The stretches between marks; one without a word (a closing brace) goes to the stretch before it."""
    following = [*(mark.offset for mark in marks[1:]), len(text)]
    starts = [_from(text, mark, end) for mark, end in zip(marks, following, strict=True)]
    blocks: list[TextBlock] = []
    begun = 0
    for mark, end in zip(marks, [*starts[1:], len(text)], strict=True):
        if _WORD.search(text, begun, end):
            blocks.append(TextBlock(begun, end, mark.path))
            begun = end
        elif blocks:
            blocks[-1] = replace(blocks[-1], end=end)
            begun = end
    return blocks or [TextBlock(0, len(text))]


def _from(text: str, mark: Mark, following: int) -> int:
    """Where a mark's path begins to hold: behind the lines a definition ends with, if nothing else begins on them."""
    line_end = _LINE_END.match(text, mark.offset, following) if mark.closing else None
    return line_end.end() if line_end else mark.offset


def braced_blocks(text: str) -> list[TextBlock]:
    """Blocks of `text` that end at a separator (a closing brace alone on its line, at the margin)."""
    starts = [0, *(match.end() for match in _BRACE_END.finditer(text) if match.end() < len(text)), len(text)]
    return [TextBlock(start, end) for start, end in pairwise(starts)]


def line_boundaries(text: str) -> list[Boundary]:
    """Where code may be split: at blank lines first, then at lines, and last before a closing line."""
    found = []
    for match in _BLANK_LINES.finditer(text, 0, len(text.rstrip())):
        if _CLOSERS.match(text, match.end()):
            strength = Strength.WRAP
        else:
            strength = Strength.PARAGRAPH if match.end() - match.start() > 1 else Strength.LINE
        found.append(Boundary(match.end(), strength))
    return found
