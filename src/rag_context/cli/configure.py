"""`config` and `key`: what the settings are and where they come from, and new API keys."""

import hashlib
import json
import os
import secrets
import stat
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from rag_context.cli.command_line import ExitCode
from rag_context.cli.console import Console
from rag_context.cli.options import ConfigOptions, Options, option, with_options
from rag_context.errors import InvalidInputError
from rag_context.settings import Loaded, shown

KEY_BYTES = 32
KEY_PREFIX = "rc_"
NAME_CHARS = 200

_SHOWN = (
    "data_dir",
    "server.host",
    "server.port",
    "stores.vectors",
    "stores.documents",
    "stores.cache",
    "embedder.kind",
)
"""Settings that are shown although they have their defaults."""

_TOGETHER = ("embedder.", "reranker.", "chat.")
"""Settings of one service each: all are shown where one is set."""


@with_options
def show_config(
    show_all: bool = option(False, "Also the settings that have their defaults.", "--all"), *, options: Options
) -> ExitCode:
    """Print what is set, and the settings of what is in use, each with its source; secrets are masked.

    --all prints every setting, as --json does.
    """
    console = Console()
    loaded = options.load()
    if options.as_json:
        values = shown(loaded.settings)
        console.line(json.dumps({key: {"value": values[key], "source": loaded.sources[key]} for key in values}))
    else:
        _print(loaded, loaded.sources.keys() if show_all else in_use(loaded), console)
        if not show_all:
            console.note(("The others have their defaults; --all shows them.", "dim"))
    folder = loaded.settings.data_dir
    if is_open_to_others(folder):
        console.warning(f"Other users of this machine may open {folder}; `chmod 700` on it keeps them out.")
    return ExitCode.OK


@with_options
def key(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the key's owner.")],
    read_only: bool = option(False, "The key may search, but not index."),
    add_only: bool = option(False, "The key may store and search, but not correct, forget or delete."),
    admin: bool = option(False, "The key may do everything, such as test providers."),
    project: list[str] | None = option(None, "Bind the key to a project; repeatable.", metavar="NAME"),
    collection: list[str] | None = option(None, "Bind the key to a collection; repeatable.", metavar="NAME"),
    agent: list[str] | None = option(None, "Bind the key to what an agent stores; repeatable.", metavar="NAME"),
    tag: list[str] | None = option(None, "Bind the key to documents with a tag; repeatable.", metavar="NAME"),
    group: list[str] | None = option(None, "Bind the key to a group of server.groups; repeatable.", metavar="NAME"),
    *,
    options: ConfigOptions,
) -> ExitCode:
    """Make an API key: stdout gets the key, stderr the lines for rag-context.toml."""
    console = Console()
    name = name.strip()
    if not name.isprintable() or not 0 < len(name) <= NAME_CHARS:
        raise InvalidInputError(f"A key's name is 1 to {NAME_CHARS} printable characters.")
    loaded = options.load()
    if name in {key.name for key in loaded.settings.server.api_keys}:
        raise InvalidInputError(f"There is a key named {name!r} in server.api_keys already: choose another name.")
    key = KEY_PREFIX + secrets.token_urlsafe(KEY_BYTES)
    console.line(key)
    place = loaded.file or "rag-context.toml (a new file in this folder)"
    console.note((f"This is the only time the key is shown. Put its hash into {place}:", "dim"))
    console.note()
    access = "read" if read_only else "add" if add_only else "admin" if admin else "write"
    scope = {"projects": project, "collections": collection, "agents": agent, "tags": tag, "groups": group}
    console.note(snippet(name, key, access, {part: names for part, names in scope.items() if names}))
    return ExitCode.OK


def is_open_to_others(data_dir: Path) -> bool:
    """Whether other users may open it. One that this program makes is its user's own; another keeps its rights."""
    with suppress(OSError):
        return os.name == "posix" and bool(data_dir.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO))
    return False


def in_use(loaded: Loaded) -> Collection[str]:
    """The settings that are set, that say where data is, or that belong to a backend or a service in use."""
    stores = loaded.settings.stores
    is_set = {key for key, source in loaded.sources.items() if source != "default"}
    begun = [f"stores.{kind}_" for kind in {stores.vectors, stores.documents, stores.cache}]
    begun += [group for group in _TOGETHER if any(key.startswith(group) for key in is_set)]
    return {key for key in loaded.sources if key in is_set or key in _SHOWN or key.startswith(tuple(begun))}


def _print(loaded: Loaded, keys: Collection[str], console: Console) -> None:
    rows = []
    for key, value in shown(loaded.settings).items():
        if key not in keys:
            continue
        source = loaded.sources[key]
        is_default = source == "default"
        text = "" if value is None else value if isinstance(value, str) else json.dumps(value)
        rows.append(((key, "dim" if is_default else "bold"), text, (source, "dim" if is_default else "green")))
    console.show_table(("Setting", "Value", "From"), rows)


def snippet(name: str, key: str, access: str, scope: Mapping[str, list[str]]) -> str:
    """The TOML that lets a key in; a JSON string is a TOML string, and so is a list of them."""
    digest = hashlib.sha256(key.encode()).hexdigest()
    bound = ", ".join(f"{part} = {json.dumps(names)}" for part, names in scope.items())
    lines = ["[[server.api_keys]]", f"name = {json.dumps(name)}", f'hash = "sha256:{digest}"', f'access = "{access}"']
    return "\n".join([*lines, *([f"scope = {{ {bound} }}"] if bound else [])])
