"""The memory as a retriever of other frameworks; each module needs that framework's extra."""
