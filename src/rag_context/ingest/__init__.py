"""The write path: from a submitted document to chunks, vectors and one transaction."""
