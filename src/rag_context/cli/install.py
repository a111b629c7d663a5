"""`mcp --print-config` and `mcp install`: this server in the configuration of an MCP client."""

from dataclasses import dataclass
from pathlib import Path

from rich.text import Text

from rag_context.cli.clients import Launch, address, client, command, planned
from rag_context.cli.console import Screen
from rag_context.cli.exits import ExitCode
from rag_context.cli.mcp import MEMORY, check_toolset
from rag_context.cli.options import Chosen, load
from rag_context.errors import ConfigurationError, InvalidInputError
from rag_context.settings import Loaded

_OF_THIS_PROGRAM = ("server.", "client.", "log.")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an entry is to reach: a command with its options, or an address."""

    tools: str
    url: str | None
    data_dir: Path | None
    config: Path | None


def run_print(name: str, wanted: Wanted) -> ExitCode:
    """Print the lines for people to copy; where they belong goes to stderr."""
    screen = Screen()
    known = client(name)
    snippet = known.snippet(_how(wanted, screen))
    screen.line(snippet.rstrip("\n"))
    screen.note(Text(f"{known.title} reads this from {known.path()}. {known.remark}".strip(), style="dim"))
    return ExitCode.OK


def run_install(name: str, wanted: Wanted, *, path: Path | None, dry_run: bool) -> ExitCode:
    """Write the entry where it belongs, or say what would be written."""
    screen = Screen()
    known = client(name)
    change = planned(known, _how(wanted, screen), path or known.path())
    if dry_run:
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


def _how(wanted: Wanted, screen: Screen) -> Launch:
    """What the client is to run. It has neither this folder nor this environment, so what they say goes with it."""
    check_toolset(wanted.tools)
    if wanted.url is not None:
        if wanted.tools != MEMORY:
            raise InvalidInputError("--tools goes with a command: a server offers all its tools; leave it or --url out")
        return address(wanted.url)
    loaded = load(Chosen(wanted.config, {"data_dir": wanted.data_dir}))
    is_named = loaded.sources["data_dir"].startswith(("flag", "environment"))
    _tell_what_stays_behind(loaded, screen)
    return command(wanted.tools, loaded.settings.data_dir if is_named else None, loaded.file)


def _tell_what_stays_behind(loaded: Loaded, screen: Screen) -> None:
    """Other settings of this environment may be secret, and are for people to hand over."""
    left = {
        source.removeprefix("environment ")
        for key, source in loaded.sources.items()
        if source.startswith("environment ") and key != "data_dir" and not key.startswith(_OF_THIS_PROGRAM)
    }
    if left:
        screen.warning(
            f"the client does not have this environment's {', '.join(sorted(left))}: put that into the entry's env, or "
            "into the file that --config names"
        )
