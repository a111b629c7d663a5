"""What is searched in memory: vectors and terms; and the index of chunks over both, kept in step with the file."""
