"""Word documents by mammoth, which reads styles (headings, lists, tables) and no pictures."""

import io
import zipfile
import zlib
from xml.parsers.expat import ExpatError

import mammoth
from bs4 import BeautifulSoup

from rag_context.files.formats.extracted import ConversionError, Extracted, Limits
from rag_context.files.formats.html import markdown

_DAMAGES = (
    zipfile.BadZipFile,
    zlib.error,
    ExpatError,
    EOFError,
    LookupError,
    NotImplementedError,
    OSError,
    ValueError,
)
"""The errors of reading a damaged archive, or damaged XML in it."""

_OLD_OR_LOCKED = b"\xd0\xcf\x11\xe0"
_ENCRYPTED = "EncryptedPackage".encode("utf-16-le")


def extract(data: bytes, limits: Limits) -> Extracted:
    """The document as Markdown.

    Raises:
        ConversionError: it is protected, damaged, a decompression bomb, or has no text.
    """
    if data.startswith(_OLD_OR_LOCKED):
        is_locked = _ENCRYPTED in data
        raise ConversionError("protected by a password" if is_locked else "in Word's format of before 2007")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            size = sum(part.file_size for part in archive.infolist())
        if size > limits.unpacked_bytes:
            raise ConversionError(f"unpacks to {size} bytes, more than {limits.unpacked_bytes}")
        page = mammoth.convert_to_html(io.BytesIO(data), convert_image=lambda _: [])
    except _DAMAGES as error:
        raise ConversionError("not a whole Word document") from error
    return Extracted(markdown(BeautifulSoup(page.value, "html.parser")))
