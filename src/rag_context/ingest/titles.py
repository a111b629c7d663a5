"""What a document is called when it is shown."""

import re

from rag_context.domain import documents
from rag_context.ingest.chunking.markdown import fences, front_matter, sections

MAX_TITLE_CHARS = 200
FILE_PARTS = 2
"""Of a path, that say which file it is: the last folder and the name."""

_TITLE = re.compile(r"^title[ \t]*+:[ \t]++(?P<value>[^\n]++)", re.MULTILINE)
_QUOTED = re.compile(r"\"(?P<double>(?:[^\"\\]|\\.)*+)\"|'(?P<single>(?:[^']|'')*+)'")
_COMMENT = re.compile(r"(?:^|[ \t])#")
_SEPARATOR = re.compile(r"[/\\]")


def title_of(content: str, source: str, content_type: str) -> str:
    """The document's own title, else the last segment of `source`; one line, never empty."""
    return own_title(content, content_type) or _one_line(_last_segment(source)) or _one_line(source) or "Untitled"


def own_title(content: str, content_type: str) -> str:
    """The title in the front matter, else the first H1; one line, empty where the document has neither.

    A chat has none but that in its front matter, and code has none: a `#` in them is no heading.
    """
    match content_type:
        case documents.CODE:
            return ""
        case documents.CHAT:
            return _one_line(_front_matter_title(content))
        case _:
            return _one_line(_front_matter_title(content) or _first_h1(content))


def code_file(source: str, content_type: str) -> str:
    """The file that code lies in, with its folder; empty for any other kind of content."""
    if content_type != documents.CODE:
        return ""
    parts = [part for part in _SEPARATOR.split(source) if part.strip()]
    return _one_line("/".join(parts[-FILE_PARTS:]))


def _front_matter_title(content: str) -> str:
    start, end = front_matter(content)
    match = _TITLE.search(content[start:end])
    return _scalar(match["value"].strip()) if match else ""


def _scalar(value: str) -> str:
    """A YAML scalar of one line; what goes on over several lines is not read."""
    if quoted := _QUOTED.match(value):
        if quoted["double"] is not None:
            return re.sub(r"\\(.)", r"\1", quoted["double"])
        return quoted["single"].replace("''", "'")
    if value[:1] in "|>&*!{[":
        return ""
    return _COMMENT.split(value, maxsplit=1)[0]


def _first_h1(content: str) -> str:
    named = (section.path[-1] for section in sections(content, fences(content)) if section.level == 1 and section.path)
    return next(named, "")


def _last_segment(source: str) -> str:
    return next((part for part in reversed(_SEPARATOR.split(source)) if part.strip()), "")


def _one_line(text: str) -> str:
    return " ".join(text.split())[:MAX_TITLE_CHARS].rstrip()
