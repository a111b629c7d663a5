"""Checks that the packages which a configuration needs are installed."""

import ipaddress
from collections.abc import Mapping
from importlib.util import find_spec

from rag_context.errors import ConfigurationError
from rag_context.settings.models import Settings

EXTRAS: Mapping[tuple[str, str], tuple[str, str]] = {
    ("stores.vectors", "qdrant"): ("qdrant", "qdrant_client"),
    ("stores.vectors", "chroma"): ("chroma", "chromadb"),
    ("stores.documents", "mongodb"): ("mongodb", "pymongo"),
    ("stores.cache", "redis"): ("redis", "redis"),
}
"""The extra that a backend needs, and the module that shows whether it is installed."""


def check_available(settings: Settings, sources: Mapping[str, str] | None = None) -> None:
    """Reject backends whose client library is not installed.

    Args:
        settings: The configuration.
        sources: Where each setting came from, as `load_settings` found it.

    Raises:
        ConfigurationError: A backend is chosen whose extra is missing.
    """
    # A Chroma server is reached over plain HTTP; only Chroma inside this process needs its library.
    by_library = settings.stores.vectors != "chroma" or settings.stores.chroma_dir is not None
    chosen = (
        *((("stores.vectors", settings.stores.vectors),) if by_library else ()),
        ("stores.documents", settings.stores.documents),
        ("stores.cache", settings.stores.cache),
    )
    problems = [
        _sentence(key, value, EXTRAS[key, value][0], (sources or {}).get(key, ""))
        for key, value in chosen
        if (key, value) in EXTRAS and find_spec(EXTRAS[key, value][1]) is None
    ]
    if problems:
        raise ConfigurationError("\n".join(problems))


def _sentence(key: str, value: str, extra: str, source: str) -> str:
    where = f" ({source})" if source else ""
    return (
        f'{key} = "{value}"{where} needs a client that is not installed: '
        f"run `pip install 'rag-context[{extra}]'`, or choose another."
    )


def is_loopback(host: str) -> bool:
    """Whether a host is this machine's loopback interface."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
