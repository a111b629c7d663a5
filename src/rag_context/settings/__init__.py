"""The configuration: its models, the sources of values, and checks.

The names below are loaded when they are used: `rag-context mcp` answers its client before it reads its settings.
"""

TYPE_CHECKING = False  # as in `typing`, whose import would take longer than all else here
if TYPE_CHECKING:
    from rag_context.settings.keys import KEYS, mask_url, shown
    from rag_context.settings.sections import ConnectionSettings, EmbedderSettings, Settings, StoreSettings
    from rag_context.settings.sources import Loaded, check_available, is_loopback, load_settings

__all__ = [
    "KEYS",
    "ConnectionSettings",
    "EmbedderSettings",
    "Loaded",
    "Settings",
    "StoreSettings",
    "check_available",
    "is_loopback",
    "load_settings",
    "mask_url",
    "shown",
]


def __getattr__(name: str) -> object:
    if name in __all__:
        from importlib import import_module  # noqa: PLC0415

        for module in ("keys", "sections", "sources"):
            loaded = import_module(f"rag_context.settings.{module}")
            if hasattr(loaded, name):
                return getattr(loaded, name)
    raise AttributeError(name)
