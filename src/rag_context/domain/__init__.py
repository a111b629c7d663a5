"""The nouns that every package shares. All frozen; none knows a vendor or a wire format."""
