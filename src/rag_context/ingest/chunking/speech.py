"""Who says which part of a conversation, and where a conversation of two roles is cut.

Between a user and an assistant every change of role is the edge of a chunk, since a question is about what one of them
said. Messages between people are short, and stay packed.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from rag_context.ingest.chunking.prose import body_start
from rag_context.ingest.chunking.text_blocks import Block, Range
from rag_context.provenance import is_role, role_name


class Speech:
    """The speakers of one conversation.

    Args:
        text: the conversation.
        turns: its turns, as `prose.conversation` finds them.
    """

    def __init__(self, text: str, turns: Sequence[Block]) -> None:
        blocks = [replace(turn, path=tuple(map(_name, turn.path))) for turn in turns]
        if len(blocks) > 1 and not blocks[0].path and not text[body_start(text) : blocks[0].end].strip():
            blocks = [replace(blocks[1], start=0), *blocks[2:]]  # front matter has no speaker
        names = {name for block in blocks for name in block.path}
        roles = {name for name in names if is_role(name)}
        if len(roles) > 1:  # `Note:` in an answer is no third speaker
            for number, block in enumerate(blocks):
                if number and not roles.issuperset(block.path):
                    blocks[number] = replace(block, path=blocks[number - 1].path)
        self._blocks = blocks
        self._starts = [block.start for block in blocks]
        self._has_roles = len(roles) > 1 or (len(roles) == 1 and len(names) == 2)

    def stretches(self) -> list[Range]:
        """What may share a chunk: in a conversation of two roles what one says, elsewhere all of it."""
        if not self._has_roles:
            return [(0, self._blocks[-1].end)]
        found = []
        for _, said in groupby(self._blocks, key=lambda block: block.path):
            first, *others = said
            found.append((first.start, (others or [first])[-1].end))
        return found

    def speaker(self, start: int, end: int) -> str | None:
        """Who alone says `start..end`; None if several do, or it is not known."""
        first = max(0, bisect_right(self._starts, start) - 1)
        said = {block.path for block in self._blocks[first : bisect_left(self._starts, end)]}
        if len(said) != 1:
            return None
        return next(iter(said.pop()), None)


def _name(speaker: str) -> str:
    return role_name(speaker.partition(" (")[0].lstrip("@").strip())
