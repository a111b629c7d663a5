"""Notebooks: the text, the code in fences, and what it printed; pictures and other results are left out."""

import json
from collections.abc import Iterator

from rag_context.files.formats.exchange import ConversionError, Extracted
from rag_context.files.formats.json_stream import Fields, objects
from rag_context.resilience.confinement import ProcessLimits

MAX_OUTPUT_CHARS = 2000
"""Of the output of one cell; long logs and tables are of little use."""


def extract(data: bytes, _limits: ProcessLimits) -> Extracted:
    """A notebook (nbformat 3 or 4) as Markdown. Raises: ConversionError."""
    try:
        notebook = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ConversionError("not a whole notebook") from error
    if not isinstance(notebook, dict) or not ("cells" in notebook or "worksheets" in notebook):
        raise ConversionError("not a notebook")
    language = _language(notebook)
    text = "\n\n".join(part for cell in _cells(notebook) for part in _parts(cell, language) if part.strip())
    if not text:
        raise ConversionError("holds no text", expected=True)
    return Extracted(text + "\n")


def _cells(notebook: Fields) -> Iterator[Fields]:
    sheets = objects(notebook.get("worksheets")) if "worksheets" in notebook else [notebook]
    for sheet in sheets:
        yield from objects(sheet.get("cells"))


def _parts(cell: Fields, language: str) -> Iterator[str]:
    source = _joined(cell.get("source", cell.get("input"))).strip("\n")
    match cell.get("cell_type"):
        case "code" if source.strip():
            yield _fenced(source, language)
            yield from (_fenced(text, "") for text in map(_printed, objects(cell.get("outputs"))) if text)
        case "heading":
            yield f"{'#' * int(str(cell.get('level', 1)))} {source}"
        case _:
            yield source


def _printed(output: Fields) -> str:
    """What a cell printed or returned as plain text; errors by their last line."""
    if output.get("output_type") in ("error", "pyerr"):
        return f"{output.get('ename', 'Error')}: {output.get('evalue', '')}"
    data = output.get("data")
    text = _joined(output.get("text") or (data.get("text/plain") if isinstance(data, dict) else None)).strip("\n")
    return text if len(text) <= MAX_OUTPUT_CHARS else f"{text[:MAX_OUTPUT_CHARS]}\n[...]"


def _fenced(text: str, language: str) -> str:
    mark = "```"
    while mark in text:
        mark += "`"
    return f"{mark}{language}\n{text}\n{mark}"


def _language(notebook: Fields) -> str:
    metadata = notebook.get("metadata")
    for key in ("language_info", "kernelspec"):
        about = metadata.get(key) if isinstance(metadata, dict) else None
        name = about.get("language", about.get("name")) if isinstance(about, dict) else None
        if isinstance(name, str) and name.isalnum():
            return name.lower()
    return ""


def _joined(source: object) -> str:
    if isinstance(source, list):
        return "".join(line for line in source if isinstance(line, str))
    return source if isinstance(source, str) else ""
