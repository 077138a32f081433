"""Families that differ from `llama` in their attention and norms: models of transformers, tensors and keys."""

import math

import gguf
import numpy as np
import torch

from . import shapes
from .recurrent import Order
from .shapes import CONTEXT, EPS, Shape

DENSE = ("seed_oss", "smollm3", "phi3", "glm4", "olmo2", "exaone4", "cohere2", "mistral3")
MOE = ("exaone-moe", "bailingmoe2", "afmoe", "cohere2moe", "llama4", "laguna")
FAMILIES = DENSE + MOE
# Q and K as pairs of neighbours.
PERMUTED = ("smollm3", "mistral3")
# Gate and up in one tensor.
FUSED = ("phi3", "glm4")
# The steps of Llama 4's temperature.
FLOOR_SCALE = 8
# What multiplies Cohere's logits.
LOGIT_SCALE = 0.25
# Norms of attention and MLP by GGUF's name and transformers'.
NORMS = {
    "seed_oss": [("attn_norm", "input_layernorm"), ("post_attention_norm", "post_attention_layernorm")],
    "glm4": [("attn_norm", "input_layernorm"), ("post_attention_norm", "post_self_attn_layernorm"),
             ("ffn_norm", "post_attention_layernorm"), ("post_ffw_norm", "post_mlp_layernorm")],
    "olmo2": [("post_attention_norm", "post_attention_layernorm"), ("post_ffw_norm", "post_feedforward_layernorm")],
    "exaone4": [("post_attention_norm", "post_attention_layernorm"), ("post_ffw_norm", "post_feedforward_layernorm")],
    "afmoe": [("attn_norm", "input_layernorm"), ("post_attention_norm", "post_attention_layernorm"),
              ("ffn_norm", "pre_mlp_layernorm"), ("post_ffw_norm", "post_mlp_layernorm")],
    "cohere2": [("attn_norm", "input_layernorm")],
    "cohere2moe": [("attn_norm", "input_layernorm")],
}
SELECTION_BIASES = {"exaone-moe": "gate.e_score_correction_bias", "bailingmoe2": "gate.e_score_correction_bias",
                    "afmoe": "expert_bias", "laguna": "gate.e_score_correction_bias"}


def windowed(shape: Shape) -> list[bool]:
    """Whether each layer has a window."""
    period = shape.period or 4
    first = shape.arch == "laguna"  # of a period sees everything, not the last
    return [bool(shape.window) and (i + (0 if first else 1)) % period != 0 for i in range(shape.layers)]


def heads(shape: Shape) -> list[int]:
    """Query heads of each layer."""
    return [shape.heads if window else shape.full_heads or shape.heads for window in windowed(shape)]


def kinds(shape: Shape) -> list[str]:
    return ["sliding_attention" if window else "full_attention" for window in windowed(shape)]


def build(shape: Shape, common: dict, head: dict, moe: dict):
    """The model of transformers, with zeros for weights."""
    import transformers as t

    dense = dict(intermediate_size=3 * shape.inner if shape.dense else shape.inner)
    windows = dict(sliding_window=shape.window or None, layer_types=kinds(shape))
    experts = dict(moe_intermediate_size=shape.inner, num_experts=shape.experts, num_experts_per_tok=shape.top_k,
                   num_shared_experts=shape.shared // shape.inner if shape.shared else 0)
    rope = common["rope_parameters"]
    if shape.arch == "seed_oss":
        return t.SeedOssForCausalLM(t.SeedOssConfig(**dense, **head, **common))
    if shape.arch == "smollm3":
        return t.SmolLM3ForCausalLM(t.SmolLM3Config(pad_token_id=None, **dense, **common))
    if shape.arch == "phi3":
        original = rope.get("original_max_position_embeddings", CONTEXT)
        rope["partial_rotary_factor"] = (shape.rotary or shape.head) / shape.head
        return t.Phi3ForCausalLM(t.Phi3Config(
            sliding_window=shape.window or None, original_max_position_embeddings=original, pad_token_id=None,
            bos_token_id=None, eos_token_id=None, **dense, **common))
    if shape.arch == "glm4":
        rope["partial_rotary_factor"] = shape.rotary / shape.head
        return t.Glm4ForCausalLM(t.Glm4Config(pad_token_id=None, **dense, **head, **common))
    if shape.arch == "olmo2" and shape.window:
        common["rope_parameters"] = {"full_attention": rope, "sliding_attention": {
            "rope_type": "default", "rope_theta": shape.theta}}
        return t.Olmo3ForCausalLM(t.Olmo3Config(pad_token_id=None, **dense, **windows, **common))
    if shape.arch == "olmo2":
        return t.Olmo2ForCausalLM(t.Olmo2Config(pad_token_id=None, **dense, **common))
    if shape.arch == "exaone4":
        return t.Exaone4ForCausalLM(t.Exaone4Config(head_dim=shape.head, **dense, **windows, **common))
    if shape.arch == "mistral3":
        return t.Ministral3ForCausalLM(t.Ministral3Config(head_dim=shape.head, pad_token_id=None, **dense, **common))
    if shape.arch == "cohere2":
        common = {key: value for key, value in common.items() if key != "rms_norm_eps"}
        return t.Cohere2ForCausalLM(t.Cohere2Config(
            layer_norm_eps=EPS, logit_scale=LOGIT_SCALE, pad_token_id=None, **dense, **windows, **common))
    if shape.arch == "cohere2moe":
        if not shape.tied:  # one has norms of the mean square, the other layer norms
            common = {key: value for key, value in common.items() if key != "rms_norm_eps"} | dict(layer_norm_eps=EPS)
        return t.Cohere2MoeForCausalLM(t.Cohere2MoeConfig(
            intermediate_size=shape.inner, num_experts=shape.experts, num_experts_per_tok=shape.top_k,
            prefix_dense_intermediate_size=3 * shape.inner, head_dim=shape.head, expert_selection_fn="sigmoid",
            norm_topk_prob=False, logit_scale=LOGIT_SCALE, pad_token_id=None, **windows,
            mlp_layer_types=["dense" if i < shape.dense else "sparse" for i in range(shape.layers)], **common))
    if shape.arch == "exaone-moe":
        return t.ExaoneMoeForCausalLM(t.ExaoneMoeConfig(
            head_dim=shape.head, first_k_dense_replace=shape.dense, routed_scaling_factor=shape.scale,
            pad_token_id=None, **experts, **dense, **windows, **common))
    if shape.arch == "afmoe":
        return t.AfmoeForCausalLM(t.AfmoeConfig(
            head_dim=shape.head, num_dense_layers=shape.dense, route_scale=shape.scale, mup_enabled=True, **experts,
            **dense, **windows, **common))
    if shape.arch == "llama4":
        chunked = [kind.replace("sliding", "chunked") for kind in kinds(shape)]
        return t.Llama4ForCausalLM(t.Llama4TextConfig(
            intermediate_size=shape.inner, intermediate_size_mlp=3 * shape.inner, head_dim=shape.head,
            num_local_experts=shape.experts, num_experts_per_tok=shape.top_k, interleave_moe_layer_step=shape.step,
            use_qk_norm=shape.experts != 128, attention_chunk_size=shape.window,
            floor_scale=8192 if shape.window == 8192 else FLOOR_SCALE,
            no_rope_layers=[int(window) for window in windowed(shape)], layer_types=chunked, **common))
    if shape.arch == "laguna":
        common["rope_parameters"] = {
            "full_attention": rope | dict(partial_rotary_factor=shape.rotary / shape.head),
            "sliding_attention": dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=1.0)}
        return t.LagunaForCausalLM(t.LagunaConfig(
            intermediate_size=3 * shape.inner, moe_intermediate_size=shape.inner, num_experts=shape.experts,
            num_experts_per_tok=shape.top_k, shared_expert_intermediate_size=shape.shared, head_dim=shape.head,
            gating="per-element" if shape.element_gate else True, num_attention_heads_per_layer=heads(shape),
            mlp_layer_types=["dense" if i < shape.dense else "sparse" for i in range(shape.layers)],
            moe_routed_scaling_factor=shape.scale, **windows, **common))
    # transformers has no Ling 2, whose maths is that of its GLM-4.5.
    rope["partial_rotary_factor"] = shape.rotary / shape.head
    del experts["num_experts"], experts["num_shared_experts"]
    model = t.Glm4MoeForCausalLM(t.Glm4MoeConfig(
        n_routed_experts=shape.experts, n_shared_experts=shape.shared // shape.inner, use_qk_norm=True,
        first_k_dense_replace=shape.dense, n_group=shape.groups, topk_group=(shape.groups + 1) // 2,
        routed_scaling_factor=shape.scale, norm_topk_prob=True, num_mtp_layers=0, **head, **experts, **dense, **common))
    for layer in model.model.layers:
        join(layer.self_attn)
    return model


def join(attention) -> None:
    """Queries, keys and values become parts of one parameter."""
    parts = [attention.q_proj, attention.k_proj, attention.v_proj]
    attention.joined = torch.nn.Parameter(torch.cat([part.weight.data for part in parts]))
    start = 0
    for part in parts:
        rows = len(part.weight)
        part.weight.data = attention.joined.data[start : start + rows]
        start += rows


def halves(heads: int, shape: Shape) -> np.ndarray:
    """The rows of heads, of which the rotated ones are in pairs of neighbours, as pairs of halves."""
    head = np.arange(shape.head)
    rotated = np.concatenate([head[:shape.rotary:2], head[1:shape.rotary:2], head[shape.rotary:]])
    return (np.arange(heads)[:, None] * shape.head + rotated).reshape(-1)


def attention(shape: Shape) -> list:
    q, k = (shape.heads, shape.kv_heads) if shape.arch in PERMUTED else (0, 0)
    if shape.arch == "glm4" and "mrope_section" in shape.rope:
        q, k = (Order(rows=halves(heads, shape)) for heads in (shape.heads, shape.kv_heads))
    rows = [("attn_output.weight", "self_attn.o_proj.weight", 0)]
    if shape.arch in ("phi3", "bailingmoe2"):
        rows.append(("attn_qkv.weight", "self_attn.joined" if shape.experts else "self_attn.qkv_proj.weight", 0))
    else:
        for kind in ["weight", "bias"] if shape.bias else ["weight"]:
            rows += [(f"attn_q.{kind}", f"self_attn.q_proj.{kind}", q), (f"attn_k.{kind}", f"self_attn.k_proj.{kind}", k),
                     (f"attn_v.{kind}", f"self_attn.v_proj.{kind}", 0)]
    if shape.arch in ("olmo2", "exaone4", "exaone-moe", "bailingmoe2", "afmoe", "laguna"):
        rows += [(f"attn_{part}_norm.weight", f"self_attn.{part}_norm.weight", 0) for part in "qk"]
    if shape.arch == "afmoe":
        rows.append(("attn_gate.weight", "self_attn.gate_proj.weight", 0))
    if shape.arch == "laguna":
        rows.append(("attn_gate.weight", "self_attn.g_proj.weight", 0))
    return rows


def mlp(shape: Shape, layer: int) -> list:
    if shape.arch == "llama4":
        parts = [(part, f"{part}_proj.weight") for part in ("gate", "up", "down")]
        if (layer + 1) % shape.step != 0:
            return [(f"ffn_{ours}.weight", f"feed_forward.{theirs}", 0) for ours, theirs in parts]
        return [("ffn_gate_inp.weight", "feed_forward.router.weight", 0),
                ("ffn_gate_exps.weight", "feed_forward.experts.gate_up_proj:first", 0),
                ("ffn_up_exps.weight", "feed_forward.experts.gate_up_proj:second", 0),
                ("ffn_down_exps.weight", "feed_forward.experts.down_proj:all", 0),
                *((f"ffn_{ours}_shexp.weight", f"feed_forward.shared_expert.{theirs}", 0) for ours, theirs in parts)]
    if not shape.experts or layer < shape.dense:
        if shape.arch in FUSED:
            return [("ffn_up.weight", "mlp.gate_up_proj.weight", 0), ("ffn_down.weight", "mlp.down_proj.weight", 0)]
        return [(f"ffn_{part}.weight", f"mlp.{part}_proj.weight", 0) for part in ("gate", "up", "down")]
    router = "mlp.router.gate.weight" if shape.arch == "afmoe" else "mlp.gate.weight"
    rows = [("ffn_gate_inp.weight", router, 0),
            ("ffn_gate_exps.weight", "mlp.experts.gate_up_proj:0", 0),
            ("ffn_up_exps.weight", "mlp.experts.gate_up_proj:1", 0),
            ("ffn_down_exps.weight", "mlp.experts.down_proj", 0)]
    if shape.arch in SELECTION_BIASES:
        rows.append(("exp_probs_b.bias", f"mlp.{SELECTION_BIASES[shape.arch]}", 0))
    if shape.shared:
        rows += [(f"ffn_{part}_shexp.weight", f"mlp.shared_experts.{part}_proj.weight", 0)
                 for part in ("gate", "up", "down")]
    return rows


def names(shape: Shape) -> list:
    """GGUF name, transformers name, and the heads by which rows are permuted (0: not at all)."""
    table = [("token_embd.weight", "model.embed_tokens.weight", 0), ("output_norm.weight", "model.norm.weight", 0)]
    if not shape.tied:
        table.append(("output.weight", "lm_head.weight", 0))
    usual = [("attn_norm", "input_layernorm"), ("ffn_norm", "post_attention_layernorm")]
    for i in range(shape.layers):
        rows = [(f"{ours}.weight", f"{theirs}.weight", 0) for ours, theirs in NORMS.get(shape.arch, usual)]
        rows += attention(shape) + mlp(shape, i)
        table += [(f"blk.{i}.{ours}", f"model.layers.{i}.{theirs}", how) for ours, theirs, how in rows]
    return table


def write_keys(writer, shape: Shape) -> None:
    """The keys that these families have besides those of others."""
    if shape.arch == "smollm3":
        writer.add_rope_dimension_count(shape.head)
        writer.add_vocab_size(288)
    if shape.arch in ("cohere2", "cohere2moe"):
        if shape.arch == "cohere2moe" and shape.tied:
            writer.add_layer_norm_rms_eps(EPS)
        else:
            writer.add_layer_norm_eps(EPS)
        writer.add_logit_scale(LOGIT_SCALE)
        writer.add_vocab_size(288)
        writer.add_rope_dimension_count(shape.head)
        writer.add_rope_scaling_type(gguf.RopeScalingType.NONE)
    else:
        writer.add_layer_norm_rms_eps(EPS)
    if shape.arch in ("olmo2", "exaone4", "exaone-moe", "afmoe", "cohere2moe", "llama4", "laguna") and shape.window:
        writer.add_sliding_window_pattern(windowed(shape))
    if shape.arch == "llama4":
        writer.add_vocab_size(288)
        writer.add_rope_dimension_count(shape.head)
        writer.add_interleave_moe_layer_step(shape.step)
        writer.add_float32("llama4.attention.temperature_scale", 0.1)
        writer.add_uint32("llama4.attention.temperature_length", FLOOR_SCALE)
        return
    if shape.arch == "laguna":
        writer.add_vocab_size(288)
        writer.add_rope_dimension_count_swa(shape.head)
        writer.add_rope_freq_base_swa(10000.0)
    if shape.arch == "mistral3":
        writer.add_rope_dimension_count(shape.head)
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(shape.rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(shape.rope["original_max_position_embeddings"])
        writer.add_rope_scaling_yarn_beta_fast(shape.rope["beta_fast"])
        writer.add_rope_scaling_yarn_log_mul(shape.rope["mscale_all_dim"])
        writer.add_float32("mistral3.attention.temperature_scale", shape.rope["llama_4_scaling_beta"])
    if shape.rope.get("rope_type") == "longrope":
        original = shape.rope["original_max_position_embeddings"]
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(CONTEXT / original) / math.log(original)))
        for part in ("long", "short"):
            writer.add_tensor(f"rope_factors_{part}.weight", np.array(shape.rope[f"{part}_factor"], np.float32))
    if shape.experts:
        writer.add_leading_dense_block_count(shape.dense)
    if shape.arch == "cohere2moe":
        writer.add_expert_weights_norm(False)
    elif shape.experts:
        if shape.arch != "laguna":
            writer.add_expert_shared_count(shape.shared // shape.inner)
        writer.add_expert_weights_scale(shape.scale)
        writer.add_expert_weights_norm(True)
        if shape.arch == "bailingmoe2":
            writer.add_expert_group_count(shape.groups)
            writer.add_expert_group_used_count((shape.groups + 1) // 2)
        if shape.arch != "afmoe":
            writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
