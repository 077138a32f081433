#!/usr/bin/env python3
"""Writes the golden files of crates/kernels/tests/encoders.rs: weights, and the errors of llama.cpp's quantiser on them.

    pip install gguf==0.19.0 numpy==2.* llama-cpp-python==0.3.36
    python scripts/golden/encoders.py MODEL-f16.gguf [LIBGGML-BASE]

MODEL is gristmill's own model in F16 (training/): slices of its tensors stand for trained weights, and random numbers of
several distributions for others. `values.bin` holds all tensors as little-endian binary16, COUNT elements each;
`errors.txt` has a line for each format and tensor: format, tensor, root mean square error of what ggml_quantize_chunk
(no importance matrix) makes of it.
"""

import ctypes
import importlib.metadata
import pathlib
import sys

import gguf
import numpy as np
from formats import NOT_QUANTISED_TO, SCALES
from gguf import GGMLQuantizationType as Q

assert importlib.metadata.version("gguf") == "0.19.0"
OUT = pathlib.Path(__file__).parents[2] / "crates/kernels/tests/golden/encoders"
COUNT = 4096
ROW = 512
FLOATS = {Q.F32, Q.F16, Q.BF16}
FORMATS = [kind for kind in SCALES if kind not in NOT_QUANTISED_TO | FLOATS]
TRAINED = [
    "token_embd.weight",
    "blk.0.attn_q.weight",
    "blk.0.ffn_down_exps.weight",
    "blk.1.attn_v.weight",
    "blk.2.ffn_gate_exps.weight",
    "blk.3.attn_output.weight",
]


def library() -> ctypes.CDLL:
    if len(sys.argv) > 2:
        path = sys.argv[2]
    else:
        import llama_cpp

        path = next((pathlib.Path(llama_cpp.__file__).parent / "lib").glob("libggml-base.*"))
    lib = ctypes.CDLL(str(path))
    lib.ggml_quantize_chunk.restype = ctypes.c_size_t
    lib.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p] + [ctypes.c_int64] * 3 + [ctypes.c_void_p]
    return lib


def tensors() -> dict[str, np.ndarray]:
    reader = {t.name: t for t in gguf.GGUFReader(sys.argv[1]).tensors}
    result = {}
    for name in TRAINED:
        values = gguf.quants.dequantize(reader[name].data, reader[name].tensor_type).reshape(-1)
        result[name.removesuffix(".weight")] = values[len(values) // 2 :][:COUNT]
    rng = np.random.default_rng(2026)
    normal = rng.standard_normal(COUNT)
    result |= {
        "normal": 0.02 * normal,
        "laplace": rng.laplace(0, 0.02, COUNT),
        "student-3": 0.02 * rng.standard_t(3, COUNT),
        "uniform": rng.uniform(-0.1, 0.1, COUNT),
        "positive": rng.uniform(0, 0.1, COUNT),
        "off-centre": 0.02 * rng.standard_normal(COUNT) + 0.05,
        "columns": 0.02 * rng.standard_normal(COUNT) * np.tile(np.exp(rng.standard_normal(ROW)), COUNT // ROW),
        "sparse": 0.02 * rng.standard_normal(COUNT) * (rng.uniform(size=COUNT) < 0.1),
        "outliers": 0.02 * rng.standard_normal(COUNT) * np.where(rng.uniform(size=COUNT) < 0.01, 20, 1),
        "tiny": 1e-5 * rng.standard_normal(COUNT),
    }
    return {name: np.asarray(values).astype("<f2") for name, values in result.items()}


def main() -> None:
    lib = library()
    OUT.mkdir(parents=True, exist_ok=True)
    values = tensors()
    (OUT / "values.bin").write_bytes(b"".join(v.tobytes() for v in values.values()))
    with open(OUT / "errors.txt", "w") as out:
        for kind in FORMATS:
            for name, half in values.items():
                x = np.ascontiguousarray(half.astype(np.float32))
                block, size = gguf.GGML_QUANT_SIZES[kind]
                blocks = np.zeros(COUNT // block * size, np.uint8)
                written = lib.ggml_quantize_chunk(int(kind), x.ctypes.data, blocks.ctypes.data, 0, COUNT // ROW, ROW, None)
                assert written == blocks.size
                got = gguf.quants.dequantize(blocks.reshape(COUNT // ROW, -1), kind).reshape(-1)
                error = np.sqrt(np.mean((got.astype(np.float64) - x) ** 2))
                out.write(f"{kind.name} {name} {error:.6e}\n")


main()
