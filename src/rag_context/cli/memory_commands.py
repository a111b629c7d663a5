"""The commands that fill the memory and ask it: their options and their help."""

# ruff: noqa: PLC0415  (the work is loaded when it is asked for)

from pathlib import Path
from typing import Annotated, Literal

import typer

from rag_context.cli.exits import EPILOG
from rag_context.cli.options import AsJson, Branch, Chosen, Config, DataDir, PathHash, Project

group = typer.Typer()

ContentType = Annotated[
    str | None,
    typer.Option("--type", metavar="KIND", help="Kind of content: chat, decision, code or documentation."),
]
Session = Annotated[str | None, typer.Option("--session", metavar="ID", help="Session that the documents belong to.")]
Category = Annotated[str | None, typer.Option("--category", metavar="NAME", help="Category of the documents.")]
Game = Annotated[str | None, typer.Option("--game", metavar="NAME", help="Game that the documents are about.")]
Agent = Annotated[str | None, typer.Option(metavar="NAME", help="Agent that wrote the documents.")]
Tags = Annotated[list[str] | None, typer.Option("--tag", metavar="TAG", help="A tag; may be given several times.")]
Include = Annotated[
    list[str] | None,
    typer.Option(
        "--include",
        metavar="PATTERN",
        help="Index matching files although they look generated; may be given several times.",
    ),
]


@group.command(epilog=EPILOG)
def index(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH...", readable=False, help="Files, folders, quoted patterns; - is stdin (see --jsonl)."
        ),
    ],
    content_type: ContentType = None,
    session: Session = None,
    category: Category = None,
    game: Game = None,
    tag: Tags = None,
    agent: Agent = None,
    jsonl: Annotated[
        bool, typer.Option("--jsonl", help="The files are streams of documents, one JSON object per line.")
    ] = False,
    include: Include = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="Remove the documents of files that are gone from the folders.")
    ] = False,
    receipts: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a receipt for each document, one JSON object per line.")
    ] = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Index files, folders and streams of documents; changed files are replaced, unchanged ones are not read.

    Ignore files (.gitignore, .ragignore) are respected. Lock files, vendored, minified and generated code and tables
    of data are skipped, and listed; --include '*.lock' takes them. An interrupted run is resumed by the same command.
    Documents of files that are gone are reported; --prune removes them. With --json, stdout has one receipt per line.
    """
    from rag_context.cli import index as work
    from rag_context.files.sync import Gone

    what = work.IndexRun(
        paths,
        work.Said(content_type, session, category, game, tag or (), agent),
        gone=Gone.PRUNE if prune else Gone.REPORT,
        include=include or (),
        as_documents=jsonl,
        receipts=receipts,
        as_json=as_json,
    )
    raise typer.Exit(work.run(Chosen(config, {"data_dir": data_dir}), what))


@group.command(epilog=EPILOG)
def watch(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", readable=False, help="Files and folders.")],
    content_type: ContentType = None,
    session: Session = None,
    category: Category = None,
    game: Game = None,
    tag: Tags = None,
    agent: Agent = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Index files and folders and follow their changes, until SIGTERM or Ctrl-C.

    Changes since the last run are indexed first. Documents of files that are deleted, or ignored from now on,
    are removed; a renamed file is not embedded again. stdout has a line per change, with --json a receipt.
    """
    from rag_context.cli import watch as work
    from rag_context.cli.index import Said

    what = work.WatchRun(paths, Said(content_type, session, category, game, tag or (), agent), as_json=as_json)
    raise typer.Exit(work.run(Chosen(config, {"data_dir": data_dir}), what))


@group.command(epilog=EPILOG)
def search(
    query: Annotated[str, typer.Argument(metavar="QUESTION", help="A question, or an exact name or error code.")],
    limit: Annotated[
        int | None, typer.Option(metavar="N", help="Maximum number of results, 1 to 20; default 5.")
    ] = None,
    category: Category = None,
    session: Session = None,
    content_type: ContentType = None,
    game: Game = None,
    tag: Tags = None,
    source: Annotated[
        str | None, typer.Option(metavar="SOURCE", help="A source, a file or a folder; ending in * a prefix.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Only documents since: 7d, 2026-01-31 or RFC 3339.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="WHEN", help="Only documents before this time.")] = None,
    min_score: Annotated[
        float | None, typer.Option(metavar="SCORE", help="Minimum score, 0 to 1; 0 returns everything.")
    ] = None,
    mode: Annotated[
        Literal["hybrid", "vector", "text"] | None,
        typer.Option(metavar="hybrid|vector|text", help="Hybrid search, vector search or keyword search."),
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show rank and raw scores of each result.")] = False,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", metavar="N", help="Token budget of all passages together.")
    ] = None,
    agent: Annotated[str | None, typer.Option(metavar="NAME", help="Name for the statistics; default cli.")] = None,
    project: Project = None,
    branch: Branch = None,
    path_hash: PathHash = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Search for the passages that answer a question."""
    from rag_context.cli import search as work

    question = work.Question(
        query=query,
        limit=limit,
        category=category,
        session_id=session,
        content_type=content_type,
        game=game,
        tags=tag or (),
        source=source,
        since=since,
        until=until,
        min_score=min_score,
        mode=mode,
        explain=explain,
        max_tokens=max_tokens,
        agent=agent,
        project=project,
        branch=branch,
        path_hash=path_hash,
        as_json=as_json,
    )
    raise typer.Exit(work.run(Chosen(config, {"data_dir": data_dir}), question))
