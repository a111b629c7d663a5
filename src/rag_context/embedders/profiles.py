"""Profiles of embedding models by name: dimension, window, prefixes, and the calibration of their cosines.

Servers name one model in many ways (`nomic-ai/nomic-embed-text-v1.5-GGUF`, `text-embedding-all-minilm-l6-v2`), so
a profile is found by the part of the name that they share.
"""

import math
from dataclasses import dataclass

from rag_context.domain.vectors import MINILM, UNMEASURED, Calibration

_ANSWERABLE_LOGIT = MINILM.slope * MINILM.answerable_cosine + MINILM.intercept


@dataclass(frozen=True, slots=True)
class Profile:
    """The properties of a model that its name tells; `window` counts tokens without the special ones."""

    name: str
    window: int
    calibration: Calibration
    dimension: int | None = None
    """None where only the model itself tells."""
    query_prefix: str = ""
    document_prefix: str = ""
    pieces: float = 1.0
    """Tokens of its own, at most, for each that the bundled tokenizer counts; 1 where it has the same vocabulary."""


def _measured(slope: float, intercept: float) -> Calibration:
    """A fitted calibration whose threshold is at the probability that was measured for MiniLM."""
    return Calibration(slope, intercept, answerable_cosine=(_ANSWERABLE_LOGIT - intercept) / slope)


def _at_threshold(cosine: float, slope: float) -> Calibration:
    """A calibration where only a least useful cosine is given; the slope is a guess, nothing is fitted."""
    threshold = 0.3
    intercept = math.log(threshold / (1 - threshold)) - slope * cosine
    return Calibration(slope, intercept, threshold, answerable_cosine=cosine)


_BGE_QUERY = "Represent this sentence for searching relevant passages: "
_INSTRUCT_QUERY = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery: "
_NOMIC = _at_threshold(0.7, slope=20.0)
_NOMIC_PREFIXES = ("search_query: ", "search_document: ")
_E5_PREFIXES = ("query: ", "passage: ")
_E5 = _measured(50.2, -41.2)
"""Measured on e5-small; its siblings share the training temperature that sets the scale of their cosines."""

_OTHER_PIECES = 1.5
"""For SentencePiece and byte-pair vocabularies: room for code and for languages that they cut finer."""

PROFILES = (
    Profile("all-MiniLM-L12-v2", 126, UNMEASURED, 384),
    Profile("all-MiniLM", 254, MINILM, 384),
    Profile("all-mpnet-base-v2", 382, _measured(15.0, -5.14), 768),
    Profile("nomic-embed-text-v2-moe", 510, UNMEASURED, 768, *_NOMIC_PREFIXES, pieces=_OTHER_PIECES),
    Profile("nomic-embed-text", 2046, _NOMIC, 768, *_NOMIC_PREFIXES),
    Profile("bge-small-en", 510, UNMEASURED, 384, _BGE_QUERY),
    Profile("bge-base-en", 510, UNMEASURED, 768, _BGE_QUERY),
    Profile("bge-large-en", 510, UNMEASURED, 1024, _BGE_QUERY),
    Profile("bge-m3", 8190, UNMEASURED, 1024, pieces=_OTHER_PIECES),
    Profile("mxbai-embed-large", 510, UNMEASURED, 1024, _BGE_QUERY),
    Profile("multilingual-e5-large-instruct", 510, _E5, 1024, _INSTRUCT_QUERY, pieces=_OTHER_PIECES),
    Profile("multilingual-e5-small", 510, _E5, 384, *_E5_PREFIXES, pieces=_OTHER_PIECES),
    Profile("multilingual-e5-base", 510, _E5, 768, *_E5_PREFIXES, pieces=_OTHER_PIECES),
    Profile("multilingual-e5-large", 510, _E5, 1024, *_E5_PREFIXES, pieces=_OTHER_PIECES),
    Profile("e5-small", 510, _E5, 384, *_E5_PREFIXES),
    Profile("e5-base", 510, _E5, 768, *_E5_PREFIXES),
    Profile("e5-large", 510, _E5, 1024, *_E5_PREFIXES),
    Profile("snowflake-arctic-embed-m-v2.0", 8190, UNMEASURED, 768, "query: ", pieces=_OTHER_PIECES),
    Profile("snowflake-arctic-embed-l-v2.0", 8190, UNMEASURED, 1024, "query: ", pieces=_OTHER_PIECES),
    Profile("snowflake-arctic-embed2", 8190, UNMEASURED, 1024, "query: ", pieces=_OTHER_PIECES),
    Profile("snowflake-arctic-embed-m-long", 2046, UNMEASURED, 768, _BGE_QUERY),
    Profile("snowflake-arctic-embed-xs", 510, UNMEASURED, 384, _BGE_QUERY),
    Profile("snowflake-arctic-embed-s", 510, UNMEASURED, 384, _BGE_QUERY),
    Profile("snowflake-arctic-embed-m", 510, UNMEASURED, 768, _BGE_QUERY),
    Profile("snowflake-arctic-embed-l", 510, UNMEASURED, 1024, _BGE_QUERY),
    Profile("snowflake-arctic-embed", 510, UNMEASURED, None, _BGE_QUERY),
    Profile("gte-base-en-v1.5", 8190, UNMEASURED, 768),
    Profile("gte-large-en-v1.5", 8190, UNMEASURED, 1024),
    Profile("gte-multilingual-base", 8190, UNMEASURED, 768, pieces=_OTHER_PIECES),
    Profile("gte-small", 510, UNMEASURED, 384),
    Profile("gte-base", 510, UNMEASURED, 768),
    Profile("gte-large", 510, UNMEASURED, 1024),
    Profile("jina-embeddings-v2-small-en", 8190, UNMEASURED, 512),
    Profile("jina-embeddings-v2-base", 8190, UNMEASURED, 768, pieces=_OTHER_PIECES),
    Profile(
        "embeddinggemma", 2046, UNMEASURED, 768, "task: search result | query: ", "title: none | text: ", _OTHER_PIECES
    ),
    Profile("text-embedding-3-small", 8191, UNMEASURED, 1536, pieces=_OTHER_PIECES),
    Profile("text-embedding-3-large", 8191, UNMEASURED, 3072, pieces=_OTHER_PIECES),
    Profile("text-embedding-ada-002", 8191, UNMEASURED, 1536, pieces=_OTHER_PIECES),
)
"""Dimensions, windows and prefixes as their makers publish them; the first whose name matches is used. nomic reads 2048
tokens as trained, more only where its server stretches the positions; its 0.7 is the least score of the deployments
this package succeeds."""


def profile(name: str) -> Profile:
    """Find the profile of a model by any of its names; an unknown model gets a conservative one under its own name."""
    lowered = name.lower().replace("_", "-")
    for known in PROFILES:
        if known.name.lower() in lowered:
            return known
    return Profile(name, 254, UNMEASURED)
