"""`connections.<id>`: tables whose names and keys are not known beforehand, from the file and from variables."""

import json
import re
from collections.abc import Mapping

CONNECTIONS = "connections"

_SECRET = re.compile(r"(?i)key|token|secret|password|passwd|pwd|credential")


def connection_variables(environ: Mapping[str, str], prefix: str) -> dict[str, object]:
    """What variables such as `<prefix>ARCHIVE__API_KEY` say, as nested tables; an empty one says nothing."""
    tables: dict[str, object] = {}
    for name in sorted(environ):
        text = environ[name].strip()
        if name.startswith(prefix) and text:
            _put(tables, name.removeprefix(prefix).lower().split("__"), text)
    return tables


def connection_tables(text: str) -> object:
    """Tables given as one JSON object. Raises: ValueError."""
    if not text.startswith("{"):
        raise ValueError("not an object")
    return json.loads(text)


def merged(under: object, over: object) -> object:
    """Two layers of tables; of a key in both, that of `over` counts."""
    if not isinstance(under, Mapping) or not isinstance(over, Mapping):
        return over
    return {**under, **{key: merged(under.get(key), value) for key, value in over.items()}}


def is_secret(name: str) -> bool:
    """Whether the value of a key of this name is not to be shown."""
    return _SECRET.search(name) is not None


def _put(tables: dict[str, object], path: list[str], text: str) -> None:
    *outer, last = path
    for step in outer:
        inner = tables.setdefault(step, {})
        if not isinstance(inner, dict):
            inner = tables[step] = {}
        tables = inner
    tables[last] = text
