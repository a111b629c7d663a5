"""The engine of search in memory, for chunks and for collections: vectors and terms of rows, and the best rows."""
