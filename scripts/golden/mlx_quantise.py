#!/usr/bin/env python3
"""Writes the golden file of crates/convert/src/mlx_folder/affine.rs with PyPI's mlx, the reference implementation.

    pip install mlx==0.32.4 mlx-cpu==0.32.4 numpy==2.*
    python scripts/golden/mlx_quantise.py

mlx_quantise.bin has 8 rows of 128 floats in little-endian binary32; then, for each type, width and group, what
mlx.core.quantize makes of the rows in that type: codes, scales and biases.
"""

import importlib.metadata
import pathlib

import mlx.core as mx
import numpy as np

assert importlib.metadata.version("mlx") == "0.32.4", "the golden files are those of mlx 0.32.4"
OUT = pathlib.Path(__file__).parents[2] / "crates/convert/tests/golden/mlx_quantise.bin"


def main() -> None:
    rng = np.random.default_rng(41)
    rows = rng.normal(0, 0.05, (8, 128)).astype(np.float32)
    # Zeros, equal values, values of one sign, tiny ones, equal ends, few different values.
    rows[0, :64], rows[0, 64:] = 0, 0.01
    rows[1] = np.abs(rows[1])
    rows[2] = -np.abs(rows[2])
    rows[3] *= 1e-6
    rows[4, ::16], rows[4, 1::16] = 0.25, -0.25
    rows[5] = np.round(rows[5], 1)
    parts = [rows]
    for dtype in (mx.float32, mx.float16, mx.bfloat16):
        for bits in (2, 3, 4, 5, 6, 8):
            for group in (32, 64, 128):
                made = mx.quantize(mx.array(rows).astype(dtype), group_size=group, bits=bits)
                parts += [np.array(part.view(mx.uint8)) for part in made]
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_bytes(b"".join(part.tobytes() for part in parts))


main()
