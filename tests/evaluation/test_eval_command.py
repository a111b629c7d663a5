"""`rag-context eval` and `benchmarks.quality` as they are run, with the real model."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.process import command, environment

from .collections import write_graded, write_spans
from .test_evidence import write_messages

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "design" / "quality.md"


def test_collections_are_measured_and_written_down(tmp_path: Path) -> None:
    """R-4: nDCG@10, recall, MRR and success with intervals, by mode."""
    animals, spans = write_graded(tmp_path / "animals"), write_spans(tmp_path / "spans")
    page = tmp_path / "quality.md"
    found = benchmark(str(animals), str(spans), "--markdown", str(page))
    measures = {(row["dataset"], row["measure"]): row["modes"] for row in found["measures"]}
    assert measures["animals", "nDCG@10"]["hybrid"]["mean"] == 1.0
    assert measures["animals", "recall@10"]["vector"]["mean"] == 1.0
    assert measures["spans", "answer in 1000 tokens"]["hybrid"]["mean"] == 1.0
    assert "| animals | nDCG@10 |" in page.read_text()
    assert page.with_suffix(".svg").read_text().startswith("<svg ")


def test_a_kept_index_gives_the_same_numbers_again(tmp_path: Path) -> None:
    animals = write_graded(tmp_path / "animals")
    kept = tmp_path / "kept"
    first, second = (
        command("eval", str(animals), "--json", "--keep-index", str(kept), data_dir=tmp_path / "data") for _ in range(2)
    )
    assert first.returncode == second.returncode == 0
    assert first.stdout == second.stdout
    assert (kept / "animals" / "rag-context.db").is_file()


def test_people_get_a_table(tmp_path: Path) -> None:
    done = command("eval", str(write_graded(tmp_path / "animals")), data_dir=tmp_path / "data")
    assert done.returncode == 0, done.stderr
    assert "success@3" in done.stdout
    assert not (tmp_path / "data").exists()
    assert "hybrid" in done.stdout


def test_a_folder_that_is_not_a_dataset_is_reported_in_one_sentence(tmp_path: Path) -> None:
    done = command("eval", str(tmp_path), data_dir=tmp_path / "data")
    assert done.returncode == 2
    assert "a dataset is a folder with corpus.jsonl" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_set_with_evidence_is_measured_beside_the_others_and_written_down(tmp_path: Path) -> None:
    """B-1: conversations with evidence by message."""
    paths = [str(write_graded(tmp_path / "animals")), str(write_messages(tmp_path / "messages"))]
    page = tmp_path / "quality.md"
    found = benchmark(*paths, "--markdown", str(page))
    assert [each["dataset"] for each in found["evidence"]] == ["messages"]
    assert found["evidence"][0]["categories"][0]["recall"]["hybrid"] == 1.0
    assert found["datasets"][0]["name"] == "animals"
    assert "| messages | plain | 2 |" in page.read_text()


def test_no_set_at_all_is_reported(tmp_path: Path) -> None:
    done = command("eval", data_dir=tmp_path / "data")
    assert done.returncode == 2
    assert "name a folder with a labelled set" in done.stderr


def test_two_datasets_of_one_name_are_rejected(tmp_path: Path) -> None:
    one = write_graded(tmp_path / "one" / "animals")
    done = command("eval", str(one), str(one), data_dir=tmp_path / "data")
    assert done.returncode == 2
    assert "same name" in done.stderr


def test_the_open_sets_have_the_figures_of_the_page() -> None:
    """B-2: who repeats the command gets the figures; on another processor some questions may be answered otherwise."""
    found = benchmark()
    rows = page_rows("### Evidence among")
    published = {row[0]: [float(cell) for cell in row[3:]] for row in rows}  # the last row of a set is of all of it
    measured: dict[str, list[float]] = {}
    listed: dict[str, float] = {}
    for each in found["evidence"]:
        *_, last = (category for category in each["categories"] if category["answerable"])
        listed |= {each["dataset"]: last["standing"]} if "standing" in last else {}
        measured[each["dataset"]] = [*last["recall"].values(), *last["ndcg"].values()]
    assert measured.keys() == published.keys()
    for name, figures in measured.items():
        assert figures == pytest.approx(published[name], abs=0.05), name
    ((name, _, _, share, _),) = page_rows("### Standing instructions")
    assert listed == {name: pytest.approx(float(share.rstrip("%")) / 100.0, abs=0.1)}


def benchmark(*arguments: str) -> dict[str, Any]:
    """What `python -m benchmarks.quality` measures."""
    words = [sys.executable, "-m", "benchmarks.quality", *arguments, "--json"]
    done = subprocess.run(words, cwd=ROOT, env=environment(), capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def page_rows(title: str) -> list[list[str]]:
    """The cells of the first table below a heading of the page, without those of its head."""
    table = PAGE.read_text(encoding="utf-8").partition(title)[2].partition("###")[0]
    _, *rows = (
        [cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("| ")
    )
    return rows
