"""Latent attention: DeepSeek V3, with a rank of queries, and V2, without."""

import gguf
from transformers import DeepseekV2Config, DeepseekV2ForCausalLM, DeepseekV3Config, DeepseekV3ForCausalLM

from .shapes import Shape

FAMILIES = ("deepseek2",)


def kept_groups(shape: Shape) -> int:
    return (shape.groups + 1) // 2


def build(shape: Shape, common: dict):
    plain = shape.head - shape.rotary
    settings = common | dict(
        num_key_value_heads=shape.heads, intermediate_size=3 * shape.inner, moe_intermediate_size=shape.inner,
        n_routed_experts=shape.experts, num_experts_per_tok=shape.top_k, n_shared_experts=shape.shared // shape.inner,
        first_k_dense_replace=shape.dense, n_group=shape.groups, topk_group=kept_groups(shape),
        routed_scaling_factor=shape.scale, kv_lora_rank=shape.latent, q_lora_rank=shape.rank or None,
        qk_nope_head_dim=plain, qk_rope_head_dim=shape.rotary, v_head_dim=shape.value)
    if shape.rank:
        return DeepseekV3ForCausalLM(DeepseekV3Config(norm_topk_prob=True, **settings))
    return DeepseekV2ForCausalLM(DeepseekV2Config(
        norm_topk_prob=False, topk_method="group_limited_greedy" if shape.groups > 1 else "greedy", **settings))


def names(shape: Shape) -> list[tuple[str, str, int]]:
    """As `tensors.names`."""
    table = [("token_embd.weight", "model.embed_tokens.weight", 0), ("output_norm.weight", "model.norm.weight", 0),
             ("output.weight", "lm_head.weight", 0)]
    heads = f"{shape.heads}.{shape.head - shape.rotary}"
    queries = [("attn_q.weight", "self_attn.q_proj.weight")]
    if shape.rank:
        queries = [("attn_q_a.weight", "self_attn.q_a_proj.weight"),
                   ("attn_q_a_norm.weight", "self_attn.q_a_layernorm.weight"),
                   ("attn_q_b.weight", "self_attn.q_b_proj.weight")]
    both = [("attn_k_b.weight", f"self_attn.kv_b_proj.weight:keys.{heads}"),
            ("attn_v_b.weight", f"self_attn.kv_b_proj.weight:values.{heads}")]
    if shape.joined:
        both = [("attn_kv_b.weight", "self_attn.kv_b_proj.weight")]
    for i in range(shape.layers):
        rows = [("attn_norm.weight", "input_layernorm.weight"), ("ffn_norm.weight", "post_attention_layernorm.weight"),
                *queries, ("attn_kv_a_mqa.weight", "self_attn.kv_a_proj_with_mqa.weight"),
                ("attn_kv_a_norm.weight", "self_attn.kv_a_layernorm.weight"), *both,
                ("attn_output.weight", "self_attn.o_proj.weight")]
        if i < shape.dense:
            rows += [(f"ffn_{part}.weight", f"mlp.{part}_proj.weight") for part in ("gate", "up", "down")]
        else:
            rows += [("ffn_gate_inp.weight", "mlp.gate.weight"),
                     ("ffn_gate_exps.weight", "mlp.experts.gate_up_proj:0"),
                     ("ffn_up_exps.weight", "mlp.experts.gate_up_proj:1"),
                     ("ffn_down_exps.weight", "mlp.experts.down_proj")]
            rows += [(f"ffn_{part}_shexp.weight", f"mlp.shared_experts.{part}_proj.weight")
                     for part in ("gate", "up", "down")]
            if shape.rank:
                rows.append(("exp_probs_b.bias", "mlp.gate.e_score_correction_bias"))
        table += [(f"blk.{i}.{ours}", f"model.layers.{i}.{theirs}", 0) for ours, theirs in rows]
    return table


def part_of_heads(weight, part: str):
    """The rows of all heads' keys as columns (`keys.HEADS.ROWS`), or those of their values (`values.HEADS.ROWS`)."""
    kind, heads, rows = part.split(".")
    weight = weight.unflatten(0, (int(heads), -1))
    return weight[:, : int(rows)].transpose(1, 2) if kind == "keys" else weight[:, int(rows) :]


def write_keys(writer: gguf.GGUFWriter, shape: Shape) -> None:
    writer.add_kv_lora_rank(shape.latent)
    if shape.rank:
        writer.add_q_lora_rank(shape.rank)
    writer.add_key_length(shape.latent + shape.rotary)
    writer.add_value_length(shape.latent)
    writer.add_key_length_mla(shape.head)
    writer.add_value_length_mla(shape.value)
    writer.add_leading_dense_block_count(shape.dense)
    writer.add_expert_shared_count(shape.shared // shape.inner)
    writer.add_expert_weights_scale(shape.scale)
    writer.add_expert_group_count(shape.groups)
    writer.add_expert_group_used_count(kept_groups(shape))
    kinds = gguf.ExpertGatingFuncType
    writer.add_expert_gating_func(kinds.SIGMOID if shape.rank else kinds.SOFTMAX)
    if shape.rank:
        writer.add_expert_weights_norm(True)
    if shape.rope:
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(shape.rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(shape.rope["original_max_position_embeddings"])
        writer.add_rope_scaling_yarn_log_mul(0.1 * shape.rope["mscale_all_dim"])
