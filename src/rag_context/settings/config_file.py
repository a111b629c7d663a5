"""Which configuration file is read, and this process's environment: what is needed before the settings are loaded."""

import os
import sys
from collections.abc import Collection, Mapping

APP_NAME = "rag-context"
FILE_NAME = "rag-context.toml"
PREFIX = "RAG_CONTEXT_"
_SECTION = "vocabulary"


def find_file(config_file: str | None, cwd: str) -> str | None:
    """The file that `--config` names, else `rag-context.toml` in `cwd`, else the user's own; None: there is none."""
    if config_file is not None:
        return os.path.join(cwd, os.path.expanduser(config_file))
    folders = (cwd, user_folder("XDG_CONFIG_HOME", "~/.config"))
    return next((path for folder in folders if os.path.isfile(path := os.path.join(folder, FILE_NAME))), None)


def user_folder(variable: str, default: str) -> str:
    """Where this user's files of this program are: as macOS and Windows have it, else by the XDG specification.

    The `variable` of that specification may name another folder than its `default`.
    """
    if sys.platform == "darwin":
        base = "~/Library/Application Support"
    elif sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    else:
        base = os.environ.get(variable, "").strip() or default
    return os.path.join(os.path.expanduser(base), APP_NAME)


def may_add_words(config_file: str | None, cwd: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the configuration may add kinds of content or categories. Never False where it does. Raises: OSError."""
    if any(name.upper().startswith(f"{PREFIX}{_SECTION}".upper()) for name in environ):
        return True
    path = find_file(config_file, cwd)
    if path is None:
        return False
    with open(path, "rb") as file:
        return _SECTION.encode() in file.read()


def set_unless_given(name: str, value: str) -> None:
    os.environ.setdefault(name, value)


def has_any(names: Collection[str]) -> bool:
    return not os.environ.keys().isdisjoint(names)


def without(prefix: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(prefix)}
