"""Loads the settings from flags, environment, file and defaults. No other module reads the environment.

`connections.<id>` are tables with arbitrary names and keys; they have functions of their own.
"""

import ipaddress
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_origin

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from rag_context.errors import ConfigurationError
from rag_context.settings.config_file import PREFIX, find_file
from rag_context.settings.installation import install_command
from rag_context.settings.keys import ALIASES, KEYS, SECTIONS, SELECTS, expected_of, variable
from rag_context.settings.sections import ApiKey, ConnectionSettings, EmbedderSettings, KeyGroup, Settings

FLAGS: Mapping[str, str] = {
    "data_dir": "--data-dir",
    "server.host": "--host",
    "server.port": "--port",
    "server.workers": "--workers",
    "server.api_key": "--api-key",
    "embedder.workers": "--workers",
    "log.level": "--log-level",
    "history.headless": "--headless",
    "history.subagents": "--subagents",
}


_TABLES: Mapping[str, type[ApiKey | KeyGroup]] = {"server.api_keys": ApiKey, "server.groups": KeyGroup}
"""Lists of tables with names."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The settings, and the source of each: `flag --port`, `environment LOG_LEVEL`, `file ...`, `default`."""

    settings: Settings
    sources: Mapping[str, str]
    file: Path | None


@dataclass(frozen=True, slots=True)
class _Value:
    value: object
    source: str


_Layer = dict[str, _Value]


def load_settings(
    *, flags: Mapping[str, object], environ: Mapping[str, str] = os.environ, config_file: Path | None = None, cwd: Path
) -> Loaded:
    """Load and check the configuration.

    Args:
        flags: Values of the command line by dotted key; None where a flag was not used.
        environ: The environment.
        config_file: The file that `--config` names; else `rag-context.toml` in `cwd`, else the user's own.
        cwd: What relative paths of flags and variables, and file names in messages, are relative to.

    Raises: ConfigurationError (something cannot be used; one line per problem).
    """
    problems: list[str] = []
    found = find_file(None if config_file is None else str(config_file), str(cwd))
    path = None if found is None else Path(found)
    below = _file_layer(path, cwd, problems) if path else {}
    typed = {
        key: _Value(_located(key, value, cwd), f"flag {FLAGS[key]}")
        for key, value in flags.items()
        if value is not None
    }
    values = {**below, **_environment_layer(environ, cwd, problems), **typed}
    if CONNECTIONS in below and values[CONNECTIONS] is not below[CONNECTIONS]:
        values[CONNECTIONS] = _both(below[CONNECTIONS], values[CONNECTIONS])
    _select_backends(values, problems)
    settings = _validate(values, problems)
    if problems:
        raise ConfigurationError("\n".join(problems))
    sources = {name: values[name].source if name in values else "default" for name in KEYS}
    return Loaded(settings, sources, path)


def _file_layer(path: Path, cwd: Path, problems: list[str]) -> _Layer:
    import tomllib  # noqa: PLC0415  (few users have a file, and every command reads the settings)

    name = str(path.relative_to(cwd)) if path.is_relative_to(cwd) else str(path)
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        problems.append(f"The configuration file {name} cannot be read ({error.strerror}).")
        return {}
    except ValueError as error:
        problems.append(f"The configuration file {name} is not valid TOML ({error}).")
        return {}
    source = f"file {name}"
    layer: _Layer = {}
    for key, value in _flatten(tables, source, problems):
        if key not in KEYS:
            problems.append(f"{key} ({source}) is not a setting{_hint(key)}")
        else:
            layer[key] = _Value(_located(key, value, path.parent), source)
    return layer


def _flatten(tables: Mapping[str, object], source: str, problems: list[str]) -> Iterator[tuple[str, object]]:
    for name, value in tables.items():
        if name not in SECTIONS:
            yield name, value
        elif isinstance(value, dict):
            for inner, inner_value in value.items():
                yield f"{name}.{inner}", inner_value
        else:
            problems.append(f"{name} ({source}) is a section: write [{name}] and its keys below.")


def _environment_layer(environ: Mapping[str, str], cwd: Path, problems: list[str]) -> _Layer:
    long_names = {variable(name): name for name in KEYS}
    layer: _Layer = {}
    for names in (ALIASES, long_names):
        for name, key in names.items():
            if value := environ.get(name, "").strip():
                source = f"environment {name}"
                layer[key] = _Value(_located(key, _parsed(key, value, source, problems), cwd), source)
    prefix = f"{variable(CONNECTIONS)}__"
    if single := _connection_variables(environ, prefix):
        some = _Value(single, f"environment {prefix}*")
        layer[CONNECTIONS] = _both(layer[CONNECTIONS], some) if CONNECTIONS in layer else some
    for name in environ:
        if name.startswith(PREFIX) and name not in long_names and name not in ALIASES and not name.startswith(prefix):
            nearest = get_close_matches(name, long_names, n=1)
            key = name.removeprefix(PREFIX).lower().replace("__", ".")
            hint = f"; did you mean {nearest[0]}?" if nearest else _hint(key)
            problems.append(f"{name} in the environment is not a setting{hint}")
    return layer


def _both(under: _Value, over: _Value) -> _Value:
    return _Value(_merged(under.value, over.value), f"{under.source} and {over.source}")


def _parsed(key: str, text: str, source: str, problems: list[str]) -> object:
    """The value of a variable: a list is JSON or names separated by commas; connections are a JSON object."""
    if key == CONNECTIONS:
        try:
            if text.startswith("{"):
                return json.loads(text)
        except ValueError:
            pass
        problems.append(f"{key} ({source}) must be a JSON object.")
        return {}
    if get_origin(KEYS[key].field.annotation) is not tuple:
        return text
    if not text.startswith("["):
        return text if key in _TABLES else [item.strip() for item in text.split(",") if item.strip()]
    try:
        return json.loads(text)
    except ValueError:
        problems.append(f"{key} ({source}) must be a JSON list.")
        return []


def _located(key: str, value: object, folder: Path) -> object:
    if KEYS[key].is_path and isinstance(value, str | Path) and str(value):
        return folder / Path(value).expanduser()
    return value


def _select_backends(values: _Layer, problems: list[str]) -> None:
    selected: dict[str, str] = {}
    for url, selector, backend in SELECTS:
        source = values[url].source if url in values else ""
        if not source.startswith("environment ") or (selector in values and selector not in selected):
            continue
        name = source.removeprefix("environment ")
        if selector in selected:
            problems.append(
                f"{selected[selector]} and {name} both select a backend: choose one with {selector} "
                f"({variable(selector)})."
            )
        selected[selector] = name
        values[selector] = _Value(backend, source)


def _validate(values: _Layer, problems: list[str]) -> Settings:
    """The settings, of which only the sections with values are validated.

    For all of them pydantic would build sixteen validators, a twentieth of what a short command costs; defaults are
    valid.
    """
    given: dict[str, object] = {key: item.value for key, item in values.items() if "." not in key}
    for section in SECTIONS:
        prefix = f"{section}."
        if fields := {key.removeprefix(prefix): item.value for key, item in values.items() if key.startswith(prefix)}:
            given[section] = fields
    valid: dict[str, Any] = {}
    for name, field in Settings.model_fields.items():
        if name not in given:
            continue
        try:
            valid[name] = TypeAdapter(field.rebuild_annotation()).validate_python(given[name])
        except ValidationError as error:
            details = error.errors(include_url=False, include_context=False)
            wrong = [detail for detail in details if detail["type"] != "default_factory_not_called"]
            problems.extend(dict.fromkeys(_sentence((name, *detail["loc"]), detail, values) for detail in wrong))
    return Settings.model_construct(**valid)


def _sentence(location: Sequence[str | int], detail: ErrorDetails, values: _Layer) -> str:
    parts = list(map(str, location))
    if parts[0] == CONNECTIONS and len(parts) > 1:
        return _connection_sentence(parts, detail["type"], values[CONNECTIONS].source)
    depth = 2 if parts[0] in SECTIONS else 1
    key = ".".join(parts[:depth])
    source = values[key].source
    if detail["type"] == "distinct_names":
        return f"{key} ({source}) {detail['msg']}."
    if parts[depth:] and key in _TABLES:
        return _entry_sentence(key, parts[depth], ".".join(parts[depth + 1 :]), detail["type"], source)
    value = "" if KEYS[key].secret else f", not {values[key].value!r}"
    return f"{key} ({source}) must be {KEYS[key].expected}{value}."


def _connection_sentence(parts: list[str], problem: str, source: str) -> str:
    _, id_, *inner = parts
    where = f"{CONNECTIONS}.{id_}"
    if inner == ["[key]"]:
        return f"{where} ({source}): an id must have 1 to 64 of a-z, 0-9, _ and -, and begin with a letter."
    if not inner:
        return f"{where} ({source}) must be a table with provider."
    where = ".".join((where, *inner))
    if problem == "missing":
        return f"{where} ({source}) is missing."
    if inner[0] == "embedder" and problem == "extra_forbidden":
        return f"{where} ({source}) is not a setting; known are {', '.join(EmbedderSettings.model_fields)}."
    fields = EmbedderSettings.model_fields if inner[0] == "embedder" else ConnectionSettings.model_fields
    field = fields.get(inner[-1]) if inner != ["embedder"] else None
    return f"{where} ({source}) must be {expected_of(field) if field else 'a table'}."


def _entry_sentence(key: str, index: str, field: str, problem: str, source: str) -> str:
    fields = _TABLES[key].model_fields
    where = f"{key}[{index}]" + (f".{field}" if field else "")
    if problem == "missing":
        return f"{where} ({source}) is missing."
    if not field:
        return f"{where} ({source}) must be a table with {', '.join(fields)}."
    if field not in fields:
        return f"{where} ({source}) is not a setting; known are {', '.join(fields)}."
    return f"{where} ({source}) must be {expected_of(fields[field])}."


def _hint(key: str) -> str:
    """The end of an error about an unknown key: a similar known one, if there is one."""
    last = key.rpartition(".")[2]
    same = [name for name in KEYS if name.rpartition(".")[2] == last]
    nearest = get_close_matches(key, [*KEYS, *SECTIONS], n=1) or same
    return f"; did you mean {nearest[0]}?" if nearest else "."


CONNECTIONS = "connections"


def _connection_variables(environ: Mapping[str, str], prefix: str) -> dict[str, object]:
    """The values of variables such as `<prefix>ARCHIVE__API_KEY` as nested tables; empty variables are ignored."""
    tables: dict[str, object] = {}
    for name in sorted(environ):
        text = environ[name].strip()
        if name.startswith(prefix) and text:
            _put(tables, name.removeprefix(prefix).lower().split("__"), text)
    return tables


def _merged(under: object, over: object) -> object:
    if not isinstance(under, Mapping) or not isinstance(over, Mapping):
        return over
    return {**under, **{key: _merged(under.get(key), value) for key, value in over.items()}}


def _put(tables: dict[str, object], path: list[str], text: str) -> None:
    *outer, last = path
    for step in outer:
        inner = tables.setdefault(step, {})
        if not isinstance(inner, dict):
            inner = tables[step] = {}
        tables = inner
    tables[last] = text


EXTRAS: Mapping[tuple[str, str | bool], tuple[str, str]] = {
    ("stores.documents", "postgres"): ("postgres", "asyncpg"),
    ("stores.vectors", "qdrant"): ("qdrant", "qdrant_client"),
    ("stores.vectors", "chroma"): ("chroma", "chromadb"),
    ("stores.documents", "mongodb"): ("mongodb", "pymongo"),
    ("stores.cache", "redis"): ("redis", "redis"),
    ("telemetry.traces", True): ("otel", "opentelemetry.sdk"),
}
"""The extra that a backend needs, and the module that shows whether it is installed."""


def check_available(settings: Settings, sources: Mapping[str, str] | None = None) -> None:
    """Reject backends whose client library is not installed. Raises: ConfigurationError."""
    # A Chroma server is reached over plain HTTP; only Chroma inside this process needs its library.
    by_library = settings.stores.vectors != "chroma" or settings.stores.chroma_dir is not None
    selected = (
        *((("stores.vectors", settings.stores.vectors),) if by_library else ()),
        ("stores.documents", settings.stores.documents),
        ("stores.cache", settings.stores.cache),
        ("telemetry.traces", settings.telemetry.traces),
    )
    problems = []
    for key, value in selected:
        extra, module = EXTRAS.get((key, value), ("", "json"))
        if find_spec(module) is None:
            where = f" ({sources[key]})" if sources and key in sources else ""
            problems.append(
                f"{key} = {json.dumps(value)}{where} needs a client that is not installed: "
                f"run `{install_command(extra)}`, or choose another."
            )
    if problems:
        raise ConfigurationError("\n".join(problems))


def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
