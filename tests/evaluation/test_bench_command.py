"""`rag-context bench`: load on real servers, one of which is stopped meanwhile, and on some that cannot answer."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from rag_context.evaluation.load import LoadLimits, LoadStage, MeasuredLoad
from tests.end_to_end.process import Served, command, served
from tests.evaluation.stub_server import healthy_server, stub_server

BRIEFLY = ("--seconds", "1.5", "--think", "0.05")
WIDE = ("--p95", "60000", "--p99", "60000")


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bench") / "data"


@pytest.fixture(scope="module")
def server(data_dir: Path) -> Iterator[Served]:
    with served(data_dir) as running:
        running.wait_ready()
        running.index("# Retries\n\nMongoDB retry logic waits longer each time.", source="retries.md")
        yield running


def report(*arguments: str, data_dir: Path, status: int = 0) -> dict[str, Any]:
    """What `bench --json` says."""
    done = command("bench", "--json", *arguments, data_dir=data_dir)
    assert done.returncode == status, done.stdout + done.stderr
    outcome: dict[str, Any] = json.loads(done.stdout)
    assert outcome["passed"] == (status == 0)
    return outcome


def test_stages_are_measured_one_after_the_other_and_leave_no_trace(
    server: Served, data_dir: Path, tmp_path: Path
) -> None:
    svg = tmp_path / "latency.svg"
    recorded = server.tool("stats", {}).json()["totalQueries"]
    outcome = report("--clients", "1,8", *BRIEFLY, *WIDE, "--svg", str(svg), data_dir=data_dir)
    assert outcome["url"] == server.url
    assert [stage["clients"] for stage in outcome["stages"]] == [1, 8]
    for stage in outcome["stages"]:
        assert stage["requests"] >= stage["clients"]
        assert stage["levels"] == {"1": stage["requests"]}
        assert stage["whole"] == stage["requests"]
        assert 0.0 < stage["p50Ms"] <= stage["p95Ms"] <= stage["p99Ms"]
        assert (stage["rejected"], stage["failures"], stage["missed"]) == (0, {}, [])
    drawn = [each.text for each in ElementTree.parse(svg).iter("{http://www.w3.org/2000/svg}text")]
    assert {"1 client", "8 clients"} <= set(drawn)
    assert server.tool("stats", {}).json()["totalQueries"] == recorded


def test_a_pause_is_waited_out_and_the_server_goes_on(server: Served, data_dir: Path) -> None:
    stages = report("--clients", "1", *BRIEFLY, *WIDE, "--pause", "0.8", data_dir=data_dir)["stages"]
    assert [stage["pauseS"] for stage in stages] == [0.0, 0.8]
    assert stages[1]["p99Ms"] >= 500.0, "nothing was stopped"
    assert stages[1]["failures"] == {}
    assert server.search("retry")["fallbackLevel"] == 1


def test_what_is_beyond_a_limit_is_named(server: Served, data_dir: Path) -> None:
    done = command("bench", "--clients", "2", *BRIEFLY, "--p95", "0.001", "--url", server.url, data_dir=data_dir)
    assert done.returncode == 1
    assert "2 clients: p95" in done.stdout
    assert "Beyond the limits." in done.stdout
    assert "2 clients for 1.5 s" in done.stderr


def test_questions_come_from_a_file(server: Served, data_dir: Path, tmp_path: Path) -> None:
    file = tmp_path / "questions.txt"
    file.write_text("how long are retries?\n\nwho keeps the tide tables?\n")
    report("--questions", str(file), "--repeat", "--clients", "1", *BRIEFLY, *WIDE, data_dir=data_dir)
    file.write_text("\n")
    assert "no question" in command("bench", "--questions", str(file), data_dir=data_dir).stderr


def test_requests_without_an_answer_count_as_failures(tmp_path: Path) -> None:
    answers = {**healthy_server(), "/tools/rag_context_list": {"documents": [], "total": 0}}
    del answers["/tools/rag_context_search"]
    with stub_server(answers) as stub:
        (stage,) = report("--url", stub.url, "--clients", "2", *BRIEFLY, *WIDE, data_dir=tmp_path, status=1)["stages"]
    assert stage["answersPerSecond"] == 0.0
    assert list(stage["failures"]) == ["404"]
    assert stage["missed"] == ["no answer to 100.0% of the requests"]


@pytest.mark.parametrize(
    ("arguments", "status", "named"),
    [
        (("--clients", "0"), 2, "--clients"),
        (("--clients", "4,many"), 2, "--clients"),
        (("--url", "here"), 2, "--url"),
        (("--url", "http://127.0.0.1:1", "--pause", "1"), 2, "--pause"),
        (("--url", "http://127.0.0.1:1"), 75, "did not answer"),
        (("--url", "http://127.0.0.1:1", "--questions", "missing.txt"), 2, "cannot be read"),
    ],
)
def test_invalid_stages_and_servers_are_rejected_at_once(
    arguments: tuple[str, ...], status: int, named: str, tmp_path: Path
) -> None:
    done = command("bench", *arguments, data_dir=tmp_path)
    assert done.returncode == status, done.stderr
    assert named in done.stderr
    assert done.stdout == ""


def test_rejected_requests_are_failures_and_a_stage_without_requests_passes_nothing() -> None:
    measured = MeasuredLoad(LoadStage(clients=4, seconds=1.0))
    assert measured.misses(LoadLimits()) == ["the stage was too short for a request"]
    measured.took_ms += [10.0] * 19
    measured.failures["503 OVERLOADED"] += 1
    assert measured.failed == 0.05
    assert measured.misses(LoadLimits()) == ["no answer to 5.0% of the requests"]
    assert measured.misses(LoadLimits(failed=0.06)) == []
    measured.took_ms += [400.0, 600.0]
    assert measured.misses(LoadLimits(failed=0.06)) == ["p95 400 ms", "p99 600 ms"]
