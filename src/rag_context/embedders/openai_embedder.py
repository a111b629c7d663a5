"""Embeds through a server with OpenAI's API: LM Studio, Ollama, llama.cpp, vLLM, TEI, OpenAI, or our own.

Which model the server runs is checked: its name proves nothing, its vector of a probe text does.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from rag_context.domain.vectors import EmbeddingModel, Matrix, Vector
from rag_context.embedders.model_tokenizer import ModelTokenizer
from rag_context.embedders.model_vectors import Checker
from rag_context.embedders.onnx_model import BUNDLED
from rag_context.embedders.served_model import COMPONENT, EmbeddingApi, EncodingFormat, ServedModel, SingleFlight
from rag_context.errors import BackendError, BackendRejectedError, BackendStartingError, BackendUnavailableError
from rag_context.openai_server import InputTooLongError
from rag_context.ports.models import Provenance
from rag_context.resilience.deadline import set_within

logger = logging.getLogger(__name__)

BATCH = 32

DOCUMENT_REQUESTS = 2
"""Requests for documents at once: one is computed while the next is sent, and a query waits for few."""

CHECK_EVERY_S = 30.0
"""How often the model is confirmed while nothing is embedded."""

CHECK_ASKED_S = 0.5
"""How often it is confirmed while queries are embedded."""

CHECK_CHANGED_S = 1.0
CHANGED_LATELY_S = 600.0
"""For so long after a change it is confirmed every `CHECK_CHANGED_S`: the former model may be back soon."""

CONFIRMED_S = 1.0
"""A query's vector is returned only if the model was confirmed less than this before it."""

FIRST_RETRY_S = 0.25
LAST_RETRY_S = 5.0
CUTS = 4
"""How often a text is shortened before it fails; halved so often, 4000 tokens are 250."""

_TOKENIZER = BUNDLED / "tokenizer.json"


class OpenAIEmbedder:
    """Embeds on a server, queries before any documents in the queue; see `docs/embedders.md`.

    The server's model is known by its vector of a probe text. The probe is repeated every `check_every_s`, after every
    failure, and after every batch of documents, so that no vector of another model reaches the index. While queries are
    embedded, one probe for all of them is sent every half second, beside the first and after the last of them: a
    query's vector is never older than a second without a confirmation, and is cached only once there was one after it.
    Tokens are counted by the bundled WordPiece tokenizer, which is exact for the many models that share its vocabulary
    (BERT uncased); for the others the model's profile makes the window smaller by a safety factor. `model` also chooses
    that profile: prefixes, window, calibration. A server that could not be reached is tried again after
    `first_retry_s`, which doubles up to 5 s. Raises: ConfigurationError (the address or the key cannot be used).
    """

    def __init__(
        self,
        url: str,
        *,
        model: str,
        api_key: str | None = None,
        timeout_s: float = 30.0,
        encoding_format: EncodingFormat | None = None,
        check_every_s: float = CHECK_EVERY_S,
        first_retry_s: float = FIRST_RETRY_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = EmbeddingApi(
            url, model=model, api_key=api_key, timeout_s=timeout_s, encoding_format=encoding_format
        )
        self._checked = Checker()
        self._served = ServedModel(self._api, model, self._checked, clock)
        self._check_every_s = check_every_s
        self._first_retry_s = first_retry_s
        self._clock = clock
        self._queries: SingleFlight[Vector] = SingleFlight()
        self._document_slots = asyncio.Semaphore(DOCUMENT_REQUESTS)
        self._keeper: asyncio.Task[None] | None = None
        self._attempted = asyncio.Event()  # the first connection has succeeded or failed
        self._asked = asyncio.Event()  # a query was sent or answered since the last probe
        self._failure: BackendError | None = None
        self._cut_before = False
        self._closed = False

    async def start(self) -> None:
        """Begin to connect to the server, and return at once; retries go on until `close`."""
        if self._keeper is None and not self._closed:
            self._keeper = asyncio.create_task(self._keep(), name="watch the embedding server")

    async def ready(self, timeout_s: float) -> bool:
        """Wait until it is known whether the server can be reached; True where its model is known."""
        return await set_within(self._attempted, timeout_s) and self._served.model is not None and not self._closed

    async def close(self) -> None:
        self._closed = True
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait({self._keeper})
        await self._api.close()

    @property
    def model(self) -> EmbeddingModel:
        """The server's model, as last confirmed. Raises: BackendStartingError, BackendUnavailableError (says why)."""
        if self._closed:
            raise BackendUnavailableError(COMPONENT, "the embedder is closed")
        if self._served.model is not None:
            return self._served.model
        if isinstance(self._failure, BackendStartingError):
            raise BackendStartingError(COMPONENT, str(self._failure)) from self._failure
        if self._failure is not None:
            raise BackendUnavailableError(COMPONENT, str(self._failure)) from self._failure
        raise BackendStartingError(COMPONENT, f"{self._api.server} has not answered yet")

    @property
    def provenance(self) -> Provenance:
        return self._served.provenance

    @cached_property
    def tokenizer(self) -> ModelTokenizer:
        """The bundled WordPiece tokenizer: exact for models of the same vocabulary, an estimate for others."""
        return ModelTokenizer(_TOKENIZER)

    async def embed_query(self, text: str) -> Vector:
        model = self.model
        text = model.query_prefix + text
        return await self._queries.join((model.fingerprint, text), lambda: self._query(model, text))

    async def embed_documents(self, texts: Sequence[str]) -> Matrix:
        model = self.model
        rows: Matrix = np.empty((len(texts), model.dimension), np.float32)
        for start in range(0, len(texts), BATCH):
            batch = [model.document_prefix + text for text in texts[start : start + BATCH]]
            async with self._document_slots:
                rows[start : start + BATCH] = await self._embed(model, batch)
        # After the last batch: a model that was loaded in between may have made some of the rows.
        if len(rows):
            self._require_same(model, await self._confirm(self._clock()))
        return rows

    async def ping(self) -> str:
        """Embed the probe, whether the server was reached before or not. Raises as `embed_query` does."""
        if self._closed:
            raise BackendUnavailableError(COMPONENT, "the embedder is closed")
        model = await self._confirm(self._clock())
        return f"{model.name}, {model.dimension} dimensions, by {self._api.server}"

    async def _query(self, model: EmbeddingModel, text: str) -> Vector:
        self._asked.set()  # where a probe is due, it is sent beside the text
        rows = await self._embed(model, [text])
        self._served.provenance.newest = received_at = self._clock()
        self._asked.set()
        # Mostly without a request: unless the reply or a failure has raised doubt, the last second's probe will do.
        self._require_same(model, await self._confirm(received_at - CONFIRMED_S))
        vector: Vector = rows[0]
        return vector

    async def _embed(self, model: EmbeddingModel, texts: list[str]) -> Matrix:
        """Vectors of a batch. Only texts that are longer than the server accepts are cut."""
        try:
            return await self._request(model, texts)
        except InputTooLongError:
            if len(texts) == 1:
                return await self._embed_cut(model, texts[0])
        return np.concatenate([await self._embed(model, [text]) for text in texts])

    async def _embed_cut(self, model: EmbeddingModel, text: str) -> Matrix:
        """The vector of the beginning of a text: as much as the model reads, else a half, a quarter, ..."""
        spans = await asyncio.to_thread(self.tokenizer.offsets, text)
        kept = spans[model.window - 1][1] if len(spans) > model.window else len(text) // 2
        for _ in range(CUTS):
            if not self._cut_before:
                self._cut_before = True
                logger.warning(
                    "a text of %d characters is too long for %s and was cut to %d; further cuts are not reported",
                    len(text),
                    self._api.server,
                    kept,
                )
            try:
                return await self._request(model, [text[:kept]])
            except InputTooLongError:
                kept //= 2
        raise BackendRejectedError(
            COMPONENT, f"{self._api.server} does not accept even {kept * 2} characters of a text of {len(text)}"
        )

    async def _request(self, model: EmbeddingModel, texts: list[str]) -> Matrix:
        """One request, its vectors checked. After a failure the server may be another one, unless it is only busy."""
        try:
            answer = await self._api.embed(texts, model.dimension)
            vectors = self._checked(answer.vectors, model.dimension)
        except BackendError as error:
            busy = isinstance(error, BackendUnavailableError) and error.retry_after_s is not None
            if not busy and not isinstance(error, BackendRejectedError):
                self._served.doubt()
            raise
        self._served.note_announced(answer.model)
        return vectors

    async def _confirm(self, since: float) -> EmbeddingModel:
        model = await self._served.confirm(since)
        self._failure = None
        self._attempted.set()
        return model

    def _require_same(self, before: EmbeddingModel, now: EmbeddingModel) -> None:
        # By identity: the object is replaced only where a probe shows another model.
        if before is not now:
            raise BackendRejectedError(COMPONENT, f"{self._api.server} has another model than before")

    async def _keep(self) -> None:
        # No request is needed to notice that the server is back: this goes on after any failure.
        retry_s = self._first_retry_s
        while True:
            began = self._clock()
            self._asked.clear()  # before the probe: it says nothing about queries that are answered during it
            try:
                await self._confirm(began)
            except BackendError as error:
                self._note(error)
                await asyncio.sleep(retry_s)
                retry_s = min(retry_s * 2.0, LAST_RETRY_S)
                continue
            retry_s = self._first_retry_s
            is_changed = began - self._served.changed_at < CHANGED_LATELY_S
            await set_within(self._asked, min(self._check_every_s, CHECK_CHANGED_S if is_changed else math.inf))
            pause_s = min(CHECK_ASKED_S, self._check_every_s)
            await asyncio.sleep(max(began + pause_s - self._clock(), 0.0))

    def _note(self, error: BackendError) -> None:
        # The same failure is repeated at each attempt, and worth one line.
        level = logging.DEBUG if str(error) == str(self._failure) else logging.WARNING
        logger.log(level, "%s", error)
        self._served.doubt()
        self._failure = error
        if not isinstance(error, BackendStartingError):
            self._attempted.set()
