"""docs/versions.md is true: what it calls public exists, and the pages and examples show nothing else."""

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest

import rag_context

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "versions.md").read_text(encoding="utf-8")
PUBLIC = dict(re.findall(r"^\| `(rag_context[\w.]*)` \| (.*) \|$", PAGE, re.MULTILINE))
SHOWN = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.py"))]
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def public_names(module: str) -> set[str]:
    """The names of a module that the page calls public."""
    names = PUBLIC.get(module, "")
    return set(import_module(module).__all__) if names == "all" else set(re.findall(r"`(\w+)`", names))


def imported(text: str) -> set[tuple[str, str]]:
    """Every name that a program takes from the package, with the module that it takes it from."""
    return {
        (node.module, alias.name)
        for node in ast.walk(ast.parse(text, mode="exec"))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "rag_context"
        for alias in node.names
    }


def programs(path: Path) -> list[str]:
    """The programs in a page, or the one that a file is; `await` at the top is what pages show."""
    text = path.read_text(encoding="utf-8")
    blocks = PYTHON.findall(text) if path.suffix == ".md" else [text]
    return ["async def shown():\n" + re.sub("^", "    ", block, flags=re.MULTILINE) + "\n    ..." for block in blocks]


def test_the_page_names_the_package_and_its_client() -> None:
    assert {"rag_context", "rag_context.client", "rag_context.errors"} <= set(PUBLIC)


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_can_be_imported(module: str) -> None:
    names = public_names(module)
    assert names
    assert [name for name in names if not hasattr(import_module(module), name)] == []


def test_every_name_of_the_package_is_one_of_its_client_or_the_version() -> None:
    assert set(rag_context.__all__) <= public_names("rag_context.client") | {"__version__"}


@pytest.mark.parametrize("path", SHOWN, ids=lambda path: path.name)
def test_pages_and_examples_import_public_names_only(path: Path) -> None:
    taken = {each for program in programs(path) for each in imported(program)}
    assert [f"{module}.{name}" for module, name in sorted(taken) if name not in public_names(module)] == []


def test_the_pages_import_something() -> None:
    assert any(imported(program) for path in SHOWN for program in programs(path))
