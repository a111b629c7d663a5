"""Definitions in code by syntax tree (tree-sitter): where functions and classes begin, and what they are called.

Only nodes larger than a chunk are descended into, so the walk touches a small part of the tree. Comments,
decorators and attributes that stand directly before a definition belong to it. Without a grammar, blocks end at a
closing brace in the first column, units at blank lines and lines.
"""

import re
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import PurePosixPath
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tree_sitter import Language, Node, Parser, Point, Tree

from rag_context.ingest.chunking.text_blocks import Block, Boundary, Range, Ruler, Strength

_GRAMMARS = {
    "py": ("tree_sitter_python", "language"),
    "pyi": ("tree_sitter_python", "language"),
    "js": ("tree_sitter_javascript", "language"),
    "jsx": ("tree_sitter_javascript", "language"),
    "mjs": ("tree_sitter_javascript", "language"),
    "cjs": ("tree_sitter_javascript", "language"),
    "ts": ("tree_sitter_typescript", "language_typescript"),
    "mts": ("tree_sitter_typescript", "language_typescript"),
    "cts": ("tree_sitter_typescript", "language_typescript"),
    "tsx": ("tree_sitter_typescript", "language_tsx"),
    "cs": ("tree_sitter_c_sharp", "language"),
    "go": ("tree_sitter_go", "language"),
    "java": ("tree_sitter_java", "language"),
    "rs": ("tree_sitter_rust", "language"),
    "c": ("tree_sitter_c", "language"),
    **dict.fromkeys(("h", "cc", "cpp", "cxx", "hh", "hpp", "hxx"), ("tree_sitter_cpp", "language")),
}
"""By file extension: the module of the grammar, imported when first needed, and its function.

Headers are read as C++, which takes nearly all of C.
"""

_DEFINITIONS = frozenset(
    """function_definition class_definition
    function_declaration generator_function_declaration class_declaration abstract_class_declaration method_definition
    interface_declaration enum_declaration type_alias_declaration internal_module
    struct_declaration record_declaration record_struct_declaration delegate_declaration method_declaration
    constructor_declaration destructor_declaration property_declaration operator_declaration indexer_declaration
    event_declaration local_function_statement annotation_type_declaration compact_constructor_declaration
    type_spec type_alias
    function_item struct_item enum_item union_item trait_item impl_item mod_item macro_definition
    namespace_definition concept_definition type_definition preproc_function_def""".split()  # noqa: SIM905
)
"""Python; JavaScript and TypeScript; C# and Java; Go; Rust; C and C++."""

_BODIED = frozenset("struct_specifier union_specifier enum_specifier class_specifier".split())  # noqa: SIM905
"""Definitions in C and C++ only where a name and a body follow; elsewhere a type in use."""

_WRAPPERS = frozenset(
    """decorated_definition export_statement ambient_declaration expression_statement lexical_declaration
    variable_declaration type_declaration template_declaration""".split()  # noqa: SIM905
)
"""Nodes that stand around a definition and take its name, if they hold just one."""

_ASSIGNMENTS = frozenset(
    "variable_declarator field_definition public_field_definition assignment_expression".split()  # noqa: SIM905
)
"""Definitions only where a function or a class is assigned."""

_FUNCTION_VALUES = frozenset("arrow_function function_expression generator_function class".split())  # noqa: SIM905
_LEADING = frozenset(
    "comment line_comment block_comment decorator attribute_item inner_attribute_item attribute_list".split()  # noqa: SIM905
)

_WORD = re.compile(r"[^\W\d]\w*+|\d++")
_TYPE_ARGUMENTS = re.compile(r"<[^()]*>|\[[^()]*\]")
_LINE_END = re.compile(r"[^\n]*+\n(?:[ \t\r]*+\n)*+")

MAX_NAME_CHARS = 200
"""What is read of the text of a name."""

MAX_DEPTH = 64
"""Levels of a tree that are descended into; code nested deeper is cut at its lines."""

MAX_WRAPPERS = 8
"""Wrappers around one definition; real programs do not nest more."""

MAX_PARSE_S = 5.0
"""Computing time of one parse. Source of any size in use takes a fraction of it, garbage can take minutes."""

_PIECE_BYTES = 4096

_BRACE_END = re.compile(r"^\}[;,)]*+[ \t]*+\r?\n(?:[ \t\r]*+\n)*+", re.MULTILINE)
_BLANK_LINES = re.compile(r"\n(?:[ \t\r]*+\n)*+")
_CLOSERS = re.compile(r"[ \t]*+(?:[\])};,>]|end\b|fi\b|done\b|else\b|elif\b|except\b|finally\b|catch\b)")
"""A line that belongs to the lines above it."""


def definitions(ruler: Ruler, source: str, max_tokens: int) -> list[Block] | None:
    """The definitions of a source text and what lies between them, without gaps.

    None without a grammar for `source`, and for a text that the grammar cannot be followed through in `MAX_PARSE_S`.
    A definition of more than `max_tokens` is given as its head, its inner definitions and its rest.
    """
    extension = PurePosixPath(source).suffix[1:].lower()
    if extension not in _GRAMMARS:
        return None
    # A lone surrogate becomes `?`, which is one character too: offsets stay right.
    encoded = ruler.text.encode("utf-8", "replace")
    tree = _parsed(Parser(_language(extension)), encoded)
    if tree is None:
        return None
    walk = _Walk(ruler, encoded, max_tokens)
    walk.enter(tree.root_node, (), 0)
    return _blocks(ruler.text, walk.marks)


def _parsed(parser: Parser, encoded: bytes) -> Tree | None:
    """The syntax tree; None if parsing takes too long.

    Recovery from errors is superlinear, and a parse of plain bytes holds the interpreter's lock to its end: half a
    megabyte of `${` as Python stopped every thread for five seconds. Between callbacks the others run.
    """
    # Time of this thread, not of the clock: a busy machine must not change how a file is cut.
    end_s = time.thread_time() + MAX_PARSE_S

    def piece(offset: int, _point: Point) -> bytes:
        return encoded[offset : offset + _PIECE_BYTES]

    def is_over(_offset: int, _has_error: bool) -> bool:
        return time.thread_time() > end_s

    try:
        return parser.parse(piece, progress_callback=is_over)
    except ValueError:  # how the library reports a cancelled parse
        return None


class _Mark(NamedTuple):
    """From `offset` on, `path` holds."""

    offset: int
    path: tuple[str, ...]
    closing: bool


class _Walk:
    """Walks down a tree in the order of the text and leaves a mark where a definition begins and where it ends."""

    def __init__(self, ruler: Ruler, encoded: bytes, max_tokens: int) -> None:
        self.marks = [_Mark(0, (), closing=False)]
        self._ruler = ruler
        self._text = ruler.text
        self._max_tokens = max_tokens
        self._characters: NDArray[np.int64] | None = None
        # Pure ASCII needs no table, which takes eight bytes for each byte of the source.
        if len(encoded) > len(ruler.text):
            leading = (np.frombuffer(encoded, np.uint8) & 0xC0) != 0x80
            self._characters = np.concatenate([[0], np.cumsum(leading)])

    def enter(self, node: Node, path: tuple[str, ...], depth: int) -> None:
        lead: Range | None = None
        previous_end = self.marks[-1].offset
        for child in node.children:
            start, end = self._offset(child.start_byte), self._offset(child.end_byte)
            if child.type in _LEADING:
                own_line = start == 0 or self._text.find("\n", max(previous_end - 1, 0), start) >= 0
                lead = self._with_lead(lead, start, end) if own_line else None
            else:
                self._visit(child, self._with_lead(lead, start, end), path, depth)
                lead = None
            previous_end = end

    def _visit(self, node: Node, extent: Range, path: tuple[str, ...], depth: int) -> None:
        large = depth < MAX_DEPTH and self._ruler.count(*extent) > self._max_tokens
        definition = _definition(node)
        if definition is not None:
            inner = path + _names(definition)
            self.marks.append(_Mark(self._line_start(extent[0]), inner, closing=False))
            if large:
                self.enter(definition, inner, depth + 1)
            self.marks.append(_Mark(extent[1], path, closing=True))
        elif large:
            self.enter(node, path, depth + 1)

    def _with_lead(self, lead: Range | None, start: int, end: int) -> Range:
        """A node together with the run of comments before it; a blank line between them parts them."""
        if lead is None or self._text.count("\n", lead[1] - 1, start) > 1:
            return start, end
        return lead[0], end

    def _line_start(self, offset: int) -> int:
        """The start of the line if only white space stands before `offset` on it, else `offset`."""
        line = self._text.rfind("\n", self.marks[-1].offset, offset) + 1
        return line if not self._text[line:offset].strip() else offset

    def _offset(self, byte: int) -> int:
        return byte if self._characters is None else int(self._characters[byte])


def _blocks(text: str, marks: Sequence[_Mark]) -> list[Block]:
    """The stretches between marks; one without a word (a closing brace) goes to the stretch before it."""
    following = [*(mark.offset for mark in marks[1:]), len(text)]
    starts = [_from(text, mark, end) for mark, end in zip(marks, following, strict=True)]
    blocks: list[Block] = []
    begun = 0
    for mark, end in zip(marks, [*starts[1:], len(text)], strict=True):
        if _WORD.search(text, begun, end):
            blocks.append(Block(begun, end, mark.path))
            begun = end
        elif blocks:
            blocks[-1] = replace(blocks[-1], end=end)
            begun = end
    return blocks or [Block(0, len(text))]


def _from(text: str, mark: _Mark, following: int) -> int:
    """Where a mark's path begins to hold: behind the lines a definition ends with, if nothing else begins on them."""
    line_end = _LINE_END.match(text, mark.offset, following) if mark.closing else None
    return line_end.end() if line_end else mark.offset


def _definition(node: Node, depth: int = 0) -> Node | None:
    """The definition that `node` is, or is wrapped around."""
    if node.type in _DEFINITIONS:
        return node
    if node.type in _BODIED:
        return node if node.child_by_field_name("body") and node.child_by_field_name("name") else None
    if node.type in _ASSIGNMENTS:
        value = node.child_by_field_name("value") or node.child_by_field_name("right")
        return node if value is not None and value.type in _FUNCTION_VALUES else None
    if node.type in _WRAPPERS and depth < MAX_WRAPPERS:
        wrapped = [found for child in node.named_children if (found := _definition(child, depth + 1)) is not None]
        return wrapped[0] if len(wrapped) == 1 else None
    return None


def _names(definition: Node) -> tuple[str, ...]:
    """What a definition adds to the path: its name, after that of its receiver (Go) or of what it is in (C++)."""
    declarator = definition.child_by_field_name("declarator")
    if declarator is not None and definition.type in ("function_definition", "type_definition"):
        return _declared(declarator)
    fields = ("type",) if definition.type == "impl_item" else ("receiver", "name", "property", "left")
    nodes = [node for field in fields if (node := definition.child_by_field_name(field)) is not None]
    return tuple(words[-1] for node in nodes if (words := _words(node)))  # of a receiver the type, and not its name


def _declared(declarator: Node) -> tuple[str, ...]:
    """The name inside a declarator of C or C++: `**f(int)`, `(*f)(int)`, `A<T>::f(int) const`."""
    inner: Node | None = declarator
    while inner is not None:
        declarator = inner
        wrapped = declarator.named_children[0] if declarator.named_children else None
        is_wrapper = declarator.type in ("reference_declarator", "parenthesized_declarator")
        inner = declarator.child_by_field_name("declarator") or (wrapped if is_wrapper else None)
    return tuple(_words(declarator))


def _words(node: Node) -> list[str]:
    """The parts of the name in a node, without type arguments and pointers."""
    text = (node.text or b"").decode("utf-8", "replace")
    return _WORD.findall(_TYPE_ARGUMENTS.sub("", text[:MAX_NAME_CHARS]))


@cache
def _language(extension: str) -> Language:
    module, function = _GRAMMARS[extension]
    return Language(getattr(import_module(module), function)())


def braced_blocks(text: str) -> list[Block]:
    """Blocks of `text` that end at a separator (a closing brace alone on its line, at the margin)."""
    starts = [0, *(match.end() for match in _BRACE_END.finditer(text) if match.end() < len(text)), len(text)]
    return [Block(start, end) for start, end in pairwise(starts)]


def line_boundaries(text: str) -> list[Boundary]:
    """Where code may be split: at blank lines first, then at lines, and last before a closing line."""
    found = []
    for match in _BLANK_LINES.finditer(text, 0, len(text.rstrip())):
        if _CLOSERS.match(text, match.end()):
            strength = Strength.WRAP
        else:
            strength = Strength.PARAGRAPH if match.end() - match.start() > 1 else Strength.LINE
        found.append(Boundary(match.end(), strength))
    return found
