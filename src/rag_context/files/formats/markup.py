"""HTML and Word documents as Markdown: what a reader of them sees.

Of a page, scripts, styles, pictures and navigation are left out. Word documents are read by mammoth, by their styles
(headings, lists, tables) and without pictures.
"""

import codecs
import io
import warnings
import zipfile
import zlib
from xml.parsers.expat import ExpatError

from bs4 import BeautifulSoup, Tag, XMLParsedAsHTMLWarning
from bs4.builder import ParserRejectedMarkup
from bs4.element import PreformattedString
from markdownify import MarkdownConverter

from rag_context.files.formats.exchange import ConversionError, Extracted, title_block
from rag_context.resilience.confinement import ProcessLimits

_UNSEEN = (
    "title, script, style, noscript, template, svg, math annotation, iframe, object, embed, canvas, img, picture, "
    "audio, video, nav, footer, input, button, select, textarea, dialog, [hidden], [aria-hidden=true], "
    "[role=navigation], a.headerlink, a.anchor, a.anchorjs-link, a.hash-link"
)
_WEB = ("http://", "https://")
_ANCHOR_SIGNS = frozenset(("", "¶", "#", "§", "🔗"))

_DAMAGES = (zipfile.BadZipFile, zlib.error, ExpatError, EOFError, LookupError, NotImplementedError, OSError, ValueError)
"""The errors of reading a damaged archive, or damaged XML in it."""

_OLD_OR_LOCKED = b"\xd0\xcf\x11\xe0"
_ENCRYPTED = "EncryptedPackage".encode("utf-16-le")


def extract_html(data: bytes, _limits: ProcessLimits) -> Extracted:
    """The page as Markdown, under its browser title if it has no heading of its own. Raises: ConversionError."""
    if b"\0" in data and not data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ConversionError("binary, not text", expected=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", XMLParsedAsHTMLWarning)  # XHTML is read as the HTML that it also is
        try:
            page = BeautifulSoup(data, "html.parser")
        except ParserRejectedMarkup as error:
            raise ConversionError("not HTML that can be read") from error
    return Extracted(markdown(page))


def markdown(page: BeautifulSoup) -> str:
    """A parsed page as Markdown. Raises: ConversionError, as `extract_html`."""
    title = page.title.get_text() if page.title else ""
    body = _seen(page)
    text = "\n".join(line.rstrip() for line in _MARKDOWN.convert_soup(body).strip().splitlines())
    if not text:
        raise ConversionError("holds no text", expected=True)
    return (title_block(title) if body.h1 is None else "") + text + "\n"


def _seen(page: BeautifulSoup) -> BeautifulSoup | Tag:
    mains = page.select("main, [role=main]")
    for unseen in page.select(_UNSEEN):
        unseen.decompose()
    for declaration in page.find_all(string=lambda text: isinstance(text, PreformattedString)):
        declaration.extract()
    for link in page.select("a"):
        # Decomposed is a link in another one that was removed before.
        if not link.decomposed and link.get_text(strip=True) in _ANCHOR_SIGNS:
            link.decompose()
        elif not link.decomposed and not str(link.get("href", "")).strip().lower().startswith(_WEB):
            link.unwrap()
    return mains[0] if len(mains) == 1 and mains[0].get_text(strip=True) else page


def _language(pre: Tag) -> str:
    """The language of a listing, if a class of it or of the code in it names one."""
    tags = [pre, *pre.select("code")]
    names = (name for tag in tags for name in tag.get_attribute_list("class") if name)
    return next((name.split("-", 1)[1] for name in names if name.startswith(("language-", "lang-"))), "")


_MARKDOWN = MarkdownConverter(
    heading_style="atx", bullets="-", escape_asterisks=False, escape_underscores=False, code_language_callback=_language
)


def extract_word(data: bytes, limits: ProcessLimits) -> Extracted:
    """The document as Markdown. Raises: ConversionError."""
    if data.startswith(_OLD_OR_LOCKED):
        is_locked = _ENCRYPTED in data
        raise ConversionError("protected by a password" if is_locked else "in Word's format of before 2007")
    import mammoth  # noqa: PLC0415  # for Word alone: pages of HTML do without it

    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            # As the archive states them: zipfile reads no more of a part than that.
            size = sum(part.file_size for part in archive.infolist())
        if size > limits.unpacked_bytes:
            raise ConversionError(f"unpacks to {size} bytes, more than {limits.unpacked_bytes}")
        page = mammoth.convert_to_html(io.BytesIO(data), convert_image=lambda _: [])
    except _DAMAGES as error:
        raise ConversionError("not a whole Word document") from error
    return Extracted(markdown(BeautifulSoup(page.value, "html.parser")))
