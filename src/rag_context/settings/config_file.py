"""Which configuration file is read, and this process's environment: what is needed before the settings are loaded."""

import os
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

APP_NAME: Final = "rag-context"
FILE_NAME: Final = "rag-context.toml"
PREFIX: Final = "RAG_CONTEXT_"
_SECTION: Final = "vocabulary"


def find_file(config_file: Path | None, cwd: Path) -> Path | None:
    """The file that `--config` names, else `rag-context.toml` in `cwd`, else the user's own; None: there is none."""
    if config_file is not None:
        return cwd / config_file.expanduser()
    if (path := cwd / FILE_NAME).is_file():
        return path
    path = user_folder("XDG_CONFIG_HOME", "~/.config") / FILE_NAME
    return path if path.is_file() else None


def user_folder(variable: str, default: str) -> Path:
    """Where this user's files of this program are: as macOS and Windows have it, else by the XDG specification.

    The `variable` of that specification may name another folder than its `default`.
    """
    if sys.platform == "darwin":
        base = "~/Library/Application Support"
    elif sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    else:
        base = os.environ.get(variable, "").strip() or default
    return Path(os.path.expanduser(base), APP_NAME)  # noqa: PTH111  (where there is no home, it says nothing)


def may_add_words(config_file: Path | None, cwd: Path, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the configuration may add kinds of content or categories. Never False where it does. Raises: OSError."""
    if any(name.upper().startswith(f"{PREFIX}{_SECTION}".upper()) for name in environ):
        return True
    path = find_file(config_file, cwd)
    return path is not None and _SECTION.encode() in path.read_bytes()


def set_unless_given(name: str, value: str) -> None:
    os.environ.setdefault(name, value)


def has_any(names: Collection[str]) -> bool:
    return not os.environ.keys().isdisjoint(names)


def without(prefix: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(prefix)}
