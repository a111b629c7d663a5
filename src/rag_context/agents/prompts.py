"""What a prompt, an edit or a command is about: the words that are searched for, and the names that it mentions. Pure.

Code that a prompt brings along says little of its subject. Words of everyday work ("fix the failing test") stand in
every history of a project, so that they do not distinguish passages.
"""

import re
import shlex
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath

from rag_context.domain.text import terms

QUESTION_CHARS = 1_000
"""So much of a prompt is searched for, as much as a search takes: of a longer one the beginning and the end."""

COMMAND_WORDS = 4
"""So many words of a command, with the program, say which one it is."""

_PASTED = re.compile(
    r"^[ \t]*(?P<fence>`{3,}|~{3,})(?s:.*?)(?:^[ \t]*(?P=fence)[`~]*[ \t]*$|\Z)"
    r"|<(?P<tag>[A-Za-z][\w:-]{0,60})(?:\s[^<>]{0,1000})?>(?s:.*?)</(?P=tag)>"
    r"|^(?:[ ]{4}|\t)[^\n]*$"
    r"|^[ \t]*>[^\n]*$"
    r"|^[^\n]*(?:[{};]|\)[ \t]*:|=>|\\)[ \t]*$",
    re.MULTILINE,
)
"""Code in fences, tags, indented or quoted lines, and lines that end as code does."""

_PATH = re.compile(r"(?<![\w/])(?:[\w.@-]*(?:/[\w.@-]+)+|\w[\w-]*\.[a-z]\w{0,4})(?![\w/])")
_IDENTIFIER = re.compile(
    r"`[^`\n]{2,60}`|\b(?:[A-Za-z]\w*_\w+|[a-z]+[A-Z]\w*|[A-Z][a-z0-9]+[A-Z]\w*|[A-Za-z]+-?\d[\w-]*)\b(?:\(\))?"
)

_EVERYDAY = frozenset(
    terms(
        """yes no ok okay please thanks thank great good nice sure cool hmm stop continue go ahead proceed next done
        again try let both first undo one do make want need whether anywhere here far context current relevant part
        below fix add write run test tests commit commits code file files function method variable class module
        script change changes update create remove delete rename refactor clean use explain show tell print check
        review find merge push pull request branch line lines comment import error errors bug mean fail failing
        failed broken wrong look way new simple better faster fast slow paste pasted left right last previous above
        edit move put set"""
    )
)
"""Terms that name no topic: they steer a conversation, or are of every day's work."""

_CHORE = re.compile(
    r"\b(?:run|re-?run|tests?|coverage|fixtures?|mocks?|stubs?|todo|build is|ci|commit|push|merge|rebase|revert|stash|"
    r"cherry-pick|conflicts?|pull request|diff|release notes|changelog|bump|rename|re-?format|lint\w*|"
    r"type (?:hints?|checker|annotations?)|imports?|unused|dead code|magic numbers?|early returns?|review|explain|"
    r"typos?|docstrings?|comments?|debug|summar\w+|translate|diagram|faster|slow\w*|readable|simpler|complexity|print)\b",
    re.IGNORECASE,
)
"""A prompt for everyday work, which decisions seldom concern: much of it names things that they are about."""

_COMMON_NAMES = frozenset(
    """__init__ app build cargo cmakelists config conftest constants dockerfile index lib main makefile mod models
    package readme routes settings setup style styles test types util utils""".split()  # noqa: SIM905
)
"""Stems of files that many folders have: alone they name none."""

_SHELL_END = re.compile(r"[|;&><\n]")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_WRAPPERS = frozenset(("sudo", "time", "nohup", "env", "exec", "command", "npx", "uv", "poetry"))


@dataclass(frozen=True, slots=True)
class Sought:
    """What is searched for, its terms without everyday words, its identifiers, and whether it is an everyday chore."""

    text: str
    terms: frozenset[str]
    names: frozenset[str] = frozenset()
    is_chore: bool = False


@lru_cache(maxsize=1024)  # a digest reads some hundred messages, and each of them beside several others
def sought_by(prompt: str) -> Sought:
    """What a prompt is about, without what it only brings along."""
    prose = " ".join(_PASTED.sub(" ", prompt).split())
    if len(prose) > QUESTION_CHARS:
        half = QUESTION_CHARS // 2
        prose = f"{prose[:half].rpartition(' ')[0]} {prose[-half:].partition(' ')[2]}"
    # A file is named by much of what is done with it; what was decided about it is said before it is edited.
    bare = _PATH.sub(" ", prose)
    names = frozenset(found.strip("`()").lower() for found in _IDENTIFIER.findall(bare))
    return Sought(prose, frozenset(terms(bare)) - _EVERYDAY, names, _CHORE.search(prose) is not None)


def file_pattern(path: str) -> re.Pattern[str]:
    """Finds mentions of a file: its name, or with the folder above it where many files have that name."""
    parts = PurePosixPath(path.replace("\\", "/")).parts
    is_common = parts[-1].split(".")[0].lower() in _COMMON_NAMES
    name = "/".join(parts[-2:] if is_common and len(parts) > 1 else parts[-1:])
    return re.compile(rf"(?<![\w.-]){re.escape(name)}(?![\w-])(?!\.\w)", re.IGNORECASE)


def command_words(command: str) -> tuple[str, ...]:
    """The words that say which command it is: the program, what it is to do, and on what; () if that says nothing."""
    first = next(
        (part for part in _SHELL_END.split(command) if part.strip() and not part.strip().startswith("cd ")), ""
    )
    try:
        words = shlex.split(first)
    except ValueError:  # an unclosed quotation
        words = first.split()
    while words and (words[0] in _WRAPPERS or _ASSIGNMENT.match(words[0])):
        words = words[1:]
    kept = tuple(word for word in words if not re.fullmatch(r"-\w?|\d+", word))[:COMMAND_WORDS]
    return kept if len(kept) > 1 or (kept and re.search(r"[/._-]", kept[0])) else ()


def mentions(text: str, words: tuple[str, ...]) -> bool:
    """Whether a text speaks of this command: its first two words one after the other, and all others somewhere."""
    lower = text.lower()
    head = " ".join(words[:2]).lower()
    return head in lower and all(word.lower() in lower for word in words[2:])
