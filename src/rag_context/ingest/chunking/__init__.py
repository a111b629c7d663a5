"""Cuts a document into chunks: prose by sentences and headings, code by its syntax tree."""
