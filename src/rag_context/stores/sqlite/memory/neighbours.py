"""The turns before and after a turn of a conversation, where each turn is a document of its own."""

import numpy as np
from numpy.typing import NDArray

from rag_context.stores.sqlite.blocks import Rows
from rag_context.stores.sqlite.memory.columns import DocumentColumns, Mask


def turns_around(
    rows: Rows, documents: DocumentColumns, document_of: NDArray[np.int32], positions: NDArray[np.int32], live: Mask
) -> tuple[Rows, Rows]:
    """The last chunk of the turn before, and the first of the turn after, of some rows.

    Turns follow each other in the order in which their documents were stored first.

    Args:
        rows: `(m,)` of chunks whose documents belong to a conversation.
        documents: the documents.
        document_of: `(n,)`, the document of every chunk.
        positions: `(n,)`, the position of every chunk in its document.
        live: `(n,)`, which chunks are not deleted.

    Returns:
        two arrays `(m,)` of rows, -1 where there is none.
    """
    conversations, keys = documents.conversations(), documents.keys()
    asked = conversations[document_of[rows]]
    members = documents.in_conversations(np.unique(asked).tolist())[document_of] & live[: len(document_of)]
    chunks = np.flatnonzero(members)
    owners = document_of[chunks]
    order = np.lexsort((positions[chunks], keys[owners], conversations[owners]))
    chunks, owners = chunks[order], owners[order]
    starts = np.searchsorted(conversations[owners], asked, "left")
    ends = np.searchsorted(conversations[owners], asked, "right")
    before, after = np.full(len(rows), -1, dtype=np.intp), np.full(len(rows), -1, dtype=np.intp)
    for number, row in enumerate(rows.tolist()):
        start, end = int(starts[number]), int(ends[number])
        key, turns = keys[document_of[row]], keys[owners[start:end]]
        first, last = np.searchsorted(turns, key, "left"), np.searchsorted(turns, key, "right")
        if first > 0:
            before[number] = chunks[start + first - 1]
        if last < end - start:
            after[number] = chunks[start + last]
    return before, after
