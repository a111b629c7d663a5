"""The memory by hand, without a server: index, search, health, stats, reindex (M-2, C-3, C-4, D-7, D-10)."""

import sqlite3

import pytest

from .running import Commands

DECISION = "# Berths\n\nThe database refuses overlapping bookings of one berth, by an exclusion constraint.\n"


@pytest.fixture
def indexed(commands: Commands) -> Commands:
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

    def test_the_second_time_changes_nothing_and_an_edit_replaces(self, indexed: Commands) -> None:
        again = indexed("index", "notes", "--json", "--tag", "demo", "--agent", "tester").lines()
        indexed.write("notes/berths.md", DECISION + "\nRanges are half open.\n")
        edited = indexed("index", "notes", "--json", "--tag", "demo", "--agent", "tester").lines()

        assert [receipt["status"] for receipt in again] == ["unchanged"] * 3
        assert sorted(receipt["status"] for receipt in edited) == ["replaced", "unchanged", "unchanged"]

    def test_pictures_in_a_folder_are_no_failure_but_a_named_one_is(self, commands: Commands) -> None:
        picture = commands.write("a/b.png", b"\x89PNG\0")

        assert commands("index", "a").status == 0
        assert commands("index", picture).status == 1

    def test_a_missing_path_is_told_and_stops_no_other(self, commands: Commands) -> None:
        commands.write("a.md", DECISION)

        ended = commands("index", "no", "a.md")

        assert ended.status == 1
        assert "1 indexed, 1 rejected" in ended.err
        assert f"{commands.folder}/no: cannot be read: No such file or directory" in ended.err

    def test_an_unknown_kind_is_refused_with_the_known_ones(self, commands: Commands) -> None:
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
        assert lines[0].endswith("from 3 documents")
        assert " notes/berths.md:1-3  documentation" in lines[2]
        assert "    The database refuses overlapping bookings" in ended.out

    def test_a_rare_name_and_an_error_code_are_found(self, indexed: Commands) -> None:
        name = indexed("search", "Torvald Eskerine", "--json").json()["results"][0]
        code = indexed("search", "HBR-5210", "--json").json()["results"][0]

        assert name["source"] == str(indexed.folder / "notes" / "talk.chat")
        assert name["metadata"] == {"agent": "tester", "tags": ["demo"]}
        assert code["source"] == str(indexed.folder / "notes" / "tides.md")

    def test_filters_narrow(self, indexed: Commands) -> None:
        def sources(*words: str) -> set[str]:
            answer = indexed("search", "harbour berth tide", "--min-score", "0", "--json", *words).json()
            return {result["source"].rpartition("/")[2] for result in answer["results"]}

        assert sources() == {"berths.md", "tides.md", "talk.chat"}
        assert sources("--type", "chat") == {"talk.chat"}
        assert sources("--source", "notes/tides.md") == {"tides.md"}
        assert sources("--source", "notes/t*") == {"tides.md", "talk.chat"}
        assert sources("--source", "notes") == {"berths.md", "tides.md", "talk.chat"}
        assert sources("--tag", "other") == set()
        assert sources("--since", "1h") == {"berths.md", "tides.md", "talk.chat"}
        assert sources("--until", "2020-01-01") == set()
        assert sources("--limit", "1") <= {"berths.md", "tides.md", "talk.chat"}

    def test_explain_tells_rank_and_score(self, indexed: Commands) -> None:
        assert "text rank 1" in indexed("search", "HBR-5210", "--explain").out

    def test_no_result_is_an_answer_with_advice(self, indexed: Commands) -> None:
        ended = indexed("search", "berth", "--category", "bugfix")

        assert ended.status == 0
        assert "0 results from 3 documents" in ended.out
        assert "--min-score 0" in ended.out

    def test_an_empty_index_says_how_to_fill_it(self, commands: Commands) -> None:
        ended = commands("search", "berth")

        assert ended.status == 0
        assert "`rag-context index PATH...` fills it" in ended.out

    @pytest.mark.parametrize(
        ("words", "sentence"),
        [
            ([""], "Query cannot be empty"),
            (["x" * 1001], "Query too long (max 1000 characters)"),
            (["x", "--since", "yesterday"], "--since 'yesterday' is not a moment"),
            (["x", "--category", "nonsense"], "category"),
            (["x", "--limit", "21"], "limit"),
        ],
    )
    def test_a_wrong_question_is_refused_in_a_sentence(
        self, commands: Commands, words: list[str], sentence: str
    ) -> None:
        ended = commands("search", *words)

        assert (ended.status, ended.out) == (2, "")
        assert ended.err.startswith("error: ")
        assert sentence in ended.err

    def test_a_document_cannot_steer_the_terminal(self, commands: Commands) -> None:
        commands.write("a.log", "\x1b]0;owned\x07 the pump of pontoon C failed\n")
        commands("index", ".")

        out = commands("search", "pump of pontoon C").out

        assert "the pump of pontoon C failed" in out
        assert "\x1b" not in out


class TestStatus:
    """T-3, T-4 from the command line."""

    def test_health_of_a_working_index(self, indexed: Commands) -> None:
        ended = indexed("health", "--json")

        assert ended.status == 0
        assert ended.json()["healthy"] is True
        assert ended.json()["indexedDocuments"] == 3
        assert indexed("health").out.startswith("healthy · ")

    def test_a_missing_model_is_not_healthy(self, indexed: Commands) -> None:
        broken = indexed.with_variables(RAG_CONTEXT_EMBEDDER__MODEL_DIR=str(indexed.folder / "no-model"))

        ended = broken("health", "--json")

        assert ended.status == 1
        assert ended.json()["lmStudioStatus"] == "unavailable"

    def test_without_a_model_words_still_answer_with_a_warning(self, indexed: Commands) -> None:
        broken = indexed.with_variables(RAG_CONTEXT_EMBEDDER__MODEL_DIR=str(indexed.folder / "no-model"))

        ended = broken("search", "HBR-5210")

        assert ended.status == 0
        assert ended.out.startswith("level 2 (text search only) · ")
        assert "notes/tides.md" in ended.out
        assert ended.err.splitlines()[-1].startswith("warning: ")

    def test_stats_count_the_searches(self, indexed: Commands) -> None:
        indexed("search", "berth")

        assert indexed("stats", "--json").json()["totalQueries"] == 1
        assert "cli 1" in indexed("stats", "--range", "1h").out


class TestReindex:
    """D-10: another model's index stops with 78, and `reindex` is the way out."""

    def test_an_index_of_another_model_is_refused_until_reindexed(self, indexed: Commands) -> None:
        (database,) = indexed.data_dir.glob("*.db")
        with sqlite3.connect(database) as connection:
            changed = connection.execute("UPDATE model SET fingerprint = 'other'").rowcount
        connection.close()
        assert changed == 1

        refused = indexed("search", "berth")
        reindexed = indexed("reindex")
        answered = indexed("search", "berth")

        assert refused.status == 78
        assert "`rag-context reindex`" in refused.err
        assert (reindexed.status, reindexed.out) == (0, "3 documents reindexed.\n")
        assert answered.out.startswith("level 1 ")
