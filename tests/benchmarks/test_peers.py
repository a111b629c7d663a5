"""The comparison with other software: turns, texts, rows, and what becomes of a peer that does not work."""

import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from benchmarks.peers import __main__ as command
from benchmarks.peers import quality, running, speed, table
from benchmarks.peers.answers import GIVEN, Answer, Fields, Given
from benchmarks.peers.drivers import OPEN, batches, carry_out
from benchmarks.peers.mcp_server_qdrant import McpServerQdrant, ended
from benchmarks.peers.table import OURS, PEERS, Peer, Row

from rag_context.embedders.onnx_model import BUNDLED, load

OTHER = PEERS[1]


class Notes:
    """A peer whose results are its texts in the order of storing."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def add(self, texts: Sequence[str], fields: Sequence[Fields]) -> None:
        self.texts += texts

    def save(self) -> None:
        self.texts.append("saved")

    def ask(self, question: str) -> Answer:
        found = [text for text in self.texts if question in text]
        return Answer(found, found)


def measured(peer: Peer, *, indexing_s: float, ms: float, found: int = 1) -> speed.Run:
    """A run whose measured questions took so long, and whose warm-up took far longer."""
    times = [1e6] * speed.WARM_UP + [ms] * 3
    return speed.Run(peer, indexing_s=indexing_s, times_ms=times, found=found)


def program(path: Path, text: str) -> Path:
    """A program to start in place of a peer's interpreter."""
    path.write_text(f"#!{sys.executable}\n{textwrap.dedent(text)}")
    path.chmod(0o755)
    return path


@pytest.fixture
def written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Locks of a test's own."""
    monkeypatch.setattr(running, "LOCKS", tmp_path)
    return tmp_path


def test_every_peer_has_each_turn_and_none_always_comes_after_the_same() -> None:
    turns = [running.in_turn("abc", number) for number in range(100)]
    assert all(sorted(turn) == ["a", "b", "c"] for turn in turns)
    assert {"".join(turn) for turn in turns} == {"abc", "acb", "bac", "bca", "cab", "cba"}
    assert turns == [running.in_turn("abc", number) for number in range(100)]


def test_texts_and_questions_are_the_same_on_every_run_and_none_comes_twice() -> None:
    steps = [step.request for step in speed.steps(1003)]
    assert steps == [step.request for step in speed.steps(1003)]
    parts = [step["add"] for step in steps if "add" in step]
    assert len(parts) == speed.PARTS
    texts = [text for part in parts if isinstance(part, list) for text in part]
    assert len(set(texts)) == 1003
    questions = [step["ask"] for step in steps if "ask" in step]
    assert len(set(questions)) == speed.PROBES + speed.WARM_UP + speed.QUESTIONS


def test_a_peer_stores_and_saves_everything_before_it_is_searched() -> None:
    kinds = [next(iter(step.request)) for step in speed.steps(50)]
    assert list(dict.fromkeys(kinds)) == ["add", "save", "ask"]
    assert kinds == sorted(kinds, key=["add", "save", "ask"].index)


def test_peers_are_shown_as_multiples_of_ours_without_the_warm_up() -> None:
    ours, other = speed.rows(1000, [measured(OURS, indexing_s=2.0, ms=10.0), measured(OTHER, indexing_s=8.0, ms=15.0)])
    assert (ours.p50_ms, ours.p50_ratio, ours.texts_per_s, ours.indexing_ratio) == (10.0, 1.0, 500.0, 1.0)
    assert (other.p50_ms, other.p50_ratio, other.texts_per_s, other.indexing_ratio) == (15.0, 1.5, 125.0, 0.25)


def test_without_ours_the_others_have_figures_and_no_ratios() -> None:
    broken = speed.Run(OURS, failure="no room on the disk")
    ours, other = speed.rows(1000, [broken, measured(OTHER, indexing_s=8.0, ms=15.0)])
    assert ours.failure == "no room on the disk"
    assert (other.p50_ms, other.p50_ratio, other.texts_per_s, other.indexing_ratio) == (15.0, None, 125.0, None)
    assert "| – | 15.0 | – | 125 |" in table.as_markdown([other])


def test_vectors_that_were_made_once_are_those_of_the_texts_as_their_files_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(GIVEN, str(tmp_path / "given"))
    given, model = Given(), load(BUNDLED)
    for number, texts in enumerate((["The pump is blue.", "The valve is red."], ["The pipe is green."])):
        assert given.of(texts) is None
        speed._give(texts, tmp_path / "given" / f"{number}.npz")
        vectors = given.of(texts)
        assert vectors is not None
        assert [vector.tolist() for vector in vectors] == [model.embed(text).tolist() for text in texts]
    assert given.of(["The pump is blue.", "a question"]) is None


def test_large_sizes_are_searched_and_their_indexing_is_not_compared() -> None:
    ours, other = speed.rows(
        speed.GIVEN_FROM, [measured(OURS, indexing_s=2.0, ms=10.0), measured(OTHER, indexing_s=8.0, ms=15.0)]
    )
    assert (ours.texts_per_s, other.indexing_ratio, other.p50_ratio) == (None, None, 1.5)


def test_a_peer_that_finds_no_text_by_itself_is_not_measured() -> None:
    _, other = speed.rows(
        1000, [measured(OURS, indexing_s=2.0, ms=10.0), measured(OTHER, indexing_s=1.0, ms=1.0, found=0)]
    )
    assert other.p50_ms is None
    assert "by themselves" in other.failure


def test_a_peer_that_mostly_finds_nothing_is_not_measured() -> None:
    some, most = measured(OURS, indexing_s=2.0, ms=10.0), measured(OTHER, indexing_s=1.0, ms=1.0)
    some.empty, most.empty = 2, len(most.times_ms) - 2
    ours, other = speed.rows(1000, [some, most])
    assert ours.p50_ms == 10.0
    assert other.p50_ms is None
    assert "no result" in other.failure


def test_a_peer_that_cannot_be_installed_is_a_row_with_the_reason(tmp_path: Path, written_to: Path) -> None:
    (written_to / f"{OTHER.name}.txt").write_text("mcp-server-qdrant==0\nqdrant-client==0\n./no-such-package\n")
    with pytest.raises(running.PeerError, match="cannot be installed") as caught:
        running.environment_of(OTHER, tmp_path / "cache")
    (row,) = speed.measure(5, {OTHER: caught.value}, tmp_path / "scratch")
    assert "no-such-package" in row.failure
    assert f"**not measured**: {row.failure}" in table.as_markdown([row])


def test_half_of_an_environment_is_made_again_and_a_whole_one_is_not(tmp_path: Path, written_to: Path) -> None:
    (written_to / f"{OTHER.name}.txt").write_text("")
    python = running.environment_of(OTHER, tmp_path / "cache")
    installed = python.parents[1] / "installed"
    installed.unlink()
    assert running.environment_of(OTHER, tmp_path / "cache") == python
    made = installed.stat()
    assert running.environment_of(OTHER, tmp_path / "cache") == python
    assert (installed.stat().st_ino, installed.stat().st_mtime_ns) == (made.st_ino, made.st_mtime_ns)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import sys; sys.exit('the model is missing')", "the model is missing"),
        ("import time; time.sleep(60)", "no response within"),
        ('print(\'{"error": "no such collection"}\', flush=True); input(); input()', "no such collection"),
    ],
)
def test_a_driver_that_ends_or_hangs_or_fails_is_a_reason(tmp_path: Path, text: str, reason: str) -> None:
    with running.driving(OTHER, program(tmp_path / "python", text), tmp_path / "peer") as driver:
        run = speed.Run(OTHER, driver)
        run.take(speed.Step({"save": True}, timeout_s=2.0))
        assert reason in run.failure


def test_a_peer_that_cannot_be_started_is_a_row_too(tmp_path: Path) -> None:
    (row,) = speed.measure(5, {OTHER: tmp_path / "nothing"}, tmp_path / "scratch")
    assert "cannot be started" in row.failure


def test_a_driver_sees_no_setting_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QDRANT_URL", "http://somebody.example")
    python = program(
        tmp_path / "python",
        """
        import json, os
        print(json.dumps({"best": os.environ["HOME"] + os.environ.get("QDRANT_URL", "")}), flush=True)
        """,
    )
    with running.driving(OTHER, python, tmp_path / "peer") as driver:
        assert driver.call({"save": True}, 20.0) == {"best": str(tmp_path / "peer")}


def test_a_reason_is_one_short_line_without_the_home_of_the_user() -> None:
    assert running.one_line(f"Traceback\n  {Path.home()}/x is missing\n\n") == "~/x is missing"
    assert len(running.one_line("x" * 1000)) < 210
    assert running.one_line("\n") != ""


def test_rows_of_a_size_replace_their_earlier_ones_and_the_rest_stays(tmp_path: Path) -> None:
    earlier = [Row(1000, "a", "1"), Row(1000, "gone", "1"), Row(10_000, "a", "1")]
    new = [Row(1000, "a", "2", failure="full")]
    path = tmp_path / "results.json"
    path.write_text(table.as_json(table.merged(earlier, new)))
    assert table.read(path) == [new[0], earlier[2]]


def test_the_page_says_so_where_nothing_was_measured(tmp_path: Path) -> None:
    assert "Not measured yet" in table.section(tmp_path / "results.json")


def test_a_reason_cannot_end_its_cell() -> None:
    line = table.as_markdown([Row(1000, OTHER.name, "1", failure="a | b\n<script>")]).splitlines()[-1]
    assert "a \\| b &lt;script>" in line
    assert line.replace("\\|", "").count("|") == 7


def test_every_peer_has_a_driver_and_pinned_packages() -> None:
    assert set(OPEN) == {peer.name for peer in PEERS}
    for peer in PEERS:
        assert all(package in running.versions_of(peer) for package in peer.packages)


def test_a_driver_carries_out_requests_one_by_one() -> None:
    peer = Notes()
    carry_out(peer, {"add": ["one", "two"]})
    carry_out(peer, {"save": True})
    assert peer.texts == ["one", "two", "saved"]
    answer = carry_out(peer, {"ask": "t"})
    assert (answer["texts"], answer["abstained"]) == (["two"], False)
    assert carry_out(peer, {"ask": "none"})["texts"] == []


def test_answers_are_judged_by_the_evidence_among_their_results(tmp_path: Path) -> None:
    memory = next(quality.memories(tmp_path, "updates"))
    question = next(each for each in memory.questions if each.outdated)
    sources = {item.id: source for item, source in zip(memory.items, memory.fields(), strict=True)}
    evidence, outdated = (str(sources[ids[0]]["source"]) for ids in (question.evidence, question.outdated))

    def judged(*names: str, abstained: bool = False) -> table.QualityRow:
        scores = quality.Scores(OTHER)
        answer = {"seconds": 0.004, "sources": list(names), "texts": [], "abstained": abstained}
        scores.take(memory, question, answer, tokens=90)
        return scores.row()

    row = judged(evidence, outdated)
    assert (row.recall, row.first, row.corrected) == (1 / len(question.evidence), 1.0, 1.0)
    assert (row.abstained, row.abstained_wrongly, row.tokens, row.p50_ms) == (None, 0.0, 90, 4.0)
    row = judged(outdated, evidence, evidence, abstained=True)
    assert (row.recall, row.first, row.corrected) == (1 / len(question.evidence), 0.0, 0.0)
    assert row.abstained_wrongly == 1.0
    assert judged().corrected == 0.0


def test_each_project_of_a_set_is_a_memory_of_its_own(tmp_path: Path) -> None:
    manual = list(quality.memories(tmp_path, "manual"))
    assert len(manual) == 4
    assert {item.project for item in manual[0].items} == {question.project for question in manual[0].questions}
    assert all("project" not in fields for fields in manual[0].fields())
    json.dumps([memory.fields() for memory in quality.memories(tmp_path, "dated")])


def test_a_peer_that_fails_on_the_open_sets_is_a_row_with_the_reason(tmp_path: Path) -> None:
    broken = program(tmp_path / "python", "import sys; sys.exit('the model is missing')")
    (gone, missing) = quality.measure({OURS: running.PeerError("no room"), OTHER: broken}, quality.QUICK)
    assert (gone.failure, missing.failure) == ("no room", "its driver ended: the model is missing")
    assert "**not measured**: no room" in table.quality_as_markdown([gone, missing])
    assert table.quality_as_markdown([]) == "Not measured yet for this version.\n"


def test_texts_are_cut_into_batches_that_lose_nothing() -> None:
    texts = [str(number) for number in range(1001)]
    assert [len(batch) for batch in batches(texts)] == [500, 500, 1]
    assert [text for batch in batches(texts) for text in batch] == texts


@pytest.fixture
def mcp_server(tmp_path: Path) -> "Iterator[subprocess.Popen[str]]":
    """A server that logs before each response, as mcp-server-qdrant does, and whose tool fails for `fail`."""
    server = program(
        tmp_path / "server",
        """
        import json, sys
        for line in sys.stdin:
            message = json.loads(line)
            if "id" not in message:
                continue
            print(json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": {}}), flush=True)
            query = message["params"].get("arguments", {}).get("query")
            metadata = json.dumps({"source": "a"})
            text = f"<entry><content>{query}</content><metadata>{metadata}</metadata></entry>"
            text = json.dumps(["Results", text])
            result = {"content": [{"type": "text", "text": text}], "isError": query == "fail"}
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
        """,
    )
    with (
        subprocess.Popen([server], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process,
        ended(process),
    ):
        yield process


def test_results_over_mcp_are_found_behind_log_messages(mcp_server: "subprocess.Popen[str]") -> None:
    client = McpServerQdrant(mcp_server)
    assert client.ask("pumps") == Answer(["pumps"], ["a"])
    with pytest.raises(RuntimeError, match="qdrant-find"):
        client.ask("fail")


@pytest.mark.parametrize(
    "words", [["--sizes", "0"], ["--full", "--quick"], ["--cache", str(running.ROOT / "peers-cache")]]
)
def test_invalid_options_are_rejected(words: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        command._options(words)
