#!/usr/bin/env python3
"""Writes the folders of crates/convert/tests/convert/mlx.rs with mlx-lm, the reference implementation.

    pip install mlx==0.32.4 mlx-cpu==0.32.4 torch==2.15.0 transformers==5.23.* gguf==0.19.0
    pip install --no-deps mlx-lm==0.32.2
    python scripts/golden/mlx_folders.py [NAME…]

golden/mlx/NAME is the folder golden/convert/SOURCE, quantised by mlx-lm: its config.json and weights; or a wider model
with random weights, because groups of 64 and 128 do not fit the width of SOURCE.
golden/mlx/NAME.decoded.safetensors has the same weights as MLX decodes them to float32, each expert on its own as
transformers names them (not for wider models). golden/mlx/NAME.logits.gguf has token sequences and the logits that
transformers computes with these weights in F32; for families whose tensors MLX changes, those that mlx-lm computes.
"""

import importlib.metadata
import json
import pathlib
import shutil
import sys
import tempfile

import mlx.core as mx
import mlx_lm
import torch
from tiny import mlx_logits
from tiny.draw import run
from tiny.files import write_logits
from tiny.shapes import TOLERANCE
from transformers import AutoConfig, AutoModelForCausalLM

assert importlib.metadata.version("mlx") == "0.32.4", "the golden files are those of mlx 0.32.4"
assert importlib.metadata.version("mlx-lm") == "0.32.2", "the golden files are those of mlx-lm 0.32.2"
GOLDEN = pathlib.Path(__file__).parents[2] / "crates/conformance/golden"
OUT = GOLDEN / "mlx"


LENGTHS = (10, 5, 3)


# Widths and groups of the modes whose codes are floats.
FLOATS = {"mxfp4": (4, 32), "mxfp8": (8, 32), "nvfp4": (4, 16)}


def widths(bits: dict[str, int | str | tuple[int, int]], default: int | str):
    """Modes, widths, or widths and groups (else 32), by parts of the names of modules; 0: not quantised."""

    def of(path: str, module, *_):
        if not hasattr(module, "to_quantized"):
            return False
        chosen = next((n for part, n in bits.items() if part in path), default)
        if chosen in FLOATS:
            chosen_bits, group = FLOATS[chosen]
            return {"bits": chosen_bits, "group_size": group, "mode": chosen}
        chosen, group = chosen if isinstance(chosen, tuple) else (chosen, 32)
        return {"bits": chosen, "group_size": group} if chosen else False

    return of


CASES = {
    "qwen3moe-4bit": ("qwen3moe", 4, {"mlp.gate": 8}),
    "llama3-mixed": ("llama3", 3, {"embed": 6, "q_proj": 2, "k_proj": 5, "v_proj": 8, "down_proj": 4, "lm_head": 0}),
    "llama3-wide": (
        "llama3",
        4,
        {
            "embed": (8, 128),
            "0.self_attn.q_proj": (2, 64),
            "0.self_attn.k_proj": (5, 64),
            "0.self_attn.v_proj": (8, 64),
            "o_proj": (3, 128),
            "gate_proj": (4, 64),
            "1.mlp.up_proj": (6, 64),
            "0.mlp.up_proj": 8,
            "down_proj": (4, 128),
        },
    ),
    "qwen3moe-mxfp4": ("qwen3moe", "mxfp4", {"mlp.gate": 8}),
    "llama3-floats": (
        "llama3",
        "mxfp8",
        {
            "embed": "nvfp4",
            "q_proj": "nvfp4",
            "k_proj": "mxfp4",
            "o_proj": "nvfp4",
            "gate_proj": "mxfp4",
            "up_proj": "nvfp4",
            "lm_head": (8, 64),
        },
    ),
}
# Folders of families whose tensors MLX renames, splits or reorders, with codes of 8 bits; their logits are mlx-lm's.
CHANGED = (
    "afmoe",
    "dots1",
    "ernie4_5-moe",
    "exaone-moe",
    "gemma4",
    "gemma4-e",
    "gemma4-moe",
    "gpt-oss",
    "granitemoe",
    "laguna",
    "lfm2",
    "lfm2moe",
    "llama4",
    "mimo2",
    "minimax-m3",
    "mistral3",
    "qwen35",
    "qwen35moe",
    "qwen3next",
    "step35",
)
# The same of a model whose heads MLX takes to be as wide together as the model: those of SOURCE are cut to that width.
NARROWED = ("bailingmoe2",)
CHANGED += NARROWED
CASES |= {f"{source}-8bit": (source, 8, {}) for source in CHANGED}
# Families of these whose golden models mlx-lm computes otherwise than transformers.
OTHER_LOGITS = ("ernie4_5-moe", "gemma4-e", "gpt-oss", "llama4")
# Settings of models with random weights.
WIDE = {"hidden_size": 128, "intermediate_size": 256, "head_dim": 32}
WIDER = {"llama3-wide": WIDE, "llama3-floats": WIDE}


def decoded(folder: pathlib.Path) -> dict[str, mx.array]:
    weights = {}
    for file in sorted(folder.glob("*.safetensors")):
        weights |= mx.load(str(file))
    config = mlx_lm.utils.load_config(folder)["quantization"]
    plain = {}
    for name, w in weights.items():
        module = name.removesuffix(".weight")
        if name.endswith((".scales", ".biases")):
            continue
        if module + ".scales" in weights:
            own = config.get(module, config)
            own = own if isinstance(own, dict) else config
            mode, scales = own.get("mode", "affine"), weights[f"{module}.scales"]
            biases = None
            if mode == "affine":
                scales, biases = scales.astype(mx.float32), weights[f"{module}.biases"].astype(mx.float32)
            group, bits = own["group_size"], own["bits"]
            w = mx.dequantize(w, scales, biases, group_size=group, bits=bits, mode=mode, dtype=mx.float32)
        w = w.astype(mx.float32)
        if ".switch_mlp." in name:
            for expert in range(w.shape[0]):
                plain[name.replace(".switch_mlp.", f".experts.{expert}.")] = w[expert]
        else:
            plain[name] = w
    return plain


def as_mlx_reads(config: dict) -> dict:
    """Settings by the names of transformers 4, which are the only ones that mlx-lm knows, and those that it asks for."""
    rope = config.get("rope_parameters") or {}
    config |= {key: rope[key] for key in ("rope_theta", "partial_rotary_factor") if key in rope}
    if "num_local_experts" in config:
        config["num_experts"] = config["num_local_experts"]
    kind = config.get("model_type", "")
    if kind.startswith("qwen3_5") and "layer_types" in config:
        config["full_attention_interval"] = config["layer_types"].index("full_attention") + 1
    if kind == "lfm2":
        config["block_dim"] = config["hidden_size"]
    elif kind == "exaone_moe":
        config["is_moe_layer"] = [kind == "sparse" for kind in config["mlp_layer_types"]]
    elif kind == "step3p5":
        config["yarn_only_types"] = ["full_attention"]
        # Without numbers for the prediction layer, and null where there is no limit.
        for limits in ("swiglu_limits", "swiglu_limits_shared"):
            config[limits] = [limit or 0.0 for limit in config[limits]]
    elif kind == "llama4_text":
        config["rope_scaling"] = None
    elif kind == "gemma4":
        config["vocab_size"] = config["text_config"]["vocab_size"]
    elif kind == "gemma4_text" and "per_layer_config" in config:
        (own,) = config["per_layer_config"].values()
        config["global_head_dim"] = own["head_dim"]
        config["num_global_key_value_heads"] = own["num_key_value_heads"]
    elif kind == "granitemoeshared":
        config["model_type"] = "granitemoe"
        del config["shared_intermediate_size"]
    elif kind == "qwen3_5_text":
        config = {"model_type": "qwen3_5", "text_config": config}
    if "text_config" in config and kind != "qwen3_5_text":
        config["text_config"] = as_mlx_reads(config["text_config"])
    return config


def without_shared_experts(folder: pathlib.Path) -> None:
    """mlx-lm has no shared experts of Granite."""
    for file in folder.glob("model*.safetensors"):
        mx.save_safetensors(str(file), {name: w for name, w in mx.load(str(file)).items() if ".shared_mlp." not in name})


def narrow(folder: pathlib.Path, config: dict) -> dict:
    """Cuts the heads of a model to the width of which all together are as wide as the model."""
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    width = config["hidden_size"] // heads
    for file in folder.glob("model*.safetensors"):
        weights = mx.load(str(file))
        for name, w in weights.items():
            if name.endswith("query_key_value.weight"):
                weights[name] = w[: (heads + 2 * kv_heads) * width]
            elif name.endswith("attention.dense.weight"):
                weights[name] = w[:, : heads * width]
            elif name.endswith(("query_layernorm.weight", "key_layernorm.weight")):
                weights[name] = w[:width]
        mx.save_safetensors(str(file), weights)
    return config | {"head_dim": width, "moe_router_enable_expert_bias": True}


def widen(folder: pathlib.Path, settings: dict[str, int]) -> None:
    """Replaces a model's weights by random ones of another width."""
    torch.manual_seed(41)
    config = AutoConfig.from_pretrained(folder)
    for key, value in settings.items():
        setattr(config, key, value)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.15 if weight.dim() > 1 else 0.3)
    for file in folder.glob("model*"):
        file.unlink()
    model.to(torch.bfloat16).save_pretrained(folder)


def logits(plain: pathlib.Path, weights: dict[str, mx.array], path: pathlib.Path) -> None:
    """Writes what transformers computes with these weights."""
    for file in plain.glob("model*"):
        file.unlink()
    mx.save_safetensors(str(plain / "model.safetensors"), weights, metadata={"format": "pt"})
    model = AutoModelForCausalLM.from_pretrained(plain, dtype=torch.float32)
    generator = torch.Generator().manual_seed(41)
    sequences = [torch.randint(model.config.vocab_size, (n,), generator=generator) for n in LENGTHS]
    with torch.no_grad():
        write_logits(path, TOLERANCE["f32"], sequences, run(model, sequences))


def main() -> None:
    OUT.mkdir(exist_ok=True)
    chosen = sys.argv[1:] or list(CASES)
    for name, (source, default, bits) in ((name, CASES[name]) for name in chosen):
        with tempfile.TemporaryDirectory() as scratch:
            folder, plain = pathlib.Path(scratch) / "mlx", pathlib.Path(scratch) / "plain"
            shutil.copytree(GOLDEN / "convert" / source, plain)
            if name in WIDER:
                widen(plain, WIDER[name])
            config = as_mlx_reads(json.loads((plain / "config.json").read_text()))
            if source in NARROWED:
                config = narrow(plain, config)
            (plain / "config.json").write_text(json.dumps(config))
            if config["model_type"] == "granitemoe":
                without_shared_experts(plain)
            mlx_lm.convert(
                str(plain),
                str(folder),
                quantize=True,
                q_bits=FLOATS[default][0] if default in FLOATS else default,
                q_group_size=32,
                q_mode=default if default in FLOATS else "affine",
                quant_predicate=widths(bits, default),
            )
            (OUT / name).mkdir(exist_ok=True)
            for file in ("config.json", "model.safetensors", "model.safetensors.index.json"):
                shutil.copy(folder / file, OUT / name / file)
            if name.removesuffix("-8bit") in OTHER_LOGITS:
                continue
            if name.removesuffix("-8bit") in CHANGED:
                model, _ = mlx_lm.utils.load_model(folder)
                vocabulary = config.get("text_config", config)["vocab_size"]
                mlx_logits.write(OUT / f"{name}.logits.gguf", model, vocabulary)
                continue
            weights = decoded(folder)
            if name not in WIDER:
                mx.save_safetensors(str(OUT / f"{name}.decoded.safetensors"), weights)
            logits(plain, weights, OUT / f"{name}.logits.gguf")


main()
