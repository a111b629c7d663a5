"""Text out of files that are not plain text: PDF, Word, HTML, notebooks, exported conversations, transcripts.

Such files come from anywhere, so they are opened in worker processes with bounds on time and memory and without a
network (`converter`, `worker`); a decompression bomb is rejected.
Every other module here is pure: bytes in, documents out.
"""

from rag_context.files.formats.converter import Converter
from rag_context.files.formats.extracted import MAX_FILE_BYTES, ConversionError, Extracted, Format, Limits
from rag_context.files.formats.recognition import SNIFFED_BYTES, format_of

__all__ = [
    "MAX_FILE_BYTES",
    "SNIFFED_BYTES",
    "ConversionError",
    "Converter",
    "Extracted",
    "Format",
    "Limits",
    "format_of",
]
