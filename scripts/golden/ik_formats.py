#!/usr/bin/env python3
"""Writes the golden files of ik_llama.cpp's formats for crates/kernels/tests/formats. PyPI's gguf does not have them, so the
decoder is ik_llama.cpp's own, compiled from its sources of 2026-08-15 (commit 8337e4cd).

    pip install numpy==2.*
    python scripts/golden/ik_formats.py SOURCES

SOURCES is a checkout of ik_llama.cpp. A C++ compiler for x86-64 is needed.
"""

import ctypes
import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
from format_files import FormatFile

SHA256 = "03e8dcfac9a3e1ad169cc2a088ff76659311e5306729c3d04343d2e44a985a8b"
# Type number, bytes of a row's scale, bytes of a block. Without a scale of the row, blocks start with an f16 scale.
FORMATS = {
    "IQ4_K": (139, 0, 144),
    "IQ5_K": (140, 0, 176),
    "IQ4_KS": (144, 4, 136),
    "IQ2_KS": (145, 2, 70),
    "IQ4_KSS": (146, 4, 128),
    "IQ5_KS": (152, 4, 168),
    "IQ3_KS": (156, 2, 102),
    "IQ2_KL": (157, 2, 86),
}
BLOCK, BLOCKS = 256, 2
# ±0, the ends of the subnormal and of the normal numbers. Infinity and NaN are refused as the scale of a row.
FINITE_F16 = [0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0xFBFF]
EXTREME_F16 = FINITE_F16 + [0x7C00, 0xFC00, 0x7E01]
# The same of f32, and one whose products overflow.
FINITE_F32 = [0x00000000, 0x80000000, 0x00000001, 0x807FFFFF, 0x00800000, 0xFF7FFFFF, 0x7A000000]
FILLS = [0x00, 0xFF, 0x7F, 0x80]
RANDOM = 4


def library(sources: pathlib.Path) -> ctypes.CDLL:
    code = sources / "ggml/src/iqk/iqk_quantize.cpp"
    assert hashlib.sha256(code.read_bytes()).hexdigest() == SHA256, f"{code} is of another commit"
    with tempfile.TemporaryDirectory() as folder:
        out, table = pathlib.Path(folder) / "decoders.so", pathlib.Path(folder) / "table.cpp"
        # Of the rest of the library, the decoders only use the values of all f16.
        table.write_text('extern "C" { extern float ggml_table_f32_f16[65536]; float ggml_table_f32_f16[65536]; }')
        flags = "-O0 -w -std=c++17 -fPIC -shared -mavx2 -mfma -mf16c -ffp-contract=off -Wl,-z,lazy,--unresolved-symbols=ignore-all"
        paths = [f"-I{sources / 'ggml' / part}" for part in ("src", "include")]
        subprocess.run(["c++", *flags.split(), *paths, code, table, "-o", out], check=True)
        decoders = ctypes.CDLL(str(out), os.RTLD_LAZY)
    values = (ctypes.c_float * 65536).in_dll(decoders, "ggml_table_f32_f16")
    np.frombuffer(values, np.float32)[:] = np.arange(65536, dtype=np.uint16).view(np.float16)
    return decoders


def rows(scale: int, block: int, rng: np.random.Generator) -> np.ndarray:
    """Random rows, filled ones, and random ones with extreme scales. Scales of rows are finite."""
    size = scale + BLOCKS * block
    extremes = {0: EXTREME_F16, 2: FINITE_F16, 4: FINITE_F32}[scale]
    result = rng.integers(0, 256, (len(FILLS) + len(extremes) + RANDOM, size), np.uint8)
    for row, fill in zip(result, FILLS):
        row[:] = fill
    scales = rng.normal(size=len(result)).astype({2: "<f2", 4: "<f4"}.get(scale, "<f2"))
    for i, row in enumerate(result):
        if scale:
            row[:scale] = np.frombuffer(scales[i].tobytes(), np.uint8)
    kind = "<u4" if scale == 4 else "<u2"
    for i, extreme in enumerate(extremes, len(FILLS)):
        for at in [0] if scale else range(0, size, block):
            result[i, at : at + (scale or 2)] = np.frombuffer(np.array([extreme], kind).tobytes(), np.uint8)
    return result


def main() -> None:
    decoders = library(pathlib.Path(sys.argv[1]))
    rng = np.random.default_rng(58)
    for name, (number, scale, block) in FORMATS.items():
        data = rows(scale, block, rng)
        values = np.full((len(data), BLOCKS * BLOCK), 7, np.float32)
        decode = getattr(decoders, f"dequantize_row_{name.lower()}")
        for row, out in zip(data, values):
            decode(ctypes.c_void_p(row.ctypes.data), ctypes.c_void_p(out.ctypes.data), ctypes.c_int64(out.size))
        FormatFile(number, scale, BLOCKS, BLOCK, block, {}, data, values).write(name)


main()
