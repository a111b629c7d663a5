"""Text that programs inject into a person's message, recognised by its marks."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

TOOL_CALL = "tool-call"
TOOL_OUTPUT = "tool-output"
REASONING = "reasoning-block"
SYSTEM = "system-message"
SUMMARY = "compaction-summary"
COMMAND = "command-echo"
CONTEXT = "injected-context"
SUBAGENT = "subagent-message"
NOTICE = "client-notice"
PRIVATE = "private-span"
REPETITION = "repetition"
RECORD = "other-record"
"""Kinds of text that are left out; receipts count them by these names."""

_ROLES = {
    "system": SYSTEM,
    "developer": SYSTEM,
    "tool": TOOL_OUTPUT,
    "tool_result": TOOL_OUTPUT,
    "function": TOOL_OUTPUT,
    "thinking": REASONING,
}
_MEMORIES = (
    "rag-context", "claude-mem-context", "supermemory-context", "hindsight_memories", "deja-recall",
    "relevant-memories", "relevant_memories", "memory-context",
)  # fmt: skip
INJECTED = {
    **dict.fromkeys((*_MEMORIES, "system-reminder", "system_reminder"), CONTEXT),
    "private": PRIVATE,
}
"""Tags of blocks that are left out whichever client wrote them. An index must not store its own answers."""


@dataclass(frozen=True)
class Preface:
    """Injected text between two marks that are no tags. Without an `end` it goes on to the end of the message."""

    start: str
    end: str
    kind: str


@dataclass(frozen=True)
class Marks:
    """How a client marks what it injects into messages.

    Args:
        blocks: names of tags, each with the kind of what stands between them.
        prefaces: injected text between other marks.
        unwrapped: names of tags that are removed without their content.
    """

    blocks: Mapping[str, str] = field(default_factory=dict)
    prefaces: Sequence[Preface] = ()
    unwrapped: Sequence[str] = ()

    @cached_property
    def _tag(self) -> re.Pattern[str]:
        names = "|".join(map(re.escape, (*self.blocks, *self.unwrapped)))
        return re.compile(rf"<(?P<slash>/?)(?P<name>{names})(?=[\s/>])[^<>]{{0,1000}}(?<!/)>" if names else r"(?!)")

    def words(self, text: str) -> tuple[str, set[str]]:
        """The text without its injected parts, and their kinds."""
        kinds: set[str] = set()
        for preface in self.prefaces:
            text = _without(text, preface, kinds)
        kept: list[str] = []
        last = {match["name"]: match.end() for match in self._tag.finditer(text) if match["slash"]}
        at, name, depth = 0, "", 0
        for match in self._tag.finditer(text):
            if name:
                if match["name"] != name:
                    continue
                depth += -1 if match["slash"] else 1
                if depth == 0 or match.end() == last[name]:  # the latter: an inner mention that is never closed
                    at, name, depth = match.end(), "", 0
            elif match["name"] in self.unwrapped:
                kept.append(text[at : match.start()])
                at = match.end()
            elif not match["slash"] and self._is_block(text, match, at, last):
                kept.append(text[at : match.start()])
                name, depth = match["name"], 1
                kinds.add(self.blocks[name])
        return "".join([*kept, text[at:]]).strip(), kinds

    def _is_block(self, text: str, match: re.Match[str], at: int, last: Mapping[str, int]) -> bool:
        """Whether a block begins here. A tag inside a sentence is only mentioned."""
        end = last.get(match["name"], -1)
        if end < match.start():
            return False
        before = text[max(at, text.rfind("\n", at, match.start()) + 1) : match.start()]
        return not before.strip() or self.blocks[match["name"]] == PRIVATE or not text[end : end + 1000].strip()


def inside(text: str, tags: Sequence[str]) -> str | None:
    """The content of the tag that a client wraps the person's text in; None without one."""
    for tag in tags:
        opening = re.search(rf"^[ \t]*<{tag}(?:\s[^<>]*)?>", text, re.MULTILINE)
        end = text.rfind(f"</{tag}>")
        if opening is not None and end >= opening.end():
            return text[opening.end() : end].strip()
    return None


def left_out_role(role: str) -> str:
    """The kind of a message whose role is neither a person's nor a model's; empty for those."""
    return _ROLES.get(role.lower(), "")


def counted(left_out: Mapping[str, int]) -> str:
    """Counts of what was left out as people read them: `3 tool outputs, 1 compaction summary`."""
    return ", ".join(f"{count} {_plural(kind, count)}" for kind, count in sorted(left_out.items()) if count)


def _plural(kind: str, count: int) -> str:
    name = kind.replace("-", " ")
    if count == 1:
        return name
    return f"{name[:-1]}ies" if name.endswith("y") else f"{name}es" if name.endswith("o") else f"{name}s"


def _without(text: str, preface: Preface, kinds: set[str]) -> str:
    """The text without an injected stretch that it begins with, or that stands on lines of its own."""
    start = 0 if text.lstrip().startswith(preface.start) else text.find("\n" + preface.start)
    if start < 0:
        return text
    end = text.find(preface.end, start + len(preface.start)) if preface.end else len(text)
    if end < 0:
        return text
    kinds.add(preface.kind)
    return (text[:start] + "\n\n" + text[end + len(preface.end) :]).strip()
