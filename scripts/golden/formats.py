#!/usr/bin/env python3
"""Writes the golden files of crates/kernels/tests/formats.rs with PyPI's gguf, the reference implementation.

    pip install gguf==0.19.0 numpy==2.*
    python scripts/golden/formats.py

formats.txt has a line for each format: name, type number, elements and bytes of a block. NAME.bin holds blocks, and
after the last of them the floats that they decode to, in little-endian binary32.
"""

import importlib.metadata
import pathlib

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Q

assert importlib.metadata.version("gguf") == "0.19.0", "the golden files are those of gguf 0.19.0"
OUT = pathlib.Path(__file__).parents[2] / "crates/kernels/tests/golden/formats"

# Byte offsets of the f16 scales in a block.
SCALES = {
    Q.F32: [],
    Q.F16: [],
    Q.BF16: [],
    Q.Q4_0: [0],
    Q.Q4_1: [0, 2],
    Q.Q5_0: [0],
    Q.Q5_1: [0, 2],
    Q.Q8_0: [0],
    Q.Q2_K: [80, 82],
    Q.Q3_K: [108],
    Q.Q4_K: [0, 2],
    Q.Q5_K: [0, 2],
    Q.Q6_K: [208],
    Q.IQ4_NL: [0],
    Q.IQ4_XS: [0],
    Q.MXFP4: [],
}
# ±0, the ends of the subnormal and of the normal numbers, ±infinity and NaN.
EXTREME_F16 = [0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0xFBFF, 0x7C00, 0xFC00, 0x7E01]
EXTREME_E8M0 = [0, 1, 2, 127, 253, 254, 255]
FILLS = [0x00, 0xFF, 0x7F, 0x80]
RANDOM = 4


def blocks(kind: Q, size: int, rng: np.random.Generator) -> np.ndarray:
    """Random blocks, filled ones, and random ones with extreme scales."""
    if size <= 4:
        # Of floats: all upper 16 bits that are near a special value, and random ones.
        top = [sign | t for sign in (0, 0x8000) for e in (0, 0x0400, 0x7C00, 0x7F80) for t in range(max(e - 2, 0), e + 3)]
        special = np.zeros((len(top), size), np.uint8)
        special[:, -2:] = np.array(top, "<u2").view(np.uint8).reshape(-1, 2)
        return np.concatenate([special, rng.integers(0, 256, (200, size), np.uint8)])
    extremes = EXTREME_E8M0 if kind == Q.MXFP4 else EXTREME_F16
    result = rng.integers(0, 256, (len(FILLS) + len(extremes) + RANDOM, size), np.uint8)
    for i, fill in enumerate(FILLS):
        result[i] = fill
    for i, extreme in enumerate(extremes, len(FILLS)):
        for at in SCALES[kind]:
            # The second scale gets another extreme, so that no pair is always the same.
            result[i, at : at + 2] = np.array([extreme], "<u2").view(np.uint8)
            extreme = extremes[(i * 5) % len(extremes)]
        if kind == Q.MXFP4:
            result[i, 0] = extreme
    return result


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(20)
    table = []
    for kind in SCALES:
        length, size = gguf.GGML_QUANT_SIZES[kind]
        data = blocks(kind, size, rng)
        with np.errstate(all="ignore"):
            values = gguf.dequantize(data, kind)
        assert values.shape == (len(data), length) and values.dtype == np.float32
        (OUT / f"{kind.name}.bin").write_bytes(data.tobytes() + values.astype("<f4").tobytes())
        table.append(f"{kind.name} {int(kind)} {length} {size}\n")
    (OUT / "formats.txt").write_text("".join(table))


main()
