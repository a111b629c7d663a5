"""The command `mcp` and its own commands, their options and their help."""

# ruff: noqa: PLC0415  (the work is loaded when it is asked for)

from pathlib import Path
from typing import Annotated

import typer

from rag_context.cli.options import Chosen, Config, DataDir
from rag_context.cli.toolsets import MEMORY, check_toolset
from rag_context.errors import InvalidInputError

group = typer.Typer(no_args_is_help=False, pretty_exceptions_enable=False)

Tools = Annotated[
    str,
    typer.Option(
        metavar="memory|operations|projects|collections|all",
        help="Which tools to offer: the agents' memory, operations, project documents, named collections, or all.",
    ),
]
Url = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help="Configure the address of a running server instead of a command."),
]


@group.callback(invoke_without_command=True)
def mcp(
    context: typer.Context,
    tools: Tools = MEMORY,
    structured: Annotated[
        bool, typer.Option("--structured", help="Answer with structured content, for programs, instead of text.")
    ] = False,
    print_config: Annotated[
        str | None,
        typer.Option("--print-config", metavar="CLIENT", help="Print what goes into a client's configuration file."),
    ] = None,
    url: Url = None,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Serve one MCP client over stdin and stdout, on the index itself; what clients run.

    Any number of them may use one data directory at the same time, beside a server. Logs go to stderr.
    Known clients are claude (Claude Desktop), claude-code, cursor, vscode, windsurf, codex and gemini.
    """
    if context.invoked_subcommand is not None:
        if tools != MEMORY or any((structured, print_config, url, data_dir, config)):
            raise InvalidInputError(f"Put the options behind `mcp {context.invoked_subcommand}`, not before it")
        return
    if print_config is not None:
        from rag_context.cli import install

        raise typer.Exit(install.run_print(print_config, install.Wanted(tools, url, data_dir, config)))
    if url is not None:
        raise InvalidInputError("--url goes with --print-config CLIENT, or behind `mcp install CLIENT`")
    check_toolset(tools)
    from rag_context.cli import mcp as work

    raise typer.Exit(work.run(Chosen(config, {"data_dir": data_dir}), tools=tools, structured=structured))


@group.command("install")
def install_in(
    client: Annotated[
        str,
        typer.Argument(metavar="CLIENT", help="claude, claude-code, cursor, vscode, windsurf, codex or gemini."),
    ],
    path: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The client's configuration file, if not where it usually is.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the file as it would be, and write nothing.")] = (
        False
    ),
    tools: Tools = MEMORY,
    url: Url = None,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Add this server to a client's configuration file; all else in the file stays, and a copy of it is kept.

    What you have added to the entry yourself, such as env, stays too.

    Running it again changes nothing, or brings the entry up to date.
    """
    from rag_context.cli import install

    wanted = install.Wanted(tools, url, data_dir, config)
    raise typer.Exit(install.run_install(client, wanted, path=path, dry_run=dry_run))
