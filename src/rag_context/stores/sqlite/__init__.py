"""The embedded store: documents, chunks, vectors, text index, metrics and collections in one SQLite file.

Several processes may use the same file. `embedded` opens it.
"""
