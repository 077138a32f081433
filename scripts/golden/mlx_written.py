#!/usr/bin/env python3
"""Writes the logits of crates/convert/tests/convert/mlx_written.rs: those of mlx-lm on folders that gristmill
quantised.

    pip install mlx==0.32.4 mlx-cpu==0.32.4 torch==2.15.0 transformers==5.23.* gguf==0.19.0
    pip install --no-deps mlx-lm==0.32.2
    cargo build -p gristmill
    python scripts/golden/mlx_written.py target/debug/gristmill

`gristmill quantize --mlx` quantises the folder golden/convert/SOURCE, or golden/mlx/SOURCE, which is wide enough for
groups of 64 and which this script writes. mlx_lm.load opens what it wrote, weights and tokenizer, and generates some
tokens. golden/mlx/written/NAME.logits.gguf has token sequences and the logits that mlx-lm computes with scales, biases
and activations in F32; golden/mlx/written.json has for each NAME the source, the widths, and a hash of each file that
mlx-lm read.
"""

import importlib.metadata
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import mlx_lm
import torch
from tiny import mlx_logits
from transformers import AutoConfig, AutoModelForCausalLM

assert importlib.metadata.version("mlx") == "0.32.4", "the golden files are those of mlx 0.32.4"
assert importlib.metadata.version("mlx-lm") == "0.32.2", "the golden files are those of mlx-lm 0.32.2"
GOLDEN = pathlib.Path(__file__).parents[2] / "crates/conformance/golden"
OUT = GOLDEN / "mlx/written"
WIDE = "qwen3moe-64"
SETTINGS = {
    "hidden_size": 64,
    "moe_intermediate_size": 64,
    "num_hidden_layers": 1,
    "tie_word_embeddings": True,
}
CASES = [
    (WIDE, "4bit:64"),
    (WIDE, "2bit:64"),
    ("qwen3moe", "5bit:32"),
    ("llama3", "3bit:32"),
    ("llama3", "8bit:32"),
    ("seed_oss", "6bit:32"),
]


def wide() -> None:
    """Writes a model with random weights and the tokenizer of golden/convert/qwen3moe."""
    torch.manual_seed(41)
    config = AutoConfig.from_pretrained(GOLDEN / "convert/qwen3moe")
    for key, value in SETTINGS.items():
        setattr(config, key, value)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.15 if weight.dim() > 1 else 0.3)
    with tempfile.TemporaryDirectory() as scratch:
        model.to(torch.bfloat16).save_pretrained(scratch)
        (GOLDEN / "mlx" / WIDE).mkdir(exist_ok=True)
        for file in ("config.json", "model.safetensors"):
            shutil.copy(pathlib.Path(scratch) / file, GOLDEN / "mlx" / WIDE / file)


def fnv1a(data: bytes) -> str:
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def source_folder(name: str, scratch: pathlib.Path) -> pathlib.Path:
    if name != WIDE:
        return GOLDEN / "convert" / name
    folder = scratch / name
    shutil.copytree(GOLDEN / "convert/qwen3moe", folder, ignore=shutil.ignore_patterns("model*", "config.json"))
    shutil.copytree(GOLDEN / "mlx" / name, folder, dirs_exist_ok=True)
    return folder


def case(gristmill: str, source: str, widths: str, scratch: pathlib.Path) -> dict:
    folder = scratch / "written"
    command = [gristmill, "quantize", "--mlx", widths, str(source_folder(source, scratch)), str(folder)]
    subprocess.run(command, check=True)
    model, tokenizer = mlx_lm.load(str(folder))
    mlx_lm.generate(model, tokenizer, "The mill", max_tokens=4)
    name = f"{source}-{widths.replace(':', '-')}"
    vocabulary = json.loads((folder / "config.json").read_text())["vocab_size"]
    mlx_logits.write(OUT / f"{name}.logits.gguf", model, vocabulary)
    files = sorted(file for file in folder.iterdir() if file.name == "config.json" or file.suffix == ".safetensors")
    return {name: {"source": source, "widths": widths, "files": {file.name: fnv1a(file.read_bytes()) for file in files}}}


def main() -> None:
    OUT.mkdir(exist_ok=True)
    wide()
    written = {}
    for source, widths in CASES:
        with tempfile.TemporaryDirectory() as scratch:
            written |= case(sys.argv[1], source, widths, pathlib.Path(scratch))
    (GOLDEN / "mlx/written.json").write_text(json.dumps(written, indent=1) + "\n")


main()
