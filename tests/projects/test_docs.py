"""The page about projects says what is true."""

import ast
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard, get_args, get_origin

import pytest
from pydantic import BaseModel

from rag_context.projects.config import ConfigFile, read_config
from rag_context.projects.doc_types import doc_types_of
from rag_context.projects.front_matter import read_front_matter
from tests.projects.sync_harness import built_in, configure, write

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "projects.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def keys(model: type[BaseModel], lead: str = "") -> Iterator[str]:
    """The keys of a configuration, as the page names them."""
    for name, field in model.model_fields.items():
        parts = () if get_origin(field.annotation) is list else (field.annotation, *get_args(field.annotation))
        inner = [part for part in parts if is_model(part)]
        if field.alias is None:
            yield from keys(inner[0], f"{name}.") if inner else [lead + name]


def is_model(part: object) -> TypeGuard[type[BaseModel]]:
    return isinstance(part, type) and issubclass(part, BaseModel)


async def test_the_python_on_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    configure(tmp_path / "my-shop", project_name="my-shop")
    write(tmp_path / "my-shop/docs/a.md", "# Why checkouts time out\n\nThe [pool](pool.md) is empty.\n")
    write(tmp_path / "my-shop/docs/pool.md", "# Pool\n\nZebras.\n")
    names: dict[str, object] = {}
    for block in blocks("python"):
        running: object = eval(compile(block, "projects.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
        if inspect.isawaitable(running):
            await running
    output = capsys.readouterr().out
    assert output.startswith("## Retrieved Context (By Relevance)\n\n### Why checkouts time out\n- **Path**: a.md\n")
    assert output.endswith("\na.md 56\npool.md 16\n")


def test_every_configuration_on_the_page_can_be_used(tmp_path: Path) -> None:
    found = [block for block in blocks("json") if "project_name" in block]
    assert len(found) >= 3
    path = tmp_path / ".rag-context" / "config.json"
    (path.parent / "schemas").mkdir(parents=True)
    (path.parent / "schemas" / "runbook.json").write_text("{}")
    for block in found:
        path.write_text(block)
        doc_types_of(read_config(path), tmp_path)


def test_every_key_of_the_configuration_is_on_the_page_and_no_other() -> None:
    table = PAGE.split("## Configuration")[1].split("\n## ")[0]
    named = re.findall(r"^\| `([a-z_.]+)` \|", table, re.MULTILINE)
    assert named == list(keys(ConfigFile))


def test_the_front_matter_on_the_page_is_complete() -> None:
    found = [block for block in blocks("markdown") if block.startswith("---")]
    for block in found:
        front = read_front_matter(block)
        assert front.warnings == ()
        assert built_in().complaints("problem", front.values) == []
    assert found


def test_the_built_in_doc_types_are_on_the_page() -> None:
    for info in built_in().infos:
        assert f"| `{info.name}` | `{info.folder}/` |" in PAGE


def test_the_sample_projects_schema_is_one() -> None:
    schema = json.loads(
        (ROOT / "examples" / "sample-project" / ".rag-context" / "schemas" / "runbook.json").read_text()
    )
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
