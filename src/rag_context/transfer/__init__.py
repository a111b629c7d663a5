"""Moves documents between indexes as lines of text."""
