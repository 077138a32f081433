#!/usr/bin/env python3
"""Writes folders with stacks of experts that ModelOpt quantised column after column, for crates/convert/tests/convert/packed.rs.

    pip install torch==2.15.0 transformers==5.23.* gguf==0.19.0 safetensors omegaconf scipy pulp
    pip install --no-deps nvidia-modelopt==0.47.0
    python scripts/golden/modelopt_stacks.py

ModelOpt exports the experts of Llama 4 as they are in memory (`_export_quantized_weight` in `unified_export_hf.py`): in FP8
with one scale, in NVFP4 transposed, quantised along the inputs, and transposed back. Its export needs a GPU, so the classes
of codes are called here. golden/packed/NAME and NAME.logits.gguf are as packed_folders.py has them.
"""

import json
import pathlib

import torch
from modelopt.torch.quantization.qtensor import FP8QTensor, NVFP4QTensor
from safetensors.torch import save_file
from tiny.draw import run
from tiny.files import write_logits
from tiny.shapes import TOLERANCE
from transformers import AutoModelForCausalLM, Llama4TextConfig

OUT = pathlib.Path(__file__).parents[2] / "crates/conformance/golden/packed"
SIZES = dict(
    vocab_size=288, hidden_size=64, intermediate_size=128, intermediate_size_mlp=96, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, head_dim=16, max_position_embeddings=128, num_local_experts=4,
    num_experts_per_tok=1, interleave_moe_layer_step=1, tie_word_embeddings=False, rms_norm_eps=1e-5, eos_token_id=286,
    attn_temperature_tuning=True, use_qk_norm=True, initializer_range=0.1,
)


def fp8(w: torch.Tensor):
    packed, scale = FP8QTensor.quantize(w)
    return {"": packed._quantized_data, "_weight_scale": scale.reshape(())}, packed.dequantize(dtype=torch.float32, scale=scale)


def nvfp4(w: torch.Tensor):
    rows, outer = w.transpose(-2, -1).contiguous(), (w.abs().max() / (6 * 448)).float()
    packed, scales, outer = NVFP4QTensor.quantize(rows, 16, weights_scaling_factor_2=outer)
    values = packed.dequantize(dtype=torch.float32, scale=scales, double_scale=outer, block_sizes={-1: 16})
    codes, scales = (it.transpose(-2, -1).contiguous() for it in (packed._quantized_data, scales))
    return {"": codes, "_weight_scale": scales, "_weight_scale_2": outer}, values.transpose(-2, -1)


for name, quantise, algorithm in [("modelopt-stacks-fp8", fp8, "FP8"), ("modelopt-stacks-nvfp4", nvfp4, "NVFP4")]:
    torch.manual_seed(9)
    config = Llama4TextConfig(**SIZES)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    published = {}
    with torch.no_grad():
        for key, w in model.state_dict().items():
            # A norm has ones; all others are random.
            w.copy_((torch.ones_like(w) if w.dim() == 1 else torch.randn(w.shape) * 0.1).bfloat16())
            if not key.endswith(("experts.gate_up_proj", "experts.down_proj")):
                published[key] = w.bfloat16().clone()
                continue
            parts, values = quantise(w.float())
            published |= {f"{key}{part}": tensor for part, tensor in parts.items()} | {f"{key}_input_scale": torch.tensor(0.25)}
            w.copy_(values)
        (OUT / name).mkdir(parents=True, exist_ok=True)
        save_file({key: w.contiguous() for key, w in published.items()}, OUT / name / "model.safetensors", metadata={"format": "pt"})
        kept = {key: value for key, value in json.loads(config.to_json_string(use_diff=False)).items()
                if key in (*SIZES, "model_type", "rope_parameters", "attention_chunk_size", "floor_scale", "attn_scale",
                           "no_rope_layers", "layer_types", "moe_layers", "hidden_act")}
        settings = {"quant_method": "modelopt", "quant_algo": algorithm, "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}
        (OUT / name / "config.json").write_text(json.dumps(kept | {"dtype": "bfloat16", "quantization_config": settings}, indent=1) + "\n")
        generator = torch.Generator().manual_seed(41)
        sequences = [torch.randint(config.vocab_size, (n,), generator=generator) for n in (5, 3, 2)]
        write_logits(OUT / f"{name}.logits.gguf", TOLERANCE["f32"], sequences, run(model, sequences))
    print(name)
