"""Reading labelled collections."""

from pathlib import Path

import pytest

from rag_context.errors import InvalidInputError
from rag_context.evaluation.datasets import load_dataset

from .collections import FOX, WHALE, write_graded, write_lines, write_spans


def test_graded_queries_keep_their_grades_and_the_others_are_dropped(tmp_path: Path) -> None:
    """R-4: BEIR layout."""
    dataset = load_dataset(write_graded(tmp_path / "animals"))
    assert (dataset.name, dataset.by_spans) == ("animals", False)
    assert [(question.id, dict(question.grades)) for question in dataset.questions] == [
        ("1", {"fox": 2, "bread": 0}),
        ("2", {"whale": 1}),
    ]


def test_the_title_becomes_a_heading_and_empty_documents_go(tmp_path: Path) -> None:
    dataset = load_dataset(write_graded(tmp_path / "animals"))
    contents = {text.id: text.content for text in dataset.documents}
    assert list(contents) == ["fox", "whale", "bread"]
    assert contents["fox"] == f"# On foxes\n\n{FOX}"
    assert contents["whale"] == WHALE


def test_a_span_lies_in_the_content_behind_the_offset(tmp_path: Path) -> None:
    dataset = load_dataset(write_spans(tmp_path / "spans"))
    (question,) = dataset.questions
    (text,) = dataset.documents
    ((start, end),) = question.spans
    assert dataset.by_spans
    assert question.document == "long"
    assert text.content[text.offset + start : text.offset + end] == FOX


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("corpus.jsonl", "{", "corpus.jsonl, line 1 is not JSON"),
        ("corpus.jsonl", '{"title": "no id"}\n', "corpus.jsonl, line 1 lacks _id"),
        ("queries.jsonl", '{"_id": "1"}\n', "queries.jsonl, line 1 lacks _id or text"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\n1\tfox\tmuch\n", "line 2: expected query, document"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\n1\tfox\t0\n", "has no judged query"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\n1\tox\t1\n", "judges no document that is in corpus.jsonl"),
        ("queries.jsonl", '{"_id": "1", "text": null}\n', "queries.jsonl, line 1 lacks _id or text"),
    ],
)
def test_what_is_wrong_with_a_file_is_reported_with_its_line(
    tmp_path: Path, name: str, content: str, message: str
) -> None:
    folder = write_graded(tmp_path / "animals")
    (folder / name).write_text(content)
    with pytest.raises(InvalidInputError, match=message):
        load_dataset(folder)


def test_a_folder_that_is_not_a_dataset_gets_a_message_on_what_one_is(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"a dataset is a folder with corpus\.jsonl"):
        load_dataset(tmp_path)


def test_grades_without_a_heading_line_are_read_from_the_first(tmp_path: Path) -> None:
    folder = write_graded(tmp_path / "animals")
    (folder / "qrels" / "test.tsv").write_text("1\tfox\t1\n")
    assert [dict(question.grades) for question in load_dataset(folder).questions] == [{"fox": 1}]


def test_queries_without_spans_are_left_out(tmp_path: Path) -> None:
    folder = write_spans(tmp_path / "spans")
    write_lines(folder / "queries.jsonl", [{"_id": "q", "text": "a"}])
    with pytest.raises(InvalidInputError, match="none has spans"):
        load_dataset(folder)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"corpus_id": "short", "spans": [[0, 3]]}, "query 'q' is answered by 'short', which is not in corpus.jsonl"),
        ({"spans": [[0, 3]]}, "query 'q' is answered by 'None', which is not in corpus.jsonl"),
        ({"corpus_id": "long", "spans": [[0]]}, "query 'q': each of its spans must be two numbers"),
        ({"corpus_id": "long", "spans": 7}, "query 'q': each of its spans must be two numbers"),
    ],
)
def test_a_span_that_lies_nowhere_is_rejected(tmp_path: Path, query: dict[str, object], message: str) -> None:
    folder = write_spans(tmp_path / "spans")
    write_lines(folder / "queries.jsonl", [{"_id": "q", "text": "where do foxes sleep", **query}])
    with pytest.raises(InvalidInputError, match=message):
        load_dataset(folder)


def test_what_is_not_utf_8_is_rejected(tmp_path: Path) -> None:
    folder = write_graded(tmp_path / "animals")
    (folder / "corpus.jsonl").write_bytes(b'{"_id": "fox", "text": "\xff"}\n')
    with pytest.raises(InvalidInputError, match=r"corpus\.jsonl is not UTF-8"):
        load_dataset(folder)


def test_numbers_may_be_ids(tmp_path: Path) -> None:
    folder = write_graded(tmp_path / "animals")
    write_lines(folder / "corpus.jsonl", [{"_id": 7, "text": FOX}, {"_id": 8, "text": " \n"}])
    write_lines(folder / "queries.jsonl", [{"_id": 1, "text": "foxes"}])
    (folder / "qrels" / "test.tsv").write_text("1\t7\t1\n")
    dataset = load_dataset(folder)
    assert [text.id for text in dataset.documents] == ["7"]
    assert [question.id for question in dataset.questions] == ["1"]
