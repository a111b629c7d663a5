"""What an installation puts into a client's file, and takes out of it again: each piece knows its own, and only that.

A piece changes a text edit by edit, so that each can be recorded and undone. Its own is known by the program that it
runs, not by the whole entry: what was installed from another place is adopted, and not doubled.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath, PureWindowsPath
from typing import Any, Final, Protocol

from rag_context.agents.clients import NAME
from rag_context.agents.json_text import Item, Node, find, parse, replaced, with_element, with_member, without_item

HOOK_PROGRAM: Final = "rag-context-hook"
BEGIN: Final = "<!-- rag-context: begin (written by `rag-context install`; `rag-context uninstall` removes it) -->"
END: Final = "<!-- rag-context: end -->"
WRITTEN_BY: Final = "Written by `rag-context install`"
"""Stands in every file that is wholly ours."""

_HOOK = re.compile(rf"""(?:^|[\s/\\"'])({HOOK_PROGRAM})(?:\.exe)?(?:["'\s]|$)""")
_BLOCK = re.compile(r"(?:\r?\n)?<!-- rag-context: begin.*?<!-- rag-context: end -->(?:\r?\n|$)", re.DOTALL)
_OURS = frozenset({"type", "command", "args", "url", "httpUrl", "serverUrl", "tools", "enabled"})
_OF_COMMANDS = frozenset({"env", "environment", "envFile", "env_vars", "cwd"})
_OF_ADDRESSES = frozenset({"headers", "http_headers", "env_http_headers", "bearer_token_env_var", "auth", "oauth"})


class Piece(Protocol):
    """What is put into a file. Both raise ValueError or TypeError where the text is not of the form that it needs."""

    def steps(self, text: str) -> Iterator[str]:
        """The text after each edit that puts this into it, the last one complete; nothing if it is there."""

    def removed(self, text: str) -> str:
        """The text without this."""


def program_name(command: object) -> str:
    """What a command runs, without its folder and `.exe`."""
    return PureWindowsPath(PurePath(str(command)).name).name.removesuffix(".exe")


def runs_server(entry: object) -> bool:
    if not isinstance(entry, dict):
        return False
    command, arguments = entry.get("command"), entry.get("args")
    words = [*(command if isinstance(command, list) else [command]), *(arguments or ())]
    return len(words) > 1 and program_name(words[0]) == NAME and words[1] == "mcp"


def runs_hook(entry: object) -> bool:
    texts = entry.values() if isinstance(entry, dict) else ()
    return any(isinstance(text, str) and _HOOK.search(text) is not None for text in texts)


def updated(existing: object, entry: Mapping[str, Any]) -> dict[str, Any]:
    """An entry for the server with what people and their client have added to the one that is there, such as `env`."""
    if not isinstance(existing, dict):
        return dict(entry)
    # Some clients reject an entry with what belongs to the other way to reach a server.
    foreign = _OURS | (_OF_ADDRESSES if "command" in entry else _OF_COMMANDS)
    kept = {key: value for key, value in existing.items() if key not in foreign}
    # Whether it is switched on, and which of its tools, is the person's choice.
    return {**entry, **kept, **{key: existing[key] for key in ("tools", "enabled") if key in existing and key in entry}}


@dataclass(frozen=True, slots=True)
class JsonServer:
    """The entry for this server in a table of servers."""

    section: tuple[str, ...]
    entry: Mapping[str, Any]

    def steps(self, text: str) -> Iterator[str]:
        servers = _container(text, self.section, dict)
        own = _own_server(servers)
        if own is None:
            yield with_member(text, (*self.section, NAME), dict(self.entry))
            return
        entry = updated(own.node.value, self.entry)
        if entry != own.node.value:
            yield replaced(text, own.node, entry)

    def removed(self, text: str) -> str:
        while (servers := _container(text, self.section, dict)) is not None and (own := _own_server(servers)):
            text = without_item(text, servers, own)
            text = _without_empty(text, self.section)
        return text


@dataclass(frozen=True, slots=True)
class JsonDefault:
    """A value that the file needs besides, unless it has one."""

    key: str
    value: Any

    def steps(self, text: str) -> Iterator[str]:
        if _container(text, (self.key,), object) is None:
            yield with_member(text, (self.key,), self.value)

    def removed(self, text: str) -> str:
        return text


@dataclass(frozen=True, slots=True)
class JsonHooks:
    """Our entries in the lists of hooks, one for each event."""

    entries: Mapping[str, Mapping[str, Any]]

    def steps(self, text: str) -> Iterator[str]:
        """Add them, bring them up to date, and remove those of events that are no longer used."""
        for event, entry in self.entries.items():
            _container(text, ("hooks",), dict)
            own = _own_hooks(_container(text, ("hooks", event), list))
            if not own:
                text = with_element(text, ("hooks", event), dict(entry))
                yield text
                continue
            for _, _, extra in reversed(own[1:]):
                text = _without_hook(text, event, extra)
                yield text
            changed = _updated_hook(text, _own_hooks(_container(text, ("hooks", event), list))[0], entry)
            if changed != text:
                text = changed
                yield text
        for event in _events(text):
            if event not in self.entries:
                for _, _, extra in reversed(_own_hooks(_container(text, ("hooks", event), list))):
                    text = _without_empty(_without_hook(text, event, extra), ("hooks", event))
                    yield text

    def removed(self, text: str) -> str:
        """Remove them from every list, and lists that are empty then."""
        for event in _events(text):
            for _, _, own in reversed(_own_hooks(_container(text, ("hooks", event), list))):
                text = _without_empty(_without_hook(text, event, own), ("hooks", event))
        return text


def server_in(text: str, section: Sequence[str], *, is_toml: bool) -> Mapping[str, Any] | None:
    """The entry for this server in a client's file. Raises: ValueError, TypeError."""
    if is_toml:
        return TomlServer(section[0], {}).found(text)
    own = _own_server(_container(text, section, dict))
    return own.node.value if own is not None and isinstance(own.node.value, dict) else None


def hooks_in(text: str) -> list[tuple[str, Mapping[str, Any]]]:
    """Our entries for hooks in a client's file, with their events. Raises: ValueError, TypeError."""
    return [
        (event, (hook or item).node.value)
        for event in _events(text)
        for item, hook, _ in _own_hooks(_container(text, ("hooks", event), list))
    ]


def _container(text: str, path: Sequence[str], kind: type) -> Node | None:
    """The value at a path. Raises: TypeError (it is of another kind, or something on the way no object)."""
    if not text.strip("\ufeff \t\r\n"):
        return None
    root = parse(text)
    for depth in range(len(path)):
        node = find(root, path[:depth])
        if node is not None and not isinstance(node.value, dict):
            raise TypeError(f"{'.'.join(path[:depth]) or 'the whole'} is not an object")
    node = find(root, path)
    if node is not None and not isinstance(node.value, kind):
        raise TypeError(f"{'.'.join(path)} is not {'an array' if kind is list else 'an object'}")
    return node


def _own_server(servers: Node | None) -> Item | None:
    items = servers.items if servers is not None else ()
    return next((each for each in items if each.key == NAME), None) or next(
        (each for each in items if runs_server(each.node.value)), None
    )


_OwnHook = tuple[Item, Item | None, tuple[int, int | None]]
"""An element of a list, our hook in it if it is one of a group, and the positions of both."""


def _own_hooks(array: Node | None) -> list[_OwnHook]:
    own: list[_OwnHook] = []
    for place, item in enumerate(array.items if array is not None else ()):
        group = item.node.item("hooks") if isinstance(item.node.value, dict) else None
        if runs_hook(item.node.value):
            own.append((item, None, (place, None)))
        for inner, hook in enumerate(group.node.items if group is not None else ()):
            if runs_hook(hook.node.value):
                own.append((item, hook, (place, inner)))
    return own


def _events(text: str) -> list[str]:
    hooks = _container(text, ("hooks",), dict)
    return [item.key for item in hooks.items if item.key is not None] if hooks is not None else []


def _updated_hook(text: str, own: _OwnHook, entry: Mapping[str, Any]) -> str:
    """The text with our hook as it should be; what others have in the same group stays, and so do added fields."""
    item, hook, _ = own
    if hook is None:
        new = {**item.node.value, **entry}
        return text if new == item.node.value else replaced(text, item.node, new)
    inner = {**hook.node.value, **entry["hooks"][0]}
    group = item.node.value
    if len(group["hooks"]) > 1:
        return text if inner == hook.node.value else replaced(text, hook.node, inner)
    new = {**group, **entry, "hooks": [inner]}
    return text if new == group else replaced(text, item.node, new)


def _without_hook(text: str, event: str, place: tuple[int, int | None]) -> str:
    array = find(parse(text), ("hooks", event))
    assert array is not None  # noqa: S101  (it was just found)
    item = array.items[place[0]]
    group = item.node.item("hooks") if isinstance(item.node.value, dict) else None
    if place[1] is None or group is None or len(group.node.items) == 1:
        return without_item(text, array, item)
    return without_item(text, group.node, group.node.items[place[1]])


def _without_empty(text: str, path: Sequence[str]) -> str:
    """The text without the objects and arrays on the way to a path that hold nothing."""
    for depth in range(len(path), 0, -1):
        root = parse(text)
        container, node = find(root, path[: depth - 1]), find(root, path[:depth])
        if container is None or node is None or node.items:
            break
        item = container.item(path[depth - 1])
        text = without_item(text, container, item) if item is not None else text
    return text


@dataclass(frozen=True, slots=True)
class TomlServer:
    """The table for this server in a TOML file, at its end."""

    section: str
    entry: Mapping[str, Any]

    def steps(self, text: str) -> Iterator[str]:
        content = tomllib.loads(_normal(text))
        servers = self._servers(content)
        name = self._own(servers) or NAME
        entry = updated(servers.get(name), self.entry)
        if servers.get(name) == entry:
            return
        newline = "\r\n" if "\r\n" in text else "\n"
        kept, at = self._without(text, name)
        table = _toml(f"{self.section}.{_key(name)}", entry).replace("\n", newline)
        if at is None:
            kept += newline if kept and not kept.endswith("\n") else ""
            after = kept + (newline if kept.strip() else "") + table
        else:
            after = kept[:at] + table + (newline if kept[at:].strip() else "") + kept[at:]
        try:
            is_right = tomllib.loads(_normal(after)) == {**content, self.section: {**servers, name: entry}}
        except tomllib.TOMLDecodeError:
            is_right = False
        if not is_right:
            raise TypeError(f"its table {self.section!r} is written in another way")
        yield after

    def removed(self, text: str) -> str:
        while (name := self._own(self._servers(tomllib.loads(_normal(text))))) is not None:
            shorter, _ = self._without(text, name)
            if shorter == text:
                raise TypeError(f"its table {self.section!r} is written in another way")
            text = shorter
        return text

    def found(self, text: str) -> Mapping[str, Any] | None:
        """The table as it is. Raises: ValueError, TypeError."""
        servers = self._servers(tomllib.loads(_normal(text)))
        entry = servers.get(self._own(servers) or NAME)
        return entry if isinstance(entry, dict) else None

    def _servers(self, content: Mapping[str, Any]) -> Mapping[str, Any]:
        servers = content.get(self.section, {})
        if not isinstance(servers, dict):
            raise TypeError(f"it has no table {self.section!r} of servers")
        return servers

    @staticmethod
    def _own(servers: Mapping[str, Any]) -> str | None:
        if NAME in servers:
            return NAME
        return next((name for name, entry in servers.items() if runs_server(entry)), None)

    def _without(self, text: str, name: str) -> tuple[str, int | None]:
        """The text without the tables of a server, and where the first one stood."""
        kept: list[str] = []
        first: int | None = None
        inside = False
        for line in text.splitlines(keepends=True):
            if line.lstrip().startswith("["):
                title = line.strip().strip("[]").split("]")[0].strip().replace('"', "")
                inside = title == f"{self.section}.{name}" or title.startswith(f"{self.section}.{name}.")
            if not inside:
                kept.append(line)
            elif first is None:
                first = sum(map(len, kept))
        return "".join(kept), first


def _normal(text: str) -> str:
    return text.removeprefix("\ufeff").replace("\r\n", "\n")


def _toml(table: str, entry: Mapping[str, Any]) -> str:
    # A JSON string, number or truth value, or a list of them, is the same in TOML.
    below = {key: value for key, value in entry.items() if isinstance(value, dict)}
    lines = [
        f"{_key(key)} = {json.dumps(value, ensure_ascii=False)}" for key, value in entry.items() if key not in below
    ]
    text = "\n".join([f"[{table}]", *lines]) + "\n"
    return text + "".join(f"\n{_toml(f'{table}.{_key(key)}', value)}" for key, value in below.items())


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class MarkedBlock:
    """Text between marks, at the end of a file that has other text."""

    text: str

    def steps(self, text: str) -> Iterator[str]:
        newline = "\r\n" if "\r\n" in text else "\n"
        block = f"{BEGIN}\n{self.text.strip()}\n{END}".replace("\n", newline)
        found = _BLOCK.search(text)
        if found is None:
            gap = "" if not text else newline if text.endswith("\n") else newline * 2
            yield text + gap + block + newline
        elif found.group().strip() != block:
            start = found.start() + len(found.group()) - len(found.group().lstrip())
            yield text[:start] + block + text[start + len(found.group().strip()) :]

    def removed(self, text: str) -> str:
        return _BLOCK.sub("", text)


@dataclass(frozen=True, slots=True)
class WholeFile:
    """A file that is wholly ours."""

    text: str

    def steps(self, text: str) -> Iterator[str]:
        """Write it. Raises: TypeError (there is a file of another program)."""
        if text.strip() and WRITTEN_BY not in text:
            raise TypeError("it was not written by `rag-context install`")
        if text != self.text:
            yield self.text

    def removed(self, text: str) -> str:
        return "" if WRITTEN_BY in text else text
