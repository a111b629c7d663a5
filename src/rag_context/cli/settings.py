"""Loads the settings for a command."""

from pathlib import Path

from rag_context.cli.options import Chosen
from rag_context.settings import Loaded, check_available, load_settings


def load(chosen: Chosen) -> Loaded:
    """The settings as this command line, the environment and the files make them.

    Raises:
        ConfigurationError: Something cannot be used.
    """
    return load_settings(flags=chosen.flags, config_file=chosen.config, cwd=Path.cwd())


def load_available(chosen: Chosen) -> Loaded:
    """The same for a command that opens the index.

    Raises:
        ConfigurationError: Something cannot be used, or its client is not installed.
    """
    loaded = load(chosen)
    check_available(loaded.settings, loaded.sources)
    return loaded
