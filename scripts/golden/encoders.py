#!/usr/bin/env python3
"""Writes the weights on which formats.py measures llama.cpp's quantiser, and crates/kernels/tests/formats gristmill's.

    pip install gguf==0.19.0 numpy==2.*
    python scripts/golden/encoders.py MODEL-f16.gguf

MODEL is gristmill's own model in F16 (training/): slices of its tensors stand for trained weights, and random numbers of
several distributions for others. `values.bin` holds all tensors as little-endian binary16, COUNT elements each, and `names.txt`
their names.
"""

import importlib.metadata
import sys

import gguf
import numpy as np
from format_files import GOLDEN

assert importlib.metadata.version("gguf") == "0.19.0"
COUNT = 4096
ROW = 512
TRAINED = [
    "token_embd.weight",
    "blk.0.attn_q.weight",
    "blk.0.ffn_down_exps.weight",
    "blk.1.attn_v.weight",
    "blk.2.ffn_gate_exps.weight",
    "blk.3.attn_output.weight",
]


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
    values = tensors()
    folder = GOLDEN / "encoders"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "values.bin").write_bytes(b"".join(v.tobytes() for v in values.values()))
    (folder / "names.txt").write_text("".join(f"{name}\n" for name in values))


main()
