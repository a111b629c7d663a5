"""What must be true afterwards. One more is one more function in `CHECKS`; each says what is not as it should be."""

import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import httpx2

from tests.end_to_end.process import TIMEOUT_S
from tests.outcomes.test_postgres_backup import run as run_of_postgres
from tests.servers.postgres import PASSWORD
from tests.soak.actors import words_of
from tests.soak.record import Promise
from tests.soak.sites import Site
from tests.torture.backends import erased

Check = Callable[[Site], Iterator[str]]

MOST_MIB, MOST_DESCRIPTORS, MOST_THREADS = 1024.0, 256, 96
"""What one process of a server may take at any moment."""

GROWTH = 1.5
"""The last quarter of a process's life may take this many times what the second quarter took, in the mean."""

LONG_S = 240.0
"""Only processes that lived so long are compared for growth."""

WHOLE = 20

SAMPLE = (400, 50)
"""Sources that are searched on either server, at most."""


def everything_is_as_promised(site: Site) -> Iterator[str]:
    """Nothing acknowledged is lost, and nothing that was replaced, forgotten or purged is there, on either server.

    The list of documents says it of all sources, searches of a sample of them in which text they have.
    """
    rng = random.Random(len(site.record.promises))
    listed = {each.get("source") for each in _listed(site)}
    for promise in site.record.promises:
        if promise.is_settled and (promise.marker is not None) != (promise.source in listed):
            there = "is there" if promise.marker is None else "is not there"
            yield f"{promise.source}: {promise.marker or 'nothing'} was acknowledged to {promise.under}, and it {there}"
    for member, size in zip(site.members, SAMPLE, strict=True):
        with httpx2.Client(base_url=member.url, timeout=TIMEOUT_S) as http:
            for promise in rng.sample(site.record.promises, min(size, len(site.record.promises))):
                yield from _losses(http, promise)


def _losses(http: httpx2.Client, promise: Promise) -> Iterator[str]:
    wanted = [each for each in promise.may_have if each]
    texts = _texts(http, " ".join(wanted) or "entry", promise.source)
    if None not in promise.may_have and not any(each in texts for each in wanted):
        yield f"{promise.source}: {' or '.join(wanted)} was acknowledged to {promise.under}, and is not there"
    for gone in promise.gone:
        if gone in texts:
            yield f"{promise.source}: {gone} was replaced, forgotten or purged, and is there ({promise.under})"


def _texts(http: httpx2.Client, query: str, source: str) -> set[str]:
    """The words of what a source has now."""
    ends = time.monotonic() + TIMEOUT_S
    fields = {"query": query, "source": source, "mode": "text", "minScore": 0, "limit": WHOLE}
    while True:
        reply = http.post("/tools/rag_context_search", json=fields)
        answer: dict[str, Any] = reply.json()
        if reply.status_code == 200 and answer["fallbackLevel"] == 1:
            return words_of(answer)
        assert time.monotonic() < ends, f"no complete answer within {TIMEOUT_S:.0f} s: {answer}"
        time.sleep(0.1)


def _listed(site: Site) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = []
    cursor: dict[str, str] = {}
    while True:
        page = _tool(site, "list", limit=100, **cursor)
        listed += page["documents"]
        if not page.get("nextCursor"):
            return listed
        cursor = {"cursor": page["nextCursor"]}


def _tool(site: Site, tool: str, **fields: Any) -> dict[str, Any]:
    reply = httpx2.post(f"{site.members[0].url}/tools/rag_context_{tool}", json=fields, timeout=TIMEOUT_S)
    assert reply.status_code == 200, reply.text
    answer: dict[str, Any] = reply.json()
    return answer


def the_documents_are_those_of_the_journal(site: Site) -> Iterator[str]:
    """The log of changes, followed from its beginning, ends with the documents that are listed."""
    entries: list[dict[str, Any]] = []
    while found := _tool(site, "log", limit=200, **({"before": entries[-1]["id"]} if entries else {}))["entries"]:
        entries += found
    listed = {each["documentId"] for each in _listed(site)}
    places: dict[str, Any] = {}
    for entry in reversed(entries):
        for before in filter(None, (move.get("before") for move in entry["moves"])):
            if places.pop(before["documentId"], {}).get("contentHash") != before["contentHash"]:
                yield f"the journal takes away what it never brought: {entry}"
        for after in filter(None, (move.get("after") for move in entry["moves"])):
            places[after["documentId"]] = after
    visible = {id_ for id_, place in places.items() if place.get("shelf") is None}
    if visible != listed:
        yield f"{len(visible - listed)} documents are in the journal alone, {len(listed - visible)} in the list alone"
    site.record.found["entries of the journal"] = str(len(entries))
    site.record.found["documents"] = str(len(listed))


def check_is_clean(site: Site) -> Iterator[str]:
    """`rag-context check --full` finds nothing."""
    done = site.command("check", "--full", "--json")
    if done.returncode:
        yield f"check --full: {done.stdout[-2000:]} {done.stderr[-500:]}"


def no_byte_is_left_of_what_was_purged(site: Site) -> Iterator[str]:
    """In no file of the data directory and no log; on PostgreSQL, in no row."""
    words = set(site.record.purged)
    cleared = site.command("clear-queries", "--yes")
    if cleared.returncode:
        yield f"clear-queries: {cleared.stderr}"
    if site.postgres is None:
        left = erased(site.root, words, lambda: None)
    else:
        dump = site.root / "after.sql"
        run_of_postgres("pg_dump", f"--file={dump}", f"--dbname={site.settings['DATABASE_URL']}", PGPASSWORD=PASSWORD)
        left = erased(site.root, words, lambda: None)
    yield from (f"{word} was purged, and is in {file}" for word, file in left.items())
    site.record.found["words purged"] = str(len(words))


def memory_files_and_threads_are_bounded(site: Site) -> Iterator[str]:
    """Of every process that served, at all times."""
    samples = [sample for of_process in site.record.samples.values() for sample in of_process]
    if not samples:
        return
    for what, most, bound in (
        ("MiB", max(each.memory_mib for each in samples), MOST_MIB),
        ("descriptors", max(each.descriptors for each in samples), MOST_DESCRIPTORS),
        ("threads", max(each.threads for each in samples), MOST_THREADS),
    ):
        site.record.found[f"{what} of a process at most"] = f"{most:.0f}"
        if most > bound:
            yield f"a server had {most:.0f} {what}"
    longest = max(site.record.samples.values(), key=lambda of_process: of_process[-1].at_s - of_process[0].at_s)
    lived_s = longest[-1].at_s - longest[0].at_s
    quarter = len(longest) // 4
    if lived_s > LONG_S and quarter:
        second, last = longest[quarter : 2 * quarter], longest[-quarter:]
        for what in ("memory_mib", "descriptors", "threads"):
            means = [sum(getattr(each, what) for each in part) / len(part) for part in (second, last)]
            name = f"{what} of the process that lived longest ({lived_s:.0f} s), second and last quarter"
            site.record.found[name] = f"{means[0]:.0f}, {means[1]:.0f}"
            if means[1] > GROWTH * means[0]:
                yield f"a server grew from {means[0]:.0f} to {means[1]:.0f} {what} within {lived_s:.0f} s"


def most_was_done(site: Site) -> Iterator[str]:
    """Each actor did something; without that the rest proves nothing."""
    if not sum(site.record.done.values()):
        yield "nothing was done"


CHECKS: Sequence[Check] = (
    everything_is_as_promised,
    the_documents_are_those_of_the_journal,
    memory_files_and_threads_are_bounded,
    check_is_clean,
    no_byte_is_left_of_what_was_purged,
    most_was_done,
)


def summary(site: Site) -> str:
    """For people: what was done, and what was seen."""
    record = site.record
    settled = sum(promise.is_settled for promise in record.promises)
    rows: dict[str, str] = {
        "done": _counted(record.done),
        "disturbances": _counted(record.disturbed),
        "answers": _counted(record.levels),
        "rejected": _counted(record.rejected),
        "interrupted": _counted(record.interrupted),
        "sources": f"{len(record.promises)}, {settled} of a state that is known",
        **record.found,
        "wrong": str(len(record.complaints)),
    }
    return "\n".join([f"== {record.name}", *(f"{name:30} {value}" for name, value in rows.items())])


def _counted(counts: Any) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "-"


def as_data(site: Site) -> dict[str, Any]:
    """For programs."""
    record = site.record
    counts = ("done", "disturbed", "levels", "rejected", "interrupted")
    return {
        "site": record.name,
        **{name: dict(getattr(record, name)) for name in counts},
        "sources": len(record.promises),
        **record.found,
        "wrong": record.complaints,
    }


def printed(sites: Sequence[Site], *, is_json: bool) -> str:
    """The table, or the same as JSON."""
    return json.dumps([*map(as_data, sites)], indent=1) if is_json else "\n\n".join(map(summary, sites))
