"""Reading one document of a project: which one a path names, and the lines that were asked for."""

from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import PurePosixPath
from typing import Any

from rag_context.errors import FieldError, InvalidInputError
from rag_context.projects.catalogue import Catalogue
from rag_context.projects.paths import reference_candidates, spellings
from rag_context.projects.records import DocumentNotFoundError, ProjectDocument

MAX_CHARS = 40_000
"""Characters that one reply carries, about; the first line comes whole, however long it is."""

SIMILAR = 3


def named_document(catalogue: Catalogue, said: str) -> ProjectDocument:
    """The document that a path names: from the docs folder, from the repository's root, or absolute.

    Raises:
        DocumentNotFoundError: there is none; the message names the likeliest ones.
    """
    documents = catalogue.documents
    folder = documents[0].docs_folder if documents else ""
    for path in (spelt for candidate in _candidates(said, folder) for spelt in spellings(candidate)):
        if (document := catalogue.by_path(path)) is not None:
            return document
    paths = [document.path for document in documents]
    same_name = [path for path in paths if PurePosixPath(path).name == PurePosixPath(said).name]
    near = (same_name or get_close_matches(said, paths, SIMILAR))[:SIMILAR]
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
    raise DocumentNotFoundError(f"The project has no document {said!r}{hint}", [FieldError("path", "No such document")])


def lines_of(content: str, start: int | None, end: int | None) -> dict[str, Any]:
    """The lines from `start` to `end` (from 1, both included) as the wire has them.

    Raises:
        InvalidInputError: there are no such lines.
    """
    lines = content.removesuffix("\n").split("\n") if content else []
    first = start or 1
    last = min(end or len(lines), len(lines))
    if first > len(lines) > 0:
        message = f"The document has {len(lines)} lines"
        raise InvalidInputError(message, [FieldError("start_line", message)])
    if end is not None and end < first:
        message = "end_line must not be before start_line"
        raise InvalidInputError(message, [FieldError("end_line", message)])
    shown: list[str] = []
    chars = 0
    for line in lines[first - 1 : last]:
        chars += len(line) + 1
        if shown and chars > MAX_CHARS:
            break
        shown.append(line)
    through = first + len(shown) - 1
    return {
        "content": "\n".join(shown),
        "start_line": first,
        "end_line": through,
        "total_lines": len(lines),
        "truncated": through < last,
    }


def _candidates(said: str, folder: str) -> Iterator[str]:
    said = said.replace("\\", "/").strip()
    if folder and said.startswith(f"{folder}/"):
        said = said.removeprefix(f"{folder}/")
    name = PurePosixPath(folder).name
    yield from reference_candidates(said, "", name)
    if name and said.startswith(f"{name}/"):
        yield from reference_candidates(said.removeprefix(f"{name}/"), "", name)
