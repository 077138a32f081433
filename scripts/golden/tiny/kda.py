"""Delta rules in which each element of a key has a gate, with latent attention: Kimi Linear and Ling 3."""

import gguf
import numpy as np

from .latent import kept_groups
from .recurrent import Order
from .shapes import CONTEXT, Shape

FAMILIES = ("kimi-linear", "bailingmoe3")
LOWER_BOUND = -5.0


def width(shape: Shape) -> int:
    """Of a head of the delta rule."""
    return shape.hidden // 2


class Taps(Order):
    """The taps of queries, keys or values, which transformers has in one tensor, with a dimension for the one input."""

    def __init__(self, part: int, channels: int):
        super().__init__(rows=part * channels + np.arange(channels), squeeze=True)

    def take(self, w: np.ndarray) -> np.ndarray:
        return super().take(w)[None, :, None]

    def give(self, w: np.ndarray, ours: np.ndarray) -> np.ndarray:
        return super().give(w, ours[0, :, 0])


class Decay(Order):
    """The exponential of the decay's logarithm, with this sign, as a matrix of one column."""

    def __init__(self, sign: int):
        super().__init__()
        self.sign = sign

    def take(self, w: np.ndarray) -> np.ndarray:
        return self.sign * np.exp(w).reshape(-1, 1)

    def give(self, w: np.ndarray, ours: np.ndarray) -> np.ndarray:
        return np.log(self.sign * ours).reshape(w.shape)


def build(shape: Shape, common: dict):
    import transformers as t

    kimi = shape.arch == "kimi-linear"
    settings = common | dict(
        num_key_value_heads=shape.heads, intermediate_size=3 * shape.inner, moe_intermediate_size=shape.inner,
        num_local_experts=shape.experts, num_experts_per_tok=shape.top_k, n_shared_experts=shape.shared // shape.inner,
        n_group=shape.groups, topk_group=kept_groups(shape), routed_scaling_factor=shape.scale, norm_topk_prob=True,
        kv_lora_rank=shape.latent, q_lora_rank=shape.rank or None, qk_nope_head_dim=shape.head - shape.rotary,
        qk_rope_head_dim=shape.rotary, v_head_dim=shape.value, bos_token_id=None, eos_token_id=None, pad_token_id=None,
        layer_types=["full_attention" if i in shape.full else "linear_attention" for i in range(shape.layers)],
        mlp_layer_types=["dense" if i < shape.dense else "sparse" for i in range(shape.layers)])
    if kimi:
        del settings["rope_parameters"]
        return t.KimiLinearForCausalLM(t.KimiLinearConfig(
            linear_head_dim=width(shape), linear_num_heads=shape.heads, linear_conv_kernel_dim=4, **settings))
    return t.BailingHybridForCausalLM(t.BailingHybridConfig(
        head_dim=width(shape), short_conv_kernel_size=4, kda_safe_gate=True, kda_lower_bound=LOWER_BOUND, num_mtp_layers=0,
        **settings))


def dropped(shape: Shape) -> list:
    """Settings of transformers that published folders have under other names, or not."""
    names = ["layer_types", "mlp_layer_types", "linear_head_dim", "linear_num_heads", "linear_conv_kernel_dim",
             "num_local_experts", "n_shared_experts", "num_mtp_layers"]
    kimi = ["n_group", "norm_topk_prob", "max_position_embeddings", "num_experts_per_tok"]
    ling = ["num_expert_group", "moe_renormalize", "model_max_length", "num_experts_per_token", "num_nextn_predict_layers"]
    return names + (kimi if shape.arch == "kimi-linear" else ling)


def published(shape: Shape) -> dict:
    """Settings as in published folders."""
    if shape.arch == "bailingmoe3":
        return dict(
            architectures=["BailingMoeV3ForCausalLM"], head_dim=width(shape), layer_group_size=shape.full[0] + 1,
            first_k_dense_replace=shape.dense, num_experts=shape.experts, num_shared_experts=shape.shared // shape.inner,
            num_experts_per_tok=shape.top_k, n_group=shape.groups, norm_topk_prob=True, max_position_embeddings=CONTEXT,
            moe_shared_expert_intermediate_size=shape.shared, score_function="sigmoid", linear_attention="kda",
            no_kda_lora=True, gated_attention_proj_granularity_type="head_wise")
    full = [i + 1 for i in shape.full]
    kda = [i + 1 for i in range(shape.layers) if i not in shape.full]
    return dict(
        head_dim=72, first_k_dense_replace=shape.dense, moe_layer_freq=1, mla_use_nope=True,
        num_experts=shape.experts, num_experts_per_token=shape.top_k, num_shared_experts=shape.shared // shape.inner,
        num_expert_group=shape.groups, moe_renormalize=True, moe_router_activation_func="sigmoid", model_max_length=CONTEXT,
        linear_attn_config=dict(head_dim=width(shape), num_heads=shape.heads, short_conv_kernel_size=4, full_attn_layers=full,
                                kda_layers=kda))


def published_state(shape: Shape, model) -> dict:
    """Parameters by their names in published folders."""
    kimi, state = shape.arch == "kimi-linear", {}
    for name, weight in model.state_dict().items():
        layer = int(name.split(".")[2]) if ".layers." in name else 0
        name = name.replace("forget_gate.", "")
        if kimi:
            name = name.replace(".mlp.", ".block_sparse_moe.") if layer >= shape.dense else name
        else:
            name = name.replace("embed_tokens", "word_embeddings").replace("e_score_correction_bias", "expert_bias")
            name = name.replace("o_proj", "dense") if layer in shape.full else name
            name = name.replace("self_attn", "attention")
        base, _, last = name.rpartition(".")
        if base.endswith("conv1d"):
            parts = zip("qkv", weight.chunk(3))
            state |= {name.replace("conv1d", f"{part}_conv1d"): rows.clone() for part, rows in parts}
        elif base.endswith("experts"):
            gate, down, up = ("w1", "w2", "w3") if kimi else ("gate_proj", "down_proj", "up_proj")
            both = zip((gate, up), weight.chunk(2, dim=1)) if last == "gate_up_proj" else [(down, weight)]
            for part, stack in both:
                state |= {f"{base}.{i}.{part}.weight": one.clone() for i, one in enumerate(stack)}
        else:
            state[name] = weight
    return state


def delta(shape: Shape) -> list:
    """The tensors of a delta rule."""
    channels = shape.heads * width(shape)
    rows = [(f"ssm_conv1d_{part}.weight", "conv1d.weight", Taps(i, channels)) for i, part in enumerate("qkv")]
    rows += [(f"attn_{part}.weight", f"{part}_proj.weight", 0) for part in "qkv"]
    if shape.arch == "kimi-linear":
        rows += [("ssm_f_a.weight", "forget_gate.f_a_proj.weight", 0), ("ssm_f_b.weight", "forget_gate.f_b_proj.weight", 0),
                 ("ssm_g_a.weight", "g_a_proj.weight", 0), ("ssm_g_b.weight", "g_b_proj.weight", 0)]
    else:
        rows += [("ssm_f_a.weight", "forget_gate.f_proj.weight", 0), ("ssm_g_a.weight", "g_proj.weight", 0)]
    sign = -1 if shape.arch == "kimi-linear" else 1
    return rows + [("ssm_a", "forget_gate.A_log", Decay(sign)), ("ssm_dt.bias", "forget_gate.dt_bias", 0),
                   ("ssm_beta.weight", "b_proj.weight", 0), ("ssm_norm.weight", "o_norm.weight", 0),
                   ("attn_output.weight", "o_proj.weight", 0)]


def attention(shape: Shape) -> list:
    """The tensors of latent attention."""
    heads = f"{shape.heads}.{shape.head - shape.rotary}"
    rows = [("attn_q.weight", "q_proj.weight")]
    if shape.rank:
        rows = [("attn_q_a.weight", "q_a_proj.weight"), ("attn_q_a_norm.weight", "q_a_layernorm.weight"),
                ("attn_q_b.weight", "q_b_proj.weight")]
    rows += [("attn_kv_a_mqa.weight", "kv_a_proj_with_mqa.weight"), ("attn_kv_a_norm.weight", "kv_a_layernorm.weight")]
    both = [("attn_k_b.weight", f"kv_b_proj.weight:keys.{heads}"), ("attn_v_b.weight", f"kv_b_proj.weight:values.{heads}")]
    rows += [("attn_kv_b.weight", "kv_b_proj.weight")] if shape.joined else both
    rows.append(("attn_output.weight", "o_proj.weight"))
    if shape.arch == "bailingmoe3":
        rows.append(("attn_gate.weight", "g_proj.weight"))
    return [(ours, theirs, 0) for ours, theirs in rows]


def names(shape: Shape) -> list:
    """As `tensors.names`."""
    table = [("token_embd.weight", "model.embed_tokens.weight", 0), ("output_norm.weight", "model.norm.weight", 0),
             ("output.weight", "lm_head.weight", 0)]
    for i in range(shape.layers):
        mixer = attention(shape) if i in shape.full else delta(shape)
        rows = [(ours, f"self_attn.{theirs}", how) for ours, theirs, how in mixer]
        rows += [("attn_norm.weight", "input_layernorm.weight", 0), ("ffn_norm.weight", "post_attention_layernorm.weight", 0)]
        if i < shape.dense:
            rows += [(f"ffn_{part}.weight", f"mlp.{part}_proj.weight", 0) for part in ("gate", "up", "down")]
        else:
            rows += [("ffn_gate_inp.weight", "mlp.gate.weight", 0),
                     ("exp_probs_b.bias", "mlp.gate.e_score_correction_bias", 0),
                     ("ffn_gate_exps.weight", "mlp.experts.gate_up_proj:0", 0),
                     ("ffn_up_exps.weight", "mlp.experts.gate_up_proj:1", 0),
                     ("ffn_down_exps.weight", "mlp.experts.down_proj", 0)]
            rows += [(f"ffn_{part}_shexp.weight", f"mlp.shared_experts.{part}_proj.weight", 0)
                     for part in ("gate", "up", "down")]
        table += [(f"blk.{i}.{ours}", f"model.layers.{i}.{theirs}", how) for ours, theirs, how in rows]
    return table


def write_keys(writer: gguf.GGUFWriter, shape: Shape) -> None:
    writer.add_ssm_conv_kernel(4)
    writer.add_kda_head_dim(width(shape))
    writer.add_kv_lora_rank(shape.latent)
    if shape.rank:
        writer.add_q_lora_rank(shape.rank)
    writer.add_key_length(shape.latent + shape.rotary)
    writer.add_key_length_mla(shape.head)
    writer.add_value_length_mla(shape.value)
    # Published files have a width of no part of the model here.
    writer.add_value_length(72)
    writer.add_leading_dense_block_count(shape.dense)
    writer.add_expert_shared_count(shape.shared // shape.inner)
    writer.add_expert_weights_scale(shape.scale)
    writer.add_expert_group_count(shape.groups)
    writer.add_expert_group_used_count(kept_groups(shape))
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    if shape.arch == "bailingmoe3":
        writer.add_bool("bailingmoe3.kda.safe_gate", True)
        writer.add_float32("bailingmoe3.kda.gate_lower_bound", LOWER_BOUND)
        writer.add_expert_weights_norm(True)
        writer.add_expert_shared_feed_forward_length(shape.shared)
