"""Reports of what was measured."""

import io
from pathlib import Path
from xml.etree import ElementTree

from benchmarks.interface_quality import InterfaceOutcomes
from benchmarks.quality_page import page, picture
from rich.console import Console

from rag_context.evaluation.quality import MODES, QualityOutcome
from rag_context.evaluation.report import MACRO, Outcomes, as_object, as_tables, rows_of
from rag_context.search.query import Mode

SVG = "{http://www.w3.org/2000/svg}"


def graded(name: str, hybrid: float) -> QualityOutcome:
    """Hybrid leads by a constant over 20 queries."""
    values = {Mode.TEXT: 0.2, Mode.VECTOR: 0.3, Mode.HYBRID: hybrid}
    scores = {mode: {"nDCG@10": [values[mode]] * 20, "MRR@10": [values[mode]] * 20} for mode in MODES}
    return QualityOutcome(name, 100, 20, by_spans=False, scores=scores, lost=0.05, unanswerable=0.1)


def spans() -> QualityOutcome:
    scores = {mode: {"answer in 1000 tokens": [0.9] * 4} for mode in MODES}
    return QualityOutcome("a & b", 5, 4, by_spans=True, scores=scores, lost=None, unanswerable=0.0)


def test_the_macro_mean_covers_graded_collections_only() -> None:
    rows = {(row.dataset, row.measure): row for row in rows_of([graded("one", 0.4), graded("two", 0.6), spans()])}
    assert rows[MACRO, "nDCG@10"].estimates[Mode.HYBRID].mean == 0.5
    assert (MACRO, "answer in 1000 tokens") not in rows
    assert not [row for row in rows_of([graded("one", 0.4), spans()]) if row.dataset == MACRO]


def test_programs_get_every_mean_interval_and_p_value() -> None:
    found = as_object(Outcomes([graded("one", 0.4), spans()]))
    first = found["measures"][0]
    assert (first["dataset"], first["measure"]) == ("one", "nDCG@10")
    assert set(first["modes"]) == {"text", "vector", "hybrid"}
    assert set(first["modes"]["hybrid"]) == {"mean", "low", "high"}
    assert first["pValues"]["hybrid vs text"] < 0.001
    assert found["datasets"][0]["lostToThreshold"] == 0.05
    assert found["datasets"][1] == {
        "name": "a & b",
        "documents": 5,
        "queries": 4,
        "judgedBy": "spans",
        "lostToThreshold": None,
        "noAnswer": 0.0,
    }


def test_tables_show_shares_without_a_leading_zero() -> None:
    out = io.StringIO()
    Console(file=out, width=200).print(as_tables(Outcomes([graded("one", 0.4)])))
    assert ".400 (.400 to .400)" in out.getvalue()
    assert "5.0%" in out.getvalue()


def test_the_page_says_how_to_repeat_it_and_what_it_leaves_out() -> None:
    text = page(Outcomes([graded("one", 0.4), spans()]), InterfaceOutcomes(), Path("docs/design/quality.md"))
    assert "python -m benchmarks.quality DATA/one DATA/a & b --markdown docs/design/quality.md\n" in text
    assert "![Means by collection and mode](quality.svg)" in text
    assert "| one | nDCG@10 | .200 (.200 to .200) |" in text
    assert "Real conversations" in text


def test_the_picture_has_a_bar_for_each_mode_as_long_as_its_mean() -> None:
    root = ElementTree.fromstring(picture([graded("one", 0.4), spans()]))
    bars = [float(bar.attrib["width"]) for bar in root.iter(f"{SVG}rect") if bar.attrib.get("height") == "14"]
    assert len(bars) == 2 * len(MODES)
    assert bars[2] == 2 * bars[0]
    assert "a & b" in [text.text for text in root.iter(f"{SVG}text")]
