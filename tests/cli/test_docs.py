"""What README and the pages tell people to type exists: commands, their options, links and settings."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from rag_context.cli.command_line import loaded
from rag_context.settings import KEYS

HERE = Path(__file__).resolve().parents[2]
PAGES = sorted([*HERE.glob("*.md"), *(HERE / "docs").rglob("*.md")])
ROOT = loaded()
BLOCK = re.compile(r"^```(?:console|bash|sh)?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
CALL = re.compile(r"(?:^|[$|] |\bssh \w+ )(?:[A-Z_]+=\S+ )*rag-context ([a-z-].*)")
INLINE = re.compile(r"`((?:[A-Z_]+=\S+ )*rag-context [^`]*)`")
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)")
EXAMPLE = "problems/pool.md"
"""A link within a document that a page shows."""


def calls(page: Path) -> list[list[str]]:
    """The words behind `rag-context` in the blocks that people copy, and in sentences."""
    text = page.read_text(encoding="utf-8")
    lines = [line for block in BLOCK.findall(text) for line in block.replace("\\\n", " ").splitlines()]
    lines += [" ".join(found.split()) for found in INLINE.findall(re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M))]
    return [shlex.split(found[1], comments=True) for line in lines if (found := CALL.search(line))]


def leaf(words: list[str]) -> Any:
    """The command that the words call."""
    command = ROOT
    for word in words:
        if word not in getattr(command, "commands", {}):
            break
        command = command.commands[word]
    return command


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_on_the_pages_exist(page: Path) -> None:
    for words in calls(page):
        command = leaf(words)
        known = {"--help", *(name for param in command.params for name in param.opts)}
        assert command is not ROOT or words[0].startswith("--"), words
        assert {word for word in words if word.startswith("--")} <= known, words


def test_the_pages_have_commands() -> None:
    assert sum(len(calls(page)) for page in PAGES) > 60


def test_the_index_lists_every_page_once() -> None:
    docs = HERE / "docs"
    listed = LINK.findall((docs / "index.md").read_text(encoding="utf-8"))
    assert sorted(path for path, _ in listed) == sorted(
        page.relative_to(docs).as_posix() for page in docs.rglob("*.md") if page.name != "index.md"
    )


def test_the_messages_on_the_troubleshooting_page_are_those_of_the_program() -> None:
    sources = "\n".join(path.read_text(encoding="utf-8") for path in sorted((HERE / "src").rglob("*.py")))
    joined = re.sub(r"[\"']\s*\n\s*f?[\"']", "", sources)
    page = (HERE / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    messages: list[str] = re.findall(r"^### `([^`]*)`$", page, re.MULTILINE)
    assert len(messages) > 8
    for message in messages:
        for piece in message.split("…"):
            assert piece.strip() in joined, message


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_anchors_exist(page: Path) -> None:
    for path, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        if path == EXAMPLE:
            continue
        target = page.parent / path if path else page
        assert target.exists(), path
        if anchor and target.suffix == ".md":
            titles = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}, anchor


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_settings_on_the_pages_exist(page: Path) -> None:
    sections = "|".join({name.partition(".")[0] for name in KEYS if "." in name})

    named = set(re.findall(rf"`((?:{sections})\.[a-z_]+)`", page.read_text(encoding="utf-8")))

    assert named - {"server.json", "projects.db", "hooks.json", "chat.message"} <= set(KEYS)


def test_the_pages_for_users_are_few_words() -> None:
    pages = [page.read_text(encoding="utf-8") for page in (HERE / "docs").glob("*.md")]
    written = [page for page in pages if not page.startswith("<!-- Generated")]

    assert sum(len(page.split()) for page in written) <= 35_000
