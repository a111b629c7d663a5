"""Where programs keep their settings on a machine: templates of places, and the folders in which they are.

In a template `~` is the home of the user and `{claude}` a folder of `_FOLDERS`; a relative path is below the project.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_FOLDERS: Final[Mapping[str, str]] = {
    "claude": "$CLAUDE_CONFIG_DIR|~/.claude",
    "claude_state": "$CLAUDE_CONFIG_DIR|~",
    "codex": "$CODEX_HOME|~/.codex",
    "gemini": "$GEMINI_CLI_HOME|~",
    "copilot": "$COPILOT_HOME|~/.copilot",
    "config": "$XDG_CONFIG_HOME|~/.config",
    "app": "$XDG_CONFIG_HOME|~/.config",
    "zed": "$XDG_CONFIG_HOME|~/.config",
}
"""Folders of settings: the first of the variables and paths that is set."""

_ELSEWHERE: Final[Mapping[tuple[str, str], str]] = {
    ("darwin", "app"): "~/Library/Application Support",
    ("win32", "app"): "$APPDATA|~/AppData/Roaming",
    ("darwin", "zed"): "~/.config",
    ("win32", "zed"): "$APPDATA|~/AppData/Roaming",
}
"""Those that another system has elsewhere."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Where this is: the user's home, the environment and the system, as `sys.platform` names it."""

    home: Path
    environment: Mapping[str, str]
    system: str = sys.platform

    def path(self, template: str, project: Path | None = None) -> Path:
        """The file or folder that a template names; a relative one is below the project."""
        if template.startswith("{"):
            name, _, rest = template[1:].partition("}")
            choices = _ELSEWHERE.get((self.system, name)) or _FOLDERS[name]
            for choice in choices.split("|"):
                value = self.environment.get(choice[1:]) if choice.startswith("$") else choice
                if value:
                    return self._expanded(value) / rest.lstrip("/")
        if template.startswith("~"):
            return self._expanded(template)
        return (project or Path()) / template

    def _expanded(self, path: str) -> Path:
        return self.home / path[1:].lstrip("/\\") if path.startswith("~") else Path(path)
