"""Text out of files that are not plain text: PDF, Word, HTML, notebooks, exported conversations, transcripts.

Such files come from anywhere, so they are opened in worker processes with bounds on time and memory and without a
network (`converter`, `worker`); a decompression bomb is rejected.
Every other module here is pure: bytes in, documents out. A worker imports no more of them than its files need.
"""
