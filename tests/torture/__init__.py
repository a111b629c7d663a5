"""A server under load, killed again and again: `python -m tests.torture`. What it acknowledged must never be lost."""
