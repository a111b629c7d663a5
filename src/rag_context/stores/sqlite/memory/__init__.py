"""The index in memory: chunks as rows of columns, with their vectors and terms, kept in step with the file."""
