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

# Formats that encoders.py leaves out: no model is quantised to them, and llama.cpp only converts weights in NVFP4.
NOT_QUANTISED_TO = {Q.IQ2_XXS, Q.IQ2_XS, Q.IQ3_XXS, Q.IQ1_S, Q.IQ3_S, Q.IQ2_S, Q.IQ1_M, Q.TQ1_0, Q.TQ2_0, Q.NVFP4}
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
    Q.IQ2_XXS: [0],
    Q.IQ2_XS: [0],
    Q.IQ3_XXS: [0],
    Q.IQ1_S: [0],
    Q.IQ3_S: [0],
    Q.IQ2_S: [0],
    Q.IQ1_M: [],
    Q.TQ1_0: [52],
    Q.TQ2_0: [64],
    Q.NVFP4: [],
}
# Formats that gguf 0.19 does not decode: type number, elements and bytes of a block, bits of a code, and llama.cpp's rule
# for the value of a code.
OTHERS = {
    "Q1_0": (41, 128, 18, 1, lambda d, q: d * (np.float32(2) * q - np.float32(1))),
    "Q2_0": (42, 64, 18, 2, lambda d, q: d * (q - np.float32(1))),
}
# ±0, the ends of the subnormal and of the normal numbers, ±infinity and NaN.
EXTREME_F16 = [0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0xFBFF, 0x7C00, 0xFC00, 0x7E01]
EXTREME_E8M0 = [0, 1, 2, 127, 253, 254, 255]
FILLS = [0x00, 0xFF, 0x7F, 0x80]
RANDOM = 4


def dequantize_other(data: np.ndarray, bits: int, value) -> np.ndarray:
    """Blocks of an f16 scale and codes of so many bits, the first in the lowest bits."""
    d, qs = data[:, :2].copy().view("<f2").astype(np.float32), data[:, 2:]
    codes = qs[:, :, None] >> np.arange(0, 8, bits, dtype=np.uint8) & np.uint8((1 << bits) - 1)
    return value(d, codes.reshape(len(data), -1).astype(np.float32))


def put_iq1_m(block: np.ndarray, scale: int) -> None:
    """The f16 of IQ1_M is the upper nibbles of four numbers, the lowest first."""
    words = block[48:].view("<u2")
    words[:] = words & 0x0FFF | np.array([(scale >> 4 * i & 15) << 12 for i in range(4)], np.uint16)


def blocks(kind: Q | str, size: int, rng: np.random.Generator) -> np.ndarray:
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
        if kind == Q.IQ1_M:
            put_iq1_m(result[i], extreme)
        for at in [0] if kind in OTHERS else SCALES[kind]:
            # The second scale gets another extreme, so that no pair is always the same.
            result[i, at : at + 2] = np.array([extreme], "<u2").view(np.uint8)
            extreme = extremes[(i * 5) % len(extremes)]
        if kind == Q.MXFP4:
            result[i, 0] = extreme
        if kind == Q.NVFP4:
            # Zero, NaN and the ends of subnormal and normal numbers, with and without a sign.
            result[i, :4] = np.array([0x00, 0x7F, 0x01, 0x07, 0x08, 0x7E, 0x80, 0xFF, 0x87], np.uint8)[(np.arange(4) + i) % 9]
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
    for name, (number, length, size, bits, value) in OTHERS.items():
        data = blocks(name, size, rng)
        with np.errstate(all="ignore"):
            values = dequantize_other(data, bits, value)
        assert values.shape == (len(data), length)
        (OUT / f"{name}.bin").write_bytes(data.tobytes() + values.astype("<f4").tobytes())
        table.append(f"{name} {number} {length} {size}\n")
    (OUT / "formats.txt").write_text("".join(table))


if __name__ == "__main__":
    main()
