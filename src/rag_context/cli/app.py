"""The commands, their options and their help. Each loads its work only when it runs, so that `--help` is quick."""

# ruff: noqa: PLC0415  (the imports inside the commands are the point of this module)

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from rag_context import __version__
from rag_context.cli.exits import EXIT_CODES, ExitCode, report
from rag_context.cli.mcp_commands import group as mcp_group
from rag_context.cli.options import AsJson, Chosen, Config, DataDir
from rag_context.cli.screen import Screen
from rag_context.errors import RagContextError

EPILOG = "Exit status: " + ", ".join(f"{code.value} {meaning}" for code, meaning in EXIT_CODES.items()) + "."


class Commands(TyperGroup):
    """Turns our own errors into one sentence and an exit status; a bug keeps its traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except RagContextError as error:
            raise typer.Exit(report(error, Screen())) from error
        except KeyboardInterrupt:
            Screen().note("interrupted.")
            raise typer.Exit(ExitCode.INTERRUPTED) from None


app = typer.Typer(
    name="rag-context",
    cls=Commands,
    help="The context layer for AI agents: hand it chats, decisions, code and documents; get back the few passages "
    "that matter.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.add_typer(mcp_group, name="mcp", epilog=EPILOG)

ContentType = Annotated[
    str | None,
    typer.Option("--type", metavar="KIND", help="Kind of content: chat, decision, code or documentation."),
]
Session = Annotated[str | None, typer.Option("--session", metavar="ID", help="Session that the documents belong to.")]
Category = Annotated[str | None, typer.Option("--category", metavar="NAME", help="Category of the documents.")]
Game = Annotated[str | None, typer.Option("--game", metavar="NAME", help="Game that the documents are about.")]
Tags = Annotated[list[str] | None, typer.Option("--tag", metavar="TAG", help="A tag; may be given several times.")]


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    app()


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rag-context {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Take the options that stand before any command."""


@app.command(epilog=EPILOG)
def serve(
    host: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Address to listen on (server.host).")] = None,
    port: Annotated[int | None, typer.Option(metavar="PORT", help="Port; 0 takes a free one (server.port).")] = None,
    log_level: Annotated[
        str | None, typer.Option(metavar="LEVEL", help="debug, info, warning or error (log.level).")
    ] = None,
    reindex: Annotated[
        bool, typer.Option("--reindex", help="Make the vectors anew if another model made the index.")
    ] = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Serve HTTP until SIGTERM or Ctrl-C."""
    from rag_context.cli import serve as work

    flags = {"server.host": host, "server.port": port, "log.level": log_level, "data_dir": data_dir}
    raise typer.Exit(work.run(Chosen(config, flags), reindex=reindex))


@app.command(name="embed-server", epilog=EPILOG)
def embed_server(
    host: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Address to listen on (server.host).")] = None,
    port: Annotated[int, typer.Option(metavar="PORT", min=0, max=65535, help="Port; 0 takes a free one.")] = 8080,
    workers: Annotated[int | None, typer.Option(metavar="N", help="Texts embedded at once (embedder.workers).")] = None,
    api_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Key that clients must send (server.api_key).")
    ] = None,
    log_level: Annotated[
        str | None, typer.Option(metavar="LEVEL", help="debug, info, warning or error (log.level).")
    ] = None,
    config: Config = None,
) -> None:
    """Serve the bundled embedding model by itself, with OpenAI's API, until SIGTERM or Ctrl-C.

    Several servers can share one such model, and so can any OpenAI client. A key is better given in the environment
    (RAG_CONTEXT_API_KEY) than on the command line, which other users of the machine can see.
    """
    from rag_context.cli import embed_server as work

    flags = {"server.host": host, "server.api_key": api_key, "embedder.workers": workers, "log.level": log_level}
    raise typer.Exit(work.run(Chosen(config, flags), port=port))


@app.command(epilog=EPILOG)
def index(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Files and folders.")],
    content_type: ContentType = None,
    session: Session = None,
    category: Category = None,
    game: Game = None,
    tag: Tags = None,
    agent: Annotated[str | None, typer.Option(metavar="NAME", help="Agent that wrote the documents.")] = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Take files and folders in: Markdown, text and code; what changed is replaced, the rest skipped.

    Ignore files (.gitignore, .ragignore) are respected. With --json, stdout has one receipt per line.
    """
    from rag_context.cli import index as work

    what = work.IndexRun(
        paths=paths,
        content_type=content_type,
        session_id=session,
        category=category,
        game=game,
        tags=tag or (),
        agent=agent,
        as_json=as_json,
    )
    raise typer.Exit(work.run(Chosen(config, {"data_dir": data_dir}), what))


@app.command(epilog=EPILOG)
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
        as_json=as_json,
    )
    raise typer.Exit(work.run(Chosen(config, {"data_dir": data_dir}), question))


@app.command(epilog=EPILOG)
def health(as_json: AsJson = False, data_dir: DataDir = None, config: Config = None) -> None:
    """Examine every part of the system; exits 1 when it is not healthy."""
    from rag_context.cli import status as work

    raise typer.Exit(work.run_health(Chosen(config, {"data_dir": data_dir}), as_json=as_json))


@app.command(epilog=EPILOG)
def stats(
    time_range: Annotated[
        Literal["1h", "24h", "7d", "30d"],
        typer.Option("--range", metavar="1h|24h|7d|30d", help="How far back."),
    ] = "24h",
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Sum up the searches of a time range."""
    from rag_context.cli import status as work

    raise typer.Exit(work.run_stats(Chosen(config, {"data_dir": data_dir}), time_range, as_json=as_json))


@app.command(name="config", epilog=EPILOG)
def show_config(as_json: AsJson = False, data_dir: DataDir = None, config: Config = None) -> None:
    """Print every setting and where it came from, secrets masked."""
    from rag_context.cli import configure as work

    raise typer.Exit(work.run_config(Chosen(config, {"data_dir": data_dir}), as_json=as_json))


@app.command(epilog=EPILOG)
def reindex(data_dir: DataDir = None, config: Config = None) -> None:
    """Make all vectors anew with the configured model; searches are answered by text meanwhile."""
    from rag_context.cli import reindex as work

    raise typer.Exit(work.run(Chosen(config, {"data_dir": data_dir})))


@app.command(epilog=EPILOG)
def check(
    repair: Annotated[bool, typer.Option("--repair", help="Mend what can be mended, and say what is left.")] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Every page and every term; writers wait for a part of it.")
    ] = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Examine the index itself, beside a running server: is everything there, and does it agree?

    Exits 1 when something is wrong, or is left after a repair. Without --full, the terms of a large index are
    compared in a sample of its chunks.
    """
    from rag_context.cli import check as work
    from rag_context.types import Thoroughness

    thoroughness = Thoroughness.FULL if full else Thoroughness.QUICK
    what = work.Check(repair=repair, thoroughness=thoroughness, as_json=as_json)
    raise typer.Exit(work.run(Chosen(config, {"data_dir": data_dir}), what))


@app.command(name="export", epilog=EPILOG)
def export_index(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JSON lines; - is stdout.")],
    project: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this project; '' for the agents' own memory.")
    ] = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Write all documents with their chunks and vectors to a file, beside a running server.

    The file takes its name when it is whole. `import` reads it into any other backend.
    """
    from rag_context.cli import transfer as work

    what = work.ExportRun(file, project, as_json=as_json)
    raise typer.Exit(work.run_export(Chosen(config, {"data_dir": data_dir}), what))


@app.command(name="import", epilog=EPILOG)
def import_index(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `export` wrote; - is stdin.")],
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Also in place of newer versions that the index has.")
    ] = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Take an export in, beside a running server; what is there already is left as it is.

    Vectors of another model are not used: their documents are embedded anew. Exits 1 when lines could not be read,
    or are missing; the others came in.
    """
    from rag_context.cli import transfer as work
    from rag_context.indexing.transfer import Conflict

    conflict = Conflict.OVERWRITE if overwrite else Conflict.KEEP
    what = work.ImportRun(file, conflict, as_json=as_json)
    raise typer.Exit(work.run_import(Chosen(config, {"data_dir": data_dir}), what))


@app.command(epilog=EPILOG)
def key(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who will hold the key.")],
    read_only: Annotated[bool, typer.Option("--read-only", help="The key may search, but not index.")] = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Make an API key: stdout gets the key, stderr the lines for rag-context.toml."""
    from rag_context.cli import configure as work

    raise typer.Exit(work.run_key(Chosen(config, {"data_dir": data_dir}), name, read_only=read_only))


@app.command(name="eval", epilog=EPILOG)
def evaluate(
    datasets: Annotated[
        list[Path], typer.Argument(metavar="DATASET...", help="Folders in BEIR layout, or with answering spans.")
    ],
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page, and a picture beside it (.svg).")
    ] = None,
    keep_index: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep the indexes here, and use those already there.")
    ] = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Measure retrieval quality on labelled collections: nDCG@10, recall, MRR and success by mode.

    Each collection gets an index of its own, in a temporary folder; the data directory is not touched.
    """
    from rag_context.cli import evaluate as work

    what = work.Evaluation(tuple(datasets), markdown=markdown, keep_index=keep_index, as_json=as_json)
    raise typer.Exit(work.run(Chosen(config, {"data_dir": data_dir}), what))


@app.command(epilog=EPILOG)
def validate(
    url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The server; that of the data directory, else this machine's, if not said."),
    ] = None,
    skip_accuracy: Annotated[
        bool, typer.Option("--skip-accuracy", help="Index and search nothing: a quick check of the parts.")
    ] = False,
    end_to_end: Annotated[
        bool, typer.Option("--end-to-end", help="Also index 50 documents and ask 50 questions.")
    ] = False,
    lm_studio_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Take the embedding samples from this OpenAI-compatible server.")
    ] = None,
    qdrant_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Ask this Qdrant whether it is healthy.")
    ] = None,
    mongodb_uri: Annotated[
        str | None, typer.Option(metavar="URI", help="Say hello to this MongoDB; no password is sent.")
    ] = None,
    timeout: Annotated[float, typer.Option(metavar="S", help="Longest time of one step, in seconds.")] = 30.0,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Check that a running server is fit for work: parts, vectors, retrieval accuracy, latency; exits 1 if not.

    Test documents go into a project of their own, which no agent searches, and are deleted again.
    """
    from rag_context.cli import validate as work

    what = work.Wanted(
        url=url,
        skip_accuracy=skip_accuracy,
        end_to_end=end_to_end,
        lm_studio_url=lm_studio_url,
        qdrant_url=qdrant_url,
        mongodb_uri=mongodb_uri,
        timeout_s=timeout,
        as_json=as_json,
    )
    raise typer.Exit(work.run(Chosen(config, {"data_dir": data_dir}), what))
