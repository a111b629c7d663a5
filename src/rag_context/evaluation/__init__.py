"""Measuring: how well searches find what was judged relevant, and whether a running server does its job."""
