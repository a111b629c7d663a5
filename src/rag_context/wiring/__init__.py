"""The composition root: selects and opens the adapters. No other package names them."""
