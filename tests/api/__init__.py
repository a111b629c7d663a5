"""The wire models: what is accepted, what is refused in which words, what is published."""
