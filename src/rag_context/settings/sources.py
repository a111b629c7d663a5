"""Loads the settings from flags, environment, file and defaults. No other module reads the environment."""

import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import platformdirs
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from rag_context.errors import ConfigurationError
from rag_context.settings.connections import CONNECTIONS, connection_tables, connection_variables, merged
from rag_context.settings.keys import ALIASES, KEYS, PREFIX, SECTIONS, SELECTS, expected_of, variable
from rag_context.settings.models import APP_NAME, ApiKey, ConnectionSettings, EmbedderSettings, Settings

FILE_NAME = "rag-context.toml"
FLAGS: Mapping[str, str] = {
    "data_dir": "--data-dir",
    "server.host": "--host",
    "server.port": "--port",
    "server.api_key": "--api-key",
    "embedder.workers": "--workers",
    "log.level": "--log-level",
}
LISTS = frozenset(
    {
        "server.allowed_hosts",
        "server.test_addresses",
        "server.api_keys",
        "vocabulary.content_types",
        "vocabulary.categories",
    }
)
PATHS = frozenset({"data_dir", "embedder.model_dir"})


@dataclass(frozen=True, slots=True)
class Loaded:
    """The settings, and the source of each: `flag --port`, `environment LOG_LEVEL`, `file ...`, `default`."""

    settings: Settings
    sources: Mapping[str, str]
    file: Path | None


@dataclass(frozen=True, slots=True)
class _Given:
    """A raw value and its source."""

    value: object
    source: str


_Layer = dict[str, _Given]


def load_settings(
    *,
    flags: Mapping[str, object],
    environ: Mapping[str, str] = os.environ,
    config_file: Path | None = None,
    cwd: Path,
) -> Loaded:
    """Load and check the configuration.

    Args:
        flags: Values of the command line by dotted key; None where a flag was not used.
        environ: The environment.
        config_file: The file that `--config` names; else `rag-context.toml` in `cwd`, else the user's own.
        cwd: What relative paths of flags and variables, and file names in messages, are relative to.

    Raises:
        ConfigurationError: Something cannot be used; one line per problem.
    """
    problems: list[str] = []
    path = _find_file(config_file, cwd)
    below = _file_layer(path, cwd, problems) if path else {}
    given = {**below, **_environment_layer(environ, cwd, problems), **_flag_layer(flags, cwd)}
    if CONNECTIONS in below and given[CONNECTIONS] is not below[CONNECTIONS]:
        given[CONNECTIONS] = _both(below[CONNECTIONS], given[CONNECTIONS])
    _select_backends(given, problems)
    settings = _validate(given, problems)
    if problems or settings is None:
        raise ConfigurationError("\n".join(problems))
    sources = {name: given[name].source if name in given else "default" for name in KEYS}
    return Loaded(settings, sources, path)


def _find_file(config_file: Path | None, cwd: Path) -> Path | None:
    if config_file is not None:
        return cwd / config_file.expanduser()
    candidates = (cwd / FILE_NAME, Path(platformdirs.user_config_dir(APP_NAME, appauthor=False)) / FILE_NAME)
    return next((path for path in candidates if path.is_file()), None)


def _file_layer(path: Path, cwd: Path, problems: list[str]) -> _Layer:
    name = str(path.relative_to(cwd)) if path.is_relative_to(cwd) else str(path)
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        problems.append(f"The configuration file {name} cannot be read: {error.strerror}.")
        return {}
    except ValueError as error:
        problems.append(f"The configuration file {name} is not valid TOML: {error}.")
        return {}
    source = f"file {name}"
    layer: _Layer = {}
    for key, value in _flatten(tables, source, problems):
        if key not in KEYS:
            problems.append(f"{key} ({source}) is not a setting{_hint(key)}")
        else:
            layer[key] = _Given(_located(key, value, path.parent), source)
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
                layer[key] = _Given(_located(key, _parsed(key, value, source, problems), cwd), source)
    prefix = f"{variable(CONNECTIONS)}__"
    if single := connection_variables(environ, prefix):
        some = _Given(single, f"environment {prefix}*")
        layer[CONNECTIONS] = _both(layer[CONNECTIONS], some) if CONNECTIONS in layer else some
    for name in environ:
        if name.startswith(PREFIX) and name not in long_names and name not in ALIASES and not name.startswith(prefix):
            nearest = get_close_matches(name, long_names, n=1)
            key = name.removeprefix(PREFIX).lower().replace("__", ".")
            hint = f"; did you mean {nearest[0]}?" if nearest else _hint(key)
            problems.append(f"{name} in the environment is not a setting{hint}")
    return layer


def _both(under: _Given, over: _Given) -> _Given:
    return _Given(merged(under.value, over.value), f"{under.source} and {over.source}")


def _parsed(key: str, text: str, source: str, problems: list[str]) -> object:
    """The value of a variable: a list is JSON or names separated by commas; connections are a JSON object."""
    if key == CONNECTIONS:
        try:
            return connection_tables(text)
        except ValueError:
            problems.append(f"{key} ({source}) must be a JSON object.")
            return {}
    if key not in LISTS:
        return text
    if not text.startswith("["):
        return text if key == "server.api_keys" else [item.strip() for item in text.split(",") if item.strip()]
    try:
        return json.loads(text)
    except ValueError:
        problems.append(f"{key} ({source}) must be a JSON list.")
        return []


def _flag_layer(flags: Mapping[str, object], cwd: Path) -> _Layer:
    return {
        key: _Given(_located(key, value, cwd), f"flag {FLAGS[key]}")
        for key, value in flags.items()
        if value is not None
    }


def _located(key: str, value: object, folder: Path) -> object:
    if key in PATHS and isinstance(value, str | Path) and str(value):
        return folder / Path(value).expanduser()
    return value


def _select_backends(given: _Layer, problems: list[str]) -> None:
    chosen: dict[str, str] = {}
    for url, (selector, backend) in SELECTS.items():
        source = given[url].source if url in given else ""
        if not source.startswith("environment ") or (selector in given and selector not in chosen):
            continue
        name = source.removeprefix("environment ")
        if selector in chosen:
            problems.append(
                f"{chosen[selector]} and {name} both select a backend: choose one with {selector} "
                f"({variable(selector)})."
            )
        chosen[selector] = name
        given[selector] = _Given(backend, source)


def _validate(given: _Layer, problems: list[str]) -> Settings | None:
    top: dict[str, object] = {}
    sections: dict[str, dict[str, object]] = {}
    for key, item in given.items():
        section, _, name = key.rpartition(".")
        (sections.setdefault(section, {}) if section else top)[name] = item.value
    try:
        return Settings.model_validate({**top, **sections})
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False)
        wrong = [detail for detail in details if detail["type"] != "default_factory_not_called"]
        problems.extend(dict.fromkeys(_sentence(detail, given) for detail in wrong))
        return None


def _sentence(detail: ErrorDetails, given: _Layer) -> str:
    parts = [str(part) for part in detail["loc"]]
    if parts[0] == CONNECTIONS and len(parts) > 1:
        return _connection_sentence(parts, detail["type"], given[CONNECTIONS].source)
    depth = 2 if parts[0] in SECTIONS else 1
    key = ".".join(parts[:depth])
    source = given[key].source
    if detail["type"] == "distinct_names":
        return f"{key} ({source}) {detail['msg']}."
    if parts[depth:] and key == "server.api_keys":
        return _api_key_sentence(parts[depth], ".".join(parts[depth + 1 :]), detail["type"], source)
    value = "" if KEYS[key].secret else f", not {given[key].value!r}"
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


def _api_key_sentence(index: str, field: str, problem: str, source: str) -> str:
    fields = ApiKey.model_fields
    where = f"server.api_keys[{index}]" + (f".{field}" if field else "")
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
