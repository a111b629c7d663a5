"""The wire models: what is accepted, what is rejected with which messages, what is published."""
