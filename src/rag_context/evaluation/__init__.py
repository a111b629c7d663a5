"""Measurements: the quality of search on labelled data, and the validation of a running server."""
