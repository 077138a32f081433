#!/usr/bin/env python3
"""Writes the golden files of crates/files/tests/gguf with PyPI's gguf, the reference implementation.

    pip install gguf==0.19.0 numpy==2.*
    python scripts/golden/gguf_files.py

The values are repeated in crates/files/tests/gguf/golden.rs.
"""

import importlib.metadata
import pathlib

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Q
from gguf import GGUFValueType as T

assert importlib.metadata.version("gguf") == "0.19.0", "the golden files are those of gguf 0.19.0"
OUT = pathlib.Path(__file__).parents[2] / "crates/files/tests/golden/gguf"
OUT.mkdir(parents=True, exist_ok=True)


def finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def numbers(shape: tuple[int, ...]) -> np.ndarray:
    """0, 0.5, 1, … in file order: exact in every float type here."""
    return (np.arange(np.prod(shape), dtype=np.float32) / 2).reshape(shape)


def raw(rows: int, row_bytes: int) -> np.ndarray:
    """Blocks of bytes 0, 7, 14, … modulo 256."""
    return (np.arange(rows * row_bytes) * 7 % 256).astype(np.uint8).reshape(rows, row_bytes)


def all_types(name: str, endian=gguf.GGUFEndian.LITTLE) -> None:
    w = gguf.GGUFWriter(OUT / name, "test", endianess=endian)
    w.add_uint8("t.u8", 255)
    w.add_int8("t.i8", -128)
    w.add_uint16("t.u16", 65535)
    w.add_int16("t.i16", -32768)
    w.add_uint32("t.u32", 2**32 - 1)
    w.add_int32("t.i32", -(2**31))
    w.add_float32("t.f32", -1.5)
    w.add_bool("t.bool", True)
    w.add_string("t.string", "grist, мука, 粉, 🌾")
    w.add_uint64("t.u64", 2**64 - 1)
    w.add_int64("t.i64", -(2**63))
    w.add_float64("t.f64", 1e300)
    arrays = {
        T.UINT8: [0, 1, 255], T.INT8: [-128, 127], T.UINT16: [0, 65535], T.INT16: [-32768, 32767],
        T.UINT32: [0, 2**32 - 1], T.INT32: [-(2**31), 2**31 - 1], T.FLOAT32: [0.0, -0.25], T.BOOL: [True, False],
        T.STRING: ["a", "", "ü"], T.UINT64: [2**64 - 1], T.INT64: [-(2**63)], T.FLOAT64: [1e-300, 2.0],
    }
    for element, values in arrays.items():
        w.add_key_value(f"a.{element.name.lower()}", values, T.ARRAY, element)
    w.add_array("a.array", [[1, 2], ["x"], [[True], [0.5]]])
    w.add_tensor("norm.weight", numbers((3,)))
    w.add_tensor("half.weight", numbers((2, 5)).astype(np.float16))
    w.add_tensor("q8.weight", raw(2, 68), raw_dtype=Q.Q8_0)
    w.add_tensor("experts.weight", raw(6, 144).reshape(2, 3, 144), raw_dtype=Q.Q4_K)
    w.add_tensor("four.weight", numbers((2, 3, 4, 5)))
    w.add_tensor("brain.weight", raw(2, 6), raw_dtype=Q.BF16)
    finish(w)


def aligned() -> None:
    w = gguf.GGUFWriter(OUT / "aligned.gguf", "test")
    w.add_custom_alignment(128)
    w.add_tensor("a", numbers((1,)))
    w.add_tensor("b", numbers((33,)))
    finish(w)


def split() -> None:
    w = gguf.GGUFWriter(OUT / "split.gguf", "test", split_max_tensors=2)
    w.add_string("general.name", "split")
    for i in range(5):
        w.add_tensor(f"blk.{i}.weight", numbers((4, 3)) + i)
    finish(w)


all_types("all_types.gguf")
all_types("big_endian.gguf", gguf.GGUFEndian.BIG)
aligned()
split()
# Version 2 has the same little-endian bytes as version 3, which only added big-endian files.
v2 = bytearray((OUT / "aligned.gguf").read_bytes())
v2[4] = 2
(OUT / "version2.gguf").write_bytes(v2)
