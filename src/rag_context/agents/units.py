"""What is shown of what a search found: a decision with its reason, a question with its answer. Pure.

A message of a conversation says little without the one that it answers, and the message that matches a prompt best is
often the question and not what came of it. So messages that stand together make one unit: its conclusion, and the
question before it. What kind of statement a message is follows from how it was submitted, else from its wording.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from rag_context.agents.prompts import sought_by
from rag_context.domain.documents import CHAT, CODE, DECISION
from rag_context.domain.own_words import instructions
from rag_context.domain.provenance import USER, is_role, text_start
from rag_context.domain.search import Passage
from rag_context.ports.models import Tokenizer

QUESTION_TOKENS = 60
"""Longest question that stands before its answer; of a longer one the last sentences are shown."""

LEAST_TOKENS = 6
"""Fewer than these say nothing."""

LEAST_WORDS = 16
"""A reply of fewer words that gives no reason is a report."""

AHEAD = 2
"""So many messages behind the one that was found may the conclusion be."""


class Kind(StrEnum):
    """What a passage is, for those who work on the same project."""

    DECISION = "decision"
    INSTRUCTION = "instruction"
    FIX = "fix"
    ANSWER = "answer"
    STATEMENT = "statement"
    CODE = "code"
    QUESTION = "question"
    REQUEST = "request"
    REPORT = "report"


CONCLUSIONS = (Kind.DECISION, Kind.INSTRUCTION, Kind.FIX)

_DECIDED = re.compile(
    r"\b(?:decided|decision|agreed|we(?:'ll| will| only| always| never)? (?:chose|choose|keep|kept|settled?|picked|"
    r"standardi[sz]ed?|go|went|stay|stick|use)"
    r"|let's (?:use|go|keep|stick|stay|not)|instead of|rather than|in favou?r of|no longer|not any more|"
    r"(?:must|should) (?:not|never|stay|always|be|only)|(?:(?<=[.;:,] )|(?<=and )|(?<=but )|^)never)\b",
    re.IGNORECASE | re.MULTILINE,
)
_PROPOSED = re.compile(
    r"\b(?:or|could|options?|either|two ways|alternatives?|shall|(?:i|we|you) (?:can|may|might))\b", re.IGNORECASE
)
_CAUSE = re.compile(
    r"\b(?:root cause|(?:cause|problem|reason|culprit|bug|fault) (?:was|is)|was the (?:cause|problem|reason|culprit)"
    r"|were the (?:cause|problem|reason|culprit)|caused by|turned out|the fix|solved (?:by|with)|resolved by|"
    r"fixed (?:by|with)|work(?:ed)? ?around)\b",
    re.IGNORECASE,
)
_REASON = re.compile(
    r"\b(?:because|since|so (?:that|it|they|we|\w+ing)|otherwise|therefore|hence|as (?:the|it|they|we|our|a)|due to|"
    r"until|must|may not|cannot|can't|could not|forbid\w*|demands?|requires?|expects?|never|instead|without|"
    r"not an? \w+)\b|\d ?(?:%|[munk]?s\b|(?:second|minute|hour|day|month|year|metre|euro|dollar|byte|customer|user)s?\b"
    r"|[kmg]i?b\b)",
    re.IGNORECASE,
)
"""A reason, or a figure with its unit."""

_REPORTED = re.compile(
    r"\W*(?:done|fixed|resolved|pushed|merged|committed|updated|finished|ok(?:ay)?|noted|understood|will do|sure|"
    r"(?:i|i've|i have|we) (?:just |have |also )?(?:added|renamed|moved|removed|changed|wrote|made|corrected|raised|"
    r"updated|fixed|started|set|created|ran|reverted|deleted|replaced|cleaned|split|extracted)|"
    r"there is (?:now )?a new|(?:two|three|some|several|a few) remarks|you are right|it ran|the pull request)\b",
    re.IGNORECASE,
)
_INTERROGATIVE = re.compile(
    r"\W*(?:why|what|where|when|which|who|whose|how|is|are|does|do|did|has|have|should|may|was|were|can we|could we)\b",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.!?…](?=[\s\"')\]]|$)|\n")
_SPEAKER = re.compile(r"^[ \t]*(?:\[[^\]\n]{1,40}\]:?|\*\*[^*\n]{1,40}\*\*:?|@?\w[\w .'-]{0,38}:)[ \t]*")


class Found(Protocol):
    """A passage that was found, with the messages of its conversation right before and after it."""

    @property
    def passage(self) -> Passage: ...

    @property
    def before(self) -> Passage | None: ...

    @property
    def after(self) -> Passage | None: ...


@dataclass(frozen=True, slots=True)
class Unit:
    """A conclusion and the question before it; `found` are the chunks by which it was found, best first."""

    conclusion: Passage
    question: Passage | None
    kind: Kind
    found: tuple[str, ...]

    @property
    def passages(self) -> tuple[Passage, ...]:
        """What it is made of, in the order of the conversation."""
        return (self.conclusion,) if self.question is None else (self.question, self.conclusion)

    @property
    def chunk_ids(self) -> tuple[str, ...]:
        """The chunks that it is made of, and those by which it was found."""
        return tuple(dict.fromkeys([*(passage.chunk.id for passage in self.passages), *self.found]))

    @property
    def text(self) -> str:
        """All of it, without the names of speakers."""
        return "\n".join(map(said, self.passages))


def units_of(found: Iterable[Found]) -> list[Unit]:
    found = list(found)
    known: dict[tuple[str, int], Passage] = {}
    for each in found:
        for passage in (each.before, each.passage, each.after):
            if passage is not None:
                known[passage.document_id, passage.chunk.position] = passage
    members: dict[str, list[str]] = {}
    conclusions: dict[str, Passage] = {}
    for each in found:
        conclusion = _conclusion(each.passage, known)
        conclusions[conclusion.chunk.id] = conclusion
        members.setdefault(conclusion.chunk.id, []).append(each.passage.chunk.id)
    return [
        Unit(conclusions[id_], _question_before(conclusions[id_], known), _kind(conclusions[id_], known), tuple(ids))
        for id_, ids in members.items()
    ]


def _conclusion(passage: Passage, known: Mapping[tuple[str, int], Passage]) -> Passage:
    """What a passage of a conversation leads to: itself, or what comes of it in the next messages."""
    kind = _kind(passage, known)
    if passage.content_type != CHAT or kind in CONCLUSIONS:
        return passage
    before = known.get((passage.document_id, passage.chunk.position - 1))
    if kind is Kind.REPORT and before is not None and _kind(before, known) in CONCLUSIONS:
        return before  # "Done, src/a.py does it that way now" says where it applies
    answer = passage
    if passage.chunk.speaker != USER and _PROPOSED.search(said(passage)) is None:
        return passage
    previous = passage
    for number, each in enumerate(_following(passage, known)):
        its_kind = _kind(each, known)
        if each.chunk.speaker == USER and not _takes_up(each, previous, passage):
            break  # something else begins
        if its_kind in (Kind.DECISION, Kind.FIX) or (number == 1 and its_kind is Kind.STATEMENT):
            return each
        if number == 0 and its_kind in (Kind.ANSWER, Kind.STATEMENT):
            answer = each
            if kind is Kind.QUESTION and _PROPOSED.search(said(each)) is None:
                return answer
        elif each.chunk.speaker == USER or _REPORTED.match(said(each)) is not None:
            break  # what came of it is said
        previous = each
    return answer


def _takes_up(passage: Passage, before: Passage, first: Passage) -> bool:
    """Whether what a user says belongs to the two messages before it: it chooses, or speaks of the same as they do."""
    if before.chunk.speaker == USER or _PROPOSED.search(said(before)) is not None:
        return True
    earlier = f"{said(first)}\n{said(before)}"
    return not sought_by(said(passage)).terms.isdisjoint(sought_by(earlier).terms)


def _following(passage: Passage, known: Mapping[tuple[str, int], Passage]) -> list[Passage]:
    found = []
    for position in range(passage.chunk.position + 1, passage.chunk.position + 1 + AHEAD):
        following = known.get((passage.document_id, position))
        if following is None:
            break
        found.append(following)
    return found


def _question_before(passage: Passage, known: Mapping[tuple[str, int], Passage]) -> Passage | None:
    """The question, or the problem, that a message of a conversation answers; an instruction answers none."""
    if passage.content_type != CHAT or _kind(passage, known) is Kind.INSTRUCTION:
        return None
    before = known.get((passage.document_id, passage.chunk.position - 1))
    if before is not None and before.chunk.speaker != USER and passage.chunk.speaker == USER:
        first = known.get((passage.document_id, passage.chunk.position - 2))
        if first is None or not _takes_up(passage, before, first):
            return None  # after a report the user says something else
        before = first
    return before if before is not None and before.chunk.speaker == USER else None


def _kind(passage: Passage, known: Mapping[tuple[str, int], Passage]) -> Kind:
    return kind_of(passage, known.get((passage.document_id, passage.chunk.position - 1)))


def kind_of(passage: Passage, before: Passage | None) -> Kind:
    """What kind of statement a passage is; `before` is the message that stands before it."""
    metadata = passage.metadata
    if passage.content_type == CODE:
        return Kind.CODE
    if passage.content_type == DECISION or metadata.decision_id is not None or DECISION in metadata.tags:
        return Kind.DECISION
    if passage.content_type != CHAT:
        return Kind.STATEMENT
    if passage.chunk.is_standing:
        return Kind.INSTRUCTION
    text = said(passage)
    if passage.chunk.speaker == USER:
        if asks(text):
            return Kind.QUESTION
        is_choice = before is not None and before.chunk.speaker != USER and _PROPOSED.search(said(before)) is not None
        if _DECIDED.search(text) or (is_choice and not _is_request(text)):
            return Kind.DECISION
        return Kind.FIX if _CAUSE.search(text) else Kind.REQUEST if _is_request(text) else Kind.STATEMENT
    if _CAUSE.search(text):
        return Kind.FIX
    if _REPORTED.match(text) and not gives_reason(text):
        return Kind.REPORT
    if before is None:
        return Kind.STATEMENT
    problem = sought_by(said(before))
    says_little = len(text.split()) < LEAST_WORDS and not gives_reason(text)
    if problem.is_chore or not (problem.terms or problem.names) or says_little:
        # What an agent only read in the code, such as what a file does, it can read there again, as it is by then.
        return Kind.REPORT if is_role(passage.chunk.speaker or "") else Kind.STATEMENT
    return Kind.ANSWER if asks(said(before)) else Kind.STATEMENT


def asks(text: str) -> bool:
    """Whether a message is a question and nothing more: it ends with one, or begins as one."""
    text = text.rstrip()
    return text.endswith("?") or ("?" in text and _INTERROGATIVE.match(text) is not None)


def gives_reason(text: str) -> bool:
    return _REASON.search(text) is not None


def _is_request(text: str) -> bool:
    """Whether a message only says what is to be done: one short sentence that is no statement of a fact."""
    return len(text.split()) <= 12


def said(passage: Passage) -> str:
    """The text of a passage without its front matter and the name of its speaker."""
    text = passage.chunk.text
    text = text[text_start(text) :].strip()
    if passage.content_type != CHAT:
        return text
    return _SPEAKER.sub("", text, count=1) if passage.chunk.speaker is not None else text


def orders(text: str) -> bool:
    return bool(instructions(text))


def rendered(unit: Unit, tokenizer: Tokenizer, budget: int) -> tuple[str, int]:
    """A unit in at most `budget` tokens, cut at the end of a sentence, and how many it has; "" if nothing fits."""
    question = "" if unit.question is None else said(unit.question)
    question = _end_of(question, tokenizer, min(QUESTION_TOKENS, budget // 3))
    conclusion = cut(said(unit.conclusion), tokenizer, budget - sum(tokenizer.count([question])))
    tokens = list(tokenizer.count([question, conclusion]))
    if tokens[1] < LEAST_TOKENS:
        return "", 0
    return "\n".join(filter(None, (question, conclusion))), sum(tokens)


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
    starts: Sequence[int] = [0, *(match.end() for match in _SENTENCE_END.finditer(text) if match.end() < len(text))]
    fitting = (text[start:].strip() for start in starts)
    return next((part for part in fitting if sum(tokenizer.count([part])) <= budget), "")
