#!/usr/bin/env python3
"""Writes the golden files of affine codes of crates/kernels/tests/formats with PyPI's mlx, the reference implementation.

    pip install mlx==0.32.4 mlx-cpu==0.32.4 numpy==2.*
    python scripts/golden/affine.py

mlx/affineB_G.bin has rows of 256 elements: the codes (an LSB-first stream of B bits each), scales and biases of groups of G
in little-endian binary32, and the floats that they decode to, in the same. The first rows are quantised by MLX, with scales
and biases rounded to float16 and to bfloat16, or as they are; the others have random codes and extreme scales.
"""

import importlib.metadata
import pathlib

import mlx.core as mx
import numpy as np

assert importlib.metadata.version("mlx") == "0.32.4", "the golden files are those of mlx 0.32.4"
OUT = pathlib.Path(__file__).parents[2] / "crates/kernels/tests/golden/formats/mlx"
COLUMNS = 256
EXTREMES = [0.0, -0.0, 65504.0, -6e-8, 1e-7, 3e38, -1e-40, np.inf, np.nan]


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(41)
    for bits in (2, 3, 4, 5, 6, 8):
        for group in (32, 64, 128):
            codes, scales, biases = [], [], []
            for dtype in (mx.float16, mx.bfloat16, mx.float32):
                w = mx.array(rng.normal(0, 0.02, (2, COLUMNS)).astype(np.float32)).astype(dtype)
                q, s, b = mx.quantize(w, group_size=group, bits=bits)
                codes.append(np.array(q))
                scales.append(np.array(s.astype(mx.float32)))
                biases.append(np.array(b.astype(mx.float32)))
            groups = COLUMNS // group
            for i, extreme in enumerate(EXTREMES):
                codes.append(rng.integers(0, 2**32, (1, COLUMNS * bits // 32), np.uint32))
                scales.append(np.full((1, groups), extreme, np.float32))
                biases.append(np.full((1, groups), EXTREMES[(i * 5) % len(EXTREMES)], np.float32))
            q, s, b = (np.concatenate(part) for part in (codes, scales, biases))
            values = mx.dequantize(mx.array(q), mx.array(s), mx.array(b), group_size=group, bits=bits)
            values = np.array(values)
            assert values.dtype == np.float32 and values.shape == (len(q), COLUMNS)
            rows = [part.view(np.uint8).reshape(len(q), -1) for part in (q, s, b, np.ascontiguousarray(values))]
            (OUT / f"affine{bits}_{group}.bin").write_bytes(np.concatenate(rows, axis=1).tobytes())


main()
