"""What a quoted text must not do to the model that reads it: end the frame that it stands in."""

import re

TAG = "rag-context"
"""Encloses the block of quotations that hooks give to a model."""

_MARK = re.compile(rf"(?:<|&(?:lt|#0*60|#x0*3c);)(?=\s*/?\s*{TAG}\b)", re.IGNORECASE)


def without_tags(text: str) -> str:
    """The text without a tag that would end a block of quotations, or begin one."""
    return _MARK.sub("‹", text)
