"""Keeping an answer within a number of tokens, by whole passages."""

from rag_context.api.search import SearchResponse, SearchResult
from rag_context.ports.models import Tokenizer


def within(response: SearchResponse, max_tokens: int, tokenizer: Tokenizer) -> SearchResponse:
    """The answer cut after the last passage that fits, with how many were left out.

    What surrounds a passage comes with it where that fits too, the best passage's first, after all passages.
    """
    left, kept = max_tokens, 0
    for result in response.results:
        size = len(tokenizer.offsets(result.content))
        if size > left:
            break
        left -= size
        kept += 1
    results: list[SearchResult] = []
    for result in response.results[:kept]:
        size = _tokens_around(result, tokenizer)
        results.append(result if size <= left else result.model_copy(update={"context": None}))
        left -= size if size <= left else 0
    return response.model_copy(update={"results": results, "omitted": len(response.results) - kept})


def _tokens_around(result: SearchResult, tokenizer: Tokenizer) -> int:
    context = result.context
    texts = (context.before, context.after) if context is not None else ()
    return sum(len(tokenizer.offsets(text)) for text in texts if text)
