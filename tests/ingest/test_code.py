"""Definitions by syntax tree, and code without a grammar (C-1)."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_context.ingest.chunking.code import braced_blocks, definitions, line_boundaries
from rag_context.ingest.chunking.syntax import MAX_DEPTH, marks
from rag_context.ingest.chunking.text_blocks import Ruler, Strength
from tests.ingest.tokens import Words


def blocks(text: str, source: str, max_tokens: int = 5) -> list[tuple[str, str]]:
    """Path and text of every block."""
    found = definitions(Ruler(text, Words()), source, max_tokens, marks)
    assert found is not None
    assert "".join(text[block.start : block.end] for block in found) == text
    return [(".".join(block.path), text[block.start : block.end]) for block in found]


def paths(text: str, source: str, max_tokens: int = 5) -> list[str]:
    return [path for path, _ in blocks(text, source, max_tokens)]


PYTHON = '''\
"""Module."""
import os

# About one.
@decorator
def one():  # trailing
    pass  # one ends

# Apart.

class Two(Base):
    """Two words here."""

    # Comment of three.
    @property
    def three(self):
        return 1

    def four(self):
        return 2


if __name__ == "__main__":
    one()
'''


def test_python() -> None:
    assert blocks(PYTHON, "a.py", 8) == [
        ("", '"""Module."""\nimport os\n\n'),
        ("one", "# About one.\n@decorator\ndef one():  # trailing\n    pass  # one ends\n\n"),
        ("", "# Apart.\n\n"),
        ("Two", 'class Two(Base):\n    """Two words here."""\n\n'),
        ("Two.three", "    # Comment of three.\n    @property\n    def three(self):\n        return 1\n\n"),
        ("Two.four", "    def four(self):\n        return 2\n\n\n"),
        ("", 'if __name__ == "__main__":\n    one()\n'),
    ]


def test_a_definition_that_fits_is_not_looked_into() -> None:
    assert paths(PYTHON, "a.py", 100) == ["", "one", "", "Two", ""]


def test_definitions_inside_large_statements_and_functions_are_found() -> None:
    text = "if windows:\n    def one():\n        def two():\n            a; b; c; d; e; f\n        return two\n"
    assert paths(text, "a.py", 4) == ["", "one", "one.two", "one"]


def test_javascript() -> None:
    text = """\
// c
export const one = async (a) => { return a };
const two = 2;
module.exports = function () { return 1 }
exports.three = (a) => a
export class Four {
  five = () => 1;
  six() { return 6 }
}
function seven() { return 7 }
let [eight] = [() => 8];
"""
    assert paths(text, "a.js") == ["one", "", "exports", "three", "Four", "Four.five", "Four.six", "seven", ""]


@pytest.mark.parametrize("extension", ["ts", "tsx"])
def test_typescript(extension: str) -> None:
    text = """\
import { x } from "y";

interface One { a: number; b: string }
type Two = { a: 1 };
@Injectable()
export abstract class Three<T> {
  constructor(private readonly a: string) { super(a) }
  async four(): Promise<void> { await this.a }
}
namespace Five { export function six() { return 6 } }
"""
    expected = ["", "One", "Two", "Three", "Three.constructor", "Three.four", "Five", "Five.six"]
    assert paths(text, f"src/a.{extension}") == expected


def test_c_sharp() -> None:
    text = """\
using System;
namespace A.B
{
    /// <summary>Words about one.</summary>
    [Serializable]
    public class One : Base
    {
        /// <summary>Words.</summary>
        [Fact]
        public void Two() { Call(1); }
        public int Three { get; set; }
    }
    public record Four(int A);
}
"""
    assert paths(text, "A.cs", 7) == ["", "One", "One.Two", "One.Three", "Four"]
    two = next(part for path, part in blocks(text, "A.cs", 7) if path == "One.Two")
    assert two.startswith("        /// <summary>Words.</summary>\n        [Fact]\n")


def test_go_methods_stand_under_their_receiver() -> None:
    text = """\
package m

// Run runs.
func (s *Server[T]) Run() { s.x() }
func (Client) Stop() {}
type One struct { a int }
func Two() {}
"""
    assert paths(text, "a.go") == ["", "Server.Run", "Client.Stop", "One", "Two"]


def test_java() -> None:
    text = """\
package x;
/** Words. */
@Ann
public class One {
  int a;
  One() { a = 1; }
  @Override public void two() { a = 2; }
}
"""
    assert paths(text, "One.java", 6) == ["", "One", "One.One", "One.two"]


def test_rust() -> None:
    text = """\
use x;

/// Words.
#[derive(Debug)]
pub struct One { a: i32 }

impl<T> Trait for one::One<T> {
    /// Words.
    fn two(&self) -> i32 { 2 }
}
mod tests {
    #[test]
    fn three() { assert!(true) }
}
"""
    assert paths(text, "a.rs") == ["", "One", "One", "One.two", "tests", "tests.three"]
    assert blocks(text, "a.rs")[1][1].startswith("/// Words.\n#[derive")


def test_c() -> None:
    text = """\
#include <x.h>
#define ADD(a, b) \\
  ((a) + (b))

/* Words. */
struct one { struct other *a; };
typedef struct { int b; } two_t;
enum three { A, B };
static struct one **four(int a, char **b)
{
    return 0;
}
#ifdef X
int five(void) { return 5; }
#endif
"""
    assert paths(text, "a.c", 4) == ["", "ADD", "one", "two_t", "three", "four", "", "five", ""]
    assert blocks(text, "a.c", 4)[2][1].startswith("/* Words. */\n")


@pytest.mark.parametrize("extension", ["cpp", "cc", "hpp", "h"])
def test_cpp(extension: str) -> None:
    text = """\
namespace a::b {
class Declared;
template <typename T>
class One : public Base<T> {
 public:
  One(int a) : a_(a) {}
  /// Words.
  virtual int two() const override { return 1; }
  T operator+(const T& o) { return o; }
};
}  // namespace
int ns::One<int, x>::three(int a) noexcept { return 1; }
One &One::operator=(const One &o) { return *this; }
One::~One() { x(); }
"""
    assert paths(text, f"a.{extension}", 4) == [
        "b", "b.One", "b.One.One", "b.One.two", "b.One.operator", "b", "ns.One.three", "One.operator", "One.One",
    ]  # fmt: skip


def test_a_file_of_another_kind_has_no_definitions() -> None:
    assert definitions(Ruler("x", Words()), "a.rb", 5, marks) is None
    assert definitions(Ruler("x", Words()), "Makefile", 5, marks) is None


def test_definitions_on_one_line_are_distinguished() -> None:
    assert blocks("function a(){} function b(){}", "a.js", 1) == [("a", "function a(){} "), ("b", "function b(){}")]


def test_a_comment_behind_code_does_not_belong_to_what_follows() -> None:
    assert blocks("x = 1  # about x\ndef f(): pass\n", "a.py") == [("", "x = 1  # about x\n"), ("f", "def f(): pass\n")]


def test_offsets_are_characters() -> None:
    text = 'TEXT = "漢字 😀 é"\ndef f(): pass\n'
    assert blocks(text, "a.py")[1] == ("f", "def f(): pass\n")


def test_half_a_character_is_no_obstacle() -> None:
    assert paths('TEXT = "\ud800"\ndef f(): pass\n', "a.py") == ["", "f"]


def test_a_definition_without_a_name_keeps_the_path_above() -> None:
    text = "class A { static A operator +(A x, A y) { return new A(x, y); } int B() { return 1; } }"
    assert paths(text, "a.cs", 8) == ["A", "A", "A.B"]


def test_code_nested_without_end_is_not_followed_to_the_bottom() -> None:
    text = "class A { " * 400
    found = paths(text, "a.java", 5)
    assert max(path.count(".") for path in found) <= MAX_DEPTH


@given(
    st.text(alphabet=st.sampled_from("a (){}:;\n#'\"@é/=>"), max_size=150),
    st.sampled_from(["py", "ts", "cs", "rs", "go"]),
)
def test_broken_code_is_covered_without_gaps(text: str, extension: str) -> None:
    blocks(text, f"a.{extension}", 2)


def test_a_text_that_takes_the_grammar_too_long_is_left_to_its_lines() -> None:
    ruler = Ruler("def a(): pass\n" * 500, Words())
    assert definitions(ruler, "a.py", 64, marks) is not None
    assert definitions(ruler, "a.py", 64, partial(marks, max_parse_s=-1.0)) is None


def test_wrappers_without_end_are_no_definition() -> None:
    text = "template<class T> " * 3000 + "class A {};\n"
    assert definitions(Ruler(text, Words()), "a.cpp", 64, marks)


TEXT = "sub a {\n  x;\n}\n\nsub b {\n  if (y) {\n  }\n}\nz;\n"


def test_blocks_end_at_a_brace_at_the_margin() -> None:
    assert [TEXT[block.start : block.end] for block in braced_blocks(TEXT)] == [
        "sub a {\n  x;\n}\n\n",
        "sub b {\n  if (y) {\n  }\n}\n",
        "z;\n",
    ]


def test_a_text_without_braces_is_one_block() -> None:
    assert [(block.start, block.end) for block in braced_blocks("a\n\nb")] == [(0, 4)]


def test_blank_lines_part_code_before_lines_do() -> None:
    found = {unit.offset: unit.strength for unit in line_boundaries("a\n\nb\nc\n\n")}
    assert found == {3: Strength.PARAGRAPH, 5: Strength.LINE}


def test_a_closing_line_stays_with_what_it_closes() -> None:
    text = "f(\n  a\n)\nelse\nb"
    found = {text[unit.offset :].partition("\n")[0]: unit.strength for unit in line_boundaries(text)}
    assert found == {"  a": Strength.LINE, ")": Strength.WRAP, "else": Strength.WRAP, "b": Strength.LINE}


@given(st.text(alphabet=st.sampled_from("a}{;\n\r "), max_size=150))
def test_blocks_cover_any_text_without_gaps(text: str) -> None:
    assert "".join(text[block.start : block.end] for block in braced_blocks(text)) == text
    offsets = [unit.offset for unit in line_boundaries(text)]
    assert offsets == sorted(set(offsets))
