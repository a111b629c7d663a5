"""Drives one peer, in that peer's own environment: `python -m benchmarks.peers.drivers NAME FOLDER MODEL_DIR`.

Each line of the input is a request as JSON, each line of the output its response. Times are taken here, around the
call that a user of the peer would make. Only the standard library and the packages of that environment can be imported.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from benchmarks.peers.answers import COLLECTION, LIMIT, MAX_TOKENS, Answer, Fields, Given, names_of
from benchmarks.peers.mcp_server_qdrant import ended, mcp_server_qdrant

if TYPE_CHECKING:
    from chromadb.api.models.Collection import Collection
    from langchain_community.vectorstores import FAISS
    from llama_index.core import VectorStoreIndex
    from llama_index.core.base.base_retriever import BaseRetriever

    from rag_context.client import Client

BATCH = 500
"""Texts of one call, where a peer's interface takes many."""

START_S = 60.0


class Peer(Protocol):
    """What is measured of a peer."""

    def add(self, texts: Sequence[str], fields: Sequence[Fields]) -> None:
        """Embed and store texts; what else is known of each is for a peer that reads more than texts, or empty."""

    def save(self) -> None:
        """Write to disk what is not there yet."""

    def ask(self, question: str) -> Answer:
        """Search."""


Opened: TypeAlias = Iterator[Peer]


class Model:
    """all-MiniLM-L6-v2 from its ONNX file, run as rag-context runs it: a text at a time, on one thread each."""

    def __init__(self, folder: Path) -> None:
        import onnxruntime
        from tokenizers import Tokenizer

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        # A thread that spins after a question would take the core of the peer whose turn is next.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options)
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(MAX_TOKENS)
        self._pool = ThreadPoolExecutor(os.cpu_count() or 1)
        self._given = Given()
        self.embed("probe")

    def embed(self, text: str) -> list[float]:
        """One text's vector, of length 1."""
        import numpy as np

        encoding = self._tokenizer.encode(text)
        row = {"input_ids": [encoding.ids], "attention_mask": [encoding.attention_mask]}
        feed = {name: np.array(value, np.int64) for name, value in row.items()}
        vector: list[float] = self._session.run(None, feed)[0][0].tolist()
        return vector

    def embed_all(self, texts: Sequence[str]) -> list[list[float]]:
        """As many texts at once as there are cores; or the vectors that were given."""
        given = self._given.of(texts)
        return list(self._pool.map(self.embed, texts)) if given is None else [vector.tolist() for vector in given]


class RagContext:
    """Its server as delivered, through its own client."""

    def __init__(self, client: "Client", data_dir: Path) -> None:
        self._client, self._data_dir = client, data_dir
        self._count = 0
        self._given = Given()

    def add(self, texts: Sequence[str], fields: Sequence[Fields]) -> None:
        if (vectors := self._given.of(texts)) is not None:
            self._import(texts, vectors)
            return
        always = {"contentType": "documentation", "sessionId": COLLECTION}
        names = names_of(texts, fields, self._count)
        self._count += len(texts)
        for receipt in self._client.bulk(
            {**always, **known, "source": name, "content": text}
            for text, name, known in zip(texts, names, fields or [{}] * len(texts), strict=True)
        ):
            if receipt.status != "indexed":
                raise RuntimeError(f"a text was {receipt.status}: {receipt.reason}")

    def _import(self, texts: Sequence[str], vectors: Sequence[Any]) -> None:
        from benchmarks.large_export import import_export, write_documents

        export = self._data_dir.with_suffix(".jsonl")
        write_documents(export, texts, vectors, self._count)
        self._count += len(texts)
        import_export(export, self._data_dir)
        while self._client.search("probe").total_indexed < self._count:
            time.sleep(0.1)

    def save(self) -> None:
        """Each receipt came after the text was on disk."""

    def ask(self, question: str) -> Answer:
        answer = self._client.search(question, limit=LIMIT)
        if answer.fallback_level != 1:
            raise RuntimeError(f"an answer of level {answer.fallback_level}: {answer.warning}")
        found = [(each.content, each.source) for each in (*answer.results, *(answer.standing or ()))]
        return Answer([text for text, _ in found], [source for _, source in found], bool(answer.no_answer))


@contextmanager
def rag_context(folder: Path, _model_dir: Path) -> Opened:
    """Start the server on an empty data directory, with the model that it comes with."""
    from benchmarks.processes import serving, until_ready
    from rag_context.client import Client

    data = folder / "data"
    data.mkdir()
    with serving(data) as server:
        until_ready(server)
        with Client(f"http://{server.host}:{server.port}") as client:
            yield RagContext(client, data)


class Chroma:
    """Chroma's server, through its own client, which embeds."""

    def __init__(self, collection: "Collection") -> None:
        self._collection = collection
        self._count = 0

    def add(self, texts: Sequence[str], fields: Sequence[Fields]) -> None:
        names = names_of(texts, fields, self._count)
        self._count += len(texts)
        for ids, batch in zip(batches(names), batches(texts), strict=True):
            self._collection.add(ids=ids, documents=batch)

    def save(self) -> None:
        """The server did, with each call."""

    def ask(self, question: str) -> Answer:
        found = self._collection.query(query_texts=[question], n_results=LIMIT, include=["documents", "distances"])
        assert found["documents"] is not None
        return Answer(list(found["documents"][0]), list(found["ids"][0]))


@contextmanager
def chroma(folder: Path, model_dir: Path) -> Opened:
    """Start the server by its own command, and make a collection for cosine similarity."""
    import chromadb

    port = free_port()
    command = Path(sys.executable).with_name("chroma")
    arguments = ["run", "--path", str(folder / "data"), "--port", str(port)]
    # What it prints goes to the driver's log.
    process = subprocess.Popen([command, *arguments], stdin=subprocess.DEVNULL, stdout=sys.stderr)
    with ended(process):
        until_open(port, process)
        collection = chromadb.HttpClient(port=port).create_collection(
            COLLECTION,
            embedding_function=_chroma_function(Model(model_dir)),
            configuration={"hnsw": {"space": "cosine"}},
        )
        yield Chroma(collection)


def _chroma_function(model: Model) -> Any:
    import chromadb
    import numpy as np

    class MiniLm(chromadb.EmbeddingFunction[list[str]]):
        def __init__(self) -> None:
            """The model is loaded before."""

        def __call__(self, input: list[str]) -> chromadb.Embeddings:  # noqa: A002  (Chroma's own name for it)
            return [np.array(vector, np.float32) for vector in model.embed_all(input)]

        @staticmethod
        def name() -> str:
            return "minilm"

        def get_config(self) -> dict[str, Any]:
            return {}

        @staticmethod
        def build_from_config(config: dict[str, Any]) -> "MiniLm":
            return MiniLm()

    return MiniLm()


class LangChain:
    """LangChain's FAISS vector store, in this process."""

    def __init__(self, first: "Callable[[list[str], list[str]], FAISS]", folder: Path) -> None:
        self._first, self._folder = first, folder
        self._store: FAISS | None = None
        self._count = 0

    def add(self, texts: Sequence[str], fields: Sequence[Fields]) -> None:
        names = names_of(texts, fields, self._count)
        self._count += len(texts)
        for ids, batch in zip(batches(names), batches(texts), strict=True):
            if self._store is None:
                self._store = self._first(batch, ids)
            else:
                self._store.add_texts(batch, ids=ids)

    def save(self) -> None:
        assert self._store is not None
        self._store.save_local(str(self._folder))

    def ask(self, question: str) -> Answer:
        assert self._store is not None
        found = self._store.similarity_search(question, k=LIMIT)
        return Answer([document.page_content for document in found], [str(document.id) for document in found])


@contextmanager
def langchain_faiss(folder: Path, model_dir: Path) -> Opened:
    """Load the model behind LangChain's interface for embeddings."""
    import faiss  # noqa: F401  (LangChain imports it with the first text, and the import is not indexing)
    from langchain_community.vectorstores import FAISS
    from langchain_core.embeddings import Embeddings

    model = Model(model_dir)

    class MiniLm(Embeddings):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return model.embed_all(texts)

        def embed_query(self, text: str) -> list[float]:
            return model.embed(text)

    embeddings = MiniLm()
    yield LangChain(lambda texts, ids: FAISS.from_texts(texts, embeddings, ids=ids), folder / "data")


class LlamaIndex:
    """LlamaIndex with the vector store that it comes with, in this process."""

    def __init__(self, index: "VectorStoreIndex", folder: Path) -> None:
        self._index, self._folder = index, folder
        self._retriever: BaseRetriever | None = None
        self._count = 0

    def add(self, texts: Sequence[str], fields: Sequence[Fields]) -> None:
        from llama_index.core.schema import TextNode

        names = names_of(texts, fields, self._count)
        self._count += len(texts)
        for ids, batch in zip(batches(names), batches(texts), strict=True):
            self._index.insert_nodes([TextNode(id_=id_, text=text) for id_, text in zip(ids, batch, strict=True)])

    def save(self) -> None:
        self._index.storage_context.persist(str(self._folder))
        self._retriever = self._index.as_retriever(similarity_top_k=LIMIT)  # it finds what was there when it was made

    def ask(self, question: str) -> Answer:
        assert self._retriever is not None
        found = self._retriever.retrieve(question)
        return Answer([result.node.get_content() for result in found], [result.node.node_id for result in found])


@contextmanager
def llama_index(folder: Path, model_dir: Path) -> Opened:
    """Load the model behind LlamaIndex's interface for embeddings."""
    from llama_index.core import VectorStoreIndex
    from llama_index.core.base.embeddings.base import BaseEmbedding

    model = Model(model_dir)

    class MiniLm(BaseEmbedding):
        def _get_text_embedding(self, text: str) -> list[float]:
            return model.embed(text)

        def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
            return model.embed_all(texts)

        def _get_query_embedding(self, query: str) -> list[float]:
            return model.embed(query)

        async def _aget_query_embedding(self, query: str) -> list[float]:
            return model.embed(query)

    embedding = MiniLm(model_name="all-MiniLM-L6-v2", embed_batch_size=BATCH)
    yield LlamaIndex(VectorStoreIndex(nodes=[], embed_model=embedding), folder / "data")


def batches(texts: Sequence[str]) -> list[list[str]]:
    """Texts in lists of at most `BATCH`."""
    return [list(texts[begin : begin + BATCH]) for begin in range(0, len(texts), BATCH)]


def until_open(port: int, process: "subprocess.Popen[Any]") -> None:
    """Wait until a server accepts connections."""
    end = time.monotonic() + START_S
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            return
        time.sleep(0.05)
    raise RuntimeError(f"the server did not come up (status {process.poll()})")


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


OPEN: Mapping[str, Callable[[Path, Path], contextlib.AbstractContextManager[Peer]]] = {
    "rag-context": rag_context,
    "mcp-server-qdrant": mcp_server_qdrant,
    "chroma": chroma,
    "langchain-faiss": langchain_faiss,
    "llama-index": llama_index,
}


def carry_out(peer: Peer, request: Mapping[str, Any]) -> dict[str, object]:
    """One request, with the seconds it took, and the answer to a question."""
    started, answer = time.perf_counter(), Answer([], [])
    match request:
        case {"add": texts}:
            peer.add(texts, request.get("fields", ()))
        case {"save": _}:
            peer.save()
        case {"ask": question}:
            answer = peer.ask(question)
    return {"seconds": time.perf_counter() - started, **asdict(answer)}


def main() -> int:
    """Answer until the input ends; a failure is reported and ends the run."""
    name, folder, model_dir = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    # Libraries print: what they print goes to the log, and the answers go where the output was.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def tell(answer: Mapping[str, object]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    try:
        with OPEN[name](folder, model_dir) as peer:
            for line in sys.stdin:
                tell(carry_out(peer, json.loads(line)))
    except Exception as error:  # noqa: BLE001  (whatever it is, it is this peer's row)
        traceback.print_exc()
        tell({"error": f"{type(error).__name__}: {error}"})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
