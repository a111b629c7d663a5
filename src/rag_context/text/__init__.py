"""Text analysis and BM25: how text becomes terms, and how terms are scored. Pure, and the same on every store."""
