"""PDF by PDFium: a section per page, named by its number and the chapter it belongs to."""

import re
from collections.abc import Iterator

import pypdfium2
from pypdfium2 import PdfDocument, PdfiumError

from rag_context.files.formats.exchange import MAX_CHARS, ConversionError, Extracted, title_block
from rag_context.resilience.confinement import ProcessLimits

_WRONG_PASSWORD = pypdfium2.raw.FPDF_ERR_PASSWORD
# PDFium's marks of a word that is broken at the end of a line.
_HYPHENS = re.compile("[\ufffe\x02](?:\r?\n)?")
_MARKUP = re.compile(r"^(?=[ \t]*(?:#{1,6}[ \t]|`{3}|~{3}))", re.MULTILINE)
_SENTENCE_END = re.compile(r"[.!?…]['\"”’)\]]*\s|\n")
_CARRIED_CHARS = 600


def extract(data: bytes, _limits: ProcessLimits) -> Extracted:
    """The text of all pages as Markdown. Raises: ConversionError."""
    try:
        with PdfDocument(data) as document:
            pages = list(_pages(document))
            title = document.get_metadata_dict().get("Title", "")
            chapters = _chapters(document)
    except PdfiumError as error:
        if getattr(error, "err_code", None) == _WRONG_PASSWORD:
            raise ConversionError("protected by a password") from error
        raise ConversionError("not a whole PDF file") from error
    if not any(page.strip() for page in pages):
        raise ConversionError("holds no text; scanned pages must be made readable (OCR) first")
    return Extracted(title_block(title) + "".join(_sections(pages, chapters)))


def _pages(document: PdfDocument) -> Iterator[str]:
    chars = 0
    for number in range(len(document)):
        page = document[number]
        text = page.get_textpage()
        content = _HYPHENS.sub("", text.get_text_range(errors="replace")).replace("\r\n", "\n").replace("\0", "")
        chars += len(content)
        if chars > MAX_CHARS:
            raise ConversionError(f"holds more than {MAX_CHARS} characters; {number} of {len(document)} pages do")
        yield content
        text.close()
        page.close()


def _chapters(document: PdfDocument) -> dict[int, str]:
    """The first chapter that begins on a page, by the page's index."""
    found: dict[int, str] = {}
    for bookmark in document.get_toc(max_depth=4):
        target = bookmark.get_dest()
        index = target.get_index() if target is not None else None
        if index is not None:
            found.setdefault(index, " ".join(bookmark.get_title().split()))
    return found


def _sections(pages: list[str], chapters: dict[int, str]) -> Iterator[str]:
    chapter, carried = "", 0
    for index, page in enumerate(pages):
        chapter = chapters.get(index, chapter)
        following = pages[index + 1] if index + 1 < len(pages) else ""
        body, carried = page[carried:].rstrip(), _continued(page, following)
        text = f"{body}\n{following[:carried].rstrip()}" if carried else body
        if text.strip():
            name = f"Page {index + 1}: {chapter}" if chapter else f"Page {index + 1}"
            # Lines that would be headings or fences in Markdown are what they are on the page.
            body = _MARKUP.sub(r"\\", text.strip())
            yield f"## {name}\n\n{body}\n\n"


def _continued(page: str, following: str) -> int:
    """How many characters of the following page end a sentence of this one."""
    if not following[:1].islower() or page.rstrip()[-1:] in ".!?:…":
        return 0
    end = _SENTENCE_END.search(following, 0, _CARRIED_CHARS)
    return end.end() if end else 0
