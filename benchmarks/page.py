"""docs/benchmarks.md, written from the figures of a run."""

from pathlib import Path

from benchmarks.figures import Figure, as_markdown, as_svg

_HEAD = """# Speed and memory

<!-- Written by `make bench`; run it again rather than editing. -->

```
make bench
```

takes some ten minutes, measures a real server and the bare parts it is made of in one run, and writes this page.
Ratios are what counts: they hold from machine to machine, absolute times do not. The targets are of this project.

![Each figure as a share of its target](benchmarks.svg)

"""

_TAIL = """
## How it is measured

- **bare**: the query is tokenised and embedded by the bundled model and multiplied with a matrix of the same vectors,
  in a process of its own with one thread for the multiplication, without a server, filters, words or fusion. It is the
  least that any vector search with this model costs. The two take turns, question by question, with the caches of
  results off.
- **search over MCP / over plain HTTP**: the same server, a tool called over `/mcp` and over `/tools`, question by
  question, with the caches of results off.
- **bulk indexing / bare model**: chunks per second of the whole write path (cutting, embedding, terms, one durable
  transaction per document) as a share of what the bare model does on the same chunks with as many threads as cores;
  the two take turns, fifty documents at a time.
- **8 clients**: as many connections, each asking as fast as it is answered; sound, without the model file, and on a
  data file of garbage.
- **1 to 128 clients without a break**: each client asks again as soon as it is answered, for twenty seconds. An answer
  is whole at level 1 without a warning. Requests that the server rejects as overloaded are counted apart. The ratio of
  64 clients to 4 is measured in turn, five seconds each. The pause stops the process (SIGSTOP) while twelve clients
  ask.
- **100 000 chunks**: random vectors and invented text with a natural skew, through the store itself. Every question
  holds three words that are in a large part of all chunks; the first to ask for such a word pays for reading its list.
- **collections**: the same documents as the same JSON over HTTP to both servers, 1 000 at a time; Chroma's is started
  by its own command, in the same run. Questions take turns. Writing the requests out is not counted.
- **project documents**: Markdown files with links, the service in this process. The edit is seen by asking every 20 ms
  for a word that only the changed file holds. A plain search in the same documents and a context take turns, and no
  question is asked twice.
- **large documents**: two indexes in one process hold the same 300 pages; one of them holds three documents of 1 MiB
  with links as well. Every question is asked of both, one after the other, with the bundled model and the caches of
  results empty for it. Each context keeps to 8 000 tokens.
- **statistics**: 1 000 000 searches over thirty days.

[Where the time goes](profiles.md) shows a profile of one search and of a bulk index.

## Where a target is missed, and why

- **A search over HTTP** does more than the floor: a text leg runs beside the embedding and competes with it for the
  memory and, on a small machine, for the core; every candidate is then scored on the side that did not find it, and so
  are the neighbours of the best, which is what the quality of the answers rests on. Each of these steps may change
  threads. The same server asked with `"mode": "vector"` is in the table beside it.
- **Text search at 100 000 chunks**: the occurrences of a word that is neither rare nor very common are ranked when it
  is first asked for. The commonest words are read ahead when the index is opened; the p99 is that of questions with
  several words just below.
- **Bulk indexing**: what the bare model does not do is cutting, terms and the store, which share the cores with it.

The text is invented by `benchmarks/corpus.py`, the same on every run.
"""


def write_page(figures: list[Figure], docs: Path) -> None:
    """Write benchmarks.md and benchmarks.svg into the documentation."""
    (docs / "benchmarks.md").write_text(_HEAD + as_markdown(figures) + _TAIL, encoding="utf-8")
    (docs / "benchmarks.svg").write_text(as_svg(figures), encoding="utf-8")
