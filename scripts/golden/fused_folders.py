#!/usr/bin/env python3
"""Writes the folders of crates/convert/tests/convert/fused.rs: MiMo V2.5, whose published folders have queries, keys
and values in one matrix, laid out for ranks of tensor parallelism, in FP8 with blocks of scales for each rank.

    pip install torch==2.15.0 transformers==5.23.* gguf==0.19.0 safetensors
    python scripts/golden/fused_folders.py LLAMA_CPP

LLAMA_CPP is a checkout of llama.cpp, whose converter must decode the same numbers. golden/fused/ gets `config.json`, with
the settings of the published model; `others.safetensors`, the tensors outside attention; and the matrices of attention:

    split   queries, keys and values in a matrix each, BF16: the numbers of `fp8`, decoded
    plain   in one matrix, all queries first, then all keys and all values, as the authors' model has them in memory
    ranked  in one matrix, rank by rank
    fp8     the same as E4M3 numbers with scales

`logits.gguf` has what transformers computes with `split` in F32.
"""

import json
import pathlib
import sys

import torch
from fp8_folders import quantised_in
from safetensors.torch import save_file
from tiny import plain
from tiny.build import build, randomise
from tiny.draw import draw, run
from tiny.files import write_logits
from tiny.shapes import SELECTION_GAP, TOLERANCE, Shape

GOLDEN = pathlib.Path(__file__).parents[2] / "crates/conformance/golden"
OUT = GOLDEN / "fused"
# Neither rows nor columns are whole blocks, and the number of scales differs from that of 8 ranks, which the converter
# tries first.
BLOCK = (20, 20)
LENGTHS = (10, 5, 3)
SHAPE = Shape("mimo2", 32, 16, 8, 8, 24, 4, 2, theta=5e6, dense=1, layers=2, window=4, period=2, rotary=8, value=16)
RANKS = SHAPE.kv_heads // 2  # the KV heads of layers without a window


def ranked(parts: list) -> torch.Tensor:
    """The rows of each rank together."""
    return torch.cat([part.chunk(RANKS)[rank] for rank in range(RANKS) for part in parts])


@torch.no_grad()
def main() -> None:
    sys.path.insert(0, sys.argv[1])
    from conversion.mimo import MimoV2Model

    OUT.mkdir(exist_ok=True)
    generator = torch.Generator().manual_seed(43)
    model = build(SHAPE)
    randomise(model, SHAPE, generator)
    forms = {name: {} for name in ("split", "plain", "ranked", "fp8")}
    for layer, attention in enumerate(layer.self_attn for layer in model.model.layers):
        name = f"model.layers.{layer}.self_attn"
        modules = [attention.q_proj, attention.k_proj, attention.v_proj]
        sizes = [module.weight.shape[0] for module in modules]
        quantised = [quantised_in(rank, BLOCK) for rank in ranked([module.weight for module in modules]).chunk(RANKS)]
        codes, scales, values = (torch.cat(part) for part in zip(*quantised))
        by_rank = [rank.split([size // RANKS for size in sizes]) for rank in values.chunk(RANKS)]
        parts = [torch.cat(part) for part in zip(*by_rank)]
        theirs = MimoV2Model._tp_aware_qkv_dequant(
            codes, scales, SHAPE.heads, sizes[1] // SHAPE.head, SHAPE.head, SHAPE.value, BLOCK[0])
        assert torch.equal(theirs, torch.cat(parts))
        parts = [part.bfloat16() for part in parts]
        for module, part, letter in zip(modules, parts, "qkv"):
            module.weight.copy_(part.float())
            forms["split"][f"{name}.{letter}_proj.weight"] = part.clone()
        forms["plain"][f"{name}.qkv_proj.weight"] = torch.cat(parts)
        forms["ranked"][f"{name}.qkv_proj.weight"] = ranked(parts)
        forms["fp8"] |= {f"{name}.qkv_proj.weight": codes, f"{name}.qkv_proj.weight_scale_inv": scales}
    others = {}
    for name, weight in plain.mimo2_state(SHAPE, model).items():
        if not name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight")):
            others[name] = weight.bfloat16().clone()
    for name, weight in dict(model.named_parameters()).items():
        weight.copy_(weight.bfloat16().float())
    others |= {f"{name}.weight": torch.zeros(1, 1) for name in ("visual.merger", "audio_encoder.projection", "speech_embeddings.0")}
    for name, tensors in (forms | {"others": others}).items():
        save_file(tensors, OUT / f"{name}.safetensors", metadata={"format": "pt"})

    config = json.loads((GOLDEN / "convert/mimo2/config.json").read_text()) | plain.mimo2_settings(SHAPE)
    theta, share = config["rope_theta"], config["partial_rotary_factor"]
    config |= dict(
        architectures=["MiMoV2ForCausalLM"], model_type="mimo_v2", attention_projection_layout="fused_qkv",
        num_hidden_layers=SHAPE.layers, vision_config={}, audio_config={},
        rope_parameters=dict(rope_type="default", rope_theta=theta, partial_rotary_factor=share))
    (OUT / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    sequences = [draw(model, SHAPE, length, SELECTION_GAP, generator) for length in LENGTHS]
    write_logits(OUT / "logits.gguf", TOLERANCE["f32"], sequences, run(model, sequences))


main()
