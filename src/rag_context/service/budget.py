"""Keeping an answer within a number of tokens, by whole passages."""

from rag_context.contract.search import SearchResponse
from rag_context.ports import Tokenizer


def within(response: SearchResponse, max_tokens: int, tokenizer: Tokenizer) -> SearchResponse:
    """The answer cut after the last passage that fits, with how many were left out."""
    left, kept = max_tokens, 0
    for result in response.results:
        left -= len(tokenizer.offsets(result.content))
        if left < 0:
            break
        kept += 1
    return response.model_copy(update={"results": response.results[:kept], "omitted": len(response.results) - kept})
