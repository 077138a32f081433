#!/usr/bin/env python3
"""Writes the golden files of crates/kernels/tests/formats for each format that PyPI's gguf, the reference
implementation, decodes: blocks with their values, and the errors of llama.cpp's quantiser.

    pip install gguf==0.19.0 numpy==2.* llama-cpp-python==0.3.36
    python scripts/golden/formats.py [LIBGGML-BASE]

The errors are those of ggml_quantize_chunk, without an importance matrix, on the tensors of `encoders/values.bin` (encoders.py).
A format that only some llama.cpp decodes is a line of OTHERS.
"""

import ctypes
import importlib.metadata
import pathlib
import sys
import zlib
from collections.abc import Callable, Iterator

import gguf
import numpy as np
from format_files import GOLDEN, FormatFile
from gguf import GGMLQuantizationType as Q

assert importlib.metadata.version("gguf") == "0.19.0", "the golden files are those of gguf 0.19.0"

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
# Weights of encoders/values.bin: a tensor each row, which are rows of matrices of ROW columns.
COUNT, ROW = 4096, 512

Decode = Callable[[np.ndarray], np.ndarray]


def decoder_of_others(bits: int, value) -> Decode:
    """Blocks of an f16 scale and codes of so many bits, the first in the lowest bits."""

    def decode(data: np.ndarray) -> np.ndarray:
        d, qs = data[:, :2].copy().view("<f2").astype(np.float32), data[:, 2:]
        codes = qs[:, :, None] >> np.arange(0, 8, bits, dtype=np.uint8) & np.uint8((1 << bits) - 1)
        return value(d, codes.reshape(len(data), -1).astype(np.float32))

    return decode


def put_iq1_m(block: np.ndarray, scale: int) -> None:
    """The f16 of IQ1_M is the upper nibbles of four numbers, the lowest first."""
    words = block[48:].view("<u2")
    words[:] = words & 0x0FFF | np.array([(scale >> 4 * i & 15) << 12 for i in range(4)], np.uint16)


def f16_scales(decode: Decode, size: int) -> list[int]:
    """Byte offsets of the f16 scales in a block: the numbers that make values NaN if they are."""
    offsets = range(0, size - 1, 2)
    probes = np.zeros((len(offsets), size), np.uint8)
    for probe, at in zip(probes, offsets):
        probe[at : at + 2] = np.array([EXTREME_F16[-1]], "<u2").view(np.uint8)
    return [at for at, values in zip(offsets, decode(probes)) if np.isnan(values).any()]


def blocks(name: str, decode: Decode, size: int) -> np.ndarray:
    """Random blocks, filled ones, and random ones with extreme scales."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    if size <= 4:
        # Of floats: all upper 16 bits that are near a special value, and random ones.
        top = [sign | t for sign in (0, 0x8000) for e in (0, 0x0400, 0x7C00, 0x7F80) for t in range(max(e - 2, 0), e + 3)]
        special = np.zeros((len(top), size), np.uint8)
        special[:, -2:] = np.array(top, "<u2").view(np.uint8).reshape(-1, 2)
        return np.concatenate([special, rng.integers(0, 256, (200, size), np.uint8)])
    scales = f16_scales(decode, size)
    assert scales or name in ("IQ1_M", "MXFP4", "NVFP4"), f"{name}: write extremes of its scales"
    extremes = EXTREME_E8M0 if name == "MXFP4" else EXTREME_F16
    result = rng.integers(0, 256, (len(FILLS) + len(extremes) + RANDOM, size), np.uint8)
    for i, fill in enumerate(FILLS):
        result[i] = fill
    for i, extreme in enumerate(extremes, len(FILLS)):
        if name == "IQ1_M":
            put_iq1_m(result[i], extreme)
        if name == "MXFP4":
            result[i, 0] = extreme
        if name == "NVFP4":
            # Zero, NaN and the ends of subnormal and normal numbers, with and without a sign.
            result[i, :4] = np.array([0x00, 0x7F, 0x01, 0x07, 0x08, 0x7E, 0x80, 0xFF, 0x87], np.uint8)[(np.arange(4) + i) % 9]
        for at in scales:
            # The second scale gets another extreme, so that no pair is always the same.
            result[i, at : at + 2] = np.array([extreme], "<u2").view(np.uint8)
            extreme = extremes[(i * 5) % len(extremes)]
    return result


def library() -> ctypes.CDLL:
    if len(sys.argv) > 1:
        path = sys.argv[1]
    else:
        import llama_cpp

        path = next((pathlib.Path(llama_cpp.__file__).parent / "lib").glob("libggml-base.*"))
    lib = ctypes.CDLL(str(path))
    lib.ggml_quantize_requires_imatrix.restype = ctypes.c_bool
    lib.ggml_quantize_chunk.restype = ctypes.c_size_t
    lib.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p] + [ctypes.c_int64] * 3 + [ctypes.c_void_p]
    return lib


def errors(lib: ctypes.CDLL, kind: Q, decode: Decode, size: int) -> Iterator[tuple[str, str]]:
    """Names of tensors, and llama.cpp's error."""
    names = (GOLDEN / "encoders/names.txt").read_text().split()
    tensors = np.fromfile(GOLDEN / "encoders/values.bin", "<f2").reshape(len(names), COUNT)
    for name, half in zip(names, tensors):
        x = np.ascontiguousarray(half.astype(np.float32))
        quantised = np.zeros(COUNT // gguf.GGML_QUANT_SIZES[kind][0] * size, np.uint8)
        written = lib.ggml_quantize_chunk(int(kind), x.ctypes.data, quantised.ctypes.data, 0, COUNT // ROW, ROW, None)
        assert written == quantised.size
        got = decode(quantised.reshape(-1, size)).reshape(-1)
        yield name, f"{np.sqrt(np.mean((got.astype(np.float64) - x) ** 2)):.6e}"


def main() -> None:
    lib = library()
    np.seterr(all="ignore")
    for name, (number, length, size, bits, value) in OTHERS.items():
        decode = decoder_of_others(bits, value)
        rows = blocks(name, decode, size)
        FormatFile(number, 0, 1, length, size, {}, rows, decode(rows)).write(name)
    for kind in Q:
        length, size = gguf.GGML_QUANT_SIZES[kind]
        decode = lambda data: gguf.dequantize(data, kind)
        try:
            decode(np.zeros((1, size), np.uint8))
        except NotImplementedError:
            continue
        rows = blocks(kind.name, decode, size)
        # Of NVFP4, llama.cpp only converts weights.
        none = length == 1 or kind == Q.NVFP4 or lib.ggml_quantize_requires_imatrix(int(kind))
        FormatFile(int(kind), 0, 1, length, size, {} if none else dict(errors(lib, kind, decode, size)), rows, decode(rows)).write(kind.name)


if __name__ == "__main__":
    main()
