"""Definitions in source code by syntax tree (tree-sitter): where they begin and end, and what they are called.

A grammar that loses its way needs memory and time that grow with the square of the text: 32 kB of `a<b,` as TypeScript
take 1.3 GB. `run` therefore reads sources in a process of its own (`code.SyntaxProcesses` starts it), which imports the
standard library and the grammars only.
"""

import json
import re
import sys
import time
from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from os.path import commonprefix
from typing import NamedTuple

from tree_sitter import Language, Node, Parser, Point, Tree

from rag_context.resilience.confinement import CutOffError, ProcessLimits, confine, receive, renew, send

Range = tuple[int, int]

_GRAMMARS = {
    **dict.fromkeys(("py", "pyi"), ("tree_sitter_python", "language")),
    **dict.fromkeys(("js", "jsx", "mjs", "cjs"), ("tree_sitter_javascript", "language")),
    **dict.fromkeys(("ts", "mts", "cts"), ("tree_sitter_typescript", "language_typescript")),
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

MAX_NAME_CHARS = 200
"""What is read of the text of a name."""

MAX_DEPTH = 64
"""Levels of a tree that are descended into; code nested deeper is cut at its lines."""

MAX_WRAPPERS = 8
"""Wrappers around one definition; real programs do not nest more."""

MAX_PARSE_S = 5.0
"""Computing time of one parse. Source of any size in use takes a fraction of it, garbage can take minutes."""

_PIECE_BYTES = 4096

_STRIDE = 256
"""Bytes between two offsets of which the character is known."""

_CONTINUATION = bytes(range(0x80, 0xC0))
"""Bytes of UTF-8 that begin no character."""


class Mark(NamedTuple):
    """From `offset` (in characters) on, `path` holds; `closing` where a definition ends there."""

    offset: int
    path: tuple[str, ...]
    closing: bool


Outline = Callable[[str, str, Sequence[int], int], list[Mark] | None]
"""As `marks`, here or in a process of its own."""


def has_grammar(extension: str) -> bool:
    """Whether sources with this file extension (lower case, without the dot) can be parsed."""
    return extension in _GRAMMARS


def marks(
    text: str, extension: str, token_starts: Sequence[int], max_tokens: int, *, max_parse_s: float = MAX_PARSE_S
) -> list[Mark] | None:
    """Where definitions begin and end, in order; None if the grammar cannot be followed in the time.

    `extension` names the grammar, one of those that `has_grammar`; `token_starts` is where the embedder's tokens begin,
    ascending, in characters. A definition of more than `max_tokens` is followed by those inside it; its grammar may
    take `max_parse_s` of the processor's time.
    """
    # A lone surrogate becomes `?`, which is one character too: offsets stay right.
    encoded = text.encode("utf-8", "replace")
    tree = _parsed(Parser(_language(extension)), encoded, max_parse_s)
    if tree is None:
        return None
    walk = _Walk(text, encoded, token_starts, max_tokens)
    walk.enter(tree.root_node, (), 0)
    return walk.marks


def packed(found: Sequence[Mark]) -> bytes:
    """Marks as JSON, of each path only what differs from the one before: names on a path can repeat in every mark."""
    rows: list[tuple[int, bool, int, tuple[str, ...]]] = []
    previous: tuple[str, ...] = ()
    for mark in found:
        shared = len(commonprefix((previous, mark.path)))  # noqa: RUF071  # of tuples, not of texts
        rows.append((mark.offset, mark.closing, shared, mark.path[shared:]))
        previous = mark.path
    return json.dumps(rows).encode()


def unpacked(data: bytes) -> list[Mark]:
    found: list[Mark] = []
    path: tuple[str, ...] = ()
    for offset, closing, shared, names in json.loads(data):
        path = (*path[:shared], *names)
        found.append(Mark(offset, path, closing))
    return found


def run(limits: ProcessLimits) -> None:
    """Answer requests on standard input until it ends: the worker process.

    A request is three frames: parameters (JSON), the text in UTF-8, and the starts of tokens as an array of integers.
    The answer is one frame, empty for a source that cannot be followed.
    """
    confine(limits)
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    while True:
        try:
            request, text, starts = json.loads(receive(requests)), receive(requests).decode(), array("I")
            starts.frombytes(receive(requests))
        except CutOffError:
            return
        renew(limits)
        found = marks(text, request["extension"], starts, request["maxTokens"])
        send(answers, packed(found) if found is not None else b"")


def _parsed(parser: Parser, encoded: bytes, max_parse_s: float) -> Tree | None:
    """The syntax tree; None if parsing takes too long.

    Recovery from errors is superlinear, and a parse of plain bytes holds the interpreter's lock to its end: half a
    megabyte of `${` as Python stopped every thread for five seconds. Between callbacks the others run.
    """
    # Time of this thread, not of the clock: a busy machine must not change how a file is cut.
    end_s = time.thread_time() + max_parse_s

    def piece(offset: int, _point: Point) -> bytes:
        return encoded[offset : offset + _PIECE_BYTES]

    def is_over(_offset: int, _has_error: bool) -> bool:
        return time.thread_time() > end_s

    try:
        return parser.parse(piece, progress_callback=is_over)
    except ValueError:  # how the library reports a cancelled parse
        return None


class _Walk:
    """Walks down a tree in the order of the text and leaves a mark where a definition begins and where it ends."""

    def __init__(self, text: str, encoded: bytes, token_starts: Sequence[int], max_tokens: int) -> None:
        self.marks = [Mark(0, (), closing=False)]
        self._text = text
        self._encoded = encoded
        self._starts = token_starts
        self._max_tokens = max_tokens
        # Pure ASCII needs no table.
        self._characters = _characters(encoded) if len(encoded) > len(text) else None

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
        tokens = bisect_left(self._starts, extent[1]) - bisect_left(self._starts, extent[0])
        large = depth < MAX_DEPTH and tokens > self._max_tokens
        definition = _definition(node)
        if definition is not None:
            inner = path + _names(definition)
            self.marks.append(Mark(self._line_start(extent[0]), inner, closing=False))
            if large:
                self.enter(definition, inner, depth + 1)
            self.marks.append(Mark(extent[1], path, closing=True))
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
        if self._characters is None:
            return byte
        start = byte - byte % _STRIDE
        return self._characters[start // _STRIDE] + len(self._encoded[start:byte].translate(None, _CONTINUATION))


def _characters(encoded: bytes) -> "array[int]":
    """How many characters begin before every `_STRIDE`-th byte."""
    counts, total = array("I"), 0
    for start in range(0, len(encoded) + 1, _STRIDE):
        counts.append(total)
        total += len(encoded[start : start + _STRIDE].translate(None, _CONTINUATION))
    return counts


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
