"""The environment of this process, beside the settings in it: what libraries and programs started here read there."""

import os
from collections.abc import Collection


def set_unless_given(name: str, value: str) -> None:
    os.environ.setdefault(name, value)


def has_any(names: Collection[str]) -> bool:
    return not os.environ.keys().isdisjoint(names)


def without(prefix: str) -> dict[str, str]:
    """The environment for another program, without the variables whose names begin so."""
    return {name: value for name, value in os.environ.items() if not name.startswith(prefix)}
