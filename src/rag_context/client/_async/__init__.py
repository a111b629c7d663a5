"""The client for coroutines; `scripts/generate_blocking.py` makes `_sync` from it."""
