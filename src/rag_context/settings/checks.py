"""Checks that a well-formed configuration can work: what it names is there."""

import ipaddress
from collections.abc import Mapping

from rag_context.errors import ConfigurationError
from rag_context.settings.keys import SELECTS, variable
from rag_context.settings.models import Settings


def check_available(settings: Settings, sources: Mapping[str, str] | None = None) -> None:
    """Refuse backends that this version does not have yet.

    Args:
        settings: The configuration.
        sources: Where each setting came from, as `load_settings` found it.

    Raises:
        ConfigurationError: A backend is named that is not part of this version.
    """
    chosen = {
        "stores.vectors": (settings.stores.vectors, "embedded"),
        "stores.documents": (settings.stores.documents, "embedded"),
        "stores.cache": (settings.stores.cache, "memory"),
        "embedder.kind": (settings.embedder.kind, "onnx"),
    }
    problems = [
        _sentence(key, value, available, (sources or {}).get(key, ""))
        for key, (value, available) in chosen.items()
        if value != available
    ]
    if problems:
        raise ConfigurationError("\n".join(problems))


def _sentence(key: str, value: str, available: str, source: str) -> str:
    name = source.removeprefix("environment ")
    if name != source and name != variable(key):
        return (
            f"{name} in the environment selects {value}, which is not part of this version: "
            f'unset it, or set {key} = "{available}" ({variable(key)}={available}).'
        )
    others = [f"{variable(url)} or its short name" for url, selected in SELECTS.items() if selected == (key, value)]
    where = f"({source})" if source else f"(or selected by {', '.join(others)})"
    return f'{key} = "{value}" {where} names a backend that is not part of this version: set it to "{available}".'


def is_loopback(host: str) -> bool:
    """Whether a host is reachable from this machine only."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
