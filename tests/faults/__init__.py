"""Faults of the servers behind the memory, one at a time and at random: `python -m tests.faults`."""
