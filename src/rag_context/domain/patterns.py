"""Regular expressions from a TOML file beside the module that uses them, each compiled when it is first used."""

import re
import tomllib
from functools import cached_property
from pathlib import Path
from typing import Any


class Patterns:
    """The patterns of the file's table `patterns`, as attributes.

    `{name}` stands for the part of that name in the table `names`, where parts may name those before them. Several
    strings are one pattern, or one part.
    """

    def __init__(self, module: str) -> None:
        self._path = Path(module).with_suffix(".toml")

    def __getattr__(self, name: str) -> re.Pattern[str]:
        if name not in (patterns := self.data["patterns"]):
            raise AttributeError(f"{self._path.name} has no pattern {name}")
        pattern = self.__dict__[name] = self.compiled(patterns[name])
        return pattern

    @cached_property
    def data(self) -> dict[str, Any]:
        """The whole file."""
        return tomllib.loads(self._path.read_text(encoding="utf-8"))

    def compiled(self, pattern: str | list[str], flags: re.RegexFlag = re.NOFLAG) -> re.Pattern[str]:
        pattern = "".join(pattern)
        for name, part in reversed(self.data["names"].items()):
            pattern = pattern.replace(f"{{{name}}}", "".join(part))
        return re.compile(pattern, flags)


def folded(text: str) -> str:
    """Lower case at the same offsets; a capital I with a dot is the only letter whose lower case is longer."""
    return text.replace("\u0130", "i").lower()
