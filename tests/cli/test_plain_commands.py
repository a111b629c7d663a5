"""Commands that need no index: version, help, config, key; and how every command fails (M-4, M-5, X-1)."""

import hashlib
import json
import tomllib

import pytest

from rag_context import __version__
from rag_context.cli.exits import EXIT_CODES
from rag_context.settings import KEYS

from .running import Commands

COMMANDS = ("serve", "index", "search", "health", "stats", "config", "reindex", "key")


def test_the_version_is_printed(commands: Commands) -> None:
    assert commands("--version").out == f"rag-context {__version__}\n"


def test_help_names_every_command_and_exit_status(commands: Commands) -> None:
    text = " ".join(commands("--help").out.split())

    assert all(f" {name} " in text for name in COMMANDS)
    assert all(f"{code.value} {meaning}" in text for code, meaning in EXIT_CODES.items())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_takes_folder_and_file(commands: Commands, name: str) -> None:
    """M-4."""
    text = commands(name, "--help").out

    assert "--data-dir" in text
    assert "--config" in text


@pytest.mark.parametrize(
    "words", [["serch"], ["search"], ["index"], ["stats", "--range", "2h"], ["search", "x", "--no"]]
)
def test_what_is_not_understood_exits_2(commands: Commands, words: list[str]) -> None:
    ended = commands(*words)

    assert ended.status == 2
    assert "Traceback" not in ended.err


class TestConfig:
    """M-4: `config` prints every value with its source, secrets masked."""

    def test_every_key_is_printed_with_its_source(self, commands: Commands) -> None:
        commands.write("rag-context.toml", '[log]\nlevel = "warn"\n')

        values = commands.with_variables(MCP_SERVER_PORT="3100")("config", "--json").json()

        assert list(values) == list(KEYS)
        assert values["log.level"] == {"value": "warning", "source": "file rag-context.toml"}
        assert values["server.port"] == {"value": 3100, "source": "environment MCP_SERVER_PORT"}
        assert values["search.deadline_ms"] == {"value": 450, "source": "default"}

    def test_a_flag_is_named_as_the_source(self, commands: Commands) -> None:
        values = commands("config", "--json", "--data-dir", "elsewhere").json()

        assert values["data_dir"] == {"value": str(commands.folder / "elsewhere"), "source": "flag --data-dir"}

    def test_people_get_a_table_without_colours_in_a_pipe(self, commands: Commands) -> None:
        lines = commands("config").out.splitlines()

        assert lines[0].split() == ["Setting", "Value", "From"]
        assert [line.split()[0] for line in lines[1:]] == list(KEYS)
        assert "\x1b" not in "".join(lines)

    @pytest.mark.parametrize("words", [["config"], ["config", "--json"]])
    def test_secrets_are_masked(self, commands: Commands, words: list[str]) -> None:
        secret = commands.with_variables(RAG_CONTEXT_API_KEY="hush-1", MONGODB_URI="mongodb://u:hush-2@h/db")

        text = secret(*words).out

        assert "hush" not in text
        assert "mongodb://u:********@h/db" in text


class TestRefusals:
    """M-5: exit 78 and a sentence, never a traceback."""

    @pytest.mark.parametrize("words", [["config"], ["search", "x"], ["serve"], ["index", "."], ["health"]])
    def test_a_misspelt_key_stops_every_command(self, commands: Commands, words: list[str]) -> None:
        commands.write("rag-context.toml", "[server]\nprot = 1\n")

        ended = commands(*words)

        assert (ended.status, ended.out) == (78, "")
        assert ended.err == ("error: server.prot (file rag-context.toml) is not a setting; did you mean server.port?\n")

    def test_each_problem_has_its_line(self, commands: Commands) -> None:
        wrong = commands.with_variables(MCP_SERVER_PORT="x", LOG_LEVEL="y")

        ended = wrong("config")

        assert [line.partition(" (")[0] for line in ended.err.splitlines()] == [
            "error: server.port",
            "error: log.level",
        ]

    @pytest.mark.parametrize("words", [["search", "x"], ["serve"], ["index", "."], ["health"], ["stats"], ["reindex"]])
    def test_a_backend_of_another_version_stops_what_needs_it(self, commands: Commands, words: list[str]) -> None:
        ended = commands.with_variables(QDRANT_URL="http://u:hush@q:6333")(*words)

        assert ended.status == 78
        assert ended.err.startswith("error: QDRANT_URL in the environment selects qdrant")
        assert "hush" not in ended.err

    def test_a_bad_flag_is_a_bad_setting(self, commands: Commands) -> None:
        ended = commands("serve", "--log-level", "loud")

        assert (ended.status, ended.err) == (
            78,
            "error: log.level (flag --log-level) must be one of debug, info, warning, error, not 'loud'.\n",
        )

    def test_other_machines_need_a_key(self, commands: Commands) -> None:
        """X-1."""
        ended = commands("serve", "--host", "0.0.0.0", "--port", "0")

        assert ended.status == 78
        assert "needs an API key" in ended.err


class TestKey:
    """X-1: keys are made here, and only their hash is kept."""

    def test_a_key_fits_the_lines_it_comes_with(self, commands: Commands) -> None:
        ended = commands("key", 'the "ci" job', "--read-only")

        key = ended.out.strip()
        table = tomllib.loads(ended.err[ended.err.index("[[") :])
        assert table["server"]["api_keys"] == [
            {
                "name": 'the "ci" job',
                "hash": "sha256:" + hashlib.sha256(key.encode()).hexdigest(),
                "access": "read",
            }
        ]
        assert len(key) > 40

    def test_keys_differ(self, commands: Commands) -> None:
        assert commands("key", "a").out != commands("key", "a").out

    def test_the_lines_are_a_configuration(self, commands: Commands) -> None:
        ended = commands("key", "ci")
        commands.write("rag-context.toml", ended.err[ended.err.index("[[") :])

        keys = json.loads(commands("config", "--json").out)["server.api_keys"]["value"]

        assert keys == [{"name": "ci", "hash": "********", "access": "write"}]

    def test_a_name_is_taken_once(self, commands: Commands) -> None:
        ended = commands("key", "ci")
        commands.write("rag-context.toml", ended.err[ended.err.index("[[") :])

        again = commands("key", "ci")

        assert (again.status, again.out) == (2, "")
        assert "There is a key named 'ci'" in again.err

    @pytest.mark.parametrize("name", ["", "  ", "a\nb", "x" * 201])
    def test_a_name_can_be_printed(self, commands: Commands, name: str) -> None:
        assert commands("key", name).status == 2
