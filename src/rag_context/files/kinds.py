"""The kind of a text by what it holds: a conversation, a decision, code or documentation.

A file's name says that it is code. Of any other text the form decides: turns of speakers, or the sections of a decision
record. Lists of `Key: value`, questions with their answers, logs, changelogs, recipes and plays have the form of turns
too, and are documentation.
"""

import re
from collections import Counter
from collections.abc import Sequence

from rag_context.domain.documents import CHAT, CODE, DECISION, DOCUMENTATION
from rag_context.domain.provenance import front_matter, is_role, role_name, text_start
from rag_context.ingest.chunking.prose import conversation, fences, heading_text, sections

READ_CHARS = 65_536
"""So much of a text is read to tell its kind."""

MOST_LINES_A_TURN = 4
"""Lines between two turns of people, in the mean; more is a document that has some lines in the form of turns."""

LABELS = frozenset(
    """a added address advice aim answer argument arguments author authors background before after benefits body bug by
    category cause changed chapter city class client command con cons contact context cook copyright cost
    country date debug default department deprecated description difficulty directions due effect email end
    environment error errors example examples exception expected actual fatal faq fix fixed format from given
    goal hint host hours howto id impact important info ingredients input instructions introduction issue key
    kind label language level license licence line link links location log makes method mode model name nb note
    notes notice number object objective observation operator option options output overview owner parameters
    parts password path phone place port prep preparation prerequisites price priority problem product project
    pro pros purpose q question reason reference references related removed reporter request requirement
    requirements response result results returns role rule scene section security see sender sent server serves
    servings size solution source start state status step steps subject summary symptom tags target task then
    tip tips title to todo topic total trace type unit unreleased update updated url usage user-agent value
    version warn warning when where why what who workaround yield yields""".split()  # noqa: SIM905
)
"""Names before a colon, or in brackets, that no person has."""

_URL = re.compile(r"[<(]?(?:https?://|\.{0,2}/|mailto:)")
_SENTENCE_END = re.compile(r"[.!?…。！？)\"”'*_`]\s*+$")
_PLAY = re.compile(
    r"^[ \t]*+[\[(]?(?:(?:act|scene)[ \t]++(?:[ivxlc]{1,6}|\d{1,3})\b|(?:enter|exit|exeunt|curtain)\b)",
    re.IGNORECASE | re.MULTILINE,
)
_STATUS = re.compile(
    r"^[ \t>*-]{0,6}(?:[^\n]{0,60}[.,;|][ \t*]{1,3})?\*{0,2}status:?\*{0,2}:?[ \t*]{1,4}"
    r"(?:proposed|accepted|rejected|superseded|deprecated|draft|implemented|approved|decided)\b",
    re.IGNORECASE | re.MULTILINE,
)
_DECISION_FIELD = re.compile(
    r"^(?:(?:type|doc_type|kind|category|template)[ \t]*+:[ \t]*+[\"']?(?:adr|madr|decision(?:[ _-]record)?)\b"
    r"|(?:deciders|decision-makers|decisionmakers|decision_date)[ \t]*+:)",
    re.IGNORECASE | re.MULTILINE,
)
_NUMBER = re.compile(r"^[\d.) \t]++")
_PARTS = (
    frozenset({"decision", "decisions", "decision outcome", "the decision", "outcome", "we decided"}),
    frozenset({"context", "context and problem statement", "problem", "problem statement", "background", "issue"}),
    frozenset(
        {"consequences", "implications", "positive consequences", "negative consequences", "decision drivers",
         "considered options", "options", "alternatives", "alternatives considered", "pros and cons of the options",
         "rationale", "confirmation"}
    ),
    frozenset({"status"}),
)  # fmt: skip
"""Headings of decision records: what was decided, why, what follows, and whether it holds."""


def kind_of(text: str) -> str:
    head = text[:READ_CHARS]
    if head.startswith("#!"):
        return CODE
    if _is_decision(head):
        return DECISION
    return CHAT if _is_conversation(head) else DOCUMENTATION


def _is_decision(text: str) -> bool:
    """A decision record names the decision and at least one of its reasons, consequences or its state."""
    start, end = front_matter(text)
    if _DECISION_FIELD.search(text, start, end):
        return True
    parts = list(sections(text, fences(text)))
    names = {_NUMBER.sub("", heading_text(section.path[-1])).casefold() for section in parts if section.path}
    decided, *others = (bool(names & part) for part in _PARTS)
    if not decided:
        return False
    preamble = text[: parts[1].end if len(parts) > 1 else len(text)]
    return sum(others) > 1 or (any(others) and _STATUS.search(preamble) is not None)


def _is_conversation(text: str) -> bool:
    body = text[text_start(text) :]
    read = conversation(body, fences(body))
    found = [turn for turn in read.turns if turn.path]
    names = [turn.path[0].partition(" (")[0].lstrip("@").strip() for turn in found]
    if len(found) < 2:
        return False
    said = [body[turn.start : turn.end] for turn in found]
    is_early = len(body[: found[0].start].split("\n")) <= MOST_LINES_A_TURN
    speakers = Counter(map(role_name, names))
    if sum(map(is_role, speakers)) > 1 or (len(speakers) == 2 and any(map(is_role, speakers))):
        return is_early and not any(name.lower() in LABELS for name in names if not is_role(role_name(name)))
    if not is_early or _PLAY.search(body) or _are_labels(names):
        return False
    lines = sum(bool(line.strip()) for line in body.split("\n"))
    return lines <= MOST_LINES_A_TURN * len(found) and _are_messages(
        said, names, speakers, are_timed=bool(read.clocks[-1])
    )


def _are_labels(names: Sequence[str]) -> bool:
    """Whether names are keys, levels of a log, or the capitals of a play."""
    if any(name.lower() in LABELS or not name[:1].isalpha() or name[:1].islower() for name in names):
        return True
    return all(name.isupper() and len(name) > 2 for name in names)


def _are_messages(said: Sequence[str], names: Sequence[str], speakers: Counter[str], *, are_timed: bool) -> bool:
    """Whether people answer each other: in sentences, and one of them more than once, unless it is short."""
    texts = [
        turn[turn.find(name) + len(name) :].lstrip(" ]>*_:").strip() for turn, name in zip(said, names, strict=True)
    ]
    if any(_URL.match(text) for text in texts):
        return False
    sentences = sum(_SENTENCE_END.search(text) is not None and len(text.split()) > 1 for text in texts)
    is_answered = len(speakers) > 1 and (max(speakers.values()) > 1 or (len(said) < 4 and "?" in texts[0]))
    is_in_brackets = all(f"[{name}]" in turn[:120] for turn, name in zip(said, names, strict=True))
    if is_in_brackets and (max(speakers.values()) > 1 or len(said) < 4):
        return sentences > 0
    return is_answered and (sentences if are_timed else 2 * sentences - len(texts) + 1) > 0
