"""`mcp --print-config` and `mcp install`: this server in the configuration of an MCP client."""

from dataclasses import dataclass
from pathlib import Path

from rich.text import Text

from rag_context.cli.clients import Launch, address, client, command, planned
from rag_context.cli.exits import ExitCode
from rag_context.cli.options import Chosen
from rag_context.cli.screen import Screen
from rag_context.cli.settings import load
from rag_context.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Installation:
    """Into which client's file, and what."""

    client: str
    path: Path | None
    url: str | None
    data_dir: Path | None
    config: Path | None
    dry_run: bool


def run_print(name: str, *, data_dir: Path | None, config: Path | None, url: str | None) -> ExitCode:
    """Print the lines for people to copy; where they belong goes to stderr."""
    screen = Screen()
    known = client(name)
    snippet = known.snippet(_how(data_dir=data_dir, config=config, url=url))
    screen.line(snippet.rstrip("\n"))
    screen.note(Text(f"{known.title} reads this from {known.path()}. {known.remark}".strip(), style="dim"))
    return ExitCode.OK


def run_install(wanted: Installation) -> ExitCode:
    """Write the entry where it belongs, or say what would be written."""
    screen = Screen()
    known = client(wanted.client)
    how = _how(data_dir=wanted.data_dir, config=wanted.config, url=wanted.url)
    change = planned(known, how, wanted.path or known.path())
    if wanted.dry_run:
        screen.line(change.after.rstrip("\n"))
        would = "would be written to" if change.is_needed else "is already in"
        screen.note(Text(f"This {would} {change.path}.", style="dim"))
        return ExitCode.OK
    if not change.is_needed:
        screen.show(f"{known.title}: already there, in {change.path}.")
        return ExitCode.OK
    try:
        backup = change.apply()
    except OSError as error:
        raise ConfigurationError(f"Cannot write {change.path}: {error.strerror}") from error
    screen.show(f"{known.title}: added to {change.path}." + (f" The file as it was: {backup}." if backup else ""))
    if known.remark:
        screen.note(Text(known.remark, style="dim"))
    return ExitCode.OK


def _how(*, data_dir: Path | None, config: Path | None, url: str | None) -> Launch:
    """What the client is to run. It has neither this folder nor this environment, so what they say goes with it."""
    if url is not None:
        return address(url)
    loaded = load(Chosen(config, {"data_dir": data_dir}))
    is_named = loaded.sources["data_dir"].startswith(("flag", "environment"))
    return command(loaded.settings.data_dir if is_named else None, loaded.file)
