"""Every number of the page on scaling, and of PostgreSQL's sizes, follows from its formulas and the facts it names."""

import math
import re
from dataclasses import dataclass

import pytest

from tests.deploy.files import ROOT, container, resource

SIZING = (ROOT / "docs" / "design" / "sizing.md").read_text(encoding="utf-8")
SCALING = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
PAGE = SIZING + SCALING
POSTGRES_PAGE = SIZING.partition("## PostgreSQL")[2]
GB = 1e9

LINKS = 16
"""Qdrant's `m`: the lowest level of its graph links each vector with twice as many others, in four bytes each."""
SPARE = 1.5
"""Qdrant's own allowance for segments that are being rebuilt, and for what it keeps of each point."""
FILLED = 0.8
NODE_GB = 128
COPIES = 2
PAYLOAD, RECORD, EMBEDDED = 1200, 3400, 3900
ROW, ROW_INDEXES, GRAPH = 5700, 2540, 2050
CHUNKS_PER_CORE = 70
SEARCH_S = 0.013
RAM_PRICE, DISK_PRICE = 4.0, 0.1
BYTES = {"none": 4.0, "scalar": 1.0, "binary": 1 / 8}


@dataclass(frozen=True)
class Plan:
    """So many chunks, with vectors of a dimension, compressed in a way."""

    chunks: float
    quantization: str
    dimension: int = 384

    @property
    def memory_bytes(self) -> float:
        """Of one chunk, in one copy."""
        return SPARE * (BYTES[self.quantization] * self.dimension + 8 * LINKS)

    @property
    def disk_bytes(self) -> float:
        """Of one chunk, in one copy: originals, compressed ones, links, payload."""
        compressed = 0 if self.quantization == "none" else BYTES[self.quantization] * self.dimension
        return SPARE * (4 * self.dimension + compressed + 8 * LINKS + PAYLOAD)

    @property
    def memory_gb(self) -> float:
        return self.chunks * self.memory_bytes * COPIES / GB

    @property
    def disk_gb(self) -> float:
        return self.chunks * self.disk_bytes * COPIES / GB

    @property
    def nodes(self) -> int:
        return max(3, math.ceil(self.memory_gb / (FILLED * NODE_GB)))

    @property
    def shards(self) -> int:
        return 2 * self.nodes

    @property
    def price(self) -> float:
        return self.memory_gb / FILLED * RAM_PRICE + self.disk_gb * DISK_PRICE


def number(value: float) -> str:
    """Three figures at most, thousands apart."""
    if value >= 100:
        rounded = float(f"{value:.3g}")
        return f"{rounded:,.0f}".replace(",", " ")
    return f"{value:.3g}"


def row(plan: Plan) -> str:
    cells = (
        f"{plan.chunks:,.0f}".replace(",", " "),
        plan.quantization,
        number(plan.memory_gb),
        number(plan.disk_gb),
        plan.nodes,
        plan.shards,
        number(plan.price),
    )
    return f"| {' | '.join(map(str, cells))} |"


PLANS = [Plan(chunks, kind) for chunks in (1e6, 1e7, 1e8, 1e9) for kind in BYTES]


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_the_table_is_what_the_formulas_give(plan: Plan) -> None:
    assert row(plan) in PAGE


def test_the_table_has_no_other_rows() -> None:
    assert len(re.findall(r"(?m)^\| [\d ]+ \| (?:none|scalar|binary) \|", PAGE)) == len(PLANS)


@pytest.mark.parametrize("chunks", [1e5, 1e6, 1e7, 1e8, 1e9])
def test_sizes_of_a_postgresql_are_what_the_formulas_give(chunks: float) -> None:
    sizes = (chunks * each / GB for each in (ROW, ROW_INDEXES, GRAPH))
    cells = f"{chunks:,.0f}".replace(",", " "), *map(number, sizes)

    assert f"| {' | '.join(cells)} |" in POSTGRES_PAGE


def test_both_pages_have_the_measured_bytes_of_a_postgresql() -> None:
    parts = [
        int(cell.replace(" ", "")) for cell in re.findall(r"(?m)^\| [a-zA-Z].* \| (\d \d{3}|\d{3}) \|$", POSTGRES_PAGE)
    ]

    assert sum(parts[:-1]) == parts[-1] == ROW
    assert parts[1] == GRAPH
    assert parts[1] + parts[3] == ROW_INDEXES
    for page in (SCALING, POSTGRES_PAGE):
        assert f"chunks × {number(ROW)} bytes × 2" in page
        assert f"chunks × {number(ROW_INDEXES)} bytes" in page


@pytest.mark.parametrize("dimension", [384, 768, 1024])
def test_bytes_of_a_chunk_by_dimension(dimension: int) -> None:
    cells = [number(Plan(1, kind, dimension).memory_bytes) for kind in BYTES]

    assert f"| {dimension} | {' | '.join(cells)} |" in PAGE


def test_the_measured_figures_are_on_the_page() -> None:
    for fact in (PAYLOAD, RECORD, EMBEDDED):
        assert number(fact) in PAGE
    for sentence in (
        f"m = {LINKS}",
        f"{CHUNKS_PER_CORE} chunks a second",
        f"{NODE_GB} GB",
        f"{FILLED:.0%}"[:-1] + " %",
    ):
        assert sentence in PAGE


def test_the_records_of_a_billion_chunks() -> None:
    assert f"{number(1e9 * RECORD / GB)} GB in each member" in PAGE
    assert f"{number(1e5 * EMBEDDED / GB)} GB for 100 000 chunks" in PAGE


def test_embedding_a_billion_chunks() -> None:
    assert f"{number(1e9 / CHUNKS_PER_CORE / 3600)} core hours" in PAGE
    assert f"{number(1e9 / CHUNKS_PER_CORE / 3600 / 100)} hours on 100 cores" in PAGE


def test_how_many_servers_answer_so_many_searches() -> None:
    scaler = resource("HorizontalPodAutoscaler", "rag-context")["spec"]
    cores = int(scaler["metrics"][0]["resource"]["target"]["averageValue"].removesuffix("m")) / 1000

    assert f"{cores:g} cores of each" in PAGE
    assert f"{math.ceil(500 * SEARCH_S / cores)} servers for 500 searches a second" in PAGE
    assert f"at most {scaler['maxReplicas']}" in PAGE


def test_qdrants_links_are_those_that_are_configured() -> None:
    assert f"m: {LINKS}\n" in resource("ConfigMap", "qdrant-config")["data"]["production.yaml"]
    assert container("qdrant")["resources"]["limits"]["memory"] == "2Gi"


if __name__ == "__main__":
    print("\n".join(map(row, PLANS)))  # what to paste into the page
