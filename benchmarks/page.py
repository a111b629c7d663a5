"""docs/design/benchmarks.md, written from the figures of the stages and the rows of the peers."""

from pathlib import Path

from benchmarks.figures import Figure, as_markdown, as_svg, from_json
from benchmarks.peers.table import section

RESULTS = Path(__file__).parent / "results.json"
DOCS = Path(__file__).parent.parent / "docs"

_HEAD = """# Speed and memory

<!-- Written by `make bench`; run it again rather than editing. -->

This page has every figure on speed and memory, with its target and the command that measures it. The targets are the
project's own.

```console
$ make bench
```

`make bench` takes about ten minutes. It measures a real server and its bare components in one run, and writes this
page. Ratios can be compared between machines, absolute times cannot.

![Each figure as a share of its target](../benchmarks.svg)

"""

_TAIL = """
## How it is measured

- **bare** is the baseline, the minimum cost of a vector search with this model. A separate process tokenises the query,
  embeds it with the bundled model and multiplies it with a matrix of the same vectors, with one thread for the
  multiplication. It has no server, filters, keyword search or fusion. Server and baseline alternate, query by query,
  with result caches off.
- **processor time** is that of the whole server process, or of the baseline's process, read before and after a search.
  The figure is the median of the searches, as for times.
- **1 000, 10 000 and 100 000 chunks**: the same comparison with the baseline at three sizes, over vectors in clusters.
- **search over MCP / over plain HTTP**: the same server, a tool called over `/mcp` and over `/tools`, query by query,
  with result caches off.
- **bulk indexing / bare model**: chunks per second of the whole write path (chunking, embedding, terms, one durable
  transaction per document) as a share of the bare model's on the same chunks with as many threads as cores. The two
  alternate, fifty documents at a time.
- **large folders**: `python -m benchmarks.large_folder FOLDER`, not part of `make bench`: from the first file until
  keyword search finds all. Of Python's own library (1 788 files, 69 245 chunks) two cores take in 1 954 and 1 849
  chunks a second, and in turn with them 1 023 and 1 072 if one process does it all (`--alone`). A chunk takes 1.0 ms
  of processor time, of which the process that stores it needs .2 ms; the others prepare it on as many cores as there
  are. 10 000 small files are found after 47 s (`python -m benchmarks.first_hour`).
- **short texts in bulk**: `python -m benchmarks.short_texts`, not part of `make bench`: messages of 109 characters
  through `/bulk`, in turn with the bare model on the same texts.
- **hooks** (`python -m benchmarks hooks`): the program that clients of agents run, from its start to its end, beside a
  server over 10 000 chunks and in turn with a bare Python. Then 50 clients run 1 000, and what they leave is counted.
- **8 clients**: eight connections, each of which sends the next request when it has a response: to an intact server,
  without the model file, and with a corrupt data file.
- **1 to 128 clients back to back**: each client sends the next search as soon as it has a response, for twenty
  seconds. An answer counts as complete at level 1 without a warning. Requests that the server rejects as overloaded are
  counted separately. For the ratio of 64 clients to 4 the two alternate, five seconds each. The pause stops the process
  (SIGSTOP) while twelve clients search.
- **100 000 chunks**: random vectors and synthetic text with a natural skew, through the store itself. Every query has
  three terms that are in a large part of all chunks; the first query with such a term reads its posting list.
- **page**: `python -m benchmarks page`, not part of `make bench`. Chromium on the same processors opens the page ten
  times with an empty cache, and measures from the navigation until the first state is drawn. Then it goes through the
  views, and measures from the click until the result is drawn. The documents have one passage each. The size is that of
  the bodies.
- **1 000 000 chunks**: `python -m benchmarks million`, not part of `make bench`: an import of clustered vectors and
  skewed text, then hybrid searches and searches by vector alone in turn, without caches.
- **collections**: the same documents as the same JSON over HTTP to both servers, 1 000 at a time; Chroma's is started
  by its own command, in the same run. Queries alternate. Serialising the requests is not counted.
- **project documents**: Markdown files with links, the service in this process. The edit is detected by a search every
  20 ms for a word that only the changed file has. A plain search in the same documents and a context alternate, and no
  query is repeated.
- **large documents**: two indexes in one process have the same 300 pages; one of them also has three documents of 1 MiB
  with links. Every query runs on both, one after the other, with the bundled model and empty result caches. Each
  context fits 8 000 tokens.
- **PostgreSQL**: `python -m benchmarks postgres`, not part of `make bench`: the same import into the embedded store and
  into a PostgreSQL with 1 GB of shared buffers and without fsync, on the same machine. Recall compares the ten nearest
  chunks with those of the embedded store, which is exact. Processor time is that of this process for a whole search of
  each store in turn, with prepared query vectors, less the processor time of both without searches. Over HTTP two
  servers embed and search in turn. [PostgreSQL](stores.md#what-a-search-costs) says where the time goes.
- **one tenant of 200**: two stores in this process have the same documents, in one as those of a single tenant, in the
  other dealt out to 200. The same questions, with vectors of their own, are put to the one and to the other in turn,
  there to each tenant by turns. Then one tenant is asked in turn with a word that all others have and it has not, and
  with a word that none has.
- **rules of ranking**: processor time of a search in this process with all rules of
  [Quality](quality.md#rules-of-ranking), in turn with none. Half of the chunks are messages of a user and an assistant,
  half are code. A third search before both reads what the first search with a question has to read.
- **references**: histories of repositories that are made by a seed, and citations of their files and names. The time is
  that of checking five passages, without the search.
- **statistics**: 1 000 000 searches over thirty days.

[Profiles](profiles.md) shows where the time of a search and of a bulk index goes.

## Where a target is missed, and why

- **A search over HTTP.** Its time is processor time: 9.6 ms at 10 000 chunks, where the baseline takes 4.7 ms. Search
  by vector alone takes 7.5 ms. So 2.8 ms are everything around a vector search (HTTP, validation, deadlines and
  breakers, reading the passages). 2.1 ms more make it hybrid: keyword search, and both exact scores of every candidate
  and of the neighbours of the best. The quality of the answers depends on these. Both parts hardly grow with the index:
  at 100 000 chunks the ratio is 1.6, and 1.06 by vector alone.
- **Compared with other software**, the target is that hybrid search over HTTP is the fastest. Chroma's server, and
  FAISS in the process of the caller, answer sooner, because they search by vector alone: at 100 000 texts, in half the
  time. They index about as many short texts a second (.95 to 1.16 times as many), though rag-context chunks, redacts
  and analyses every text, and stores it on disk before its receipt.
- **Bulk indexing.** 95 % of the samples of a bulk index are in the embedding ([Profiles](profiles.md)): chunking, terms
  and durable transactions run on the same cores.
- **Short texts in bulk** are to reach .85 of the bare model, and reach .78 and .82 of it by processor time (two runs):
  4.4 ms a text, of which the model takes 3.3 (`python -m benchmarks.short_texts`, two cores, nothing beside). What is
  left is preparing texts one by one and the writer's statements for each document.
- **Port open and first answer**: almost all of that time is the import of the server, its libraries and the model's.
- **`rag-context search` through a server** sends its request by the standard library alone: without the HTTP library
  and asyncio it took .77 and .86 of the processor time in two runs. Most of what is left imports Typer and pydantic and
  defines the models of the API and of the settings. Rich, HTTP/2 and the index are not imported.
- **Three documents of 1 MiB**: every answer that includes one has an excerpt of it, and the tokens of each candidate
  line are counted. The ratio is near its target, above or below it from run to run.
- **The page over 100 000 documents** was measured while other programs kept both processors busy (a load of 12 on two
  cores). `python -m benchmarks page --quick`, over 10 000 documents at a load of 8, met each target: 377 ms to open,
  and at most 71 ms for a step.
- **The rules of ranking** are near their target, above or below it from run to run, if a question names a time or is a
  name. Then the passages of its days may need a search of their own, and definitions in code that no search has read
  before are found in its text. They are cached.
- **Statistics of thirty days** are near their target, above or below it from run to run.
- **Tools in the first request of a real client**, beside eight busy processes on two cores: Claude Code and Codex
  showed their model the tools in 20 of 20 runs each over stdio, at the first start after an upgrade, and over HTTP with
  a key (`RAG_TEST_CLIENT_RUNS=20 make test-clients CLIENTS=claude-code,codex`).

`benchmarks/corpus.py` generates the text, the same on every run.
"""


def known_figures() -> dict[str, list[Figure]]:
    """The figures of each stage's last run."""
    return from_json(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}


def write_page() -> None:
    """Write benchmarks.md and benchmarks.svg into the documentation, from all that was written down."""
    figures = [figure for stage in known_figures().values() for figure in stage]
    page = f"{_HEAD}{as_markdown(figures)}{_TAIL}\n{section()}"
    (DOCS / "design" / "benchmarks.md").write_text(page, encoding="utf-8")
    (DOCS / "benchmarks.svg").write_text(as_svg(figures), encoding="utf-8")
