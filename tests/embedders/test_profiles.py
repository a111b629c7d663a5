"""What is known of a model by its name."""

import math

import pytest

from rag_context.embedders.profiles import MINILM, profile


def probability(name: str, cosine: float) -> float:
    calibration = profile(name).calibration
    return 1 / (1 + math.exp(-(calibration.slope * cosine + calibration.intercept)))


@pytest.mark.parametrize(
    ("name", "dimension", "query_prefix"),
    [
        ("all-MiniLM-L6-v2", 384, ""),
        ("sentence-transformers/all-MiniLM-L6-v2", 384, ""),
        ("text-embedding-all-minilm-l6-v2-embedding", 384, ""),
        ("sentence-transformers/all-mpnet-base-v2", 768, ""),
        ("nomic-ai/nomic-embed-text-v1.5-GGUF", 768, "search_query: "),
        ("text-embedding-nomic-embed-text-v1.5@q8_0", 768, "search_query: "),
        ("BAAI/bge-small-en-v1.5", 384, "Represent this sentence for searching relevant passages: "),
        ("BAAI/bge-m3", 1024, ""),
        ("intfloat/multilingual-e5-large", 1024, "query: "),
        ("mxbai-embed-large-v1", 1024, "Represent this sentence for searching relevant passages: "),
        ("text-embedding-3-small", 1536, ""),
        ("text-embedding-3-large", 3072, ""),
    ],
)
def test_a_model_is_found_under_the_names_that_servers_give_it(name: str, dimension: int, query_prefix: str) -> None:
    found = profile(name)
    assert (found.dimension, found.query_prefix) == (dimension, query_prefix)


def test_the_bundled_model_has_its_measured_calibration_and_window() -> None:
    found = profile("all-MiniLM-L6-v2")
    assert (found.calibration, found.window) == (MINILM, 254)
    assert (MINILM.slope, MINILM.intercept, MINILM.threshold) == (12.1, -4.01, 0.3)
    assert probability("all-MiniLM-L6-v2", 0.3314) == pytest.approx(0.5, abs=0.001)


def test_document_and_query_prefixes_differ_where_the_model_was_trained_so() -> None:
    found = profile("nomic-embed-text-v1.5")
    assert (found.query_prefix, found.document_prefix) == ("search_query: ", "search_document: ")


def test_the_published_cosine_of_nomic_stands_at_its_threshold() -> None:
    assert probability("nomic-embed-text-v1.5", 0.7) == pytest.approx(0.3)


def test_measured_models_refuse_at_the_same_probability() -> None:
    at = [
        probability(name, profile(name).calibration.answerable_cosine)
        for name in ("all-MiniLM-L6-v2", "all-mpnet-base-v2", "e5-small-v2")
    ]
    assert at == pytest.approx([at[0]] * 3)


def test_an_unknown_model_throws_nothing_away() -> None:
    found = profile("someone/new-model")
    assert found.name == "someone/new-model"
    assert found.dimension is None
    assert found.calibration.threshold == 0.0
    assert (found.query_prefix, found.document_prefix) == ("", "")
