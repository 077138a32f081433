#!/usr/bin/env python3
"""Writes the folders in FP8 of crates/convert/tests/convert/fp8.rs: a scale for each block of a matrix, as DeepSeek,
Qwen 3 and MiniMax-M2 are published, and one for each matrix, as Ministral 3 is.

    pip install torch==2.15.0 transformers==5.23.* gguf==0.19.0 safetensors
    python scripts/golden/fp8_folders.py

golden/fp8/NAME.safetensors has the weights of the folder golden/convert/NAME: matrices of attention and experts as E4M3
numbers, and `weight_scale_inv`, the scale of each block of 16 × 24, which does not divide all of them. Embeddings,
routers and head keep their type. golden/fp8/NAME-matrix.safetensors has one scale for each matrix, and an
`activation_scale`, which is not used for the values. golden/fp8/NAME.decoded.safetensors has the numbers times their scales in F32, rounded
to BF16 once, and NAME.logits.gguf what transformers computes with these in F32.
"""

import pathlib
import shutil
import tempfile

import torch
from safetensors.torch import load_file, save_file
from tiny.draw import run
from tiny.files import write_logits
from tiny.shapes import TOLERANCE
from transformers import AutoModelForCausalLM

GOLDEN = pathlib.Path(__file__).parents[2] / "crates/conformance/golden"
OUT = GOLDEN / "fp8"
BLOCK = (16, 24)
LENGTHS = (10, 5, 3)
NAME = "qwen3moe"


def quantised_in(w: torch.Tensor, block: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Codes, scales, and the values."""
    rows, columns = (torch.arange(n) // size for n, size in zip(w.shape, block))
    scales = torch.zeros(int(rows[-1]) + 1, int(columns[-1]) + 1)
    for i in range(scales.shape[0]):
        for j in range(scales.shape[1]):
            scales[i, j] = w[rows == i][:, columns == j].abs().max() / 448.0
    each = scales[rows][:, columns]
    codes = (w / each).to(torch.float8_e4m3fn)
    return codes, scales, codes.float() * each


def main() -> None:
    OUT.mkdir(exist_ok=True)
    write(NAME, BLOCK)
    write(f"{NAME}-matrix", None)


def write(out: str, block: tuple[int, int] | None) -> None:
    source = GOLDEN / "convert" / NAME
    published, decoded = {}, {}
    for file in sorted(source.glob("*.safetensors")):
        for name, w in load_file(file).items():
            if "_proj.weight" not in name:
                published[name] = decoded[name] = w
                continue
            codes, scales, values = quantised_in(w.float(), block or tuple(w.shape))
            if block is None:
                scales = scales.reshape(())
                published[f"{name.removesuffix('weight')}activation_scale"] = torch.tensor(0.5)
            published |= {name: codes, f"{name}_scale_inv": scales}
            decoded[name] = values.bfloat16()
    save_file(published, OUT / f"{out}.safetensors")
    save_file(decoded, OUT / f"{out}.decoded.safetensors", metadata={"format": "pt"})
    with tempfile.TemporaryDirectory() as scratch:
        plain = pathlib.Path(scratch) / "plain"
        shutil.copytree(source, plain)
        for file in plain.glob("model*"):
            file.unlink()
        shutil.copy(OUT / f"{out}.decoded.safetensors", plain / "model.safetensors")
        model = AutoModelForCausalLM.from_pretrained(plain, dtype=torch.float32)
        generator = torch.Generator().manual_seed(41)
        sequences = [torch.randint(model.config.vocab_size, (n,), generator=generator) for n in LENGTHS]
        with torch.no_grad():
            write_logits(OUT / f"{out}.logits.gguf", TOLERANCE["f32"], sequences, run(model, sequences))


if __name__ == "__main__":
    main()
