"""Files on disk: which ones are read, how, and an index that follows them."""
