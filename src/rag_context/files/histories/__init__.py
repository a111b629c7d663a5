"""Conversations that agents and chat programs keep: where they are, how each is read, and how they are taken in."""
