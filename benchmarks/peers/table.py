"""What the peers are, what was measured of them, and how the documentation shows it."""

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

RESULTS = Path(__file__).parent / "results.json"
QUALITY_RESULTS = Path(__file__).parent / "open_sets.json"


@dataclass(frozen=True, slots=True)
class Peer:
    """A program to measure. `name` is its driver's and its lock file's; `packages` are those that it is known by."""

    name: str
    title: str
    packages: tuple[str, ...]
    access: str
    search: str
    storage: str


OURS = Peer(
    name="rag-context",
    title="rag-context",
    packages=(),
    access="server over HTTP",
    search="hybrid, exact",
    storage="texts stored; on disk before each receipt",
)
PEERS = (
    OURS,
    Peer(
        name="mcp-server-qdrant",
        title="Qdrant's MCP server",
        packages=("mcp-server-qdrant", "qdrant-client"),
        access="server over MCP (stdio)",
        search="dense, exact",
        storage="texts stored; on disk with each call",
    ),
    Peer(
        name="chroma",
        title="Chroma's server",
        packages=("chromadb",),
        access="server over HTTP",
        search="dense, approximate (HNSW)",
        storage="texts stored; on disk with each call",
    ),
    Peer(
        name="langchain-faiss",
        title="LangChain with FAISS",
        packages=("langchain-community", "faiss-cpu"),
        access="in process",
        search="dense, exact (flat index)",
        storage="texts stored; in memory, saved on demand",
    ),
    Peer(
        name="llama-index",
        title="LlamaIndex",
        packages=("llama-index-core",),
        access="in process",
        search="dense, exact (its simple store)",
        storage="texts stored; in memory, saved on demand",
    ),
)
"""Ours first: the others are shown as multiples of it."""


@dataclass(frozen=True, slots=True)
class Row:
    """One peer at one size. `failure` says why it has no figures; ratios are to ours of the same run."""

    size: int
    peer: str
    versions: str
    p50_ms: float | None = None
    p50_ratio: float | None = None
    texts_per_s: float | None = None
    indexing_ratio: float | None = None
    failure: str = ""


@dataclass(frozen=True, slots=True)
class QualityRow:
    """One peer on the open sets: shares and means over questions. `failure` says why it has no figures.

    `recall` is of the evidence among the results, by set too; `first` of best results that are evidence; `corrected` of
    corrections above what they correct; `abstained` of questions that nothing answers and that it says so of, and
    `abstained_wrongly` of the others; `tokens` of the results of a question that something answers.
    """

    peer: str
    versions: str
    recall: float | None = None
    by_set: Mapping[str, float | None] = field(default_factory=dict)
    first: float | None = None
    corrected: float | None = None
    abstained: float | None = None
    abstained_wrongly: float | None = None
    tokens: float | None = None
    p50_ms: float | None = None
    peak_mb: float | None = None
    failure: str = ""


def merged(earlier: Sequence[Row], measured: Sequence[Row]) -> list[Row]:
    """The rows of these sizes in place of their earlier ones, by size."""
    sizes = {row.size for row in measured}
    return sorted([*(row for row in earlier if row.size not in sizes), *measured], key=lambda row: row.size)


def as_json(rows: Sequence[Row] | Sequence[QualityRow]) -> str:
    """For programs: the rows, and on what kind of machine."""
    machine = {"python": platform.python_version(), "machine": platform.machine(), "system": platform.system()}
    return json.dumps({"machine": machine, "rows": [asdict(row) for row in rows]}, indent=2) + "\n"


def read(path: Path) -> list[Row]:
    """The rows that `as_json` wrote into a file; none without the file."""
    if not path.exists():
        return []
    return [Row(**fields) for fields in json.loads(path.read_text(encoding="utf-8"))["rows"]]


def as_markdown(rows: Sequence[Row]) -> str:
    """A table for each size."""
    parts = []
    for size in dict.fromkeys(row.size for row in rows):
        lines = [_line(row) for row in rows if row.size == size]
        parts.append("\n".join([f"### {_number(size)} texts", "", _HEADER, *lines, ""]))
    return "\n".join(parts)


def section(results: Path = RESULTS) -> str:
    """The part of docs/design/benchmarks.md about the peers."""
    rows = read(results)
    measured = as_markdown(rows) if rows else "Not measured yet for this version.\n"
    return f"{_INTRODUCTION}\n{measured}\n{quality_section()}"


def quality_section(results: Path = QUALITY_RESULTS) -> str:
    """The part of the page about the open sets."""
    rows = json.loads(results.read_text(encoding="utf-8"))["rows"] if results.exists() else []
    return f"{_OPEN_SETS}\n{quality_as_markdown([QualityRow(**row) for row in rows])}"


def quality_as_markdown(rows: Sequence[QualityRow]) -> str:
    """What each finds, at which price, and by set."""
    if not rows:
        return "Not measured yet for this version.\n"
    sets = list(next((row.by_set for row in rows if row.by_set), {}))
    by_set = [f"| | {' | '.join(f'`{name}`' for name in sets)} |", f"|---|{'---|' * len(sets)}"]
    by_set += [f"| {_title(row)} | {' | '.join(_share(row.by_set.get(name)) for name in sets)} |" for row in rows]
    return "\n".join([_QUALITY_HEADER, *map(_quality_line, rows), "", _BY_SET, "", *by_set, ""])


def _quality_line(row: QualityRow) -> str:
    title = f"{_title(row)} ({row.versions})"
    if row.failure:
        return f"| {title} | **not measured**: {_cell(row.failure)} | | | | | | | |"
    shares = map(_share, (row.recall, row.first, row.corrected, row.abstained, row.abstained_wrongly))
    return f"| {title} | {' | '.join([*shares, *map(_value, (row.tokens, row.p50_ms, row.peak_mb))])} |"


def _title(row: Row | QualityRow) -> str:
    return next((peer.title for peer in PEERS if peer.name == row.peer), row.peer)


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}".removeprefix("0") if value < 1 else "1"


def _line(row: Row) -> str:
    peer = next((peer for peer in PEERS if peer.name == row.peer), None)
    title = f"{_title(row)} ({row.versions})"
    does = f"{peer.access}; {peer.search}; {peer.storage}" if peer else ""
    if row.failure:
        return f"| {title} | **not measured**: {_cell(row.failure)} | | | | {does} |"
    cells = [_ratio(row.p50_ratio), _value(row.p50_ms), _ratio(row.indexing_ratio), _value(row.texts_per_s)]
    return f"| {title} | {' | '.join(cells)} | {does} |"


def _ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f} x"


def _value(value: float | None) -> str:
    return "–" if value is None else f"{value:.{1 if value < 100 else 0}f}"


def _number(size: int) -> str:
    return f"{size:,}".replace(",", " ")


def _cell(text: str) -> str:
    """Text that cannot end its cell or begin markup."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


_HEADER = """\
| | p50 / ours | p50, ms | indexing / ours | texts a second | what it does |
|---|---|---|---|---|---|"""

_INTRODUCTION = """## Beside other software

This section compares rag-context with other software (the peers), side by side in one run.

```console
$ python -m benchmarks.peers
```

The command measures and writes this section. The sizes are 1 000 and 10 000 texts, unless `--sizes` names others.
`--full` adds 100 000, whose vectors are made once and given to all peers: there, searches alone are measured. `--quick`
measures 300 and writes nothing. Each peer runs in its own environment, which the command makes from the package
registry with the versions of `benchmarks/peers/locks/` and keeps in the user's cache directory (`--cache` names
another). A peer that cannot be installed or started stays in the table, with the reason, and the command ends with
status 1.

- **Model and texts.** All have the same model, the bundled all-MiniLM-L6-v2, and embed the same texts, of two sentences
  each, which are one chunk of rag-context. LangChain, LlamaIndex and Chroma's client use the model through their
  interface for custom embeddings, and run it as rag-context does: one text per run, on one thread, as many runs at once
  as there are cores. mcp-server-qdrant embeds with fastembed.
- **Searches.** There is one client. It sends every question to all peers, one after the other and in another order each
  time. No question is sent twice, and the first twenty are not counted. A question returns at most five results, with
  their texts.
- **Indexing** is measured in ten parts, in the same turns. It includes the embedding and, if data is in memory, saving
  it once at the end. Before the questions, five texts are searched; a peer that finds none of them is not measured.
- **Ratios** are the peer's figure divided by that of rag-context in the same run: a p50 above 1 is slower, an indexing
  rate below 1 is slower.
"""

_QUALITY_HEADER = """\
| | evidence found | evidence first | correction above | no answer: said | said wrongly | tokens | p50, ms | MB |
|---|---|---|---|---|---|---|---|---|"""

_BY_SET = "The evidence found, by set:"

_OPEN_SETS = """### What is found on the open sets

```console
$ python -m benchmarks.peers --open-sets
```

The peers answer the questions of the [open sets](quality.md#conversations-code-and-other-open-sets). Each project of a
set is a memory of its own, so that no peer needs a filter. All store the same texts, and nearly all of these are short
enough for the model; rag-context also gets the session, the time and the path of an item, as its interface has them. A
question returns at most five results. rag-context adds standing instructions in a list of their own: they count as
results, and so do their tokens.

- **Evidence found**: the share of the items that answer a question that are among its results. **Evidence first**: the
  share of questions whose best result is one of them. Both are of questions that something answers.
- **Correction above**: the share of questions on what was corrected whose results have the correction, above everything
  that it corrects.
- **No answer: said**: the share of questions without an answer that are labelled so. **Said wrongly**: the share of the
  others that are. The peers have no such label.
- **Tokens** of the texts that a question returns, by the model's tokenizer, on average. **MB**: the most memory that
  driver, client and server together had.

The sets were made for rag-context, to show its rules and where they fail: on other data the differences are others. The
figures on [public collections](quality.md) are without peers.
"""
