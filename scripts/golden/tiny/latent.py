"""Latent attention: DeepSeek V3, with a rank of queries, and V2, without; Mistral 4, GLM-4.7-Flash, Youtu-LLM."""

import gguf
import transformers as t
from transformers import DeepseekV2Config, DeepseekV2ForCausalLM, DeepseekV3Config, DeepseekV3ForCausalLM

from .shapes import Shape

FAMILIES = ("deepseek2", "mistral4", "glm4_moe_lite", "youtu")
# Files of these have the name of another.
ARCHITECTURES = {"glm4_moe_lite": "deepseek2", "youtu": "deepseek2"}


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
    if shape.arch == "youtu":
        experts = ("moe_intermediate_size", "n_routed_experts", "num_experts_per_tok", "n_shared_experts",
                   "first_k_dense_replace", "n_group", "topk_group", "routed_scaling_factor")
        dense = {key: value for key, value in settings.items() if key not in experts}
        return t.YoutuForCausalLM(t.YoutuConfig(**dense | dict(intermediate_size=shape.inner)))
    if shape.arch == "glm4_moe_lite":
        kinds = ["dense" if i < shape.dense else "sparse" for i in range(shape.layers)]
        del settings["first_k_dense_replace"]
        return t.Glm4MoeLiteForCausalLM(t.Glm4MoeLiteConfig(norm_topk_prob=True, mlp_layer_types=kinds, **settings))
    if shape.arch == "mistral4":
        settings["rope_parameters"] |= dict(partial_rotary_factor=shape.rotary / shape.head)
        return t.Mistral4ForCausalLM(t.Mistral4Config(norm_topk_prob=True, **settings))
    if shape.rank:
        return DeepseekV3ForCausalLM(DeepseekV3Config(norm_topk_prob=True, **settings))
    return DeepseekV2ForCausalLM(DeepseekV2Config(
        norm_topk_prob=False, topk_method="group_limited_greedy" if shape.groups > 1 else "greedy", **settings))


def names(shape: Shape) -> list[tuple[str, str, int]]:
    """As `tensors.names`."""
    table = [("token_embd.weight", "model.embed_tokens.weight", 0), ("output_norm.weight", "model.norm.weight", 0),
             ("output.weight", "lm_head.weight", 0)]
    table = table[: 2 if shape.tied else 3]
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
        if i < shape.dense or not shape.experts:
            rows += [(f"ffn_{part}.weight", f"mlp.{part}_proj.weight") for part in ("gate", "up", "down")]
        else:
            rows += [("ffn_gate_inp.weight", "mlp.gate.weight"),
                     *([("ffn_gate_up_exps.weight", "mlp.experts.gate_up_proj")] if shape.arch == "mistral4" else [
                         ("ffn_gate_exps.weight", "mlp.experts.gate_up_proj:0"),
                         ("ffn_up_exps.weight", "mlp.experts.gate_up_proj:1")]),
                     ("ffn_down_exps.weight", "mlp.experts.down_proj")]
            rows += [(f"ffn_{part}_shexp.weight", f"mlp.shared_experts.{part}_proj.weight")
                     for part in ("gate", "up", "down")]
            if shape.rank and shape.arch != "mistral4":
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
    writer.add_leading_dense_block_count(shape.dense if shape.experts else shape.layers)
    writer.add_expert_shared_count(shape.shared // shape.inner)
    if shape.rope:
        write_rope_keys(writer, shape)
    if not shape.experts:
        writer.add_expert_feed_forward_length(shape.inner)
        return
    writer.add_expert_weights_scale(shape.scale)
    writer.add_expert_group_count(shape.groups)
    writer.add_expert_group_used_count(kept_groups(shape))
    kinds = gguf.ExpertGatingFuncType
    if shape.arch != "glm4_moe_lite":  # whose published settings lack it
        writer.add_expert_gating_func(kinds.SIGMOID if shape.rank and shape.arch != "mistral4" else kinds.SOFTMAX)
    if shape.rank:
        writer.add_expert_weights_norm(True)


def write_rope_keys(writer: gguf.GGUFWriter, shape: Shape) -> None:
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(shape.rope["factor"])
    writer.add_rope_scaling_orig_ctx_len(shape.rope["original_max_position_embeddings"])
    writer.add_rope_scaling_yarn_log_mul(0.1 * shape.rope["mscale_all_dim"])
    if (scale := shape.rope.get("llama_4_scaling_beta")) is not None:
        writer.add_attn_temperature_scale(scale)
        writer.add_attn_temperature_length(shape.rope["original_max_position_embeddings"])
    if (beta := shape.rope.get("beta_fast")) is not None:
        writer.add_rope_scaling_yarn_beta_fast(beta)
