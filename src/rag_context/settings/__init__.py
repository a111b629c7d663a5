"""The configuration: its models, the sources of values, and checks."""

from rag_context.settings.keys import KEYS, Key, mask_url, shown
from rag_context.settings.sections import (
    ApiKey,
    BreakerSettings,
    ConnectionSettings,
    EmbedderSettings,
    IndexingSettings,
    LogSettings,
    RerankerSettings,
    SearchSettings,
    ServerSettings,
    Settings,
    StoreSettings,
    TelemetrySettings,
    VocabularySettings,
)
from rag_context.settings.sources import FILE_NAME, Loaded, check_available, is_loopback, load_settings

__all__ = [
    "FILE_NAME",
    "KEYS",
    "ApiKey",
    "BreakerSettings",
    "ConnectionSettings",
    "EmbedderSettings",
    "IndexingSettings",
    "Key",
    "Loaded",
    "LogSettings",
    "RerankerSettings",
    "SearchSettings",
    "ServerSettings",
    "Settings",
    "StoreSettings",
    "TelemetrySettings",
    "VocabularySettings",
    "check_available",
    "is_loopback",
    "load_settings",
    "mask_url",
    "shown",
]
