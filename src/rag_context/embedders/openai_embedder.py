"""Embeds through a server with OpenAI's API: LM Studio, Ollama, llama.cpp, vLLM, TEI, OpenAI, or our own.

Which model the server runs is checked: its name proves nothing, its vector of a probe text does. Requests that several
callers make at the same time are sent once (`SingleFlight`).
"""

import asyncio
import base64
import logging
import math
import time
from collections.abc import Callable, Coroutine, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from typing import Generic, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from rag_context import errors
from rag_context.domain.documents import Json
from rag_context.domain.vectors import PROBE, SAME_COSINE, EmbeddingModel, Matrix, Vector, fingerprint
from rag_context.embedders.model_tokenizer import ModelTokenizer
from rag_context.embedders.model_vectors import Checker
from rag_context.embedders.onnx_model import BUNDLED
from rag_context.embedders.profiles import profile
from rag_context.openai_server import AT_ONCE, InputTooLongError, ModelReply, OpenAIServer, Use
from rag_context.ports.models import Provenance
from rag_context.resilience.deadline import set_within

logger = logging.getLogger(__name__)

T = TypeVar("T")

COMPONENT = "embedder"
USE = Use(COMPONENT, section="embedder", kind="embedding", path="embeddings", result="vectors")

BODY_BYTES = 1 << 20
"""Bytes of a response for everything but vectors: names, errors, a list of models."""

NUMBER_BYTES = 40
"""A number in JSON takes 25 bytes at most, and may be indented. Longer responses are rejected."""

MOST_DIMENSIONS = 8192
"""Numbers in a vector of a model that is not known yet."""

SHARED_S = 2.0
"""Callers share a probe that began within this time; one that hangs does not hold up those who come later."""

LONGEST_GAP_S = 1.0
"""What came in between two confirmations is confirmed by the second only if no more time lies between them.

A server that has another model for longer than this is noticed by one of them.
"""

EncodingFormat = Literal["float", "base64"]

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


@dataclass(frozen=True, slots=True)
class Embedded:
    """Vectors as the server made them, `(n, dim) float32`, and the name it gave its model."""

    vectors: Matrix
    model: str | None


class EmbeddingApi:
    """The embeddings of one model on one server. Raises: ConfigurationError (the address or the key cannot be used)."""

    def __init__(
        self,
        url: str,
        *,
        model: str,
        api_key: str | None = None,
        timeout_s: float = 30.0,
        encoding_format: EncodingFormat | None = None,
    ) -> None:
        self._http = OpenAIServer(url, USE, model=model, api_key=api_key, timeout_s=timeout_s)
        self.server = self._http.name
        self._fields = {} if encoding_format is None else {"encoding_format": encoding_format}

    async def embed(self, texts: Sequence[str], dimension: int = MOST_DIMENSIONS) -> Embedded:
        """The server's vectors of texts in their order, of at most `dimension` numbers. Raises: BackendError."""
        # Some servers reject an empty text; a space is as empty to every model.
        fields = {"input": [text or " " for text in texts], **self._fields}
        reply = await self._http.post(fields, BODY_BYTES + len(texts) * dimension * NUMBER_BYTES)
        if len(reply.body) <= AT_ONCE:
            return self._vectors(reply, texts)
        return await asyncio.to_thread(self._vectors, reply, texts)

    async def models(self) -> list[str]:
        """The names of the models that the server lists; empty where it has no list. Raises: BackendError."""
        reply = await self._http.get("models", BODY_BYTES)
        data = reply.payload().get("data") if reply.status == HTTPStatus.OK else None
        names = [item.get("id") for item in data if isinstance(item, dict)] if isinstance(data, list) else []
        return [name for name in names if isinstance(name, str)]

    async def close(self) -> None:
        await self._http.close()

    def _vectors(self, reply: ModelReply, texts: Sequence[str]) -> Embedded:
        payload = reply.payload()
        data = payload.get("data")
        if reply.status != HTTPStatus.OK or not isinstance(data, list):
            raise self._http.failure(reply, payload, public=all(text == PROBE for text in texts))
        if len(data) != len(texts):
            raise errors.BackendDataError(
                COMPONENT, f"{self.server} returned {len(data)} vectors for {len(texts)} texts"
            )
        rows: list[NDArray[np.float32] | None] = [None] * len(data)
        for position, item in enumerate(data):
            fields = item if isinstance(item, dict) else {}
            index = fields.get("index", position)
            if type(index) is not int or not 0 <= index < len(rows) or rows[index] is not None:
                raise errors.BackendDataError(COMPONENT, f"{self.server} returned vectors that are not numbered from 0")
            rows[index] = _numbers(fields.get("embedding"), self.server)
        found = [row for row in rows if row is not None]
        if len({len(row) for row in found}) != 1:
            raise errors.BackendDataError(COMPONENT, f"{self.server} returned vectors of several dimensions")
        name = payload.get("model")
        return Embedded(np.stack(found), name if isinstance(name, str) else None)


def _numbers(value: Json, server: str) -> NDArray[np.float32]:
    """One vector, from numbers or from base64 of little-endian float32."""
    try:
        if isinstance(value, str):
            numbers = np.frombuffer(base64.b64decode(value, validate=True), "<f4").astype(np.float32)
        else:
            with np.errstate(over="ignore"):  # values beyond float32 become infinite, and are rejected as such
                numbers = np.array(value, np.float64).astype(np.float32)
    except (TypeError, ValueError, OverflowError) as error:
        raise errors.BackendDataError(COMPONENT, f"{server} returned an invalid vector") from error
    if numbers.ndim != 1 or not len(numbers):
        raise errors.BackendDataError(
            COMPONENT,
            f"{server} did not return one vector per text: turn on pooling there, by mean or as its model requires",
        )
    return numbers


@dataclass(frozen=True, slots=True)
class _Confirmed:
    model: EmbeddingModel
    probe: Vector


class ServedModel:
    def __init__(self, api: EmbeddingApi, name: str, checked: Checker, clock: Callable[[], float]) -> None:
        self._api = api
        self._profile = profile(name)
        self._name = name
        self._checked = checked
        self._clock = clock
        self._probes: SingleFlight[None] = SingleFlight()
        self._known: _Confirmed | None = None
        self._confirmed_at: float | None = None
        self._announced: str | None = None
        self.changed_at = -math.inf
        """When the server was found to have another model than before, the last time."""
        self.provenance = Provenance(self.confirm)
        """Of the vectors that come in from now on."""

    @property
    def model(self) -> EmbeddingModel | None:
        return None if self._known is None else self._known.model

    def doubt(self) -> None:
        """Make the next confirmation embed the probe again."""
        self._confirmed_at = None

    def note_announced(self, announced: str | None) -> None:
        """Doubt the model if the server names it differently than when it was confirmed."""
        if announced != self._announced:
            self.doubt()

    async def confirm(self, since: float = -math.inf) -> EmbeddingModel:
        """The model, confirmed not earlier than `since`; if not in doubt, ever. Raises: BackendError."""
        while self._known is None or self._confirmed_at is None or self._confirmed_at < since:
            # In a loop: the probe of others that was joined may have begun before `since`.
            await self._probes.join(int(self._clock() / SHARED_S), self._embed_probe)
        return self._known.model

    async def _embed_probe(self) -> None:
        # Taken before the request: the model may change while the answer is on its way.
        sent_at = self._clock()
        answer = await self._api.embed([PROBE])
        vector: Vector = self._checked(answer.vectors, answer.vectors.shape[1])[0]
        expected = self._profile.dimension
        if expected is not None and len(vector) != expected:
            raise errors.BackendDataError(
                COMPONENT,
                f"{self._api.server} returns vectors of {len(vector)} dimensions, and {self._name} has {expected}: "
                "another model is loaded there; load this one, or set embedder.model to that one's name",
            )
        if self._known is None:
            await self._compare_names()
        if self._confirmed_at is not None and sent_at < self._confirmed_at:
            return  # a later probe was answered sooner
        is_other = self._known is not None and not _alike(vector, self._known.probe)
        if is_other or self._has_gap(sent_at):
            self.provenance.end()
            self.provenance = Provenance(self.confirm)
        self.provenance.confirmed = sent_at
        if self._known is None:
            self._known = self._confirmed(vector)
        elif is_other:
            self.changed_at = sent_at
            former, self._known = self._known.model, self._confirmed(vector)
            logger.warning(
                "%s has another model than before (%.12s instead of %.12s)",
                self._api.server,
                self._known.model.fingerprint,
                former.fingerprint,
            )
        self._announced = answer.model
        self._confirmed_at = sent_at

    def _has_gap(self, sent_at: float) -> bool:
        """Whether vectors came in since the last confirmation, and that was too long ago."""
        last = self.provenance.confirmed
        # A server that needs long for a probe is probed less often.
        longest_s = LONGEST_GAP_S + (self._clock() - sent_at)
        return self.provenance.newest > last and sent_at - last > longest_s

    def _confirmed(self, vector: Vector) -> _Confirmed:
        known = self._profile
        model = EmbeddingModel(
            name=self._name,
            dimension=len(vector),
            fingerprint=fingerprint(vector),
            window=int(known.window / known.pieces),
            calibration=known.calibration,
            query_prefix=known.query_prefix,
            document_prefix=known.document_prefix,
        )
        return _Confirmed(model, vector)

    async def _compare_names(self) -> None:
        """Log a warning if the server does not list the model: many servers use any model that they have loaded."""
        try:
            listed = await self._api.models()
        except errors.BackendError as error:
            logger.debug("%s lists no models: %s", self._api.server, error)
            return
        if listed and not any(self._name.lower() in name.lower() for name in listed):
            logger.warning("%s does not list the model %r; it may answer with another", self._api.server, self._name)


def _alike(one: Vector, other: Vector) -> bool:
    return len(one) == len(other) and float(one @ other) >= SAME_COSINE


class _Flight(Generic[T]):
    __slots__ = ("task", "waiters")

    def __init__(self, task: "asyncio.Task[T]") -> None:
        self.task = task
        self.waiters = 0


class SingleFlight(Generic[T]):
    """Single flight: callers with the same key share one task, cancelled when the last of them stops waiting."""

    def __init__(self) -> None:
        self._flights: dict[Hashable, _Flight[T]] = {}

    async def join(self, key: Hashable, work: Callable[[], Coroutine[None, None, T]]) -> T:
        """The result of the work under way for `key`, started if there is none. Raises what the work raises."""
        flight = self._flights.get(key)
        if flight is None or flight.task.done():  # done, and not yet removed: its work began before this caller came
            flight = self._flights[key] = _Flight(asyncio.create_task(work()))
            flight.task.add_done_callback(lambda task: self._remove(key, task))
        flight.waiters += 1
        try:
            # Shielded: one caller that is cancelled must not cancel the work for the others.
            return await asyncio.shield(flight.task)
        finally:
            flight.waiters -= 1
            if not flight.waiters and not flight.task.done():
                self._remove(key, flight.task)
                flight.task.cancel()

    def _remove(self, key: Hashable, task: "asyncio.Task[T]") -> None:
        flight = self._flights.get(key)
        if flight is not None and flight.task is task:
            del self._flights[key]


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
        self._failure: errors.BackendError | None = None
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
            raise errors.BackendUnavailableError(COMPONENT, "the embedder is closed")
        if self._served.model is not None:
            return self._served.model
        if isinstance(self._failure, errors.BackendStartingError):
            raise errors.BackendStartingError(COMPONENT, str(self._failure)) from self._failure
        if self._failure is not None:
            raise errors.BackendUnavailableError(COMPONENT, str(self._failure)) from self._failure
        raise errors.BackendStartingError(COMPONENT, f"{self._api.server} has not answered yet")

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
            raise errors.BackendUnavailableError(COMPONENT, "the embedder is closed")
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
        raise errors.BackendRejectedError(
            COMPONENT, f"{self._api.server} does not accept even {kept * 2} characters of a text of {len(text)}"
        )

    async def _request(self, model: EmbeddingModel, texts: list[str]) -> Matrix:
        """One request, its vectors checked. After a failure the server may be another one, unless it is only busy."""
        try:
            answer = await self._api.embed(texts, model.dimension)
            vectors = self._checked(answer.vectors, model.dimension)
        except errors.BackendError as error:
            busy = isinstance(error, errors.BackendUnavailableError) and error.retry_after_s is not None
            if not busy and not isinstance(error, errors.BackendRejectedError):
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
            raise errors.BackendRejectedError(COMPONENT, f"{self._api.server} has another model than before")

    async def _keep(self) -> None:
        # No request is needed to notice that the server is back: this goes on after any failure.
        retry_s = self._first_retry_s
        while True:
            began = self._clock()
            self._asked.clear()  # before the probe: it says nothing about queries that are answered during it
            try:
                await self._confirm(began)
            except errors.BackendError as error:
                self._note(error)
                await asyncio.sleep(retry_s)
                retry_s = min(retry_s * 2.0, LAST_RETRY_S)
                continue
            retry_s = self._first_retry_s
            is_changed = began - self._served.changed_at < CHANGED_LATELY_S
            await set_within(self._asked, min(self._check_every_s, CHECK_CHANGED_S if is_changed else math.inf))
            pause_s = min(CHECK_ASKED_S, self._check_every_s)
            await asyncio.sleep(max(began + pause_s - self._clock(), 0.0))

    def _note(self, error: errors.BackendError) -> None:
        # The same failure is repeated at each attempt, and worth one line.
        level = logging.DEBUG if str(error) == str(self._failure) else logging.WARNING
        logger.log(level, "%s", error)
        self._served.doubt()
        self._failure = error
        if not isinstance(error, errors.BackendStartingError):
            self._attempted.set()
