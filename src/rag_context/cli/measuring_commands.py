"""The commands that measure and judge: their options and their help."""

# ruff: noqa: PLC0415  (the work is loaded when it is asked for)

from pathlib import Path
from typing import Annotated

import typer

from rag_context.cli.exits import EPILOG
from rag_context.cli.options import AsJson, Chosen, Config, DataDir

group = typer.Typer()


@group.command(name="eval", epilog=EPILOG)
def evaluate(
    datasets: Annotated[
        list[Path], typer.Argument(metavar="DATASET...", help="Folders in BEIR layout, or with answering spans.")
    ],
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page, and a picture beside it (.svg).")
    ] = None,
    keep_index: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Store the indexes here, and use existing ones.")
    ] = None,
    projects: Annotated[
        bool,
        typer.Option("--projects", help="Also query rag_query and semantic_search, with the documents as files."),
    ] = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Measure retrieval quality on labelled collections: nDCG@10, recall, MRR and success by mode.

    Each collection gets an index of its own, in a temporary folder; the data directory is not touched.
    """
    from rag_context.cli import evaluate as work

    what = work.Evaluation(
        tuple(datasets), markdown=markdown, keep_index=keep_index, projects=projects, as_json=as_json
    )
    raise typer.Exit(work.run(Chosen(config, {"data_dir": data_dir}), what))


@group.command(epilog=EPILOG)
def validate(
    url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The server; default: that of the data directory, else this machine's."),
    ] = None,
    skip_accuracy: Annotated[
        bool, typer.Option("--skip-accuracy", help="Index and search nothing: a quick check of the components.")
    ] = False,
    end_to_end: Annotated[
        bool, typer.Option("--end-to-end", help="Also index 50 documents and run 50 queries.")
    ] = False,
    lm_studio_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Take the embedding samples from this OpenAI-compatible server.")
    ] = None,
    qdrant_url: Annotated[str | None, typer.Option(metavar="URL", help="Check the health of this Qdrant.")] = None,
    mongodb_uri: Annotated[
        str | None, typer.Option(metavar="URI", help="Connect to this MongoDB; no password is sent.")
    ] = None,
    timeout: Annotated[float, typer.Option(metavar="S", help="Timeout of one step, in seconds.")] = 30.0,
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
