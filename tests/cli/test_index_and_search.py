"""The memory by hand, without a server: index, search, health, stats, reindex (M-2, C-3, C-4, D-7, D-10)."""

import json
import sqlite3
import subprocess
from pathlib import Path

import pytest

from .run_command import Commands

DECISION = "# Berths\n\nThe database refuses overlapping bookings of one berth, by an exclusion constraint.\n"


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Commands:
    """Three documents that the tests of this module only read."""
    commands = Commands(tmp_path_factory.mktemp("indexed"))
    commands.write("notes/berths.md", DECISION)
    commands.write(
        "notes/tides.md", "# Tides\n\nThe tide table of Brannoch is 30 centimetres too low, code HBR-5210.\n"
    )
    commands.write("notes/talk.chat", "[Maren] The harbour master is Torvald Eskerine.\n[Jonas] Noted.\n")
    assert commands("index", "notes", "--tag", "demo", "--agent", "tester").status == 0
    return commands


class TestIndex:
    """C-3: a receipt per file; D-7: the second time changes nothing."""

    def test_each_file_has_a_receipt_for_programs(self, commands: Commands) -> None:
        path = commands.write("a.md", DECISION)
        picture = commands.write("b.png", b"\x89PNG\0")
        latin = commands.write("c.txt", b"caf\xe9")

        ended = commands("index", ".", "--json")

        receipts = {receipt["source"]: receipt for receipt in ended.lines()}
        assert receipts[str(path)]["status"] == "indexed"
        assert receipts[str(path)]["chunksIndexed"] == 1
        assert receipts[str(picture)] == {"status": "rejected", "source": str(picture), "reason": "binary, not text"}
        assert receipts[str(latin)]["reason"] == "not valid UTF-8 at byte 3"
        assert ended.status == 1

    def test_people_get_a_summary_on_stderr(self, commands: Commands) -> None:
        commands.write("a.md", DECISION)
        commands.write("b.png", b"\x89PNG\0")
        for number in range(12):
            commands.write(f"bad/{number:02}.txt", b"\xe9")

        ended = commands("index", ".")

        assert ended.out == ""
        assert "1 indexed, 12 rejected, 1 skipped\n" in ended.err
        assert f"{commands.folder}/bad/09.txt: not valid UTF-8 at byte 0" in ended.err
        assert "10.txt" not in ended.err
        assert "and 2 more; --json lists them all" in ended.err

    def test_the_second_time_changes_nothing_and_an_edit_replaces(self, commands: Commands) -> None:
        commands.write("a.md", DECISION)
        commands.write("b.md", "# Tides")

        def statuses() -> list[str]:
            return [receipt["status"] for receipt in commands("index", ".", "--json").lines()]

        first, second = statuses(), statuses()
        commands.write("a.md", DECISION + "\nRanges are half open.\n")
        third = statuses()

        assert (first, second) == (["indexed"] * 2, ["unchanged"] * 2)
        assert sorted(third) == ["replaced", "unchanged"]

    def test_files_that_are_gone_are_pruned(self, commands: Commands) -> None:
        commands.write("a.md", DECISION)
        gone = commands.write("b.md", "# Tides")
        commands("index", ".")
        gone.rename(commands.folder / "c.md")

        reported = commands("index", ".", "--prune", "--receipts", "receipts")

        receipts = [json.loads(line) for line in (commands.folder / "receipts").read_text().splitlines()]
        assert "1 indexed, 1 unchanged, 1 removed, 1 of them renamed\n" in reported.err
        assert [receipt["status"] for receipt in receipts] == ["unchanged", "indexed", "removed"]
        assert receipts[1]["renamedFrom"] == receipts[2]["source"] == str(gone)

    def test_a_stream_of_documents_comes_in_with_receipts_in_a_file(self, commands: Commands) -> None:
        """C-3."""
        lines = [
            {"content": "The pump of pontoon C failed.", "contentType": "decision", "source": "log/1"},
            {"content": "", "source": "log/2"},
            {"content": "[Maren] Noted.", "contentType": "chat", "source": "talk", "sessionId": "s1"},
        ]
        stream = commands.write("docs.jsonl", "\n".join(map(json.dumps, lines)) + "\n{\n")

        ended = commands("index", "--jsonl", stream, "--tag", "demo", "--receipts", "receipts.jsonl")

        receipts = [json.loads(line) for line in (commands.folder / "receipts.jsonl").read_text().splitlines()]
        assert ended.status == 1
        assert {receipt["source"]: receipt["status"] for receipt in receipts} == {
            "log/1": "indexed",
            f"{stream}:2": "rejected",
            "talk": "indexed",
            f"{stream}:4": "rejected",
        }

    def test_a_pipe_and_a_pattern_are_accepted_too(self, commands: Commands) -> None:
        commands.write("src/a.py", "def a(): ...")
        commands.write("src/b.md", "no code")
        with commands.start("index", "src/**/*.py", "-", "--json", stdin=subprocess.PIPE) as process:
            out, _ = process.communicate('{"content": "x", "contentType": "code", "source": "piped"}\n', timeout=60)

        assert process.returncode == 0
        assert [json.loads(line)["source"] for line in out.splitlines()] == [f"{commands.folder}/src/a.py", "piped"]

    def test_receipts_that_cannot_be_written_stop_it_at_once(self, commands: Commands) -> None:
        commands.write("a.md", DECISION)

        ended = commands("index", ".", "--receipts", "no/where.jsonl")

        assert (ended.status, ended.err) == (
            2,
            "error: --receipts 'no/where.jsonl' cannot be written: No such file or directory.\n",
        )

    def test_a_full_disk_for_receipts_is_reported_with_what_is_safe(self, commands: Commands) -> None:
        commands.write("a.md", DECISION)

        ended = commands("index", ".", "--receipts", "/dev/full")

        assert ended.status == 75
        assert "error: Receipts cannot be written: No space left on device." in ended.err
        assert "Traceback" not in ended.err

    def test_pictures_in_a_folder_are_no_failure_but_a_named_one_is(self, commands: Commands) -> None:
        picture = commands.write("a/b.png", b"\x89PNG\0")

        assert commands("index", "a").status == 0
        assert commands("index", picture).status == 1

    def test_a_missing_path_is_reported_and_stops_no_other(self, commands: Commands) -> None:
        commands.write("a.md", DECISION)

        ended = commands("index", "no", "a.md")

        assert ended.status == 1
        assert "1 indexed, 1 rejected" in ended.err
        assert f"{commands.folder}/no: cannot be read: No such file or directory" in ended.err

    def test_an_unknown_kind_is_rejected_with_the_known_ones(self, commands: Commands) -> None:
        ended = commands("index", ".", "--type", "chats")

        assert (ended.status, ended.err) == (
            2,
            "error: --type 'chats' is not one of chat, decision, code, documentation.\n",
        )

    def test_a_label_that_cannot_be_is_in_the_receipt(self, commands: Commands) -> None:
        commands.write("a.md", DECISION)

        ended = commands("index", "a.md", "--tag", "x" * 200, "--json")

        assert ended.status == 1
        assert ended.lines()[0]["status"] == "rejected"


class TestSearch:
    """M-2: questions answered from the directory itself, with the level and the place of each passage."""

    def test_the_answer_names_file_lines_and_level(self, indexed: Commands) -> None:
        ended = indexed("search", "who keeps two boats from booking one berth?")

        lines = ended.out.splitlines()
        assert ended.status == 0
        assert lines[0].startswith("level 1 · ")
        assert lines[0].endswith("from 3 documents, best first; the numbers are each passage's own relevance")
        assert " notes/berths.md:1-3  documentation" in lines[2]
        assert "    The database refuses overlapping bookings" in ended.out

    def test_a_rare_name_is_found_with_its_metadata(self, indexed: Commands) -> None:
        result = indexed("search", "Torvald Eskerine", "--json").json()["results"][0]

        assert result["source"] == str(indexed.folder / "notes" / "talk.chat")
        assert result["metadata"] == {"agent": "tester", "tags": ["demo"]}

    def test_an_error_code_is_found_and_explained(self, indexed: Commands) -> None:
        out = indexed("search", "HBR-5210", "--explain").out

        assert "notes/tides.md" in out.splitlines()[2]
        assert "text rank 1" in out

    @pytest.mark.parametrize(
        ("words", "names"),
        [
            (["--type", "chat"], {"talk.chat"}),
            (["--source", "notes/t*", "--since", "1h", "--tag", "demo"], {"tides.md", "talk.chat"}),
            (["--source", "notes", "--tag", "other"], set()),
        ],
    )
    def test_filters_narrow(self, indexed: Commands, words: list[str], names: set[str]) -> None:
        answer = indexed("search", "harbour berth tide", "--min-score", "0", "--json", *words).json()

        assert {result["source"].rpartition("/")[2] for result in answer["results"]} == names

    def test_no_result_is_an_answer_with_advice(self, indexed: Commands) -> None:
        ended = indexed("search", "berth", "--category", "bugfix")

        assert ended.status == 0
        assert "0 results from 3 documents" in ended.out
        assert "--min-score 0" in ended.out

    def test_an_empty_index_says_how_to_fill_it(self, commands: Commands) -> None:
        ended = commands("search", "berth")

        assert ended.status == 0
        assert "`rag-context index PATH...` fills it" in ended.out

    def test_a_wrong_question_is_rejected_in_a_sentence(self, commands: Commands) -> None:
        ended = commands("search", "")

        assert (ended.status, ended.out, ended.err) == (2, "", "error: Query cannot be empty\n")

    def test_a_document_cannot_steer_the_terminal(self, commands: Commands) -> None:
        commands.write("a.log", "\x1b]0;owned\x07 the pump of pontoon C failed\n")
        commands("index", ".")

        out = commands("search", "pump of pontoon C").out

        assert "the pump of pontoon C failed" in out
        assert "\x1b" not in out


class TestStatus:
    """T-3, T-4 from the command line."""

    def test_health_of_a_working_index(self, indexed: Commands) -> None:
        ended = indexed("health")

        assert ended.status == 0
        assert ended.out.startswith("healthy · ")
        assert "3 documents, 0 pending" in ended.out

    def test_a_missing_model_is_not_healthy(self, indexed: Commands) -> None:
        broken = indexed.with_variables(RAG_CONTEXT_EMBEDDER__MODEL_DIR=str(indexed.folder / "no-model"))

        ended = broken("health", "--json")

        assert ended.status == 1
        assert ended.json()["lmStudioStatus"] == "unavailable"

    def test_without_a_model_keyword_search_still_answers_with_a_warning(self, indexed: Commands) -> None:
        broken = indexed.with_variables(RAG_CONTEXT_EMBEDDER__MODEL_DIR=str(indexed.folder / "no-model"))

        ended = broken("search", "HBR-5210")

        assert ended.status == 0
        assert ended.out.startswith("level 2 (keyword search alone) · ")
        assert "notes/tides.md" in ended.out
        assert ended.err.splitlines()[-1].startswith("warning: ")

    def test_stats_count_the_searches(self, commands: Commands) -> None:
        commands("search", "berth")

        assert commands("stats", "--json").json()["totalQueries"] == 1
        assert "cli: 1" in commands("stats", "--range", "1h").out


class TestReindex:
    """D-10: another model's index stops with 78, and `reindex` is the way out."""

    def test_an_index_of_another_model_is_rejected_until_reindexed(self, commands: Commands) -> None:
        commands.write("a.md", DECISION)
        commands("index", "a.md")
        _pretend_another_model_made_it(commands.data_dir / "rag-context.db")

        rejected = commands("search", "berth")
        reindexed = commands("reindex")
        answered = commands("search", "berth")

        assert rejected.status == 78
        assert "`rag-context reindex`" in rejected.err
        assert (reindexed.status, reindexed.out) == (0, "1 document reindexed.\n")
        assert answered.out.startswith("level 1 ")


def _pretend_another_model_made_it(database: Path) -> None:
    connection = sqlite3.connect(database)
    with connection:
        (value,) = connection.execute("SELECT value FROM meta WHERE name = 'model'").fetchone()
        other = json.dumps({**json.loads(value), "fingerprint": "of another model"})
        connection.execute("UPDATE meta SET value = ? WHERE name = 'model'", (other,))
    connection.close()
