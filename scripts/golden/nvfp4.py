#!/usr/bin/env python3
"""Writes crates/kernels/tests/golden/encoders/nvfp4.txt: the least errors that NVFP4 blocks can have.

    pip install gguf==0.19.0 numpy==2.*
    python scripts/golden/nvfp4.py

Reads the tensors of `values.bin` and their names (encoders.py). A line for each tensor: name, scale of the
tensor, root mean square error with the best of all 126 scales for each group, and with the scale that maps a group's largest
value to 6, the rule of ModelOpt. Scales and values of codes are those of gguf.
"""

import importlib.metadata
import pathlib

import numpy as np
from gguf.quants import NVFP4

assert importlib.metadata.version("gguf") == "0.19.0"
GOLDEN = pathlib.Path(__file__).parents[2] / "crates/kernels/tests/golden/encoders"
COUNT = 4096
# Twice the magnitudes of codes, and half of each scale.
VALUES = np.array(NVFP4.kvalues[:8], np.float64)
HALVES = NVFP4.ue4m3_to_fp32(np.arange(127, dtype=np.uint8)).astype(np.float64)


def errors(groups: np.ndarray, half: np.ndarray) -> np.ndarray:
    """The squared error of each group with the nearest codes, at half of its scale."""
    nearest = np.abs(np.abs(groups)[..., None] - half[:, None, None] * VALUES).min(axis=-1)
    return (nearest**2).sum(axis=-1)


def main() -> None:
    names = (GOLDEN / "names.txt").read_text().split()
    values = np.fromfile(GOLDEN / "values.bin", "<f2").astype(np.float32).reshape(len(names), COUNT)
    with open(GOLDEN / "nvfp4.txt", "w") as out:
        for name, x in zip(names, values):
            outer = np.abs(x).max() / np.float32(448) / np.float32(6)
            groups = x.astype(np.float64).reshape(-1, 16) / np.float64(outer)
            best = np.min([errors(groups, np.full(len(groups), half)) for half in HALVES], axis=0)
            # `fp32_to_ue4m3` makes 448 of all scales from 256 on.
            six = np.abs(2 * HALVES - np.abs(groups).max(axis=1)[:, None] / 6).argmin(axis=1)
            rule = errors(groups, HALVES[six])
            rms = [outer * np.sqrt(error.sum() / COUNT) for error in (best, rule)]
            out.write(f"{name} {outer:.9e} {rms[0]:.6e} {rms[1]:.6e}\n")


main()
