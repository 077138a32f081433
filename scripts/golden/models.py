#!/usr/bin/env python3
"""Writes the golden files of crates/conformance/tests/models.rs: tiny random models and their logits.

    pip install torch==2.15.0 transformers==5.23.0 gguf==0.19.0 numpy==2.*
    python scripts/golden/models.py [NAME…]

For each model NAME, crates/conformance/golden/ gets NAME.gguf, and NAME.logits.gguf with three token sequences and
the logits of every position as transformers computes them, in F32, from the weights decoded from NAME.gguf.

The weights are scaled so that every attention and MLP block matters: zeroing the output of any one moves the logits
by more than 100 times the tolerance, which is asserted here and again by the test. Tokens are drawn so that the
router's choice is never close to a tie.

Two models are not transformers' own as they stand. `deepseek` (the first DeepSeek MoE) is not in transformers: it is
built of transformers' Llama, whose MLPs behind the first layer are transformers' DeepseekV2Moe. And the `phimoe` of
transformers never uses LongRoPE's long factors: where the file asks for them, it is given them as its short ones.
"""

import importlib.metadata
import pathlib
import sys
from dataclasses import dataclass, field

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Q
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, GptOssConfig, GptOssForCausalLM
from transformers import GraniteConfig, GraniteForCausalLM
from transformers import GraniteMoeConfig, GraniteMoeForCausalLM, GraniteMoeSharedConfig, GraniteMoeSharedForCausalLM
from transformers import LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM
from transformers import OlmoeConfig, OlmoeForCausalLM, PhimoeConfig, PhimoeForCausalLM
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2MoeConfig, Qwen2MoeForCausalLM
from transformers import Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM
from transformers.models.deepseek_v2.configuration_deepseek_v2 import DeepseekV2Config
from transformers.models.deepseek_v2.modeling_deepseek_v2 import DeepseekV2Moe

for package, version in {"gguf": "0.19.0", "torch": "2.15.0", "transformers": "5.23.0"}.items():
    found = importlib.metadata.version(package)
    assert found.split("+")[0] == version, f"the golden files are those of {package} {version}, this is {found}"

OUT = pathlib.Path(__file__).parents[2] / "crates/conformance/golden"
VOCAB = 288
LENGTHS = (32, 14, 5)
CONTEXT = 128
EPS = 1e-5
# NMSE of the logits that the test allows, by format.
TOLERANCE = {"f32": 1e-6, "q8_0": 1e-3, "q4_k_m": 1e-3, "mxfp4": 1e-3}
# The k-th and the next router logit are at least this far apart.
ROUTER_GAP = 0.25
# SparseMixer shares between logits that differ by up to this part of the larger (2 · router_jitter_noise).
SPARSE_MIXER_NEAR = 0.02
# So that this happens, the F32 model's routers may come closer to a tie.
SPARSE_MIXER_GAP = 0.01
# Granite's multipliers of embeddings, attention logits and residuals, and its divisor of logits.
GRANITE = dict(embedding_multiplier=3.0, attention_multiplier=0.3, residual_multiplier=0.7, logits_scaling=2.5)
# What multiplies the experts' weights in `deepseek`.
ROUTED_SCALE = 1.4


@dataclass
class Shape:
    """A tiny model."""

    arch: str
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    head: int
    experts: int = 0
    top_k: int = 0
    tied: bool = False
    bias: bool = False
    shared: int = 0
    dense: int = 0  # leading layers without experts
    window: int = 0
    period: int = 0  # the last of so many layers sees everything
    layers: int = 2
    theta: float = 10000.0
    rope: dict = field(default_factory=dict)


LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=32)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32)
LINEAR = dict(rope_type="linear", factor=4.0)
# Its correction range begins and ends between two pairs.
UNTRUNCATED = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=64, beta_fast=4.0, truncate=False)
SHORT = [1.0, 1.1, 1.2, 1.3]
LONG = [1.5, 2.5, 4.0, 7.0]
LONGROPE = dict(rope_type="longrope", short_factor=SHORT, long_factor=LONG, short_mscale=1.2, long_mscale=1.2)

MODELS = {
    "llama3-f32": Shape("llama", 64, 128, 4, 2, 16, theta=500000.0, rope=LLAMA3),
    "llama3-q8_0": Shape("llama", 64, 128, 4, 2, 16, theta=500000.0, rope=LLAMA3),
    "llama3-q4_k_m": Shape("llama", 256, 256, 8, 2, 32, theta=500000.0, rope=LLAMA3),
    "llama-tied-f32": Shape("llama", 96, 64, 3, 1, 32, tied=True),
    "llama-tied-q8_0": Shape("llama", 96, 64, 3, 1, 32, tied=True),
    "llama-linear-f32": Shape("llama", 32, 64, 2, 2, 16, bias=True, rope=LINEAR),
    "llama-yarn-f32": Shape("llama", 64, 64, 2, 1, 32, rope=YARN),
    "mixtral-f32": Shape("mixtral", 32, 16, 4, 2, 8, 8, 2),
    "mixtral-q8_0": Shape("mixtral", 32, 32, 4, 2, 8, 8, 2),
    "granite-f32": Shape("granite", 32, 48, 4, 2, 8, tied=True),
    "granitemoe-f32": Shape("granitemoe", 32, 16, 4, 2, 8, 6, 2, tied=True),
    "granitemoe-q8_0": Shape("granitemoe", 32, 32, 4, 2, 8, 6, 2, shared=64),
    "phimoe-f32": Shape("phimoe", 32, 16, 4, 2, 8, 6, 2, bias=True, rope=LONGROPE | dict(original_max_position_embeddings=64)),
    "phimoe-q8_0": Shape("phimoe", 32, 32, 4, 2, 8, 6, 2, bias=True, rope=LONGROPE | dict(original_max_position_embeddings=32)),
    "deepseek-f32": Shape("deepseek", 32, 16, 4, 4, 8, 6, 2, shared=32, dense=1),
    "deepseek-q8_0": Shape("deepseek", 64, 32, 4, 4, 16, 6, 2, shared=64, dense=1),
    "gemma3-f32": Shape("gemma3", 32, 64, 4, 1, 16, tied=True, layers=7, theta=1e6, window=9, rope=LINEAR),
    "gemma3-q8_0": Shape("gemma3", 64, 64, 4, 1, 16, tied=True, layers=3, theta=1e6, window=9, period=2),
    "qwen2-f32": Shape("qwen2", 64, 96, 4, 2, 16, theta=1e6, bias=True),
    "qwen2-q4_k_m": Shape("qwen2", 256, 256, 4, 1, 64, tied=True, theta=1e6, bias=True),
    "qwen2moe-f32": Shape("qwen2moe", 64, 32, 4, 2, 16, 8, 3, theta=1e6, bias=True, shared=96),
    "qwen2moe-q8_0": Shape("qwen2moe", 64, 32, 4, 2, 16, 8, 3, theta=1e6, bias=True, shared=96),
    "qwen2moe-q4_k_m": Shape("qwen2moe", 256, 256, 4, 2, 64, 4, 2, theta=1e6, bias=True, shared=256),
    "olmoe-f32": Shape("olmoe", 64, 32, 4, 2, 16, 8, 2),
    "olmoe-q4_k_m": Shape("olmoe", 256, 256, 4, 4, 64, 4, 2),
    "qwen3-f32": Shape("qwen3", 64, 96, 4, 2, 32, theta=1e6),
    "qwen3-q8_0": Shape("qwen3", 64, 96, 4, 2, 32, theta=1e6),
    "qwen3-q4_k_m": Shape("qwen3", 256, 256, 4, 1, 64, theta=1e6),
    "qwen3moe-f32": Shape("qwen3moe", 64, 32, 4, 2, 16, 8, 2, theta=1e6),
    "qwen3moe-q8_0": Shape("qwen3moe", 64, 32, 4, 2, 16, 8, 2, theta=1e6),
    "qwen3moe-q4_k_m": Shape("qwen3moe", 256, 256, 4, 2, 64, 4, 2, theta=1e6),
    "gpt-oss-f32": Shape("gpt-oss", 64, 32, 4, 2, 32, 6, 2, layers=3, theta=150000.0, bias=True, window=9, rope=UNTRUNCATED),
    "gpt-oss-mxfp4": Shape("gpt-oss", 64, 32, 4, 2, 32, 6, 2, layers=3, theta=150000.0, bias=True, window=9, rope=UNTRUNCATED),
    "odd-f32": Shape("qwen3moe", 32, 32, 6, 3, 48, 5, 3, theta=1e6),
    "odd-q8_0": Shape("qwen3moe", 32, 32, 6, 3, 48, 5, 3, theta=1e6),
    "odd-q4_k_m": Shape("qwen3moe", 256, 32, 6, 3, 48, 5, 3, theta=1e6),
}


# ── the transformers model ──


def build(shape: Shape):
    common = dict(
        vocab_size=VOCAB, hidden_size=shape.hidden, num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads, num_key_value_heads=shape.kv_heads, max_position_embeddings=CONTEXT,
        rms_norm_eps=EPS, tie_word_embeddings=shape.tied,
        rope_parameters={"rope_type": "default", "rope_theta": shape.theta, **shape.rope},
    )
    head = dict(head_dim=shape.head, attention_bias=shape.bias)
    moe = dict(num_experts=shape.experts, num_experts_per_tok=shape.top_k)
    local = dict(num_local_experts=shape.experts, num_experts_per_tok=shape.top_k)
    if shape.arch == "llama":
        model = LlamaForCausalLM(LlamaConfig(intermediate_size=shape.inner, **head, **common))
    elif shape.arch == "mixtral":
        model = MixtralForCausalLM(MixtralConfig(
            intermediate_size=shape.inner, head_dim=shape.head, sliding_window=None, **local, **common))
    elif shape.arch == "granite":
        model = GraniteForCausalLM(GraniteConfig(intermediate_size=shape.inner, **GRANITE, **common))
    elif shape.arch == "granitemoe":
        config, cls = (GraniteMoeSharedConfig, GraniteMoeSharedForCausalLM) if shape.shared else (
            GraniteMoeConfig, GraniteMoeForCausalLM)
        shared = dict(shared_intermediate_size=shape.shared) if shape.shared else {}
        model = cls(config(intermediate_size=shape.inner, **shared, **GRANITE, **local, **common))
    elif shape.arch == "phimoe":
        if max(LENGTHS) >= shape.rope["original_max_position_embeddings"]:
            common["rope_parameters"] |= dict(short_factor=LONG)
        model = PhimoeForCausalLM(PhimoeConfig(
            intermediate_size=shape.inner, attention_bias=True, lm_head_bias=True, sliding_window=None,
            router_jitter_noise=SPARSE_MIXER_NEAR / 2, **local, **common))
    elif shape.arch == "deepseek":
        model = LlamaForCausalLM(LlamaConfig(intermediate_size=3 * shape.inner, **head, **common))
        config = DeepseekV2Config(
            hidden_size=shape.hidden, moe_intermediate_size=shape.inner, n_shared_experts=shape.shared // shape.inner,
            n_routed_experts=shape.experts, num_experts_per_tok=shape.top_k, topk_method="greedy",
            routed_scaling_factor=ROUTED_SCALE)
        config._experts_implementation = "eager"
        for layer in model.model.layers[shape.dense:]:
            layer.mlp = DeepseekV2Moe(config)
    elif shape.arch == "gemma3":
        common["rope_parameters"] = {"full_attention": common["rope_parameters"], "sliding_attention": {
            "rope_type": "default", "rope_theta": 10000.0}}
        model = Gemma3ForCausalLM(Gemma3TextConfig(
            intermediate_size=shape.inner, sliding_window=shape.window, query_pre_attn_scalar=shape.head,
            sliding_window_pattern=shape.period or 6, **head, **common))
    elif shape.arch == "qwen2":
        model = Qwen2ForCausalLM(Qwen2Config(intermediate_size=shape.inner, use_sliding_window=False, **common))
    elif shape.arch == "qwen2moe":
        model = Qwen2MoeForCausalLM(Qwen2MoeConfig(
            moe_intermediate_size=shape.inner, shared_expert_intermediate_size=shape.shared, decoder_sparse_step=1,
            norm_topk_prob=False, qkv_bias=True, use_sliding_window=False, **moe, **common))
    elif shape.arch == "gpt-oss":
        model = GptOssForCausalLM(GptOssConfig(
            intermediate_size=shape.inner, sliding_window=shape.window, num_local_experts=shape.experts,
            num_experts_per_tok=shape.top_k, **head, **common))
        assert model.config.layer_types == ["sliding_attention", "full_attention", "sliding_attention"]
    elif shape.arch == "olmoe":
        model = OlmoeForCausalLM(OlmoeConfig(intermediate_size=shape.inner, norm_topk_prob=False, **moe, **common))
    elif shape.arch == "qwen3":
        model = Qwen3ForCausalLM(Qwen3Config(intermediate_size=shape.inner, **head, **common))
    else:
        model = Qwen3MoeForCausalLM(Qwen3MoeConfig(
            moe_intermediate_size=shape.inner, norm_topk_prob=True, **moe, **head, **common))
    if shape.experts and shape.arch != "deepseek":
        model.set_experts_implementation("eager")
    model.set_attn_implementation("eager")
    return model.eval()


# How far each kind of weight is from a variance of 1 / inputs. Sharper attention and stronger outputs than that
# make every block matter.
GAIN = {"q_proj": 1.1, "k_proj": 1.1, "o_proj": 2.0, "shared_expert.down_proj": 4.0, "shared_experts.down_proj": 2.5,
        "shared_mlp.output_linear": 3.0, "down_proj": 2.5, "mlp.gate.weight": 1.5, "router.weight": 1.5}
# The biases of gates and ups are large, so that the clamp at ±7 is seen and int8's error does not grow with it.
GPT_OSS_GAIN = GAIN | {"q_proj": 1.0, "k_proj": 1.0, "down_proj": 0.8, "mlp.router.weight": 1.5}
# The embedding's standard deviation, where the model scales it up again.
EMBEDDING = {"granite": 1 / 3, "granitemoe": 1 / 3, "gemma3": 1 / 8}


def randomise(model, shape: Shape, generator) -> None:
    gains = GPT_OSS_GAIN if shape.arch == "gpt-oss" else GAIN
    for name, weight in model.named_parameters():
        noise = torch.randn(weight.shape, generator=generator)
        if name.endswith("norm.weight"):
            value = 1.2 + 0.3 * noise - norm_shift(shape, name)
        elif name.endswith("gate_up_proj_bias"):
            value = 2.0 * noise
        elif name.endswith("bias"):
            value = 0.3 * noise
        elif name.endswith("sinks"):
            value = 0.5 * noise
        elif "embed_tokens" in name:
            value = noise * EMBEDDING.get(shape.arch, 1.0)
        else:
            gain = next((g for part, g in gains.items() if part in name), 1.0)
            inputs = weight.shape[-2 if shape.arch == "gpt-oss" and ".experts." in name else -1]
            value = noise * gain / inputs**0.5
        weight.data.copy_(value)


# ── to GGUF's tensors and back ──


def norm_shift(shape: Shape, name: str) -> float:
    """Gemma's norms multiply by 1 + weight; the file has the sum."""
    return 1.0 if shape.arch == "gemma3" and name.endswith("norm.weight") else 0.0


def permute(w: np.ndarray, heads: int) -> np.ndarray:
    """Rows of each head from halves to neighbours: GGUF's order of Q and K in `llama`."""
    return w.reshape(heads, 2, -1, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def unpermute(w: np.ndarray, heads: int) -> np.ndarray:
    return w.reshape(heads, -1, 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def names(shape: Shape) -> list[tuple[str, str, int]]:
    """GGUF name, transformers name, and the heads by which `llama` permutes it (0: not at all)."""
    permuted = shape.arch in ("llama", "mixtral", "granite", "granitemoe", "deepseek")
    q, k = (shape.heads, shape.kv_heads) if permuted else (0, 0)
    parts = ["weight", "bias"] if shape.arch == "phimoe" else ["weight"]
    experts = "block_sparse_moe" if shape.arch == "granitemoe" else "mlp"
    router = "router" if shape.arch in ("granitemoe", "phimoe") else "gate"
    norms = [("attn_norm", "input_layernorm"), ("ffn_norm", "post_attention_layernorm")]
    if shape.arch == "gemma3":
        norms = [("attn_norm", "input_layernorm"), ("post_attention_norm", "post_attention_layernorm"),
                 ("ffn_norm", "pre_feedforward_layernorm"), ("post_ffw_norm", "post_feedforward_layernorm")]
    table = [("token_embd.weight", "model.embed_tokens.weight", 0)]
    table += [(f"output_norm.{part}", f"model.norm.{part}", 0) for part in parts]
    if not shape.tied:
        table += [(f"output.{part}", f"lm_head.{part}", 0) for part in parts]
    for i in range(shape.layers):
        ours, theirs = f"blk.{i}.", f"model.layers.{i}."
        rows = [(f"{a}.{part}", f"{b}.{part}", 0) for a, b in norms for part in parts]
        for kind in ["weight", "bias"] if shape.bias else ["weight"]:
            rows += [(f"attn_q.{kind}", f"self_attn.q_proj.{kind}", q), (f"attn_k.{kind}", f"self_attn.k_proj.{kind}", k),
                     (f"attn_v.{kind}", f"self_attn.v_proj.{kind}", 0)]
            if kind == "weight" or shape.arch in ("llama", "phimoe", "gpt-oss"):
                rows.append((f"attn_output.{kind}", f"self_attn.o_proj.{kind}", 0))
        if shape.arch in ("qwen3", "qwen3moe", "olmoe", "gemma3"):
            rows += [("attn_q_norm.weight", "self_attn.q_norm.weight", 0),
                     ("attn_k_norm.weight", "self_attn.k_norm.weight", 0)]
        if shape.arch == "gpt-oss":
            rows += [("attn_sinks.weight", "self_attn.sinks", 0),
                     ("ffn_gate_inp.weight", "mlp.router.weight", 0), ("ffn_gate_inp.bias", "mlp.router.bias", 0),
                     ("ffn_gate_exps.weight", "mlp.experts.gate_up_proj:even", 0),
                     ("ffn_up_exps.weight", "mlp.experts.gate_up_proj:odd", 0),
                     ("ffn_down_exps.weight", "mlp.experts.down_proj:all", 0),
                     ("ffn_gate_exps.bias", "mlp.experts.gate_up_proj_bias:even", 0),
                     ("ffn_up_exps.bias", "mlp.experts.gate_up_proj_bias:odd", 0),
                     ("ffn_down_exps.bias", "mlp.experts.down_proj_bias:all", 0)]
        elif shape.experts and i >= shape.dense:
            rows += [("ffn_gate_inp.weight", f"{experts}.{router}.weight", 0),
                     ("ffn_gate_exps.weight", f"{experts}.experts.gate_up_proj:0", 0),
                     ("ffn_up_exps.weight", f"{experts}.experts.gate_up_proj:1", 0),
                     ("ffn_down_exps.weight", f"{experts}.experts.down_proj", 0)]
            if shape.shared and shape.arch == "granitemoe":
                rows += [("ffn_gate_shexp.weight", "shared_mlp.input_linear.weight:0", 0),
                         ("ffn_up_shexp.weight", "shared_mlp.input_linear.weight:1", 0),
                         ("ffn_down_shexp.weight", "shared_mlp.output_linear.weight", 0)]
            elif shape.shared:
                name = "shared_experts" if shape.arch == "deepseek" else "shared_expert"
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
    and the whole of gpt-oss's experts, whose matrices are transposed and whose gate and up take turns."""
    base, _, part = name.partition(":")
    weight = parameters[base].data
    if part in ("even", "odd", "all"):
        weight = weight.transpose(1, 2) if weight.dim() == 3 else weight
        return {"even": weight[:, ::2], "odd": weight[:, 1::2], "all": weight}[part]
    return weight.chunk(2, dim=-2)[int(part)] if part else weight


# ── formats ──


def encode_q6_k(x: np.ndarray) -> np.ndarray:
    """Plain rounding: the logits are computed from what was decoded, so the best fit does not matter."""
    groups = x.reshape(-1, 16, 16)
    scale = np.abs(groups).max(-1) / 31
    d = (scale.max(-1, keepdims=True) / 127).astype(np.float16)
    steps = np.round(scale / d.astype(np.float32)).clip(1, 127)
    codes = np.round(groups / (steps * d.astype(np.float32))[..., None]).clip(-32, 31).astype(np.int32) + 32
    codes = codes.reshape(-1, 2, 4, 32).astype(np.uint8)  # half, quarter of a half, element
    low = (codes[:, :, :2] & 15) | (codes[:, :, 2:] & 15) << 4
    high = codes[:, :, 0] >> 4 | codes[:, :, 1] >> 4 << 2 | codes[:, :, 2] >> 4 << 4 | codes[:, :, 3] >> 4 << 6
    n = len(groups)
    parts = [low.reshape(n, 128), high.reshape(n, 64), steps.astype(np.int8).view(np.uint8), d.view(np.uint8)]
    return np.concatenate(parts, axis=1)


def encode_q4_k(x: np.ndarray) -> np.ndarray:
    groups = x.reshape(-1, 8, 32)
    low = np.minimum(groups.min(-1), 0)
    scale, low = (groups.max(-1) - low) / 15, -low
    d = (scale.max(-1, keepdims=True) / 63).astype(np.float16)
    dmin = (low.max(-1, keepdims=True) / 63).astype(np.float16)
    sc = np.round(scale / d.astype(np.float32)).clip(1, 63).astype(np.uint8)
    mn = np.round(low / dmin.astype(np.float32)).clip(0, 63).astype(np.uint8)
    step, base = sc * d.astype(np.float32), mn * dmin.astype(np.float32)
    codes = np.round((groups + base[..., None]) / step[..., None]).clip(0, 15).astype(np.uint8)
    packed = np.concatenate(
        [sc[:, :4] | sc[:, 4:] >> 4 << 6, mn[:, :4] | mn[:, 4:] >> 4 << 6, sc[:, 4:] & 15 | (mn[:, 4:] & 15) << 4], axis=1)
    pairs = codes.reshape(-1, 4, 2, 32)
    nibbles = (pairs[:, :, 0] | pairs[:, :, 1] << 4).reshape(-1, 128)
    return np.concatenate([d.view(np.uint8), dmin.view(np.uint8), packed, nibbles], axis=1)


def encode(x: np.ndarray, kind: Q) -> np.ndarray:
    own = {Q.Q4_K: encode_q4_k, Q.Q6_K: encode_q6_k}.get(kind)
    if own is None:
        return gguf.quants.quantize(x, kind)
    data = own(x.astype(np.float32)).reshape(*x.shape[:-1], -1)
    error = ((gguf.quants.dequantize(data, kind) - x) ** 2).mean() / (x**2).mean()
    assert error < 0.01, f"{kind.name}: NMSE {error}"
    return data


def kind_of(name: str, columns: int, mix: str) -> Q:
    """As llama.cpp's quantiser chooses, with its fallback for rows that are not whole super-blocks."""
    if mix == "f32" or "norm" in name or "sinks" in name or "ffn_gate_inp" in name or name.endswith("bias"):
        return Q.F32
    if mix == "mxfp4":
        return Q.MXFP4 if "_exps" in name else Q.Q8_0
    if mix == "q8_0":
        return Q.Q8_0
    fine = name.startswith("output") or "blk.0.attn_v" in name or "blk.1.ffn_down" in name
    if columns % 256:
        return Q.Q8_0 if fine else Q.Q5_0
    return Q.Q6_K if fine else Q.Q4_K


# ── the files ──


def write_model(path: pathlib.Path, shape: Shape, tensors: dict) -> None:
    writer = gguf.GGUFWriter(path, "llama" if shape.arch == "mixtral" else shape.arch)
    writer.add_name(path.stem)
    writer.add_block_count(shape.layers)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(3 * shape.inner if shape.arch == "deepseek" else shape.inner)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head)
    writer.add_value_length(shape.head)
    writer.add_layer_norm_rms_eps(EPS)
    writer.add_rope_freq_base(shape.theta)
    if shape.arch in ("llama", "mixtral", "granite", "granitemoe", "deepseek"):
        writer.add_rope_dimension_count(shape.head)
        writer.add_vocab_size(VOCAB)
    if shape.experts:
        writer.add_expert_count(shape.experts)
        writer.add_expert_used_count(shape.top_k)
        if shape.arch not in ("mixtral", "granitemoe", "phimoe"):
            writer.add_expert_feed_forward_length(shape.inner)
    if shape.arch == "deepseek":
        writer.add_leading_dense_block_count(shape.dense)
        writer.add_expert_shared_count(shape.shared // shape.inner)
        writer.add_expert_weights_scale(ROUTED_SCALE)
        writer.add_rope_scaling_type(gguf.RopeScalingType.NONE)
    elif shape.shared:
        writer.add_expert_shared_feed_forward_length(shape.shared)
    if shape.arch in ("granite", "granitemoe"):
        writer.add_embedding_scale(GRANITE["embedding_multiplier"])
        writer.add_attention_scale(GRANITE["attention_multiplier"])
        writer.add_residual_scale(GRANITE["residual_multiplier"])
        writer.add_logit_scale(GRANITE["logits_scaling"])
    if shape.window:
        writer.add_sliding_window(shape.window)
    if shape.period:
        writer.add_sliding_window_pattern(shape.period)
    if shape.arch == "phimoe":
        writer.add_sliding_window(0)
        writer.add_rope_dimension_count(shape.head)
        writer.add_rope_scaling_orig_ctx_len(shape.rope["original_max_position_embeddings"])
        writer.add_rope_scaling_attn_factors(shape.rope["short_mscale"])
        writer.add_tensor("rope_factors_long.weight", np.array(LONG, np.float32))
        writer.add_tensor("rope_factors_short.weight", np.array(SHORT, np.float32))
    if shape.rope in (LINEAR, YARN, UNTRUNCATED):
        writer.add_rope_scaling_type(gguf.RopeScalingType(shape.rope["rope_type"]))
        writer.add_rope_scaling_factor(shape.rope["factor"])
    if shape.rope in (YARN, UNTRUNCATED):
        writer.add_rope_scaling_orig_ctx_len(shape.rope["original_max_position_embeddings"])
    if shape.rope is UNTRUNCATED:
        writer.add_rope_scaling_yarn_beta_fast(shape.rope["beta_fast"])
    if shape.rope is LLAMA3:
        writer.add_tensor("rope_freqs.weight", llama3_factors(shape))
    vocabulary(writer)
    for name, (data, kind) in tensors.items():
        writer.add_tensor(name, data, raw_dtype=kind)
    finish(writer)


def llama3_factors(shape: Shape) -> np.ndarray:
    """What each pair's frequency is divided by (Llama 3.1's rule)."""
    rule, frequency = LLAMA3, shape.theta ** -(np.arange(0, shape.head, 2) / shape.head)
    length = 2 * np.pi / frequency
    low = rule["original_max_position_embeddings"] / rule["low_freq_factor"]
    high = rule["original_max_position_embeddings"] / rule["high_freq_factor"]
    smooth = (rule["original_max_position_embeddings"] / length - rule["low_freq_factor"]) / (
        rule["high_freq_factor"] - rule["low_freq_factor"])
    between = 1 / ((1 - smooth) / rule["factor"] + smooth)
    factors = np.where(length < high, 1.0, np.where(length > low, rule["factor"], between))
    assert (factors == 1).any() and (factors == rule["factor"]).any(), factors
    return factors.astype(np.float32)


def vocabulary(writer: gguf.GGUFWriter) -> None:
    """Bytes, pairs of letters, one special token."""
    printable = [b for b in range(256) if 0x21 <= b <= 0x7E or 0xA1 <= b <= 0xAC or 0xAE <= b]
    tokens = [chr(b) for b in printable] + [chr(256 + i) for i in range(256 - len(printable))]
    merges = [f"a {chr(97 + i)}" for i in range(26)] + [f"b {chr(97 + i)}" for i in range(5)]
    tokens += [merge.replace(" ", "") for merge in merges] + ["<|end|>"]
    assert len(tokens) == VOCAB
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * (VOCAB - 1) + [3])
    writer.add_token_merges(merges)
    writer.add_eos_token_id(VOCAB - 1)
    writer.add_add_bos_token(False)


def write_logits(path: pathlib.Path, tolerance: float, sequences: list, logits: list) -> None:
    writer = gguf.GGUFWriter(path, "golden")
    writer.add_float32("golden.tolerance", tolerance)
    for i, (tokens, values) in enumerate(zip(sequences, logits)):
        writer.add_array(f"golden.tokens.{i}", [int(t) for t in tokens])
        writer.add_tensor(f"logits.{i}", values.numpy())
    finish(writer)


def finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# ── running ──


def routers(model) -> list:
    return [module for name, module in model.named_modules() if name.endswith((".mlp.gate", ".router"))]


def sparse_mixer_gap(logits: torch.Tensor) -> torch.Tensor:
    """How far the order of the first three, and every limit of nearness, are from being another."""
    top = logits.sort(descending=True).values
    gap = (top[:, :2] - top[:, 1:3]).min(-1).values
    for best in (0, 1):
        m, rest = top[:, best : best + 1], top[:, best + 1 :]
        limit = (m - rest) - SPARSE_MIXER_NEAR * torch.maximum(rest.abs(), m)
        gap = torch.minimum(gap, limit.abs().min(-1).values)
    return gap


def shared_weights(model, sequences) -> int:
    """How many of all the experts' weights SparseMixer has made less than 1."""
    count = 0

    def look(_module, _inputs, output):
        nonlocal count
        count += int((output[1] < 0.99).sum())

    hooks = [router.register_forward_hook(look) for router in routers(model)]
    run(model, sequences)
    for hook in hooks:
        hook.remove()
    return count


def router_gap(model, shape: Shape, sequences) -> torch.Tensor:
    """The smallest gap between the k-th and the next router logit at the last position, over all layers."""
    smallest = torch.full((len(sequences),), torch.inf)

    def look(_module, _inputs, output):
        logits = output[0].reshape(len(sequences), -1, shape.experts)[:, -1]
        gap = sparse_mixer_gap(logits) if shape.arch == "phimoe" else logits.topk(shape.top_k + 1).values[:, -2:]
        smallest.copy_(torch.minimum(smallest, gap if gap.dim() == 1 else gap[:, 0] - gap[:, 1]))

    hooks = [router.register_forward_hook(look) for router in routers(model)]
    model(input_ids=sequences)
    for hook in hooks:
        hook.remove()
    return smallest


def draw(model, shape: Shape, length: int, least: float, generator) -> torch.Tensor:
    """Random tokens; with experts, such that no router is close to a tie at any position."""
    tokens = torch.empty(0, dtype=torch.long)
    while len(tokens) < length:
        candidates = torch.randint(VOCAB, (64, 1), generator=generator)
        sequences = torch.cat([tokens.expand(64, -1), candidates], dim=1)
        if not shape.experts:
            tokens = sequences[0]
            continue
        gap = router_gap(model, shape, sequences)
        assert gap.max() > least, f"no token in 64 keeps the routers from a tie: {gap.max()}"
        tokens = sequences[int((gap > least).nonzero()[0])]
    return tokens


def run(model, sequences) -> list[torch.Tensor]:
    return [model(input_ids=tokens[None]).logits[0].float() for tokens in sequences]


def nmse(found: list, expected: list) -> float:
    return max((((f - e) ** 2).sum() / (e**2).sum()).item() for f, e in zip(found, expected))


def least_effect(model, shape: Shape, sequences, logits) -> float:
    """The smallest NMSE that zeroing one block's output causes."""
    least = np.inf
    for layer in model.model.layers:
        ends = ("mlp", "block_sparse_moe", "experts", "shared_expert", "shared_mlp")
        mlps = [module for name, module in layer.named_modules() if name.endswith(ends)]
        for block in (layer.self_attn, *mlps):
            zero = lambda _m, _i, out: (out[0] * 0, *out[1:]) if isinstance(out, tuple) else out * 0
            hook = block.register_forward_hook(zero)
            moved = run(model, sequences)
            hook.remove()
            effect = min(nmse([f], [e]) for f, e in zip(moved, logits))
            least = min(least, effect)
    return least


@torch.no_grad()
def make(name: str, shape: Shape) -> None:
    mix = name.rsplit("-", 1)[1]
    generator = torch.Generator().manual_seed(sum(map(ord, name)))
    model = build(shape)
    randomise(model, shape, generator)
    parameters = dict(model.named_parameters())

    tensors = {}
    for ours, theirs, heads in names(shape):
        shift = norm_shift(shape, theirs)
        weight = np.ascontiguousarray(half(parameters, theirs).numpy()) + np.float32(shift)
        if heads:
            weight = permute(weight, heads)
        kind = kind_of(ours, weight.shape[-1], mix)
        data = encode(weight, kind)
        tensors[ours] = (data, kind)
        decoded = gguf.quants.dequantize(data, kind).reshape(weight.shape)
        if heads:
            decoded = unpermute(decoded, heads)
        half(parameters, theirs).copy_(torch.from_numpy(np.ascontiguousarray(decoded - np.float32(shift))))
    assert shape.tied or "output.weight" in tensors

    shares = shape.arch == "phimoe" and mix == "f32"
    least_gap = SPARSE_MIXER_GAP if shares else ROUTER_GAP
    sequences = [draw(model, shape, length, least_gap, generator) for length in LENGTHS]
    assert not shares or shared_weights(model, sequences) >= 3, f"SparseMixer shares {shared_weights(model, sequences)} times"
    logits = run(model, sequences)
    cached = model(input_ids=sequences[0][None, :20], use_cache=True)
    cached = model(input_ids=sequences[0][None, 20:], past_key_values=cached.past_key_values).logits[0]
    assert nmse([cached], [logits[0][20:]]) < 1e-9
    least = least_effect(model, shape, sequences, logits)
    print(f"{name:18} blocks move the logits by {least:.3f} or more, which have a deviation of {logits[0].std():.2f}")
    assert least > 100 * TOLERANCE[mix], f"a block matters too little: {least}"

    write_model(OUT / f"{name}.gguf", shape, tensors)
    write_logits(OUT / f"{name}.logits.gguf", TOLERANCE[mix], sequences, logits)


if __name__ == "__main__":
    OUT.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(2)
    for name in sys.argv[1:] or MODELS:
        make(name, MODELS[name])
    print(f"{sum(f.stat().st_size for f in OUT.glob('*.gguf')):,} bytes")
