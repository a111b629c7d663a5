"""Rerankers: models that read a question and a passage together; a cross-encoder in this process, or a server."""

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from pathlib import Path
from typing import Literal

import numpy as np
import onnxruntime
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.aliases import AliasChoices
from pydantic.fields import Field
from tokenizers import Tokenizer

from rag_context.embedders.model_tokenizer import without_surrogates
from rag_context.embedders.onnx_model import INPUTS, RUN_FAILURES, session_options
from rag_context.errors import BackendDataError, BackendRejectedError, BackendStartingError, BackendUnavailableError
from rag_context.openai_server import OpenAIServer, Use

logger = logging.getLogger(__name__)

COMPONENT = "reranker"

WINDOW = 512
"""Tokens of question and passage together, special ones included; cross-encoders of the BERT family read as many."""

BODY_BYTES = 1 << 20
"""Longer responses are rejected: a score takes some 60 bytes, or as much as its passage where a server repeats that."""

PROBE = ("What is the capital of France?", ["Paris is the capital of France.", "Bread is baked in an oven."])

Api = Literal["cohere", "tei"]


class CrossEncoder:
    """A cross-encoder in a folder: `model.onnx`, from token ids to one logit, and its `tokenizer.json`."""

    def __init__(self, directory: Path, workers: int) -> None:
        self._directory = directory
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="rag-context-reranker")
        self._loading: asyncio.Future[tuple[onnxruntime.InferenceSession, Tokenizer]] | None = None

    async def start(self) -> None:
        self._loading = asyncio.get_running_loop().run_in_executor(self._pool, self._load)
        self._loading.add_done_callback(_log_failure)

    async def close(self) -> None:
        """Drop what is queued; passages being scored are finished in their threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def scores(self, query: str, passages: Sequence[str]) -> Sequence[float]:
        if self._loading is None or not self._loading.done():
            raise BackendStartingError(COMPONENT, f"the reranking model in {self._directory} is still loading")
        session, tokenizer = self._loading.result()
        loop = asyncio.get_running_loop()
        # A caller that gives up cancels the passages whose turn has not come.
        return await asyncio.gather(
            *(loop.run_in_executor(self._pool, self._score, session, tokenizer, query, each) for each in passages)
        )

    async def ping(self) -> str:
        """Score a probe; where the model could not be loaded, try again first. Raises as `scores` does."""
        if self._loading is not None and self._loading.done() and self._loading.exception() is not None:
            await self.start()
        await self.scores(*PROBE)
        return f"cross-encoder in {self._directory}"

    def _load(self) -> tuple[onnxruntime.InferenceSession, Tokenizer]:
        try:
            tokenizer = Tokenizer.from_file(str(self._directory / "tokenizer.json"))
        except Exception as error:  # the library raises nothing narrower
            raise self._unusable(str(error)) from error
        try:
            session = onnxruntime.InferenceSession(
                self._directory / "model.onnx", session_options(), providers=["CPUExecutionProvider"]
            )
        except RUN_FAILURES as error:
            raise self._unusable(str(error)) from error
        unknown = {entry.name for entry in session.get_inputs()} - INPUTS
        if unknown:
            raise self._unusable(f"model.onnx wants {sorted(unknown)}")
        tokenizer.no_padding()
        tokenizer.enable_truncation(WINDOW)
        try:
            self._score(session, tokenizer, PROBE[0], PROBE[1][0])
        except BackendRejectedError as error:
            raise self._unusable(str(error)) from error
        return session, tokenizer

    def _score(self, session: onnxruntime.InferenceSession, tokenizer: Tokenizer, query: str, passage: str) -> float:
        (encoding,) = tokenizer.encode_batch([(without_surrogates(query), without_surrogates(passage))])
        values = {
            "input_ids": encoding.ids,
            "attention_mask": encoding.attention_mask,
            "token_type_ids": encoding.type_ids,
        }
        feed = {entry.name: np.array([values[entry.name]], np.int64) for entry in session.get_inputs()}
        try:
            output = session.run(None, feed)[0]
        except RUN_FAILURES as error:
            raise BackendRejectedError(COMPONENT, f"the reranking model failed: {error}") from error
        if output.ndim != 2 or output.shape[1] not in {1, 2}:
            raise BackendRejectedError(COMPONENT, "the reranking model does not return one score per passage")
        return float(output[0, -1])  # of two classes the second one is "relevant"

    def _unusable(self, what: str) -> BackendUnavailableError:
        return BackendUnavailableError(
            COMPONENT,
            f"the model in {str(self._directory)!r} cannot rerank: {what}; put the model.onnx and tokenizer.json of a "
            "cross-encoder there, or remove reranker.model_dir",
        )


def _log_failure(loading: "asyncio.Future[tuple[onnxruntime.InferenceSession, Tokenizer]]") -> None:
    if not loading.cancelled() and (error := loading.exception()) is not None:
        logger.error("%s", error)


class _Score(BaseModel):
    index: int = Field(ge=0)
    score: float = Field(validation_alias=AliasChoices("relevance_score", "score"), allow_inf_nan=False)


class _Results(BaseModel):
    results: list[_Score]


_REPLY: TypeAdapter[list[_Score] | _Results] = TypeAdapter(list[_Score] | _Results)


class RerankServer:
    """`/rerank` of one server, as Cohere (Jina, vLLM, llama.cpp, Infinity) or TEI. Raises: ConfigurationError."""

    def __init__(self, url: str, *, model: str, api_key: str | None, api: Api, timeout_s: float) -> None:
        version = "v1" if api == "cohere" else ""
        use = Use(COMPONENT, section="reranker", kind="reranking", path="rerank", result="scores", version=version)
        self._http = OpenAIServer(url, use, model=model, api_key=api_key, timeout_s=timeout_s)
        self._api = api

    async def start(self) -> None:
        """Nothing to do: the first request connects."""

    async def close(self) -> None:
        await self._http.close()

    async def scores(self, query: str, passages: Sequence[str]) -> Sequence[float]:
        fields = (
            {"query": query, "documents": list(passages), "top_n": len(passages), "return_documents": False}
            if self._api == "cohere"
            else {"query": query, "texts": list(passages), "truncate": True}
        )
        limit = BODY_BYTES + sum(map(len, passages))
        reply = await self._http.post(fields, limit)
        try:
            parsed = _REPLY.validate_json(reply.body) if reply.status == HTTPStatus.OK else None
        except ValidationError:
            parsed = None
        if parsed is None:
            raise self._http.failure(reply, reply.payload(), public=(query, list(passages)) == PROBE)
        found = {each.index: each.score for each in (parsed if isinstance(parsed, list) else parsed.results)}
        if found.keys() != set(range(len(passages))):
            raise BackendDataError(COMPONENT, f"{self._http.name} did not return one score per passage")
        return [found[index] for index in range(len(passages))]

    async def ping(self) -> str:
        await self.scores(*PROBE)
        return f"{self._http.name}"
