"""The types that every package shares. All are frozen, and independent of vendors and wire formats."""
