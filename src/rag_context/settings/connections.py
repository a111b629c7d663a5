"""Parses `connections.<id>`, tables with arbitrary names and keys, from the file and from environment variables."""

import json
import re
from collections.abc import Mapping

CONNECTIONS = "connections"

_SECRET = re.compile(r"(?i)key|token|secret|password|passwd|pwd|credential")


def connection_variables(environ: Mapping[str, str], prefix: str) -> dict[str, object]:
    """The values of variables such as `<prefix>ARCHIVE__API_KEY` as nested tables; empty variables are ignored."""
    tables: dict[str, object] = {}
    for name in sorted(environ):
        text = environ[name].strip()
        if name.startswith(prefix) and text:
            _put(tables, name.removeprefix(prefix).lower().split("__"), text)
    return tables


def connection_tables(text: str) -> object:
    """Tables in the form of one JSON object. Raises: ValueError."""
    if not text.startswith("{"):
        raise ValueError("not an object")
    return json.loads(text)


def merged(under: object, over: object) -> object:
    """Merge two layers of tables; for a key in both, the value of `over` is used."""
    if not isinstance(under, Mapping) or not isinstance(over, Mapping):
        return over
    return {**under, **{key: merged(under.get(key), value) for key, value in over.items()}}


def is_secret(name: str) -> bool:
    """Whether values of keys with this name must not be shown."""
    return _SECRET.search(name) is not None


def _put(tables: dict[str, object], path: list[str], text: str) -> None:
    *outer, last = path
    for step in outer:
        inner = tables.setdefault(step, {})
        if not isinstance(inner, dict):
            inner = tables[step] = {}
        tables = inner
    tables[last] = text
