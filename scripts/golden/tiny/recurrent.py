"""Families with layers whose state has a fixed size: LFM2 and Qwen3-Next with its successors."""

import numpy as np

from .shapes import EPS, Shape

QWEN = ("qwen3next", "qwen35", "qwen35moe")
LFM2 = ("lfm2", "lfm2moe")
FAMILIES = (*LFM2, *QWEN)
KEY_HEADS, VALUE_HEADS, WIDTH = 2, 4, 16
# Of a head, the part that is rotated.
ROTATED = 0.25


class Order:
    """A tensor of the file as some rows (and columns) of a parameter, and back; `log` for the decay of a delta rule."""

    def __init__(self, rows=None, columns=None, squeeze=False, log=False):
        self.rows, self.columns, self.squeeze, self.log = rows, columns, squeeze, log

    def take(self, w: np.ndarray) -> np.ndarray:
        w = w[:, 0] if self.squeeze else w
        w = w if self.rows is None else w[self.rows]
        w = w if self.columns is None else w[:, self.columns]
        return np.ascontiguousarray(-np.exp(w) if self.log else w)

    def give(self, w: np.ndarray, ours: np.ndarray) -> np.ndarray:
        full = w.copy()
        part = full[:, 0] if self.squeeze else full
        ours = np.log(-ours) if self.log else ours
        rows = np.arange(part.shape[0]) if self.rows is None else self.rows
        if self.columns is None:
            part[rows] = ours
        else:
            part[np.ix_(rows, self.columns)] = ours
        return full


def build(shape: Shape, common: dict, head: dict, moe: dict):
    """The model of transformers, with zeros for weights."""
    import transformers as t

    kinds = ["full_attention" if i in shape.full else "linear_attention" for i in range(shape.layers)]
    if shape.arch in LFM2:
        common = {k: v for k, v in common.items() if k != "rms_norm_eps"}
        kinds = [kind.replace("linear_attention", "conv") for kind in kinds]
        if shape.experts:
            return t.Lfm2MoeForCausalLM(t.Lfm2MoeConfig(
                intermediate_size=3 * shape.inner, moe_intermediate_size=shape.inner, num_dense_layers=shape.dense,
                norm_topk_prob=True, use_expert_bias=True, norm_eps=EPS, layer_types=kinds, **moe, **common))
        return t.Lfm2ForCausalLM(t.Lfm2Config(
            intermediate_size=shape.inner, block_auto_adjust_ff_dim=False, norm_eps=EPS, layer_types=kinds, **common))
    common["rope_parameters"] = common["rope_parameters"] | dict(partial_rotary_factor=ROTATED)
    delta = dict(
        linear_conv_kernel_dim=4, linear_key_head_dim=WIDTH, linear_value_head_dim=WIDTH,
        linear_num_key_heads=KEY_HEADS, linear_num_value_heads=VALUE_HEADS, layer_types=kinds)
    experts = dict(moe_intermediate_size=shape.inner, shared_expert_intermediate_size=shape.shared, **moe)
    if shape.arch == "qwen3next":
        return t.Qwen3NextForCausalLM(t.Qwen3NextConfig(**experts, **delta, **head, **common))
    common["rope_parameters"] |= dict(mrope_section=[1, 1, 0], mrope_interleaved=True)
    if shape.arch == "qwen35moe":
        from transformers.models.qwen3_5_moe import Qwen3_5MoeForCausalLM, Qwen3_5MoeTextConfig
        return Qwen3_5MoeForCausalLM(Qwen3_5MoeTextConfig(**experts, **delta, **head, **common))
    from transformers.models.qwen3_5 import Qwen3_5ForCausalLM, Qwen3_5TextConfig
    return Qwen3_5ForCausalLM(Qwen3_5TextConfig(intermediate_size=shape.inner, **delta, **head, **common))


def value(name: str, noise):
    """The weights of a delta rule that are drawn in their own way: so that states live for some tokens."""
    if name.endswith("A_log"):
        return 0.5 * noise
    return 0.5 * noise - 1.5 if name.endswith("dt_bias") else None


def tiled() -> np.ndarray:
    """Value heads of Qwen 3.5's files as numbers of those of transformers, which keep those of a key head together."""
    shared = VALUE_HEADS // KEY_HEADS
    return np.array([g * shared + j for j in range(shared) for g in range(KEY_HEADS)])


def of_heads(heads, first: int = 0) -> np.ndarray:
    return np.concatenate([first + h * WIDTH + np.arange(WIDTH) for h in heads])


def delta(shape: Shape) -> list:
    """The tensors of a layer with a delta rule."""
    shared, keys = VALUE_HEADS // KEY_HEADS, 2 * KEY_HEADS * WIDTH
    order = np.arange(VALUE_HEADS) if shape.arch == "qwen3next" else tiled()
    channels = np.concatenate([np.arange(keys), of_heads(order, keys)])
    table = [("ssm_conv1d.weight", "conv1d.weight", Order(channels, squeeze=True)),
             ("ssm_a", "A_log", Order(order, log=True)), ("ssm_dt.bias", "dt_bias", Order(order)),
             ("ssm_norm.weight", "norm.weight", 0), ("ssm_out.weight", "out_proj.weight", Order(columns=of_heads(order)))]
    if shape.arch == "qwen3next":
        group = (2 + 2 * shared) * WIDTH
        part = lambda start, width: np.concatenate(
            [g * group + start * WIDTH + np.arange(width * WIDTH) for g in range(KEY_HEADS)])
        qkv = np.concatenate([part(0, 1), part(1, 1), part(2, shared)])
        table += [("attn_qkv.weight", "in_proj_qkvz.weight", Order(qkv)),
                  ("attn_gate.weight", "in_proj_qkvz.weight", Order(part(2 + shared, shared))),
                  ("ssm_ba.weight", "in_proj_ba.weight", 0)]
    else:
        table += [("attn_qkv.weight", "in_proj_qkv.weight", Order(channels)),
                  ("attn_gate.weight", "in_proj_z.weight", Order(of_heads(order))),
                  ("ssm_beta.weight", "in_proj_b.weight", Order(order)),
                  ("ssm_alpha.weight", "in_proj_a.weight", Order(order))]
    return [(ours, f"linear_attn.{theirs}", how) for ours, theirs, how in table]


def names(shape: Shape) -> list:
    """GGUF name, transformers name, and how the former is made of the latter."""
    lfm2 = shape.arch in LFM2
    last = ("token_embd_norm.weight", "model.embedding_norm.weight") if lfm2 else ("output_norm.weight", "model.norm.weight")
    table = [("token_embd.weight", "model.embed_tokens.weight", 0), (*last, 0)]
    if not shape.tied:
        table.append(("output.weight", "lm_head.weight", 0))
    norms = [("attn_norm", "operator_norm"), ("ffn_norm", "ffn_norm")] if lfm2 else [
        ("attn_norm", "input_layernorm"), ("post_attention_norm", "post_attention_layernorm")]
    out, qk_norm = ("out_proj", "layernorm") if lfm2 else ("o_proj", "norm")
    for i in range(shape.layers):
        rows = [(f"{a}.weight", f"{b}.weight", 0) for a, b in norms]
        if i in shape.full:
            rows += [(f"attn_{part}.weight", f"self_attn.{part}_proj.weight", 0) for part in "qkv"]
            rows += [(f"attn_{part}_norm.weight", f"self_attn.{part}_{qk_norm}.weight", 0) for part in "qk"]
            rows.append(("attn_output.weight", f"self_attn.{out}.weight", 0))
        elif lfm2:
            rows += [("shortconv.conv.weight", "conv.conv.weight", Order(squeeze=True)),
                     ("shortconv.in_proj.weight", "conv.in_proj.weight", 0),
                     ("shortconv.out_proj.weight", "conv.out_proj.weight", 0)]
        else:
            rows += delta(shape)
        if lfm2 and shape.experts and i >= shape.dense:
            rows += [("ffn_gate_inp.weight", "feed_forward.gate.weight", 0),
                     ("exp_probs_b.bias", "feed_forward.expert_bias", 0),
                     ("ffn_gate_exps.weight", "feed_forward.experts.gate_up_proj:0", 0),
                     ("ffn_up_exps.weight", "feed_forward.experts.gate_up_proj:1", 0),
                     ("ffn_down_exps.weight", "feed_forward.experts.down_proj", 0)]
        elif lfm2:
            parts = [("gate", "w1"), ("down", "w2"), ("up", "w3")]
            rows += [(f"ffn_{ours}.weight", f"feed_forward.{theirs}.weight", 0) for ours, theirs in parts]
        elif shape.experts:
            rows += [("ffn_gate_inp.weight", "mlp.gate.weight", 0),
                     ("ffn_gate_exps.weight", "mlp.experts.gate_up_proj:0", 0),
                     ("ffn_up_exps.weight", "mlp.experts.gate_up_proj:1", 0),
                     ("ffn_down_exps.weight", "mlp.experts.down_proj", 0),
                     ("ffn_gate_inp_shexp.weight", "mlp.shared_expert_gate.weight", 0)]
            rows += [(f"ffn_{part}_shexp.weight", f"mlp.shared_expert.{part}_proj.weight", 0)
                     for part in ("gate", "up", "down")]
        else:
            rows += [(f"ffn_{part}.weight", f"mlp.{part}_proj.weight", 0) for part in ("gate", "up", "down")]
        table += [(f"blk.{i}.{ours}", f"model.layers.{i}.{theirs}", how) for ours, theirs, how in rows]
    return table


def write_keys(writer, shape: Shape) -> None:
    """The keys that these families have besides those of others."""
    if shape.arch in LFM2:
        if shape.experts:
            writer.add_leading_dense_block_count(shape.dense)
        writer.add_shortconv_l_cache(3)
        writer.add_vocab_size(288)
        return
    writer.add_ssm_conv_kernel(4)
    writer.add_ssm_inner_size(VALUE_HEADS * WIDTH)
    writer.add_ssm_state_size(WIDTH)
    writer.add_ssm_time_step_rank(VALUE_HEADS)
    writer.add_ssm_group_count(KEY_HEADS)
    writer.add_uint32(f"{shape.arch}.full_attention_interval", shape.full[0] + 1)
    writer.add_rope_dimension_count(int(shape.head * ROTATED))
    if shape.arch != "qwen3next":
        writer.add_rope_dimension_sections([1, 1, 0, 0])
