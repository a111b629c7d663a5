"""What is known of a model by its name."""

import math
from pathlib import Path

import pytest

from rag_context.domain.vectors import MINILM
from rag_context.embedders.profiles import PROFILES, Profile, profile

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "design" / "embedding-models.md"


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
        ("all-minilm:22m", 384, ""),
        ("all-MiniLM-L12-v2", 384, ""),
        ("nomic-embed-text:latest", 768, "search_query: "),
        ("nomic-ai/nomic-embed-text-v2-moe", 768, "search_query: "),
        ("intfloat/e5-large-v2", 1024, "query: "),
        (
            "multilingual-e5-large-instruct",
            1024,
            "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery: ",
        ),
        ("snowflake-arctic-embed:335m", None, "Represent this sentence for searching relevant passages: "),
        ("Snowflake/snowflake-arctic-embed-xs", 384, "Represent this sentence for searching relevant passages: "),
        ("Snowflake/snowflake-arctic-embed-m-long", 768, "Represent this sentence for searching relevant passages: "),
        ("Snowflake/snowflake-arctic-embed-l-v2.0", 1024, "query: "),
        ("snowflake-arctic-embed2:568m", 1024, "query: "),
        ("thenlper/gte-small", 384, ""),
        ("Alibaba-NLP/gte-large-en-v1.5", 1024, ""),
        ("jinaai/jina-embeddings-v2-small-en", 512, ""),
        ("jina-embeddings-v2-base-code", 768, ""),
        ("embeddinggemma:300m", 768, "task: search result | query: "),
    ],
)
def test_a_model_is_found_under_the_names_that_servers_give_it(
    name: str, dimension: int | None, query_prefix: str
) -> None:
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


def test_measured_models_reject_at_the_same_probability() -> None:
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


@pytest.mark.parametrize(
    ("name", "window"),
    [
        ("gte-small", 510),
        ("gte-base-en-v1.5", 8190),
        ("snowflake-arctic-embed-m-long", 2046),
        ("snowflake-arctic-embed-l-v2.0", 8190),
        ("all-MiniLM-L12-v2", 126),
        ("nomic-embed-text-v2-moe", 510),
    ],
)
def test_a_model_is_not_confused_with_its_sibling(name: str, window: int) -> None:
    assert profile(name).window == window


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("all-MiniLM-L6-v2", True),
        ("nomic-embed-text", True),
        ("bge-large-en-v1.5", True),
        ("bge-m3", False),
        ("multilingual-e5-small", False),
        ("text-embedding-3-small", False),
    ],
)
def test_models_of_another_vocabulary_are_known(name: str, same: bool) -> None:
    assert (profile(name).pieces == 1.0) == same


def row(known: Profile) -> str:
    """A profile as the documentation shows it."""
    prefixes = [
        f"`{prefix}`".replace("\n", "\\n").replace("|", "\\|") if prefix else ""
        for prefix in (known.query_prefix, known.document_prefix)
    ]
    tokens = "exact" if known.pieces == 1.0 else "estimated"
    return f"| {' | '.join([f'`{known.name}`', str(known.dimension or 'any'), str(known.window), *prefixes, tokens])} |"


def test_the_documentation_shows_every_profile_as_it_is() -> None:
    _, _, rest = PAGE.read_text(encoding="utf-8").partition("| name contains |")
    table = rest.partition("\n\n")[0].splitlines()[2:]
    assert table == [row(known) for known in PROFILES]
