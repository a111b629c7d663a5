"""The HTTP API, over real connections."""
