"""Commands that need no index: version, help, config, key; and how every command fails (M-4, M-5, X-1)."""

import gc
import hashlib
import json
import os
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rag_context import __version__
from rag_context.api.operations import Access
from rag_context.cli import main
from rag_context.cli.command_line import EXIT_CODES, app, loaded
from rag_context.cli.serve import server_options
from rag_context.domain.callers import Bounds
from rag_context.errors import ConfigurationError
from rag_context.settings import KEYS, load_settings
from rag_context.settings.keys import ALIASES

from .run_command import Commands, Ended


def leaves(group: Any, *path: str) -> Iterator[tuple[str, ...]]:
    """Every command that does something, by the words that call it."""
    for name, command in group.commands.items():
        if not hasattr(command, "commands") or command.callback is not None:
            yield (*path, name)
        if hasattr(command, "commands"):
            yield from leaves(command, *path, name)


ROOT = loaded()
COMMANDS = tuple(leaves(ROOT))


class InProcessCli:
    """Runs commands in this process."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self._monkeypatch = monkeypatch

    def write(self, name: str, content: str) -> None:
        (self.folder / name).write_text(content)

    def with_variables(self, **variables: str) -> "InProcessCli":
        for name, value in variables.items():
            self._monkeypatch.setenv(name, value)
        return self

    def __call__(self, *words: str) -> Ended:
        result = CliRunner().invoke(app, list(words))
        return Ended(result.exit_code, result.stdout, result.stderr)


@pytest.fixture
def run_cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InProcessCli:
    """Commands in an empty folder, without this user's configuration."""
    for name in os.environ:
        if name in ALIASES or name.startswith("RAG_CONTEXT_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home" / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home" / "data"))
    monkeypatch.chdir(tmp_path)
    return InProcessCli(tmp_path, monkeypatch)


def test_the_version_is_printed(commands: Commands) -> None:
    assert commands.run("--version").out == f"rag-context {__version__}\n"


def test_help_names_every_command_and_exit_status(run_cli: InProcessCli) -> None:
    text = " ".join(run_cli("--help").out.split())

    assert all(f" {name} " in text for name in ROOT.commands)
    assert all(f"{code.value} {meaning}" in text for code, meaning in EXIT_CODES.items())


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_takes_folder_and_file(run_cli: InProcessCli, words: tuple[str, ...]) -> None:
    """M-4."""
    text = run_cli(*words, "--help").out

    assert "--data-dir" in text
    assert "--config" in text


@pytest.mark.parametrize("words", [(), *COMMANDS], ids=" ".join)
def test_help_shows_no_types_of_python(run_cli: InProcessCli, words: tuple[str, ...]) -> None:
    text = run_cli(*words, "--help").out

    assert not any(sign in text for sign in ("<bool>", "<str>", "<list", "<Path>", "<path>", "{QUESTION}"))


def test_the_help_names_the_default_connection_once(run_cli: InProcessCli) -> None:
    text = " ".join(run_cli("collections", "values", "--help").out.replace("│", " ").split())

    assert "without it, the one named default. " in text
    assert "default default" not in text


def test_the_usage_is_written_as_on_the_pages(run_cli: InProcessCli) -> None:
    assert "rag-context index [OPTIONS] PATH...  " in run_cli("index", "--help").out
    assert "rag-context collections query [OPTIONS] NAME [TEXT]  " in run_cli("collections", "query", "--help").out


def test_a_paragraph_of_help_is_broken_by_the_width_alone(run_cli: InProcessCli) -> None:
    lines = [line.strip() for line in run_cli("index", "--help").out.splitlines()]

    begin = next(number for number, line in enumerate(lines) if line.startswith("Ignore files"))
    paragraph = lines[begin : lines.index("", begin)]
    assert all(len(line) > 60 for line in paragraph[:-1])


def test_ctrl_c_while_the_command_line_loads_is_a_quiet_end(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted:
        @property
        def main(self) -> None:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "rag_context.cli.command_line", Interrupted())

    with pytest.raises(SystemExit) as end:
        main()

    assert end.value.code == 130


@pytest.mark.parametrize(("words", "how_many"), [(("config",), 0), (("serve", "--port", "-1"), 1)])
def test_only_commands_that_serve_others_have_a_callback_of_the_collector(
    run_cli: InProcessCli, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], how_many: int
) -> None:
    """Ctrl-C during a garbage collection is lost in the callback of the collector."""
    callbacks: list[Any] = []
    monkeypatch.setattr(gc, "callbacks", callbacks)

    run_cli(*words)

    assert len(callbacks) == how_many


@pytest.mark.parametrize("words", [["config"], ["config", "--json"], ["search", "x"], ["stats"]])
def test_a_full_disk_below_stdout_is_one_sentence(commands: Commands, words: list[str]) -> None:
    with Path("/dev/full").open("w") as full, commands.start(*words, stdout=full.fileno()) as process:
        _, err = process.communicate()

    assert (process.returncode, err) == (1, "error: The output cannot be written: No space left on device.\n")


def test_a_reader_that_has_gone_is_no_error(commands: Commands) -> None:
    """As in `rag-context config | head -1`."""
    reading, writing = os.pipe()
    os.close(reading)
    with commands.start("config", stdout=writing) as process:
        os.close(writing)
        _, err = process.communicate()

    assert err == ""


@pytest.mark.parametrize(
    "words", [["serch"], ["search"], ["index"], ["stats", "--range", "2h"], ["search", "x", "--no"]]
)
def test_what_is_not_understood_exits_2(run_cli: InProcessCli, words: list[str]) -> None:
    ended = run_cli(*words)

    assert (ended.status, ended.out) == (2, "")


def test_rag_context_errors_have_no_traceback(commands: Commands) -> None:
    """M-5."""
    commands.write("rag-context.toml", "[server]\nprot = 1\n")

    ended = commands("search", "x")

    assert (ended.status, ended.out) == (78, "")
    assert ended.err == "error: server.prot (file rag-context.toml) is not a setting; did you mean server.port?\n"


class TestConfig:
    """M-4: `config` prints every value with its source, secrets masked."""

    def test_every_key_is_printed_with_its_source(self, run_cli: InProcessCli) -> None:
        run_cli.write("rag-context.toml", '[log]\nlevel = "warn"\n')

        values = run_cli.with_variables(MCP_SERVER_PORT="3100")("config", "--json").json()

        assert list(values) == list(KEYS)
        assert values["log.level"] == {"value": "warning", "source": "file rag-context.toml"}
        assert values["server.port"] == {"value": 3100, "source": "environment MCP_SERVER_PORT"}
        assert values["search.deadline_ms"] == {"value": 450, "source": "default"}

    def test_a_flag_is_named_as_the_source(self, run_cli: InProcessCli) -> None:
        values = run_cli("config", "--json", "--data-dir", "elsewhere").json()

        assert values["data_dir"] == {"value": str(run_cli.folder / "elsewhere"), "source": "flag --data-dir"}

    def test_people_get_a_table_without_colours_in_a_pipe(self, run_cli: InProcessCli) -> None:
        lines = run_cli("config", "--all").out.splitlines()

        assert lines[0].split() == ["Setting", "Value", "From"]
        assert [line.split()[0] for line in lines[1:]] == list(KEYS)
        assert "\x1b" not in "".join(lines)

    def test_people_see_what_is_set_and_what_is_in_use(self, run_cli: InProcessCli) -> None:
        ended = run_cli("config")
        assert "--all" in ended.err
        keys = [line.split()[0] for line in ended.out.splitlines()[1:]]
        assert {"data_dir", "stores.vectors", "stores.documents", "embedder.kind"} <= set(keys)
        assert len(keys) < 10
        assert not any(key.endswith(("collection", "documents", "metrics")) for key in keys if "_" in key)

        other = run_cli.with_variables(QDRANT_URL="http://q:6333", LOG_LEVEL="warn")("config")
        more = {line.split()[0] for line in other.out.splitlines()[1:]} - set(keys)
        assert {"stores.qdrant_url", "stores.qdrant_collection", "log.level"} <= more
        assert all(key.startswith("stores.qdrant_") or key == "log.level" for key in more)

    @pytest.mark.parametrize("words", [["config"], ["config", "--json"]])
    def test_secrets_are_masked(self, run_cli: InProcessCli, words: list[str]) -> None:
        secret = run_cli.with_variables(RAG_CONTEXT_API_KEY="hush-1", MONGODB_URI="mongodb://u:hush-2@h/db")

        text = secret(*words).out

        assert "hush" not in text
        assert "mongodb://u:********@h/db" in text


class TestRefusals:
    """M-5: exit 78 and a sentence, never a traceback."""

    @pytest.mark.parametrize("words", [["config", "--config", "own.toml"], ["index", "own.toml", "--type", "code"]])
    def test_rights_are_checked_by_who_reads(
        self, run_cli: InProcessCli, monkeypatch: pytest.MonkeyPatch, words: list[str]
    ) -> None:
        """Typer would end with status 2 before one file of many is read (C-4)."""
        run_cli.write("own.toml", "")
        monkeypatch.setattr(os, "access", lambda _path, mode, **_: mode != os.R_OK)

        assert run_cli(*words).status != 2

    @pytest.mark.parametrize("words", [["config"], ["search", "x"], ["serve"], ["index", "."], ["health"]])
    def test_a_misspelt_key_stops_every_command(self, run_cli: InProcessCli, words: list[str]) -> None:
        run_cli.write("rag-context.toml", "[server]\nprot = 1\n")

        ended = run_cli(*words)

        assert (ended.status, ended.out) == (78, "")
        assert ended.err == ("error: server.prot (file rag-context.toml) is not a setting; did you mean server.port?\n")

    def test_each_problem_has_its_line(self, run_cli: InProcessCli) -> None:
        wrong = run_cli.with_variables(MCP_SERVER_PORT="x", LOG_LEVEL="y")

        ended = wrong("config")

        assert [line.partition(" (")[0] for line in ended.err.splitlines()] == [
            "error: server.port",
            "error: log.level",
        ]

    def test_a_backend_that_is_down_stops_nothing_and_its_password_stays_secret(self, run_cli: InProcessCli) -> None:
        """M-5, X-5."""
        without = run_cli.with_variables(QDRANT_URL="http://u:hush@127.0.0.1:9")

        searched, examined, status = without("search", "words", "--json"), without("health"), without("status")

        assert (searched.status, json.loads(searched.out)["fallbackLevel"]) == (0, 2)
        assert "Qdrant cannot be reached" in examined.out
        assert (status.status, examined.out.splitlines()[0]) == (1, status.out.splitlines()[0])
        assert "hush" not in searched.out + searched.err + examined.out + examined.err

    @pytest.mark.parametrize(
        ("variable", "url", "place"),
        [
            ("QDRANT_URL", "http://u:hush@127.0.0.1:9", "{folder}/home/data/rag-context and Qdrant"),
            ("DATABASE_URL", "postgresql://u:hush@127.0.0.1:9/memory", "PostgreSQL at 127.0.0.1:9/memory"),
        ],
    )
    def test_the_index_is_where_the_settings_have_it(
        self, run_cli: InProcessCli, variable: str, url: str, place: str
    ) -> None:
        examined = run_cli.with_variables(**{variable: url})("health")

        assert f"not healthy · the index in {place.format(folder=run_cli.folder)} · " in examined.out

    def test_a_check_needs_every_backend(self, run_cli: InProcessCli) -> None:
        """A backend that cannot be queried is not sound; only what was seen is reported of it."""
        ended = run_cli.with_variables(QDRANT_URL="http://u:hush@127.0.0.1:9")("check")

        assert ended.status != 0
        assert "hush" not in ended.out + ended.err

    def test_a_bad_flag_is_a_bad_setting(self, run_cli: InProcessCli) -> None:
        ended = run_cli("serve", "--log-level", "loud")

        assert (ended.status, ended.err) == (
            78,
            "error: log.level (flag --log-level) must be one of debug, info, warning, error, not 'loud'.\n",
        )

    def test_other_machines_need_a_key(self, run_cli: InProcessCli) -> None:
        """X-1."""
        ended = run_cli("serve", "--host", "0.0.0.0", "--port", "0")

        assert ended.status == 78
        assert "without an API key" in ended.err


class TestKey:
    """X-1: keys are made here, and only their hash is kept."""

    def test_a_key_fits_the_lines_it_comes_with(self, run_cli: InProcessCli) -> None:
        ended = run_cli("key", 'the "ci" job', "--read-only")

        key = ended.out.strip()
        table = tomllib.loads(ended.err[ended.err.index("[[") :])
        assert table["server"]["api_keys"] == [
            {"name": 'the "ci" job', "hash": "sha256:" + hashlib.sha256(key.encode()).hexdigest(), "access": "read"}
        ]
        assert len(key) > 40

    def test_keys_differ(self, run_cli: InProcessCli) -> None:
        assert run_cli("key", "a").out != run_cli("key", "a").out

    def test_the_lines_are_a_configuration(self, run_cli: InProcessCli) -> None:
        ended = run_cli("key", "ci")
        run_cli.write("rag-context.toml", ended.err[ended.err.index("[[") :])

        keys = run_cli("config", "--json").json()["server.api_keys"]["value"]

        assert keys == [{"name": "ci", "hash": "********", "access": "write", "scope": None}]

    def test_a_key_is_bound_by_the_lines_it_comes_with(self, run_cli: InProcessCli) -> None:
        ended = run_cli("key", "ana", "--admin", "--agent", "ana", "--project", "shop", "--project", 'the "web"')
        run_cli.write("rag-context.toml", ended.err[ended.err.index("[[") :])

        (key,) = server_options(load_settings(flags={}, environ={}, cwd=run_cli.folder).settings).api_keys

        assert (key.access, key.bounds) == (Access.ADMIN, Bounds(agents=("ana",), projects=("shop", 'the "web"')))

    def test_a_key_of_a_group_has_what_the_group_has(self, run_cli: InProcessCli) -> None:
        ended = run_cli("key", "ana", "--group", "shop", "--project", "wiki")
        group = '[[server.groups]]\nname = "shop"\nprojects = ["shop"]\ntags = ["sales"]\n'
        lines = ended.err[ended.err.index("[[") :]
        run_cli.write("rag-context.toml", group + lines)

        (key,) = server_options(load_settings(flags={}, environ={}, cwd=run_cli.folder).settings).api_keys

        assert key.bounds == Bounds(projects=("wiki", "shop"), tags=("sales",))
        run_cli.write("rag-context.toml", lines)
        with pytest.raises(ConfigurationError, match="lacks: shop"):
            server_options(load_settings(flags={}, environ={}, cwd=run_cli.folder).settings)

    def test_a_name_can_be_used_once(self, run_cli: InProcessCli) -> None:
        ended = run_cli("key", "ci")
        assert "into rag-context.toml (a new file in this folder):" in ended.err
        run_cli.write("rag-context.toml", ended.err[ended.err.index("[[") :])
        assert f"into {run_cli.folder / 'rag-context.toml'}:" in run_cli("key", "another").err

        again = run_cli("key", "ci")

        assert (again.status, again.out) == (2, "")
        assert "There is a key named 'ci'" in again.err

    @pytest.mark.parametrize("name", ["", "  ", "a\nb", "x" * 201])
    def test_a_name_can_be_printed(self, run_cli: InProcessCli, name: str) -> None:
        assert run_cli("key", name).status == 2


@pytest.mark.parametrize("command", ["index", "watch", "serve --watch", "list --data-dir"])
def test_an_empty_path_is_not_the_current_folder(run_cli: InProcessCli, command: str) -> None:
    """As an unset variable of a shell leaves it: `index "$NOTES"` read the current folder with all below it."""
    ended = run_cli(*command.split(), "")
    assert ended.status == 2
    assert "the path is empty" in ended.err


def test_uninstalling_without_a_client_names_them(run_cli: InProcessCli) -> None:
    ended = run_cli("uninstall")
    assert ended.status == 2
    assert "claude-code, codex, gemini" in ended.err
