"""What is shown of a passage: a decision with its reason, a question with its answer, cut at a sentence's end. Pure.

A message of a conversation says little without the one that it answers. What kind of statement a passage is follows
from how it was submitted, else from its wording.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from rag_context.domain.documents import CHAT, CODE, DECISION
from rag_context.domain.own_words import shown
from rag_context.domain.provenance import USER, text_start
from rag_context.domain.search import Passage
from rag_context.ports.models import Tokenizer

QUESTION_TOKENS = 80
"""Longest question that stands before its answer; of a longer one the last sentences are shown."""

MIN_TOKENS = 12
"""Fewer than these say nothing."""


class Kind(StrEnum):
    """What a passage is, for those who work on the same project."""

    DECISION = "decision"
    INSTRUCTION = "instruction"
    FIX = "fix"
    ANSWER = "answer"
    QUESTION = "question"
    STATEMENT = "statement"
    CODE = "code"


_DECIDED = re.compile(
    r"\b(?:decided|decision|agreed (?:on|to|that)"
    r"|we(?:'ll| will)? (?:chose|choose|settled?|picked|standardi[sz]ed?|go|went)"
    r"|let's (?:use|go|keep|stick)|(?:instead of|rather than|in favou?r of|not [^.\n]{1,40}, because))\b",
    re.IGNORECASE,
)
_FIXED = re.compile(
    r"\b(?:root cause|(?:cause|problem|reason|culprit|bug) (?:was|is)|caused by|turned out|fixed (?:it|this|the|by)|"
    r"the fix|solved|resolved|work ?around)\b",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.!?…](?=[\s\"')\]]|$)|\n")
_SPEAKER = re.compile(r"^[ \t]*(?:\[[^\]\n]{1,40}\]:?|\*\*[^*\n]{1,40}\*\*:?|@?\w[\w .'-]{0,38}:)[ \t]*")


@dataclass(frozen=True, slots=True)
class Unit:
    """What is shown, and the ids of the chunks that it is made of."""

    text: str
    chunk_ids: tuple[str, ...]
    tokens: int


def kind_of(passage: Passage, before: Passage | None) -> Kind:
    """What kind of statement a passage is; `before` is the message that stands before it."""
    chunk, metadata = passage.chunk, passage.metadata
    if passage.content_type == CODE:
        return Kind.CODE
    if chunk.is_standing:
        return Kind.INSTRUCTION
    if passage.content_type == DECISION or metadata.decision_id is not None or DECISION in metadata.tags:
        return Kind.DECISION
    text = said(passage)
    if _asks(text) and chunk.speaker == USER:
        return Kind.QUESTION
    if _FIXED.search(text):
        return Kind.FIX
    if _DECIDED.search(text):
        return Kind.DECISION
    is_reply = before is not None and passage.content_type == CHAT and _asks(said(before))
    return Kind.ANSWER if is_reply else Kind.STATEMENT


def unit_of(
    passage: Passage, before: Passage | None, after: Passage | None, tokenizer: Tokenizer, budget: int
) -> Unit | None:
    """The passage with what belongs to it, in at most `budget` tokens; None if nothing of it can be shown."""
    kind = kind_of(passage, before)
    question, answer = (passage, after) if kind is Kind.QUESTION else (before, passage)
    if answer is None:
        return None
    parts, used = [], [answer.chunk.id]
    if question is not None and passage.content_type == CHAT and _asks(said(question)):
        text = _end_of(said(question), tokenizer, min(QUESTION_TOKENS, budget // 3))
        parts, used = [text] if text else [], [question.chunk.id, answer.chunk.id]
    left = budget - sum(tokenizer.count(parts))
    text = cut(said(answer), tokenizer, left)
    if not text or sum(tokenizer.count([text])) < MIN_TOKENS:
        return None
    parts.append(text)
    return Unit("\n".join(parts), tuple(used), sum(tokenizer.count(parts)))


def said(passage: Passage) -> str:
    """The text of a passage without its front matter and the name of its speaker; of a user only their own words."""
    text = passage.chunk.text
    text = text[text_start(text) :].strip()
    if passage.content_type != CHAT:
        return text
    if passage.chunk.speaker == USER:
        text = shown(text)
    return _SPEAKER.sub("", text, count=1) if passage.chunk.speaker is not None else text


def cut(text: str, tokenizer: Tokenizer, budget: int) -> str:
    """The first sentences of a text that fit into `budget` tokens; "" if not even one does."""
    offsets = tokenizer.offsets(text)
    if len(offsets) <= budget:
        return text
    if budget <= 0:
        return ""
    end = offsets[budget - 1][1]
    ends = [match.end() for match in _SENTENCE_END.finditer(text, 0, min(len(text), end + 1)) if match.end() <= end]
    return text[: ends[-1]].rstrip() if ends else ""


def _end_of(text: str, tokenizer: Tokenizer, budget: int) -> str:
    """The last sentences of a text that fit into `budget` tokens."""
    starts = [0, *(match.end() for match in _SENTENCE_END.finditer(text) if match.end() < len(text))]
    fitting = (text[start:].strip() for start in starts)
    return next((part for part in fitting if sum(tokenizer.count([part])) <= budget), "")


def _asks(text: str) -> bool:
    return "?" in text
