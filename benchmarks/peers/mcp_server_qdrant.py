"""mcp-server-qdrant over MCP (stdio), and how it comes by the same model.

`python -m benchmarks.peers.mcp_server_qdrant` is its own command, after the model was registered with fastembed.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.peers.answers import COLLECTION, LIMIT, MAX_TOKENS, Answer, Fields, Given, names_of

MODEL = "local/all-MiniLM-L6-v2"

_ENTRY = re.compile(r"<entry><content>(.*)</content><metadata>(.*)</metadata></entry>", re.DOTALL)


class McpServerQdrant:
    """A client of it: one JSON-RPC message per line. Its tool stores one text per call."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._count = self._stored = 0
        client = {"name": "benchmark", "version": "1"}
        self._request("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client})
        self._send({"method": "notifications/initialized"})

    def add(self, texts: Sequence[str], fields: Sequence[Fields]) -> None:
        names = names_of(texts, fields, self._stored)
        self._stored += len(texts)
        for text, name in zip(texts, names, strict=True):
            self._call("qdrant-store", {"information": text, "metadata": {"source": name}})

    def save(self) -> None:
        """The server did, with each call."""

    def ask(self, question: str) -> Answer:
        (block,) = self._call("qdrant-find", {"query": question})
        _, *entries = json.loads(block["text"])  # the first of the list repeats the question
        found = [_ENTRY.fullmatch(entry) for entry in entries]
        return Answer([each[1] for each in found if each], [json.loads(each[2])["source"] for each in found if each])

    def _call(self, tool: str, arguments: Mapping[str, object]) -> list[Any]:
        result = self._request("tools/call", {"name": tool, "arguments": arguments})
        content: list[Any] = result["content"]
        if result.get("isError"):
            raise RuntimeError(f"{tool}: {content}")
        return content

    def _request(self, method: str, params: Mapping[str, object]) -> dict[str, Any]:
        self._count += 1
        self._send({"id": self._count, "method": method, "params": params})
        for line in self._process.stdout or ():
            message = json.loads(line)
            if message.get("id") != self._count:
                continue  # a log message: the server sends some before each response
            if "error" in message:
                raise RuntimeError(f"{method}: {message['error']}")
            result: dict[str, Any] = message["result"]
            return result
        raise RuntimeError(f"the server ended instead of answering {method}")

    def _send(self, message: Mapping[str, object]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self._process.stdin.flush()


@contextmanager
def mcp_server_qdrant(folder: Path, model_dir: Path) -> Iterator[McpServerQdrant]:
    """Start the server with a database in a folder (Qdrant's local mode)."""
    settings = {
        "QDRANT_LOCAL_PATH": str(folder / "data"),
        "COLLECTION_NAME": COLLECTION,
        "QDRANT_SEARCH_LIMIT": str(LIMIT),
        "EMBEDDING_MODEL": MODEL,
        "FASTEMBED_CACHE_PATH": str(_fastembed_cache(folder / "models", model_dir)),
    }
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "benchmarks.peers.mcp_server_qdrant"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env={**os.environ, **settings},
    )
    with ended(process):
        yield McpServerQdrant(process)


@contextmanager
def ended(process: "subprocess.Popen[Any]") -> Iterator[None]:
    """Terminate a child process at the end, and kill it if that is not enough."""
    try:
        yield
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()


def _fastembed_cache(folder: Path, model_dir: Path) -> Path:
    """The model's files in the layout of a cache of downloads, where fastembed finds them without a network."""
    repository = folder / f"models--{MODEL.replace('/', '--')}"
    snapshot = repository / "snapshots" / "bundled"
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("bundled", encoding="utf-8")
    for name in ("model.onnx", "tokenizer.json"):
        (snapshot / name).symlink_to(model_dir / name)
    tokenizer = {"model_max_length": MAX_TOKENS, "pad_token": "[PAD]"}
    (snapshot / "tokenizer_config.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    return folder


def _serve() -> None:
    from fastembed import TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType
    from mcp_server_qdrant.main import main

    TextEmbedding.add_custom_model(
        model=MODEL,
        pooling=PoolingType.DISABLED,  # the graph pools
        normalization=True,
        sources=ModelSource(hf=MODEL),
        dim=384,
        model_file="model.onnx",
    )
    given, embed = Given(), TextEmbedding.passage_embed

    def passage_embed(self: TextEmbedding, texts: list[str], **options: Any) -> Any:
        vectors = given.of(texts)
        return embed(self, texts, **options) if vectors is None else vectors

    TextEmbedding.passage_embed = passage_embed
    main()


if __name__ == "__main__":
    _serve()
