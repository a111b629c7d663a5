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
        "--include", metavar="PATTERN", help="Take such files although they look generated; may be given several times."
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
        bool, typer.Option("--jsonl", help="The files are streams of documents, one JSON object a line.")
    ] = False,
    include: Include = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="Remove the documents of files that are gone from the folders.")
    ] = False,
    receipts: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write what became of each document, one JSON object a line.")
    ] = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Take files, folders and streams of documents in; what changed is replaced, the rest not even read.

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
    """Keep files and folders in the memory as they change, until SIGTERM or Ctrl-C.

    What changed while nobody watched is taken in first. Documents of files that are deleted, or ignored from now on,
    are removed; a renamed file is not embedded again. stdout has a line per change, with --json a receipt.
    """
    from rag_context.cli import watch as work
    from rag_context.cli.index import Said

    what = work.WatchRun(paths, Said(content_type, session, category, game, tag or (), agent), as_json=as_json)
    raise typer.Exit(work.run(Chosen(config, {"data_dir": data_dir}), what))


@group.command(epilog=EPILOG)
def search(
    query: Annotated[str, typer.Argument(metavar="QUESTION", help="In plain words, or an exact name or error code.")],
    limit: Annotated[int | None, typer.Option(metavar="N", help="Most results, 1 to 20; 5 if not said.")] = None,
    category: Category = None,
    session: Session = None,
    content_type: ContentType = None,
    game: Game = None,
    tag: Tags = None,
    source: Annotated[
        str | None, typer.Option(metavar="SOURCE", help="A source, a file or a folder; ending in * a prefix.")
    ] = None,
    since: Annotated[str | None, typer.Option(metavar="WHEN", help="Not older: 7d, 2026-01-31 or RFC 3339.")] = None,
    until: Annotated[str | None, typer.Option(metavar="WHEN", help="Only older than this moment.")] = None,
    min_score: Annotated[
        float | None, typer.Option(metavar="SCORE", help="Least score, 0 to 1; 0 keeps everything.")
    ] = None,
    mode: Annotated[
        Literal["hybrid", "vector", "text"] | None,
        typer.Option(metavar="hybrid|vector|text", help="By meaning and words, or by one."),
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Say how each result was found and ranked.")] = False,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", metavar="N", help="Most tokens of all passages together.")
    ] = None,
    agent: Annotated[
        str | None, typer.Option(metavar="NAME", help="Who asks, for the statistics; cli if not said.")
    ] = None,
    project: Project = None,
    branch: Branch = None,
    path_hash: PathHash = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Answer a question with the few passages that matter."""
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
