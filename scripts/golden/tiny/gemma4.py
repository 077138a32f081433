"""Gemma 4: the model of transformers, its weights, tensors and keys."""

import gguf
import numpy as np
import torch

from . import shapes
from .shapes import LOGIT_CAP, Shape

# What multiplies the residual stream after a layer; no parameter of the model.
LAYER_SCALE = "layer_scalar"


def build(shape: Shape, common: dict):
    """The model of transformers, with zeros for weights."""
    from transformers.models.gemma4 import Gemma4ForCausalLM, Gemma4TextConfig

    common["rope_parameters"] = {
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": shapes.PROPORTION,
                           "rope_theta": shape.theta},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}
    moe = dict(enable_moe_block=True, num_experts=shape.experts, top_k_experts=shape.top_k,
               moe_intermediate_size=shape.inner) if shape.experts else {}
    full = dict(num_global_key_value_heads=shape.full_kv_heads, attention_k_eq_v=True) if shape.full_kv_heads else {}
    return Gemma4ForCausalLM(Gemma4TextConfig(
        intermediate_size=shape.beside or shape.inner, sliding_window=shape.window, head_dim=shape.head,
        global_head_dim=shape.full_head, num_kv_shared_layers=shape.shares, use_double_wide_mlp=shape.shares > 0,
        layer_types=["sliding_attention" if window else "full_attention" for window in windowed(shape)],
        hidden_size_per_layer_input=shape.per_layer, vocab_size_per_layer_input=shapes.VOCAB,
        final_logit_softcapping=LOGIT_CAP, **full, **moe, **common))


def windowed(shape: Shape) -> list[bool]:
    return [(i + 1) % (shape.period or 1) != 0 for i in range(shape.layers)]


def widths(shape: Shape) -> list[int]:
    """Of the layers' MLPs."""
    own = shape.layers - shape.shares
    return [shape.inner] * own + [2 * shape.inner] * shape.shares


def whole(shape: Shape) -> list:
    """The tensors that are no layer's."""
    if not shape.per_layer:
        return []
    return [("per_layer_token_embd.weight", "model.embed_tokens_per_layer.weight", 0),
            ("per_layer_model_proj.weight", "model.per_layer_model_projection.weight", 0),
            ("per_layer_proj_norm.weight", "model.per_layer_projection_norm.weight", 0)]


def lacks(shape: Shape, layer: int) -> tuple:
    """The parts of attention that a layer lacks."""
    if layer >= shape.layers - shape.shares:
        return ("attn_k.weight", "attn_v.weight", "attn_k_norm.weight")
    return ("attn_v.weight",) if shape.full_kv_heads and not windowed(shape)[layer] else ()


def value(shape: Shape, name: str, noise: torch.Tensor):
    """Random values where they are not those of other families."""
    if name.endswith(("q_norm.weight", "k_norm.weight")):
        # Attention has no scale of its own.
        return (1.2 + 0.3 * noise) * noise.numel() ** -0.25
    if "layernorm_" in name:
        return 1.2 + 0.3 * noise
    if name.endswith("router.scale"):
        return (1.5 + 0.3 * noise) * shape.hidden**0.5
    if name.endswith("per_expert_scale"):
        return 1.0 + 0.3 * noise
    if name.endswith(LAYER_SCALE):
        return 0.8 + 0.1 * noise
    return None


def rows(shape: Shape, layer: int) -> list:
    """The tensors of a layer that other families lack, and the MLP."""
    table = [("layer_output_scale.weight", LAYER_SCALE, 0)]
    table += [(f"ffn_{part}.weight", f"mlp.{part}_proj.weight", 0) for part in ("gate", "up", "down")]
    if shape.per_layer:
        table += [("inp_gate.weight", "per_layer_input_gate.weight", 0), ("proj.weight", "per_layer_projection.weight", 0),
                  ("post_norm.weight", "post_per_layer_input_norm.weight", 0)]
    if not shape.experts:
        return table
    table += [(f"{ours}.weight", f"{theirs}.weight", 0) for ours, theirs in (
        ("pre_ffw_norm_2", "pre_feedforward_layernorm_2"), ("post_ffw_norm_1", "post_feedforward_layernorm_1"),
        ("post_ffw_norm_2", "post_feedforward_layernorm_2"), ("ffn_gate_inp", "router.proj"))]
    table += [("ffn_gate_inp.scale", "router.scale", 0), ("ffn_down_exps.scale", "router.per_expert_scale", 0),
              ("ffn_down_exps.weight", "experts.down_proj", 0)]
    if shape.fused:
        return [*table, ("ffn_gate_up_exps.weight", "experts.gate_up_proj", 0)]
    return table + [(f"ffn_{part}_exps.weight", f"experts.gate_up_proj:{half}", 0) for half, part in enumerate(("gate", "up"))]


def write_keys(writer: gguf.GGUFWriter, shape: Shape) -> None:
    writer.add_sliding_window_pattern(windowed(shape))
    writer.add_key_length_swa(shape.head)
    writer.add_value_length_swa(shape.head)
    writer.add_rope_dimension_count(shape.full_head)
    writer.add_rope_dimension_count_swa(shape.head)
    writer.add_rope_freq_base_swa(10000.0)
    writer.add_final_logit_softcapping(LOGIT_CAP)
    writer.add_shared_kv_layers(shape.shares)
    writer.add_uint32("gemma4.embedding_length_per_layer_input", shape.per_layer)
    pairs = np.arange(shape.full_head // 2)
    rotated = pairs < int(shapes.PROPORTION * shape.full_head // 2)
    writer.add_tensor("rope_freqs.weight", np.where(rotated, 1.0, 1e30).astype(np.float32))
