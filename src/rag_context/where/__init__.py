"""The `where` language: from JSON to a `Clause`, and the one plain meaning of a `Clause` that every provider has.

`parse` reads a filter, `matches` applies it to metadata, `check_metadata` rejects values that no filter can express.
"""

from rag_context.where.evaluation import compares, equals, matches, value_at
from rag_context.where.metadata import check_metadata
from rag_context.where.parsing import MAX_LEVELS, parse

__all__ = ["MAX_LEVELS", "check_metadata", "compares", "equals", "matches", "parse", "value_at"]
