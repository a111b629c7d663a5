"""The pages on deployment and scaling name files, settings, ports and commands that exist."""

import re
from typing import Any

import typer

from rag_context import __version__
from rag_context.cli.command_line import app
from tests.deploy.files import ROOT, SETTINGS, instructions, resource

PAGES = [ROOT / "docs" / name for name in ("deployment.md", "scaling.md")]
ALL = "\n".join(path.read_text(encoding="utf-8") for path in PAGES)


def test_every_file_they_name_is_there() -> None:
    named = set(
        re.findall(r"\b((?:deploy|docs)/[\w./-]+\w|compose(?:\.full|\.postgres)?\.yaml|requirements\.lock)\b", ALL)
    )

    assert {"deploy/deploy.sh", "deploy/rollback.sh", "compose.full.yaml"} <= named
    assert {path for path in named if not (ROOT / path).exists()} == set()


def test_every_link_leads_somewhere() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for target, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", text):
            aim = (page.parent / target) if target else page
            assert aim.exists(), target
            headings = re.findall(r"(?m)^#+ (.*)$", aim.read_text(encoding="utf-8"))
            anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert not anchor or anchor in anchors, anchor


def test_every_setting_they_name_exists() -> None:
    named = set(re.findall(r"\b(?:RAG_CONTEXT_\w+|[A-Z]+_(?:URI|URL)|MCP_SERVER_PORT)\b", ALL))

    assert named - SETTINGS == {"RAG_CONTEXT_PORT"}, "which is the one that is said to be none"


def test_the_ports_are_those_of_the_service() -> None:
    for port in resource("Service", "qdrant")["spec"]["ports"]:
        assert str(port["nodePort"]) in ALL


def test_image_and_user_are_the_current_ones() -> None:
    user = instructions("USER")[-1].partition(":")[0]

    assert set(re.findall(r"rag-context:(\d+\.\d+\.\d+)", ALL)) == {__version__}
    assert f"runs as user {user}" in ALL


def test_every_command_they_name_exists() -> None:
    root: Any = typer.main.get_command(app)
    known = set(root.commands)
    named = set(re.findall(r"(?:`|\$ |&& |\.\.\. )rag-context ([a-z][a-z-]*)", ALL))

    assert {"serve", "key", "backup"} <= named
    assert named - known == set()
