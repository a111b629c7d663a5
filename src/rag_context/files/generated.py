"""Recognises what a file is: generated (lock files, vendored and minified code, generated code, tables of data), or a
conversation, a decision or documentation.

In an index generated files crowd out what people wrote: of a Python repository, a lock file and a tokenizer's table can
be more chunks than all of its code. They are recognised by name, by what generators write at the top, and by shape. The
names follow GitHub's Linguist (`generated.rb`, `vendor.yml`).
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pathspec import GitIgnoreSpec

from rag_context.domain.documents import CHAT, CODE, DECISION, DOCUMENTATION
from rag_context.domain.provenance import front_matter, is_role, role_name, text_start
from rag_context.ingest.chunking.prose import conversation, fences, heading_text, sections

RULES = "generated-2"
"""Version of the rules: after a change files are read again."""

_VENDORED = "vendor vendors vendored third_party third-party thirdparty Pods Carthage"
VENDORED_FOLDERS = frozenset(_VENDORED.split())
"""Folders of other people's code."""

_LOCKS = (
    "package-lock.json npm-shrinkwrap.json pnpm-lock.yaml go.sum go.work.sum packages.lock.json project.assets.json "
    "gradle.lockfile package.resolved"
)
_LOCK_NAMES = frozenset(_LOCKS.split())
_LOCK_SUFFIXES = (".lock", ".lockb", ".lockfile")
_BUILT = re.compile(
    r"\.(min|bundle|chunk|packed)\.(js|mjs|cjs|css)$|\.(js|mjs|cjs|css)\.map$|_pb2(_grpc)?\.pyi?$|\.pb(\.gw)?\.go$|"
    r"\.(g|designer|generated)\.(cs|vb|ts|dart)$|\.freezed\.dart$",
    re.IGNORECASE,
)
_PROSE = (".md", ".markdown", ".mdx", ".mdown", ".rst", ".adoc", ".asciidoc", ".org", ".tex", ".log", ".html", ".htm")
"""Files that people read, whether generated or not."""

_HEAD_LINES = 8
_HEAD_CHARS = 2_000
_COMMENT = ("#", "//", "/*", "*", ";", "--", "<!--", "%", "'")
_MARK = re.compile(
    r"@generated\b|^\W*(this file (was|is) )?(auto-?|automatically )generated(\W*$|[.;,]| (by|from|using|with|file)\b)|"
    r"\bgenerated (by|from|using)\b.*\b(do not|don't) (edit|modify)\b",
    re.IGNORECASE,
)

LONG_LINE = 1_000
MINIFIED_SHARE = 0.5
"""Share of a text in lines of LONG_LINE characters and more, above which it is minified, unless it is sentences."""

DATA_CHARS = 32_768
"""A shorter file of data may be a configuration, and costs little."""

_SENTENCE = re.compile(r"[^\W\d_]{2,}(?:[,;:]? [^\W\d_]{2,}){3,}")
SENTENCE_SHARE = 0.1
"""Share of a file of data in runs of four words and more, below which it is a table."""

_WORD = re.compile(r"[^\W\d_]{2,}")
WORD_SHARE = 0.25
"""Share of a long program in letters, below which it is a table of numbers or bytes."""

_TABLES = ".json .jsonc .json5 .jsonl .ndjson .geojson .csv .tsv .xml .svg .yaml .yml .toml .plist .po .pem .map"
_DATA_SUFFIXES = frozenset(_TABLES.split())


@dataclass(frozen=True)
class Generated:
    """Distinguishes generated files from written ones; what matches `include`, ignore patterns, is always indexed."""

    include: tuple[str, ...] = ()

    def folder(self, path: Path) -> str | None:
        if path.name not in VENDORED_FOLDERS or self._may_hold_included(path):
            return None
        return "vendored code"

    def name(self, path: Path) -> str | None:
        """Why a file is left out by its name; None where it is not."""
        name = path.name.lower()
        if name in _LOCK_NAMES or name.endswith(_LOCK_SUFFIXES):
            reason = "a lock file"
        elif _BUILT.search(name):
            reason = "built or generated from other files"
        else:
            return None
        return None if self._is_included(path) else reason

    def text(self, path: Path, text: str) -> str | None:
        suffix = path.suffix.lower()
        if suffix in _PROSE:
            return None
        reason = _shape(text, is_data=suffix in _DATA_SUFFIXES)
        return None if reason is None or self._is_included(path) else reason

    def _is_included(self, path: Path) -> bool:
        return bool(self.include) and self._spec.match_file(path.as_posix().lstrip("/"))

    def _may_hold_included(self, folder: Path) -> bool:
        """Whether a pattern names a folder, something in it, or everything of its name."""
        inside = (folder / "x").as_posix().lstrip("/")
        return bool(self.include) and (
            self._spec.match_file(inside) or any(folder.name in pattern.split("/") for pattern in self.include)
        )

    @cached_property
    def _spec(self) -> GitIgnoreSpec:
        return GitIgnoreSpec.from_lines(map(_anywhere, self.include), backend="simple")


def _anywhere(pattern: str) -> str:
    """A pattern with a slash in it, which an ignore file anchors to its own folder, for any depth."""
    anchored = "/" in pattern.rstrip("/") and not pattern.startswith(("/", "**/"))
    return f"**/{pattern}" if anchored else pattern


def _shape(text: str, *, is_data: bool) -> str | None:
    head = text[:_HEAD_CHARS].split("\n", _HEAD_LINES)[:_HEAD_LINES]
    # In comments only: a text that explains how code is generated is written by people.
    if any(_MARK.search(line) for line in head if line.lstrip().startswith(_COMMENT)):
        return "generated, as its first lines state"
    if text.lstrip().startswith("-----BEGIN ") and not _is_sentences(text):
        return "a key or certificate"
    in_long_lines = sum(len(line) for line in text.split("\n") if len(line) >= LONG_LINE)
    if in_long_lines > MINIFIED_SHARE * len(text) and not _is_sentences(text):
        return "minified or generated: most of it is in very long lines"
    if len(text) < DATA_CHARS:
        return None
    if is_data and not _is_sentences(text):
        return "data: hardly a sentence in it"
    if _covered(_WORD, text) < WORD_SHARE * len(text):
        return "data: mostly numbers and signs"
    return None


def _is_sentences(text: str) -> bool:
    return _covered(_SENTENCE, text) >= SENTENCE_SHARE * len(text)


def _covered(pattern: re.Pattern[str], text: str) -> int:
    return sum(match.end() - match.start() for match in pattern.finditer(text))


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
