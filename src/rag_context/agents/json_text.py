"""JSON as people keep it, with comments and trailing commas: its values with their places, and edits of single ones.

An edit changes the bytes of what it adds, replaces or removes, and a comma beside that; all others stay as they are.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from json.decoder import scanstring  # type: ignore[attr-defined]  # its only reader of a string at a place
from typing import Any, Final, TypeAlias

Path: TypeAlias = Sequence[str]
"""The keys that lead from the outermost object to a value."""

_MAX_DEPTH: Final = 100
_SPACE = re.compile(r"(?:[ \t\r\n\ufeff]+|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
_SCALAR = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")
_REST_OF_LINE = re.compile(r"[ \t]*(?://[^\r\n]*|(?:/\*[^\r\n]*?\*/[ \t]*)+(?=[\r\n]|$))?")


@dataclass(frozen=True, slots=True)
class Node:
    """A value in a text: the characters that it takes, what it is in Python, and what it holds in its order."""

    start: int
    end: int
    value: Any
    items: tuple["Item", ...] = ()

    def item(self, key: str) -> "Item | None":
        """The member of an object with this key; the last of several, as programs read them."""
        return next((item for item in reversed(self.items) if item.key == key), None)


@dataclass(frozen=True, slots=True)
class Item:
    """What an object or an array holds; `start` is that of the key, which elements of an array have not."""

    key: str | None
    start: int
    node: Node


def parse(text: str) -> Node:
    """The outermost value of a text. Raises: JSONDecodeError (with the line and the column)."""
    reader = _Reader(text)
    node = reader.value(0)
    if reader.skip() != len(text):
        raise json.JSONDecodeError("There is something behind the end", text, reader.at)
    return node


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self.at = 0

    def skip(self) -> int:
        """Go on to what is neither space nor a comment."""
        space = _SPACE.match(self._text, self.at)
        self.at = space.end() if space else self.at
        return self.at

    def value(self, depth: int) -> Node:
        start = self.skip()
        sign = self._text[start : start + 1]
        if sign in ("{", "["):
            if depth == _MAX_DEPTH:
                raise json.JSONDecodeError("This is nested too deeply", self._text, start)
            return self._container(start, "}" if sign == "{" else "]", depth + 1)
        if sign == '"':
            text, self.at = scanstring(self._text, start + 1, True)
            return Node(start, self.at, text)
        scalar = _SCALAR.match(self._text, start)
        if scalar is None:
            raise json.JSONDecodeError("Expecting value", self._text, start)
        self.at = scalar.end()
        return Node(start, self.at, json.loads(scalar.group()))

    def _container(self, start: int, end: str, depth: int) -> Node:
        items: list[Item] = []
        self.at = start + 1
        while self._text[self.skip() : self.at + 1] != end:
            items.append(self._item(depth) if end == "}" else Item(None, self.at, self.value(depth)))
            if self._text[self.skip() : self.at + 1] == ",":
                self.at += 1
            elif self._text[self.at : self.at + 1] != end:
                raise json.JSONDecodeError(f"Expecting ',' or '{end}'", self._text, self.at)
        self.at += 1
        is_object = end == "}"
        value = {item.key: item.node.value for item in items} if is_object else [item.node.value for item in items]
        return Node(start, self.at, value, tuple(items))

    def _item(self, depth: int) -> Item:
        start = self.at
        if self._text[start] != '"':
            raise json.JSONDecodeError("Expecting a name in double quotes", self._text, start)
        key, self.at = scanstring(self._text, start + 1, True)
        if self._text[self.skip() : self.at + 1] != ":":
            raise json.JSONDecodeError("Expecting ':'", self._text, self.at)
        self.at += 1
        return Item(key, start, self.value(depth))


def find(root: Node, path: Path) -> Node | None:
    node: Node | None = root
    for key in path:
        item = node.item(key) if node is not None and isinstance(node.value, dict) else None
        node = item.node if item is not None else None
    return node


def with_member(text: str, path: Path, value: Any) -> str:
    """The text with a value at a path, where there is none yet; objects on the way are made. Raises: TypeError."""
    if not text.lstrip("\ufeff \t\r\n"):
        space = text.strip(" \t\r\n")
        return space + _dumped(_nested(path, value), _newline(text), "", "  ") + _newline(text)
    root = parse(text)
    depth = next(depth for depth in range(len(path) - 1, -1, -1) if find(root, path[:depth]) is not None)
    container = find(root, path[:depth])
    if container is None or not isinstance(container.value, dict):
        raise TypeError(f"{'.'.join(path[:depth]) or 'the whole'} is not an object")
    return _with_item(text, root, container, path[depth], _nested(path[depth + 1 :], value))


def with_element(text: str, path: Path, value: Any) -> str:
    """The text with one more element of the array at a path; it is made if there is none. Raises: TypeError."""
    root = parse(text) if text.lstrip("\ufeff \t\r\n") else None
    array = find(root, path) if root else None
    if root is None or array is None:
        return with_member(text, path, [value])
    if not isinstance(array.value, list):
        raise TypeError(f"{'.'.join(path)} is not an array")
    return _with_item(text, root, array, None, value)


def replaced(text: str, node: Node, value: Any) -> str:
    """The text with another value in the place of one."""
    line = text[text.rfind("\n", 0, node.start) + 1 : node.start]
    own = line[: len(line) - len(line.lstrip(" \t"))]
    is_flat = "\n" not in text[node.start : node.end]
    new = json.dumps(value, ensure_ascii=False) if is_flat else _dumped(value, _newline(text), own, _unit(text))
    return text[: node.start] + new + text[node.end :]


def without_item(text: str, container: Node, item: Item) -> str:
    """The text without a member or an element, its line and one comma."""
    before = text[: item.start].rstrip(" \t")
    start = len(before.removesuffix("\n").removesuffix("\r")) if before.endswith("\n") else len(before)
    following = _comma(text, item.node.end)
    if following is not None:
        if not before.endswith("\n"):
            # Within a line the space before what comes next goes, and that before this stays.
            gap = re.compile(r"[ \t]*").match(text, following + 1)
            return text[: item.start] + text[gap.end() if gap else following + 1 :]
        return text[:start] + text[following + 1 :]
    text = text[:start] + text[item.node.end :]
    index = container.items.index(item)
    comma = _comma(text, container.items[index - 1].node.end) if index else None
    return text if comma is None else text[:comma] + text[comma + 1 :]


def _comma(text: str, at: int) -> int | None:
    """The place of the comma behind a value, with nothing but space and comments between."""
    space = _SPACE.match(text, at)
    place = space.end() if space else at
    return place if text[place : place + 1] == "," else None


def _nested(path: Path, value: Any) -> Any:
    for key in reversed(path):
        value = {key: value}
    return value


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _unit(text: str) -> str:
    """By how much the file indents."""
    first = re.compile(r"[\s\ufeff]*[{\[](?:[^\S\n]|//.*)*\n([ \t]+)\S").match(text)
    return first.group(1) if first else "  "


def _dumped(value: Any, newline: str, indent: str, unit: str) -> str:
    return json.dumps(value, indent=unit, ensure_ascii=False).replace("\n", newline + indent)


def _with_item(text: str, root: Node, container: Node, key: str | None, value: Any) -> str:
    newline, unit = _newline(text), _unit(text)
    name = "" if key is None else json.dumps(key, ensure_ascii=False) + ": "
    opening = text[text.rfind("\n", 0, container.start) + 1 : container.start]
    outer = opening[: len(opening) - len(opening.lstrip(" \t"))]
    if not container.items:
        rest = text[container.start + 1 : container.end - 1]
        inner = outer + unit
        # What stands between the brackets, a comment perhaps, stays there.
        end = "" if "\n" in rest else newline + outer
        at = container.start + 1 + (len(rest.rstrip()) if "\n" in rest else len(rest))
        return text[:at] + newline + inner + name + _dumped(value, newline, inner, unit) + end + text[at:]
    first, last = container.items[0], container.items[-1]
    comma = _comma(text, last.node.end)
    at = last.node.end if comma is None else comma + 1
    head = text[text.rfind("\n", 0, first.start) + 1 : first.start]
    if head.strip(" \t"):  # the first item follows something in its line
        added = f" {name}{json.dumps(value, ensure_ascii=False)}"
        return text[:at] + ("," if comma is None else "") + added + ("" if comma is None else ",") + text[at:]
    added = newline + head + name + _dumped(value, newline, head, unit) + ("" if comma is None else ",")
    remark = _REST_OF_LINE.match(text, at)
    below = remark.end() if remark else at
    return text[:at] + ("," if comma is None else "") + text[at:below] + added + text[below:]
