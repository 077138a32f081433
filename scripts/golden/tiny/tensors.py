"""Parameters of transformers as GGUF's tensors, and back."""

from collections.abc import Iterator

import numpy as np
import torch

from . import attention, gemma4, kda, latent, mamba, plain, recurrent
from .formats import decode
from .shapes import Shape


# The names that families give the bias of the scores that choose experts.
SELECTION_BIASES = {"dots1": "gate.e_score_correction_bias", "ernie4_5-moe": "gate.moe_statics.e_score_correction_bias",
                    "glm4moe": "gate.e_score_correction_bias", "minimax-m2": "e_score_correction_bias"}


def permute(w: np.ndarray, heads: int) -> np.ndarray:
    """Rows of each head from halves to neighbours: GGUF's order of Q and K in `llama`."""
    return w.reshape(heads, 2, -1, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def unpermute(w: np.ndarray, heads: int) -> np.ndarray:
    return w.reshape(heads, -1, 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def names(shape: Shape) -> list[tuple[str, str, int]]:
    """GGUF name, transformers name, and the heads by which `llama` permutes it (0: not at all)."""
    if shape.arch in recurrent.FAMILIES:
        return recurrent.names(shape)
    if shape.arch in mamba.FAMILIES:
        return mamba.names(shape)
    if shape.arch in plain.FAMILIES:
        return plain.names(shape)
    if shape.arch in attention.FAMILIES:
        return attention.names(shape)
    if shape.arch in latent.FAMILIES:
        return latent.names(shape)
    if shape.arch in kda.FAMILIES:
        return kda.names(shape)
    permuted = shape.arch in ("llama", "mixtral", "granite", "granitemoe", "deepseek")
    q, k = (shape.heads, shape.kv_heads) if permuted else (0, 0)
    parts = ["weight", "bias"] if shape.arch == "phimoe" else ["weight"]
    experts = "block_sparse_moe" if shape.arch == "granitemoe" else "mlp"
    router = "router" if shape.arch in ("granitemoe", "phimoe") else "gate"
    router = "gate.wg" if shape.arch == "hunyuan-moe" else router
    norms = [("attn_norm", "input_layernorm"), ("ffn_norm", "post_attention_layernorm")]
    if shape.arch in ("gemma2", "gemma3", "gemma4"):
        norms = [("attn_norm", "input_layernorm"), ("post_attention_norm", "post_attention_layernorm"),
                 ("ffn_norm", "pre_feedforward_layernorm"), ("post_ffw_norm", "post_feedforward_layernorm")]
    if shape.arch in ("gpt-oss", "glm4moe"):
        norms = [("attn_norm", "input_layernorm"), ("post_attention_norm", "post_attention_layernorm")]
    table = [("token_embd.weight", "model.embed_tokens.weight", 0)]
    table += [(f"output_norm.{part}", f"model.norm.{part}", 0) for part in parts]
    if not shape.tied:
        table += [(f"output.{part}", f"lm_head.{part}", 0) for part in parts]
    if shape.arch == "gemma4":
        table += gemma4.whole(shape)
    for i in range(shape.layers):
        ours, theirs = f"blk.{i}.", f"model.layers.{i}."
        rows = [(f"{a}.{part}", f"{b}.{part}", 0) for a, b in norms for part in parts]
        for kind in ["weight", "bias"] if shape.bias else ["weight"]:
            rows += [(f"attn_q.{kind}", f"self_attn.q_proj.{kind}", q), (f"attn_k.{kind}", f"self_attn.k_proj.{kind}", k),
                     (f"attn_v.{kind}", f"self_attn.v_proj.{kind}", 0)]
            if kind == "weight" or shape.arch in ("llama", "phimoe", "gpt-oss"):
                rows.append((f"attn_output.{kind}", f"self_attn.o_proj.{kind}", 0))
        if shape.qk_norm or shape.arch in ("qwen3", "qwen3moe", "olmoe", "gemma3", "gemma4", "minimax-m2", "dots1"):
            rows += [("attn_q_norm.weight", "self_attn.q_norm.weight", 0),
                     ("attn_k_norm.weight", "self_attn.k_norm.weight", 0)]
        if shape.arch == "gemma4":
            rows += gemma4.rows(shape, i)
            rows = [row for row in rows if row[0] not in gemma4.lacks(shape, i)]
        if shape.arch == "hunyuan-moe":
            rows += [("attn_q_norm.weight", "self_attn.query_layernorm.weight", 0),
                     ("attn_k_norm.weight", "self_attn.key_layernorm.weight", 0)]
        if shape.arch == "gpt-oss":
            rows += [("attn_sinks.weight", "self_attn.sinks", 0),
                     ("ffn_gate_inp.weight", "mlp.router.weight", 0), ("ffn_gate_inp.bias", "mlp.router.bias", 0),
                     ("ffn_gate_exps.weight", "mlp.experts.gate_up_proj:even", 0),
                     ("ffn_up_exps.weight", "mlp.experts.gate_up_proj:odd", 0),
                     ("ffn_down_exps.weight", "mlp.experts.down_proj:all", 0),
                     ("ffn_gate_exps.bias", "mlp.experts.gate_up_proj_bias:even", 0),
                     ("ffn_up_exps.bias", "mlp.experts.gate_up_proj_bias:odd", 0),
                     ("ffn_down_exps.bias", "mlp.experts.down_proj_bias:all", 0)]
        elif shape.arch == "gemma4":
            pass
        elif shape.experts and i >= shape.dense:
            rows += [("ffn_gate_inp.weight", f"{experts}.{router}.weight", 0),
                     ("ffn_gate_exps.weight", f"{experts}.experts.gate_up_proj:0", 0),
                     ("ffn_up_exps.weight", f"{experts}.experts.gate_up_proj:1", 0),
                     ("ffn_down_exps.weight", f"{experts}.experts.down_proj", 0)]
            if shape.arch in SELECTION_BIASES:
                rows.append(("exp_probs_b.bias", f"{experts}.{SELECTION_BIASES[shape.arch]}", 0))
            if shape.shared and shape.arch == "granitemoe":
                rows += [("ffn_gate_shexp.weight", "shared_mlp.input_linear.weight:0", 0),
                         ("ffn_up_shexp.weight", "shared_mlp.input_linear.weight:1", 0),
                         ("ffn_down_shexp.weight", "shared_mlp.output_linear.weight", 0)]
            elif shape.shared:
                name = {"qwen2moe": "shared_expert", "hunyuan-moe": "shared_mlp"}.get(shape.arch, "shared_experts")
                rows += [(f"ffn_{part}_shexp.weight", f"mlp.{name}.{part}_proj.weight", 0)
                         for part in ("gate", "up", "down")]
            if shape.arch == "qwen2moe":
                rows.append(("ffn_gate_inp_shexp.weight", "mlp.shared_expert_gate.weight", 0))
        else:
            rows += [(f"ffn_{part}.weight", f"mlp.{part}_proj.weight", 0) for part in ("gate", "up", "down")]
        table += [(ours + a, theirs + b, heads) for a, b, heads in rows]
    return table


def half(parameters: dict, name: str):
    """A parameter; with `:0` and `:1` the gate and the up half of fused ones; with `:even`, `:odd` and `:all` the same
    and the whole of gpt-oss's experts, whose matrices are transposed and whose gate and up take turns; with `:first` and
    `:second` the halves of Llama 4's, which are transposed too; parts of heads as `latent.names` has them."""
    base, _, part = name.partition(":")
    weight = parameters[base].data
    if part.startswith(("keys", "values")):
        return latent.part_of_heads(weight, part)
    if part in ("even", "odd", "all", "first", "second"):
        weight = weight.transpose(1, 2) if weight.dim() == 3 else weight
        half = weight.shape[1] // 2
        return {"even": weight[:, ::2], "odd": weight[:, 1::2], "all": weight, "first": weight[:, :half],
                "second": weight[:, half:]}[part]
    return weight.chunk(2, dim=-2)[int(part)] if part else weight


def prediction_layers(shape: Shape, tensors: dict, generator) -> Iterator[tuple[str, np.ndarray]]:
    """Name and random values of the layers that predict further tokens: what the last layer has, and how the token and
    the hidden state become its input. transformers' model lacks them."""
    n, last = shape.hidden, f"blk.{shape.layers - 1}."
    inputs = {"nextn.eh_proj.weight": (n, 2 * n), "nextn.enorm.weight": (n,), "nextn.hnorm.weight": (n,),
              "nextn.shared_head_norm.weight": (n,)}
    copied = {name.removeprefix(last): decode(data, kind).shape
              for name, (data, kind) in tensors.items() if name.startswith(last)}
    for i in range(shape.layers, shape.layers + shape.nextn):
        for name, size in (copied | inputs).items():
            yield f"blk.{i}.{name}", torch.randn(size, generator=generator).numpy() / size[-1] ** 0.5
