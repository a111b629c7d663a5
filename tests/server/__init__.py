"""The HTTP door, over real connections."""
