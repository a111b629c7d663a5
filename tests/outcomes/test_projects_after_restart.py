"""A server that is stopped and started again goes on with its projects; edited rules count while they are followed."""

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rag_context.server.options import hash_key
from tests.end_to_end.process import TIMEOUT_S, Served, served
from tests.outcomes.repositories import Caller, Repository, repository

KEYS = {"writer": "write", "reader": "read"}


def wait_for(condition: Callable[[], bool], what: Callable[[], Any]) -> None:
    """Wait for something that the server brings about by itself."""
    end = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < end, what()
        time.sleep(0.1)


@dataclass(frozen=True, slots=True)
class Restarted:
    """A server that was killed and started again, and the projects that it followed before.

    While it was down, `shop` lost gone.md and got new.md, and the folder of `moved` was renamed.
    """

    server: Served
    shop: Repository
    first: dict[str, Any]
    """The first answer about `shop` after the restart."""

    data_before: Path
    """A copy of the data directory as it was while no server ran."""

    @property
    def writer(self) -> Caller:
        return Caller(self.server.url, "writer")

    @property
    def reader(self) -> Caller:
        return Caller(self.server.url, "reader")


@pytest.fixture(scope="module")
def restarted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restarted]:
    folder = tmp_path_factory.mktemp("restarted")
    shop = repository(folder, "shop", kept="# Kept\n\nOrders stay.\n", gone="# Gone\n\nOrders go.\n")
    moved = repository(folder, "moved", page="# Page\n\nOrders of pages.\n")
    config = folder / "config.toml"
    config.write_text(
        "".join(
            f'[[server.api_keys]]\nname = "{name}"\nhash = "{hash_key(name)}"\naccess = "{access}"\n'
            for name, access in KEYS.items()
        )
    )
    data = folder / "data"
    with served(data, "--config", str(config)) as server:
        for project in (shop, moved):
            assert Caller(server.url, "writer").call("activate_project", config_path=project.config)["complete"]
        assert Caller(server.url, "reader").paths(project="shop") == {"kept.md", "gone.md"}
        server.kill()
    (shop.root / "docs/gone.md").unlink()
    shop.write("docs/new.md", "# New\n\nOrders come.\n")
    moved.root.rename(folder / "elsewhere")
    before = shutil.copytree(data, folder / "before", ignore=shutil.ignore_patterns("*.sock"))
    with served(data, "--config", str(config)) as server:
        asked: dict[str, Any] = {"query": "orders", "project": "shop", "min_relevance_score": 0}
        first = Caller(server.url, "reader").call("semantic_search", **asked)
        yield Restarted(server, shop, first, before)


def test_what_changed_while_the_server_was_down_is_indexed_without_a_request(restarted: Restarted) -> None:
    found = {result["path"] for result in restarted.first["results"]}
    assert "gone.md" not in found or restarted.first["warnings"], "an old answer must say that it may be old"
    reader = restarted.reader
    wait_for(lambda: reader.paths(project="shop") == {"kept.md", "new.md"}, lambda: reader.paths(project="shop"))
    assert reader.call("rag_query", query="orders", project="shop")["warnings"] == []
    restarted.shop.write("docs/later.md", "# Later\n\nOrders wait.\n")
    wait_for(lambda: "later.md" in reader.paths(project="shop"), lambda: reader.paths(project="shop"))


def test_a_key_that_may_only_read_activates_what_is_followed_again(restarted: Restarted) -> None:
    activated = restarted.reader.call("activate_project", config_path=restarted.shop.config)
    assert activated["project_name"] == "shop"
    assert "kept.md" in restarted.reader.paths(activation=activated["activation"])


def test_no_caller_writes_by_an_activation_from_before_the_restart(restarted: Restarted) -> None:
    promoted: dict[str, Any] = {"document_path": "kept.md", "promotion_level": "critical"}
    assert restarted.writer.call("update_promotion_level", **promoted, status=409)["code"] == "PROJECT_NOT_ACTIVATED"
    handle = restarted.writer.call("activate_project", config_path=restarted.shop.config)["activation"]
    assert restarted.writer.call("update_promotion_level", **promoted, activation=handle)["status"] == "updated"


def test_a_project_that_cannot_be_followed_again_is_answered_with_a_warning(restarted: Restarted) -> None:
    def warnings() -> list[str]:
        said: list[str] = restarted.reader.call("rag_query", query="orders", project="moved")["warnings"]
        return said

    wait_for(lambda: any("cannot be followed" in each for each in warnings()), warnings)
    assert restarted.reader.paths(project="moved") == {"page.md"}


def test_edited_rules_count_while_a_project_is_followed(restarted: Restarted, tmp_path: Path) -> None:
    rules = repository(tmp_path, "rules", one="# One\n\nOrders.\n", two="# Two\n\nOrders.\n")
    rules.write("manual/page.md", "# Page\n\nOrders.\n")
    program = restarted.writer
    own = {"activation": program.call("activate_project", config_path=rules.config)["activation"]}

    def becomes(*paths: str) -> None:
        wait_for(lambda: program.paths(**own) == set(paths), lambda: program.paths(**own))

    def warnings() -> list[str]:
        said: list[str] = program.call("rag_query", query="orders", **own)["warnings"]
        return said

    becomes("one.md", "two.md")
    rules.write(".gitignore", "two.md\n")
    becomes("one.md")
    rules.write(".ragignore", "!two.md\n")
    becomes("one.md", "two.md")
    rules.configure(docs_path="manual")
    becomes("page.md")
    rules.write(".rag-context/config.json", "{ not JSON")
    wait_for(lambda: any("cannot be followed as it is configured now" in each for each in warnings()), warnings)
    assert program.paths(**own) == {"page.md"}
    rules.configure(custom_doc_types=[{"name": "guide", "folder": "guides"}])
    becomes("one.md", "two.md")
    assert "guide" in {each["name"] for each in program.call("list_doc_types", **own)["doc_types"]}
    assert warnings() == []


def test_a_server_configured_not_to_follow_follows_nothing(restarted: Restarted) -> None:
    with served(restarted.data_before, RAG_CONTEXT_PROJECTS__FOLLOW="false") as server:
        listed = Caller(server.url).call("list_projects")["projects"]
        assert {(each["project_name"], each["exists"], each["followed"]) for each in listed} == {
            ("shop", True, False),
            ("moved", False, False),
        }
        assert Caller(server.url).paths(project="shop") == {"kept.md", "gone.md"}
