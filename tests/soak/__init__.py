"""A week in the life of two memories under everything at once, in half an hour: `python -m tests.soak`."""
