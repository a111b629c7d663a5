"""Words: how text becomes terms, and how terms are scored. Pure, and the same on every store."""
