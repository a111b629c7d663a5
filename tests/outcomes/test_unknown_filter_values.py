"""A filter that lets nothing through says which of its values no document has, and which are near."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.process import Served, served
from tests.servers.postgres import postgres_database
from tests.servers.postgres_fixtures import server

__all__ = ["server"]

SECRET = "FireKing of another project"


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def memory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    directory = tmp_path_factory.mktemp(request.param)
    if request.param == "sqlite":
        yield from _filled(directory)
    else:
        with postgres_database(request.getfixturevalue("server")) as url:
            yield from _filled(directory, DATABASE_URL=url)


def _filled(directory: Path, **extra: str) -> Iterator[Served]:
    with served(directory, **extra) as started:
        started.wait_ready()
        labels = {"game": "FireKirin", "category": "bugfix", "tags": ["payments"], "agent": "orion"}
        started.index("The jackpot was paid twice.", source="notes/Jackpot.md", metadata=labels)
        started.index(
            "The reels stop late.",
            source="notes/reels.md",
            sessionId="night shift",
            metadata={"game": "OrionStars", "agent": "vega"},
        )
        started.index("Not yours.", source="other", project="elsewhere", metadata={"game": SECRET})
        yield started


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"game": "firekirin"}, 'No document has the game "firekirin"; near: "FireKirin".'),
        ({"source": "jackpot.md"}, 'No document has the source "jackpot.md"; near: "notes/Jackpot.md".'),
        ({"source": "note/*"}, 'No document has the source "note/*"; near: "notes/reels.md".'),
        ({"tags": ["payment"]}, 'No document has the tag "payment"; near: "payments".'),
        (
            {"agents": ["Orion", "orion-2"]},
            'No document has the agent "Orion"; near: "orion". No document has the agent "orion-2"; near: "orion".',
        ),
        ({"category": "strategy"}, 'No document has the category "strategy".'),
        ({"contentType": "code"}, 'No document has the content type "code".'),
        ({"sessionId": "night shifts"}, 'No document has the session id "night shifts"; near: "night shift".'),
        ({"game": "FireKing", "tags": ["payments"]}, 'No document has the game "FireKing"; near: "FireKirin".'),
    ],
    ids=str,
)
def test_an_unknown_value_is_named_with_near_ones(memory: Served, fields: dict[str, object], message: str) -> None:
    found = memory.search("jackpot", **fields)
    listed = memory.tool("list", fields).json()
    assert (found["results"], listed["documents"]) == ([], [])
    assert found["fallbackLevel"] == 1
    assert found["warning"] == listed["warning"] == message
    assert SECRET not in str((found, listed))


def test_several_agents_are_those_of_any(memory: Served) -> None:
    def sources(*agents: str) -> list[set[str]]:
        fields = {"agents": list(agents)}
        answers = [memory.search("jackpot reels", minScore=0, **fields), memory.tool("list", fields).json()]
        return [
            {each["source"] for each in answer[key]}
            for answer, key in zip(answers, ("results", "documents"), strict=True)
        ]

    assert sources("vega") == 2 * [{"notes/reels.md"}]
    assert sources("vega", "orion", "altair") == 2 * [{"notes/reels.md", "notes/Jackpot.md"}]


def test_known_values_give_no_warning(memory: Served) -> None:
    assert "warning" not in memory.search("jackpot", game="FireKirin")
    nothing = memory.search("jackpot", game="FireKirin", until="2000-01-01T00:00:00Z")
    assert (nothing["results"], "warning" in nothing) == ([], False)
    assert "warning" not in memory.tool("list", {"game": "OrionStars", "category": "bugfix"}).json()
