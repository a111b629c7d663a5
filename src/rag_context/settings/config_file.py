"""Which configuration file is read, and what can be said of it before the settings are: loading those takes a while."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import platformdirs

APP_NAME: Final = "rag-context"
FILE_NAME: Final = "rag-context.toml"
PREFIX: Final = "RAG_CONTEXT_"
_SECTION: Final = "vocabulary"


def find_file(config_file: Path | None, cwd: Path) -> Path | None:
    """The file that `--config` names, else `rag-context.toml` in `cwd`, else the user's own; None: there is none."""
    if config_file is not None:
        return cwd / config_file.expanduser()
    candidates = (cwd / FILE_NAME, Path(platformdirs.user_config_dir(APP_NAME, appauthor=False)) / FILE_NAME)
    return next((path for path in candidates if path.is_file()), None)


def may_add_words(config_file: Path | None, cwd: Path, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the configuration may add kinds of content or categories. Never False where it does.

    Raises:
        OSError: the file cannot be read.
    """
    if any(name.upper().startswith(f"{PREFIX}{_SECTION}".upper()) for name in environ):
        return True
    path = find_file(config_file, cwd)
    return path is not None and _SECTION.encode() in path.read_bytes()
