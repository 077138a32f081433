#!/usr/bin/env python3
"""Writes the golden files of MLX's float modes for crates/kernels/tests/formats with PyPI's mlx, the reference
implementation.

    pip install mlx==0.32.4 mlx-cpu==0.32.4 numpy==2.*
    python scripts/golden/mlx_floats.py

mlx/MODE.bin has rows of 256 elements: the codes as MLX packs them, the scales (a byte for each group), and the floats
that they decode to, in little-endian binary32. The first row is quantised by MLX; in the others codes are random, and of
each value of a scale there is one (of NaN none).
"""

import importlib.metadata
import pathlib

import mlx.core as mx
import numpy as np

assert importlib.metadata.version("mlx") == "0.32.4", "the golden files are those of mlx 0.32.4"
OUT = pathlib.Path(__file__).parents[2] / "crates/kernels/tests/golden/formats/mlx"
COLUMNS = 256
# Bits, columns of a group, scales that are NaN.
MODES = {"mxfp4": (4, 32, {255}), "mxfp8": (8, 32, {255}), "nvfp4": (4, 16, {0x7F, 0xFF})}


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(41)
    for mode, (bits, group, nans) in MODES.items():
        groups = COLUMNS // group
        q, s = mx.quantize(mx.array(rng.normal(0, 0.5, (1, COLUMNS)).astype(np.float32)), mode=mode)
        every = [scale for scale in range(256) if scale not in nans]
        every += every[: -len(every) % groups]
        scales = np.concatenate([np.array(s), np.array(every, np.uint8).reshape(-1, groups)])
        words = rng.integers(0, 2**32, (len(scales) - 1, COLUMNS * bits // 32), np.uint32)
        codes = np.concatenate([np.array(q), words])
        if mode == "mxfp8":
            # E4M3 has codes of NaN too.
            of_bytes = codes.view(np.uint8)
            of_bytes[of_bytes & 0x7F == 0x7F] ^= 1
        form = {"group_size": group, "bits": bits, "mode": mode, "dtype": mx.float32}
        values = np.array(mx.dequantize(mx.array(codes), mx.array(scales), **form))
        assert values.shape == (len(scales), COLUMNS) and not np.isnan(values).any()
        rows = [part.view(np.uint8).reshape(len(scales), -1) for part in (codes, scales, np.ascontiguousarray(values))]
        (OUT / f"{mode}.bin").write_bytes(np.concatenate(rows, axis=1).tobytes())


main()
