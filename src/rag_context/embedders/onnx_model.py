"""A sentence embedding model in a directory: `model.onnx`, `tokenizer.json` and, optionally, `manifest.json`."""

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

from rag_context.domain.vectors import EmbeddingModel, Vector
from rag_context.embedders.model_tokenizer import COMPONENT, ModelTokenizer
from rag_context.embedders.profiles import profile
from rag_context.errors import BackendRejectedError, BackendUnavailableError

logger = logging.getLogger(__name__)

BUNDLED = Path(__file__).parent / "minilm"
"""The model that comes with the package; `manifest.json` in it holds its hashes."""

INPUTS = frozenset({"input_ids", "attention_mask", "token_type_ids"})

RUN_FAILURES: tuple[type[Exception], ...] = (
    ort_errors.Fail, ort_errors.InvalidArgument, ort_errors.InvalidGraph, ort_errors.InvalidProtobuf,
    ort_errors.NoModel, ort_errors.NoSuchFile, ort_errors.NotImplemented, ort_errors.RuntimeException,
    RuntimeError, ValueError,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Manifest:
    """The contents of `manifest.json`, or defaults for a directory without one."""

    name: str
    window: int
    sha256: Mapping[str, str]
    query_prefix: str
    document_prefix: str


def read_manifest(directory: Path) -> Manifest:
    """Read a model directory's manifest. Raises: BackendUnavailableError (invalid, or missing from ours)."""
    path = directory / "manifest.json"
    try:
        raw: object = json.loads(path.read_bytes())
    except FileNotFoundError:
        if directory == BUNDLED:
            raise _broken(directory, "manifest.json is missing") from None
        raw = {}
    except (OSError, ValueError) as error:
        raise _broken(directory, f"manifest.json cannot be read ({error})") from error
    if not isinstance(raw, dict) or not isinstance(raw.get("sha256", {}), dict):
        raise _broken(directory, "manifest.json is not the manifest of a model")
    known = profile(str(raw.get("name", directory.name)))
    try:
        window = int(raw.get("window", known.window))
    except (TypeError, ValueError) as error:
        raise _broken(directory, "the window in manifest.json is not a number") from error
    return Manifest(
        name=str(raw.get("name", directory.name)),
        window=window,
        sha256=raw.get("sha256", {}),
        query_prefix=str(raw.get("query_prefix", known.query_prefix)),
        document_prefix=str(raw.get("document_prefix", known.document_prefix)),
    )


class OnnxModel:
    """A loaded model. One text per run on one thread, so that a vector depends on its text and nothing else."""

    def __init__(self, session: onnxruntime.InferenceSession, tokenizer: ModelTokenizer, model: EmbeddingModel) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self._session = session
        self._inputs = tuple(entry.name for entry in session.get_inputs())
        self._output = [_sentence_output(session).name]
        self._cut_before = False

    def embed(self, text: str) -> Vector:
        """Embed one text, cut to the window: `(dim,) float32`, from any thread. Raises: BackendRejectedError."""
        ids, cut = self.tokenizer.encode(text, self.model.window)
        if cut and not self._cut_before:
            self._cut_before = True
            logger.warning(
                "a text of %d characters was cut to the %d tokens that %s reads; further cuts are not reported",
                len(text),
                self.model.window,
                self.model.name,
            )
        try:
            output = self._session.run(self._output, self._feed(ids))
        except RUN_FAILURES as error:
            message = f"{self.model.name} cannot embed a text of {len(text)} characters: {error}"
            raise BackendRejectedError(COMPONENT, message) from error
        vector: Vector = output[0][0]
        return vector

    def _feed(self, ids: list[int]) -> dict[str, NDArray[np.int64]]:
        row = np.array([ids], np.int64)
        feed: dict[str, NDArray[np.int64]] = {}
        for name in self._inputs:
            if name == "input_ids":
                feed[name] = row
            else:
                feed[name] = np.ones_like(row) if name == "attention_mask" else np.zeros_like(row)
        return feed


def load(directory: Path) -> OnnxModel:
    """Load the model of a directory and embed a probe with it. Blocks: some 0.1 s for the bundled one.

    Raises: BackendUnavailableError (a file is missing, differs from the manifest, or is not a sentence model).
    """
    manifest = read_manifest(directory)
    fingerprint = _verified(directory, "model.onnx", manifest)
    _verified(directory, "tokenizer.json", manifest)
    tokenizer = ModelTokenizer(directory / "tokenizer.json")
    try:
        session = onnxruntime.InferenceSession(
            directory / "model.onnx", session_options(), providers=["CPUExecutionProvider"]
        )
    except RUN_FAILURES as error:
        raise _broken(directory, f"model.onnx is not a model that onnxruntime can run ({error})") from error
    unknown = {entry.name for entry in session.get_inputs()} - INPUTS
    output = _sentence_output(session)
    if unknown or output is None:
        wrong = f"wants {sorted(unknown)}" if unknown else "has no output of shape (batch, dimension)"
        raise _broken(directory, f"model.onnx {wrong}: export it with pooling, from token ids to one vector a text")
    model = EmbeddingModel(
        name=manifest.name,
        dimension=output.shape[1],
        fingerprint=fingerprint,
        window=manifest.window,
        calibration=profile(manifest.name).calibration,
        query_prefix=manifest.query_prefix,
        document_prefix=manifest.document_prefix,
    )
    loaded = OnnxModel(session, tokenizer, model)
    try:
        # A model can load and still fail at its first run; no caller shall be the first to see that.
        loaded.embed("probe")
    except BackendRejectedError as error:
        raise _broken(directory, f"model.onnx cannot be run ({error})") from error
    return loaded


def session_options() -> onnxruntime.SessionOptions:
    """One thread that sleeps while it waits: parallelism comes from running several texts at once."""
    options = onnxruntime.SessionOptions()
    # Two threads for one text gained nothing, and threads that spin while they wait halved the throughput of a busy
    # machine (two cores, many callers).
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = 4  # fatal messages only: errors are raised, and need not be printed too
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def _sentence_output(session: onnxruntime.InferenceSession) -> Any:
    """The first output of shape (batch, dimension) with a known dimension; None without one."""
    for output in session.get_outputs():
        if len(output.shape) == 2 and isinstance(output.shape[1], int):
            return output
    return None


def _verified(directory: Path, name: str, manifest: Manifest) -> str:
    """SHA-256 of a file, which must match the manifest's if that has one."""
    try:
        with (directory / name).open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise _broken(directory, f"{name} cannot be read ({error.strerror or error})") from error
    expected = manifest.sha256.get(name, found)
    if found != expected:
        raise _broken(directory, f"{name} has the hash {found}, not {expected} as in manifest.json: it was changed")
    return found


def _broken(directory: Path, what: str) -> BackendUnavailableError:
    advice = (
        "reinstall rag-context"
        if directory == BUNDLED
        else "put the model's model.onnx, tokenizer.json and manifest.json back"
    )
    return BackendUnavailableError(COMPONENT, f"the model in {str(directory)!r} cannot be used: {what}; {advice}")
