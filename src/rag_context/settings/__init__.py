"""The configuration: its models, the sources of values, and checks.

The names below are loaded when they are used: `rag-context mcp` answers its client before it reads its settings.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rag_context.settings.config_file import FILE_NAME

if TYPE_CHECKING:
    from rag_context.settings.keys import KEYS, Key, mask_url, shown
    from rag_context.settings.sections import (
        ApiKey,
        ConnectionSettings,
        EmbedderSettings,
        RerankerSettings,
        SearchSettings,
        Settings,
        StoreSettings,
        VocabularySettings,
    )
    from rag_context.settings.sources import Loaded, check_available, is_loopback, load_settings

__all__ = [
    "FILE_NAME",
    "KEYS",
    "ApiKey",
    "ConnectionSettings",
    "EmbedderSettings",
    "Key",
    "Loaded",
    "RerankerSettings",
    "SearchSettings",
    "Settings",
    "StoreSettings",
    "VocabularySettings",
    "check_available",
    "is_loopback",
    "load_settings",
    "mask_url",
    "shown",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        for module in ("keys", "sections", "sources"):
            loaded = import_module(f"rag_context.settings.{module}")
            if hasattr(loaded, name):
                return getattr(loaded, name)
    raise AttributeError(name)
