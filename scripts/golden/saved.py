#!/usr/bin/env python3
"""Writes the golden folders as transformers saves them: what `save_pretrained` makes of the folders of golden/convert.

    pip install torch==2.15.0 transformers==5.24.0 safetensors==0.8.0
    python scripts/golden/saved.py [NAME…]

For each folder golden/convert/NAME that transformers reads, golden/saved/NAME/ has `config.json`, exactly as it is
written; in families whose class reads other settings than the published ones, from these. If the tensors have other names or shapes than the published ones, it also has `model.safetensors`. The logits
of both are those of golden/convert/NAME.logits.gguf, which crates/convert/tests/convert/saved.rs checks.
"""

import json
import os
import pathlib
import shutil
import sys
import tempfile

os.environ["TQDM_DISABLE"] = "1"

import torch
import transformers
from safetensors.torch import load_file

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "settings"))
import theirs

GOLDEN = pathlib.Path(__file__).parents[2] / "crates/conformance/golden"
OUT = GOLDEN / "saved"


def shapes(folder: pathlib.Path) -> dict:
    """The shape of each tensor."""
    return {name: w.shape for path in folder.glob("*.safetensors") for name, w in load_file(path).items()}


def mimo(config: dict) -> dict:
    """MiMo's published settings as those of transformers, which reads only these."""
    published = ("hybrid_layer_pattern", "moe_layer_freq", "swa_num_attention_heads", "swa_num_key_value_heads", "swa_head_dim",
                 "swa_v_head_dim", "rope_theta", "swa_rope_theta", "partial_rotary_factor", "sliding_window_size",
                 "attention_chunk_size", "layernorm_epsilon", "add_swa_attention_sink_bias",
                 "add_full_attention_sink_bias", "scoring_func", "topk_method", "n_shared_experts")
    own = {key: config.pop(key) for key in published}
    rope = lambda theta: dict(rope_type="default", rope_theta=own[theta], partial_rotary_factor=own["partial_rotary_factor"])
    return config | dict(
        layer_types=["sliding_attention" if flag else "full_attention" for flag in own["hybrid_layer_pattern"]],
        mlp_layer_types=["sparse" if flag else "dense" for flag in own["moe_layer_freq"]],
        rope_parameters=dict(full_attention=rope("rope_theta"), sliding_attention=rope("swa_rope_theta")),
        sliding_window=own["sliding_window_size"], rms_norm_eps=own["layernorm_epsilon"])


def kimi(config: dict) -> dict:
    """The same of Kimi Linear."""
    own = config.pop("linear_attn_config")
    for key in ("moe_layer_freq", "mla_use_nope", "moe_router_activation_func", "head_dim"):
        config.pop(key)
    first, layers = config.pop("first_k_dense_replace"), range(config["num_hidden_layers"])
    return config | dict(
        linear_head_dim=own["head_dim"], linear_num_heads=own["num_heads"], linear_conv_kernel_dim=own["short_conv_kernel_size"],
        layer_types=["full_attention" if i + 1 in own["full_attn_layers"] else "linear_attention" for i in layers],
        mlp_layer_types=["dense" if i < first else "sparse" for i in layers])


def ling(config: dict) -> dict:
    """The same of Ling 3."""
    published = ("moe_shared_expert_intermediate_size", "score_function", "linear_attention", "no_kda_lora",
                 "gated_attention_proj_granularity_type")
    return {key: value for key, value in config.items() if key not in published}


OWN = {"mimo_v2_flash": mimo, "kimi_linear": kimi, "bailing_hybrid": ling}


def load(folder: pathlib.Path):
    """The folder's text model."""
    config = json.loads((folder / "config.json").read_text())
    if config["model_type"] in OWN:
        config = OWN[config["model_type"]](config)
    cls = theirs.class_of(config)
    if cls is None:
        raise ValueError("transformers has no text model of this type")
    config = cls.from_dict(config.get("text_config", config))
    # Some classes' default is beyond a tiny vocabulary.
    config.pad_token_id = None
    model, about = theirs.model_of(cls).from_pretrained(
        None, config=config, state_dict=theirs.weights(folder), dtype=torch.bfloat16, output_loading_info=True)
    if about["missing_keys"]:
        raise ValueError(f"transformers makes up {sorted(about['missing_keys'])[0]}")
    return model


def main(names: list) -> None:
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    torch.set_num_threads(1)
    for folder in sorted(path.parent for path in (GOLDEN / "convert").glob("*/config.json")):
        if names and folder.name not in names:
            continue
        to = OUT / folder.name
        shutil.rmtree(to, ignore_errors=True)
        try:
            model = load(folder)
        except Exception as error:
            print(f"{folder.name}: {type(error).__name__}: {str(error)[:120]}")
            continue
        with tempfile.TemporaryDirectory() as scratch:
            saved = pathlib.Path(scratch)
            model.save_pretrained(saved)
            to.mkdir(parents=True)
            shutil.copy(saved / "config.json", to)
            others = shapes(saved) != shapes(folder)
            if others:
                shutil.copy(saved / "model.safetensors", to)
            keys = len(json.loads((to / "config.json").read_text()))
            print(f"{folder.name}: {keys} settings{', and tensors' if others else ''}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
