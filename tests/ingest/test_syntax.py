"""Sources are parsed in bounded processes, with the result that parsing them here would have."""

import logging

import pytest

from rag_context.ingest.chunking.code import IN_PROCESS_CHARS, SyntaxProcesses
from rag_context.ingest.chunking.syntax import Mark, marks, packed, unpacked
from rag_context.resilience.confinement import ProcessLimits

SOURCE = "".join(f"class Größe{n}:\n    def f{n}(self):\n        return 'é🙂'\n\n" for n in range(200))
STARTS = range(0, len(SOURCE), 2)


def test_a_source_is_outlined_in_a_process_of_its_own_as_here() -> None:
    assert len(SOURCE) > IN_PROCESS_CHARS
    here = marks(SOURCE, "py", STARTS, 20)
    with SyntaxProcesses() as processes:
        assert processes.outline(SOURCE, "py", STARTS, 20) == here
    assert here is not None
    assert here[3].path == ("Größe1",)
    assert SOURCE[here[3].offset :].startswith("class Größe1")


def test_marks_are_the_same_after_they_were_sent() -> None:
    found = [Mark(0, (), closing=False), Mark(3, ("a", "b"), closing=False), Mark(9, ("a",), closing=True)]
    assert unpacked(packed(found)) == found


@pytest.mark.parametrize(("extension", "unit"), [("ts", "a<b,"), ("py", "\\\n"), ("cs", '$"{')])
def test_a_source_that_needs_too_much_memory_is_left_to_its_lines(
    extension: str, unit: str, caplog: pytest.LogCaptureFixture
) -> None:
    text = unit * (400_000 // len(unit))
    with SyntaxProcesses(ProcessLimits(cpu_s=10, wall_s=60.0, memory_bytes=64 << 20)) as processes:
        with caplog.at_level(logging.WARNING):
            assert processes.outline(text, extension, range(0, len(text), 2), 20) is None
        assert "is cut at its lines" in caplog.text
        assert processes.outline(SOURCE, "py", STARTS, 20) is not None


def test_no_short_source_needs_much_memory() -> None:
    """What is parsed in this process: the worst units that are known, at the greatest length."""
    short = IN_PROCESS_CHARS // 4
    with SyntaxProcesses(ProcessLimits(cpu_s=10, wall_s=60.0, memory_bytes=96 << 20)) as processes:
        for extension, unit in (("ts", "a<b,"), ("tsx", "A<A<"), ("py", "\\\n\\\n")):
            # One character more than is parsed here, so that the limit of the process holds for it.
            text = unit * short + " "
            assert processes.outline(text, extension, range(0, len(text), 2), 20) is not None, extension
