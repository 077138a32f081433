#!/usr/bin/env python3
"""Writes crates/kernels/src/format/grids.bin, the grids of IQ1, IQ2 and IQ3, from PyPI's gguf, and the golden file with
which the tests compare what gristmill makes of it.

    pip install gguf==0.19.0 numpy==2.*
    python scripts/golden/grids.py

A grid is a set of points of a lattice. `grids.bin` has a bit for each point of the lattice, in ascending order of
Σ digit_j · BASE^j, the lowest bit of a byte first, and a new byte for each grid. Where only points with an even sum of
digits occur, the others have no bit. The golden file has the points as gguf has them, as signed bytes.
"""

import importlib.metadata
import pathlib

import gguf.quants as quants
import numpy as np

assert importlib.metadata.version("gguf") == "0.19.0", "the grids are those of gguf 0.19.0"
KERNELS = pathlib.Path(__file__).parents[2] / "crates/kernels"

# Format; values of the digits; digits of a point; whether their sum is even.
GRIDS = [
    (quants.IQ2_XXS, [8, 25, 43], 8, True),
    (quants.IQ2_XS, [8, 25, 43], 8, True),
    (quants.IQ2_S, [8, 25, 43], 8, True),
    (quants.IQ1_S, [-1, 0, 1], 8, False),
    (quants.IQ3_XXS, [4, 12, 20, 28, 36, 44, 52, 62], 4, True),
    (quants.IQ3_S, [1, 3, 5, 7, 9, 11, 13, 15], 4, False),
]


def main() -> None:
    bitmaps, rows = b"", b""
    for kind, values, digits, even in GRIDS:
        kind.init_grid()
        grid = kind.grid.reshape(-1, digits).astype(np.int64)
        rows += grid.astype(np.int8).tobytes()
        base = len(values)
        codes = np.searchsorted(values, grid) @ base ** np.arange(digits)
        assert (np.diff(codes) > 0).all(), "points are in ascending order"
        lattice = np.arange(base**digits)
        sums = sum(lattice // base**j % base for j in range(digits))
        if even:
            lattice = lattice[sums % 2 == 0]
        bits = np.isin(lattice, codes)
        assert bits.sum() == len(codes), "the lattice has all points"
        bitmaps += np.packbits(bits, bitorder="little").tobytes()
    assert len(bitmaps) == 2822
    (KERNELS / "src/format/grids.bin").write_bytes(bitmaps)
    (KERNELS / "tests/golden/formats/grids.bin").write_bytes(rows)


main()
