"""`install` and `uninstall`: this program in the settings of the clients on this machine, and out of them again."""

import difflib
import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from rag_context.agents.clients import CLIENTS, Client, Scope
from rag_context.agents.entries import Launch, Machine, address, server_piece
from rag_context.agents.installing import FileChange, Installer, State, client_named
from rag_context.agents.pieces import HOOK_PROGRAM
from rag_context.agents.workspace import workspace
from rag_context.api.toolsets import MEMORY_TOOLS, Toolset, names_of, toolsets_named
from rag_context.cli.command_line import ExitCode, exit_code
from rag_context.cli.console import Console
from rag_context.cli.options import ConfigOptions, Options, option, with_options
from rag_context.errors import InvalidInputError, RagContextError
from rag_context.settings import Loaded
from rag_context.settings.config_file import without
from rag_context.settings.sections import default_data_dir

_OF_THIS_PROGRAM = ("server.", "client.", "log.")
"""Settings that have no effect on what a client runs."""

Clients = Annotated[
    list[str] | None, typer.Argument(metavar="[CLIENT]...", help=f"One or more of {', '.join(CLIENTS)}.")
]
AllFound = Annotated[bool, typer.Option("--all", help="All clients that are found on this machine.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the changes as a diff, and write nothing.")]


@dataclass(frozen=True, slots=True)
class Target:
    tools: str
    url: str | None
    options: ConfigOptions


@dataclass(frozen=True, slots=True)
class _Outcome:
    client: Client
    changes: Sequence[FileChange] = ()
    error: RagContextError | None = None


@with_options
def install(
    clients: Clients = None,
    all_found: AllFound = False,
    scope: Scope = option(
        Scope.USER, "The settings of this user, or those of the current project, which a team commits."
    ),
    dry_run: DryRun = False,
    tools: str = option(Toolset.MEMORY.value, "Which tools to offer, as in `rag-context mcp --tools`.", metavar="SETS"),
    url: str | None = option(None, "Use a running server at this address for the tools.", metavar="URL"),
    *,
    options: Options,
) -> ExitCode:
    """Connect agents to the memory: tools, hooks and instructions in the settings of their clients.

    All else in these files stays as it is, and `uninstall` restores them. Running it again changes nothing, or brings
    the entries up to date. Without a client it lists those that are found, with what they have.
    """
    installer = installer_here()
    target = Target(tools, url, options)
    console = Console()
    if not clients and not all_found:
        return _list(installer, options, console)
    chosen = _chosen(clients, [client for client in CLIENTS.values() if installer.is_found(client)])
    if clients is None:
        chosen = [client for client in chosen if scope in installer.scopes(client)]
    if url is None:
        _warn_of_environment(options.load(), console)
    outcomes = []
    for client in chosen:
        try:
            launch = launch_of(client, scope, target)
            work = installer.planned if dry_run else installer.install
            outcomes.append(_Outcome(client, work(client, scope, launch)))
        except RagContextError as error:
            outcomes.append(_Outcome(client, error=error))
    return _report(outcomes, options, console, dry_run=dry_run, to_do=scope)


@with_options
def uninstall(
    clients: Clients = None,
    all_found: bool = option(False, "All clients that have something of this program.", "--all"),
    scope: Scope | None = option(None, "Only the settings of this scope."),
    dry_run: DryRun = False,
    *,
    options: Options,
) -> ExitCode:
    """Remove what `install` wrote, in this user's settings and in all projects; the documents stay.

    A file becomes what it was, byte for byte; where you have changed other parts of it meanwhile, these stay.
    """
    installer = installer_here()
    if not clients and not all_found:
        raise InvalidInputError(f"Name the clients, or use --all; known are {', '.join(CLIENTS)}")
    scopes = [scope] if scope is not None else list(Scope)
    outcomes = []
    for client in _chosen(clients, list(CLIENTS.values())):
        try:
            work = installer.planned_removal if dry_run else installer.uninstall
            changes = work(client, scopes)
            if clients or changes:
                outcomes.append(_Outcome(client, changes))
        except RagContextError as error:
            outcomes.append(_Outcome(client, error=error))
    return _report(outcomes, options, Console(), dry_run=dry_run, to_do=None)


def installer_here() -> Installer:
    project = workspace(Path.cwd())
    return Installer(
        Machine(Path.home(), without("RAG_CONTEXT_")), default_data_dir(), project.root if project is not None else None
    )


def _chosen(names: Sequence[str] | None, every: list[Client]) -> list[Client]:
    return [client_named(name) for name in dict.fromkeys(names)] if names else every


def launch_of(client: Client, scope: Scope, target: Target) -> Launch:
    """What the client is to run. It has neither this folder nor this environment, so what they say goes with it.

    Raises: InvalidInputError (it names a place of this machine in the settings of a project).
    """
    toolsets = toolsets_named(target.tools)
    loaded = target.options.load()
    options: tuple[str, ...] = ()
    server_options: tuple[str, ...] = ("--tools", names_of(toolsets)) if toolsets != MEMORY_TOOLS else ()
    if scope is Scope.PROJECT:
        if target.options.data_dir is not None or target.options.config is not None:
            raise InvalidInputError(
                "A project's settings are for every machine: leave --data-dir and --config out, or use --scope user"
            )
    else:
        if loaded.sources["data_dir"] != "default":
            options = ("--data-dir", str(loaded.settings.data_dir.expanduser().absolute()))
        if loaded.file is not None and target.options.config is not None:
            server_options += ("--config", str(loaded.file.expanduser().absolute()))
    launch = Launch(options=options, server_options=server_options)
    if target.url is not None:
        launch = replace(launch, url=address(target.url, toolsets))
    if scope is Scope.PROJECT:
        return launch
    return replace(launch, server=_program("rag-context", client), hook=_program(HOOK_PROGRAM, client))


def _program(name: str, client: Client) -> str:
    """A program of this installation as the client can start it, also after an upgrade.

    Its name alone, where the shell's path leads to it from outside of its own folder (pipx and uv make such links):
    then the settings of user and project are the same, and the client runs a hook in both once. Else its whole path.
    """
    own = Path(sys.executable).with_name(f"{name}.exe" if os.name == "nt" else name)
    folders = [each for each in os.get_exec_path() if Path(each) != own.parent]
    link = shutil.which(name, path=os.pathsep.join(folders))
    if not own.is_file():
        return link or name
    if link is not None and Path(link).samefile(own):
        return link if client.is_desktop else name
    return str(own)


def _warn_of_environment(loaded: Loaded, console: Console) -> None:
    """Other settings of this environment may be secret, and are for people to hand over."""
    left = {
        source.removeprefix("environment ")
        for key, source in loaded.sources.items()
        if source.startswith("environment ") and key != "data_dir" and not key.startswith(_OF_THIS_PROGRAM)
    }
    if left:
        console.warning(
            f"the client does not have this environment's {', '.join(sorted(left))}: put that into the entry's env, or "
            "into the file that --config names"
        )


def run_print(name: str, target: Target) -> ExitCode:
    """Print the lines of a client's file for people to copy; where they belong goes to stderr."""
    console = Console()
    client = client_named(name)
    if client.mcp is None:
        raise InvalidInputError(f"{client.title} has no file for MCP servers. {client.to_do.get(Scope.PROJECT, '')}")
    place = client.mcp.files[Scope.USER]
    path = installer_here().machine.path(place)
    *_, text = server_piece(client, path, launch_of(client, Scope.USER, target)).steps("")
    if target.url is None:
        _warn_of_environment(target.options.load(), console)
    console.line(text.rstrip("\n"))
    console.note((f"{client.title} reads this from {path}. {client.remark}".strip(), "dim"))
    return ExitCode.OK


def _list(installer: Installer, options: Options, console: Console) -> ExitCode:
    found = [client for client in CLIENTS.values() if installer.is_found(client)]
    target = Target(Toolset.MEMORY.value, None, ConfigOptions())
    rows = [
        (client, {scope: _state(installer, client, scope, target) for scope in installer.scopes(client)})
        for client in found
        if installer.project is not None or Scope.USER in installer.scopes(client)
    ]
    if options.as_json:
        clients = [
            {"client": client.name, "title": client.title, "tier": client.tier, "scopes": states}
            for client, states in rows
        ]
        console.line(json.dumps({"clients": clients, "project": str(installer.project) if installer.project else None}))
        return ExitCode.OK
    if not rows:
        console.show(f"No client was found. Known are {', '.join(CLIENTS)}.")
        return ExitCode.OK
    console.show_table(
        ("client", "name", "user", "project"),
        [(client.title, client.name, *(states.get(scope, "-") for scope in Scope)) for client, states in rows],
    )
    console.note(("`rag-context install CLIENT` or `--all` connects them; `rag-context doctor` tries each.", "dim"))
    return ExitCode.OK


def _state(installer: Installer, client: Client, scope: Scope, target: Target) -> str:
    if scope is Scope.PROJECT and installer.project is None:
        return "-"
    try:
        state = installer.state(client, scope, launch_of(client, scope, target))
    except RagContextError:
        return "unreadable"
    return "plug-in" if state is State.NONE and installer.plugin(client) is not None else state.value


def _report(
    outcomes: Sequence[_Outcome], options: Options, console: Console, *, dry_run: bool, to_do: Scope | None
) -> ExitCode:
    if options.as_json:
        console.line(json.dumps({"dryRun": dry_run, "clients": [_row(outcome, to_do) for outcome in outcomes]}))
    for outcome in outcomes:
        title = outcome.client.title
        if outcome.error is not None:
            if len(outcomes) == 1 and not options.as_json:
                raise outcome.error
            console.error(f"{title}: {outcome.error}")
        elif not options.as_json:
            _show(outcome, console, dry_run=dry_run, to_do=to_do)
    if not outcomes and not options.as_json:
        console.show("There is nothing to do: no client was found." if to_do else "There is nothing to remove.")
    errors = [outcome.error for outcome in outcomes if outcome.error is not None]
    return exit_code(errors[0]) if errors else ExitCode.OK


def _show(outcome: _Outcome, console: Console, *, dry_run: bool, to_do: Scope | None) -> None:
    client, changes = outcome.client, [change for change in outcome.changes if change.is_needed]
    if dry_run:
        for change in changes:
            console.line("\n".join(_diff(change)))
        console.note((f"{client.title}: {'these changes' if changes else 'nothing'} would be written.", "dim"))
        return
    if not changes:
        console.show(f"{client.title}: {'already installed' if to_do else 'nothing to remove'}.")
    else:
        console.show((f"{client.title}: {'installed' if to_do else 'removed'}.", "bold"))
        for change in changes:
            console.show(f"  {_verb(change)} {change.path}")
    if to_do is not None and (step := client.to_do.get(to_do)):
        console.show(("  next: ", "bold"), step)
    if to_do is Scope.PROJECT and changes:
        console.note(("The team needs `rag-context` on the PATH of each machine (pipx or uv tool install).", "dim"))


def _verb(change: FileChange) -> str:
    return "made" if change.before is None else "deleted" if change.after is None else "changed"


def _diff(change: FileChange) -> Iterator[str]:
    def lines(content: bytes | None) -> list[str]:
        return (content or b"").decode(errors="replace").removeprefix("\ufeff").splitlines()

    old, new = (str(change.path) if content is not None else os.devnull for content in (change.before, change.after))
    yield from difflib.unified_diff(lines(change.before), lines(change.after), old, new, lineterm="")


def _row(outcome: _Outcome, to_do: Scope | None) -> dict[str, Any]:
    row: dict[str, Any] = {"client": outcome.client.name}
    if outcome.error is not None:
        return {**row, "error": str(outcome.error)}
    files = [
        {"path": str(change.path), "change": _verb(change), "diff": "\n".join(_diff(change))}
        for change in outcome.changes
        if change.is_needed
    ]
    return {**row, "files": files, "next": outcome.client.to_do.get(to_do) if to_do is not None else None}
