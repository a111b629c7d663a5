"""llama.cpp's own HTTP server, with all-MiniLM-L6-v2 in its own file format, as a process for tests.

    python -m tests.servers.llama MODEL PORT [KEY]    serve until killed; prints the address once it listens

The model file is made once from the weights that the bundled model is built from, and kept below `build/`.
"""

import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import gguf
import numpy as np
import xllamacpp  # type: ignore[import-untyped]
from safetensors.numpy import load_file

ROOT = Path(__file__).resolve().parent.parent.parent
MODEL_FILE = ROOT / "build" / "models" / "all-MiniLM-L6-v2-f16.gguf"
NAME = "all-MiniLM-L6-v2"
LAYERS, HEADS, WIDTH, FEED_FORWARD, POSITIONS = 6, 12, 384, 1536, 512
BATCH_TOKENS = 512
"""Tokens of the longest text that the server takes."""
TIMEOUT_S = 60.0
_WORD = "\u2581"
"""What llama.cpp begins a piece with that begins a word; WordPiece marks the others instead, with `##`."""


def model_file() -> Path:
    """The model in llama.cpp's format, f16; downloaded and converted where it is not there yet."""
    if not MODEL_FILE.exists():
        MODEL_FILE.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=MODEL_FILE.parent) as name:
            script = ROOT / "scripts" / "build_model.py"
            subprocess.run([sys.executable, str(script), "--fetch", name], check=True)
            convert(Path(name), Path(name) / MODEL_FILE.name)
            (Path(name) / MODEL_FILE.name).replace(MODEL_FILE)
    return MODEL_FILE


def convert(source: Path, target: Path) -> None:
    """Write the checkpoint of a directory (`model.safetensors`, `tokenizer.json`) as one GGUF file."""
    writer = gguf.GGUFWriter(target, "bert")
    writer.add_name(NAME)
    writer.add_context_length(POSITIONS)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_block_count(LAYERS)
    writer.add_head_count(HEADS)
    writer.add_layer_norm_eps(1e-12)
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    _add_vocabulary(writer, source / "tokenizer.json")
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.BERT, LAYERS)
    for key, weight in load_file(source / "model.safetensors").items():
        name = names.get_name(key, try_suffixes=(".weight", ".bias"))
        if name is None:  # the pooler and the list of positions, which sentence models do not use
            continue
        exact = weight.ndim == 1 or name.startswith(("position_embd", "token_types"))
        writer.add_tensor(name, weight.astype(np.float32 if exact else np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_vocabulary(writer: gguf.GGUFWriter, path: Path) -> None:
    vocabulary: dict[str, int] = json.loads(path.read_text(encoding="utf-8"))["model"]["vocab"]
    pieces = sorted(vocabulary, key=vocabulary.__getitem__)
    special = [piece.startswith("[") and piece.endswith("]") and len(piece) > 2 for piece in pieces]
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_type_count(2)
    writer.add_token_list(
        [
            piece if control else piece.removeprefix("##") if piece.startswith("##") else _WORD + piece
            for piece, control in zip(pieces, special, strict=True)
        ]
    )
    writer.add_token_types([gguf.TokenType.CONTROL if control else gguf.TokenType.NORMAL for control in special])
    writer.add_bos_token_id(vocabulary["[CLS]"])
    writer.add_sep_token_id(vocabulary["[SEP]"])
    writer.add_pad_token_id(vocabulary["[PAD]"])
    writer.add_unk_token_id(vocabulary["[UNK]"])
    writer.add_mask_token_id(vocabulary["[MASK]"])


@dataclass(frozen=True)
class Llama:
    """A running server."""

    url: str
    key: str | None


@contextmanager
def llama_server(key: str | None = None) -> Iterator[Llama]:
    """Serve the model on a free port of this machine for the time of the block, with this API key if one is given."""
    command = [sys.executable, "-m", "tests.servers.llama", str(model_file()), "0", *([key] if key else [])]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env={**os.environ}
    )
    try:
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], TIMEOUT_S)
        url = process.stdout.readline().strip() if ready else ""
        assert url, f"llama.cpp did not start: {process.poll()}"
        yield Llama(url, key)
    finally:
        process.kill()
        process.communicate()


def main(model: str, port: int, key: str | None) -> None:
    """Serve until killed."""
    parameters = xllamacpp.CommonParams()
    parameters.model.path = model
    parameters.model_alias = {NAME}
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = port
    parameters.embedding = True
    parameters.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    parameters.n_ctx = parameters.n_batch = parameters.n_ubatch = BATCH_TOKENS
    parameters.n_parallel = 1
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    if key is not None:
        parameters.api_keys = [key]
    server = xllamacpp.Server(parameters)
    print(server.listening_address, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None)
