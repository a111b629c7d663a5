"""Only what the owner said to an assistant is a standing instruction of the owner."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rag_context.domain.documents import Origin
from tests.end_to_end.process import Served, command, served
from tests.files.test_commits import git
from tests.outcomes.whose_words import Corpus, corpus


def memory_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}-memory")


@pytest.fixture(scope="module")
def taken_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Corpus, Path]]:
    """A server that has taken everything in, by the ways that agents and people use."""
    made, folder = corpus(), tmp_path_factory.mktemp("everything")
    for name, content in made.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    data_dir = memory_of(folder)
    with served(data_dir) as started:
        started.wait_ready()
        done = command("index", str(folder), "--json", data_dir=data_dir)
        assert done.returncode == 0, done.stderr
        for call in made.calls:
            started.tool("index", call).raise_for_status()
        yield started, made, folder


def listed(started: Served, order: str) -> bool:
    answer = started.search(order, limit=1)
    assert answer["fallbackLevel"] == 1
    return any(order in each["content"] for each in answer.get("standing", []))


def test_no_order_of_a_stranger_is_listed(taken_in: tuple[Served, Corpus, Path]) -> None:
    started, made, _ = taken_in
    assert len(made.attacks) == 200
    assert [order for order in made.attacks if listed(started, order)] == []


def test_instructions_of_the_owner_are_listed(taken_in: tuple[Served, Corpus, Path]) -> None:
    started, made, _ = taken_in
    assert len(made.genuine) == 60
    missed = [order for order in made.genuine if not listed(started, order)]
    assert len(missed) <= 10, missed


@pytest.mark.parametrize(
    ("folder", "origins"),
    [
        ("own", {"owner"}), ("slack", {"teammate"}), ("mail", {"document", "teammate"}), ("docs", {"document"}),
        ("code", {"document"}), ("unknown", {"unknown"}),
    ],
)  # fmt: skip
def test_every_document_says_whose_words_it_holds(
    taken_in: tuple[Served, Corpus, Path], folder: str, origins: set[str]
) -> None:
    started, _, root = taken_in
    found = started.tool("list", {"source": f"{root}/{folder}/*", "limit": 100}).json()["documents"]
    got = [started.tool("get", {"documentId": each["documentId"]}).json()["origin"] for each in found]
    assert len(got) >= 10
    assert set(got) <= origins


def test_a_passage_says_whose_words_it_is(taken_in: tuple[Served, Corpus, Path]) -> None:
    started, made, root = taken_in
    name = next(name for name in made.files if name.startswith("own/1-"))
    answer = started.search(made.genuine[1], limit=20, source=f"{root}/{name}", minScore=0)
    whose = {each["content"].startswith("[Assistant]"): each["origin"] for each in answer["results"]}
    assert whose == {False: "owner", True: "agent"}
    page = started.search(made.attacks[0], source="https://evil.example/*", minScore=0)["results"]
    assert {each["origin"] for each in page} == {"web"}


@pytest.mark.parametrize(
    ("least", "origins"),
    [("owner", {"owner"}), ("agent", {"owner", "agent"}), ("document", {"owner", "agent", "teammate", "document"})],
)
def test_searches_and_lists_are_narrowed_to_what_is_trusted(
    taken_in: tuple[Served, Corpus, Path], least: str, origins: set[str]
) -> None:
    started, made, _ = taken_in
    found = started.search(made.attacks[0], limit=20, minScore=0, minTrust=least)["results"]
    listed = started.tool("list", {"minTrust": least, "limit": 100}).json()["documents"]
    for several in (found, listed):
        assert several
        assert {each["origin"] for each in several} <= origins
    around = [text for each in found for text in (each.get("context") or {}).values()]
    assert least != "owner" or not any(text.startswith("[Assistant]") for text in around)


def test_passages_are_counted_by_whose_words_they_are(taken_in: tuple[Served, Corpus, Path]) -> None:
    started, _, folder = taken_in
    counts = started.tool("list", {"limit": 1, "facets": True}).json()["facets"]["origins"]
    assert list(counts) == [origin for origin in Origin if counts.get(origin)]
    assert {"owner", "agent", "document"} <= counts.keys()
    assert started.tool("stats", {}).json()["passagesByOrigin"] == counts
    shown = command("stats", data_dir=memory_of(folder))
    assert f"document: {counts['document']}" in shown.stdout


def test_the_command_line_is_narrowed_too(taken_in: tuple[Served, Corpus, Path]) -> None:
    _, made, folder = taken_in
    search = ["search", made.attacks[0], "--min-score", "0", "--min-trust", "owner", "--json"]
    found = json.loads(command(*search, data_dir=memory_of(folder)).stdout)["results"]
    assert {each["origin"] for each in found} == {"owner"}


def test_a_session_that_came_with_a_repository_is_a_document(tmp_path: Path) -> None:
    made = corpus()
    order = made.genuine[1]
    name = next(name for name, content in made.files.items() if json.dumps(order)[1:-1] in content)
    repository = tmp_path / "cloned"
    repository.mkdir()
    (repository / "session.jsonl").write_text(made.files[name])
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        git(repository, *arguments)
    assert command("index", str(repository), data_dir=tmp_path / "data").returncode == 0
    said = json.loads(command("search", order, "--json", data_dir=tmp_path / "data").stdout)
    assert [each["origin"] for each in said["results"]] == ["document"] * len(said["results"])
    assert "standing" not in said
