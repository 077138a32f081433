"""Families that are records: each the model of transformers, what its tensors are called, and its folder as published.

Four of them are not in transformers, or only their settings are, and their maths is that of another class: `exaone`,
`internlm2` and `internlm3` are Llama, `minicpm` is Granite."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import transformers as t

from . import shapes
from .shapes import Shape


@dataclass
class Plain:
    """A family."""

    build: Callable  # (shape, common settings, settings of heads, settings of experts) to the model
    permuted: bool = False  # Q and K as pairs of neighbours
    qk_norms: tuple = ()  # the names of two norms in transformers
    norms: list = field(default_factory=lambda: [("attn_norm", "input_layernorm"), ("ffn_norm", "post_attention_layernorm")])
    more: list = field(default_factory=list)  # rows of every layer
    of_windows: list = field(default_factory=list)  # rows of layers with a window
    inner: Callable = lambda shape: {}  # settings of the published text model within another
    of_experts: list = field(default_factory=list)  # rows of layers with experts
    fused: bool = False  # gate and up of dense MLPs and shared experts are one tensor in transformers
    plus_one: str = ""  # norms whose names end so multiply by 1 + weight
    bias: str = ""  # of the scores that choose experts, in transformers and in the file
    keys: Callable | None = None  # (writer, shape)
    settings: Callable = lambda shape: {}  # of the published folder, besides those of the class
    dropped: tuple = ()  # settings that the published folder lacks
    state: Callable | None = None  # (shape, model) to the tensors of the published folder
    within: bool = False  # the text model is within another
    full_first: bool = False  # the first of a period sees everything, not the last


def windowed(shape: Shape) -> list[bool]:
    first = FAMILIES[shape.arch].full_first
    return [bool(shape.window) and (i + (0 if first else 1)) % (shape.period or 4) != 0 for i in range(shape.layers)]


def windows(shape: Shape) -> list[bool]:
    """Whether each layer has a window, then for each prediction head."""
    return windowed(shape) + [True] * shape.nextn


def heads(shape: Shape) -> list[int]:
    """Query heads of each layer."""
    return [shape.heads if window else shape.full_heads or shape.heads for window in windows(shape)]


def kv_heads(shape: Shape) -> list[int]:
    """KV heads of each layer; MiMo's layers that see everything have half as many."""
    return [shape.kv_heads if window or shape.arch != "mimo2" else shape.kv_heads // 2 for window in windows(shape)]


def kinds(shape: Shape) -> list[str]:
    return ["sliding_attention" if window else "full_attention" for window in windowed(shape)]


def mlp_kinds(shape: Shape) -> list[str]:
    return ["dense" if i < shape.dense else "sparse" for i in range(shape.layers)]


# ── models ──


def with_text_model(model, cls, config):
    """A model of Qwen whose text model is that of one that sees."""
    model.model = cls(config)
    model.tie_weights()
    return model


def sections(shape: Shape) -> list[int]:
    """Pairs of a head that turn by each of three positions; interleaved ones lack some of the last pairs."""
    pairs = shape.head // 2
    return [pairs - 2 * (pairs // 4), pairs // 4, pairs // 4]


def qwen2vl(shape: Shape, common: dict, head: dict, moe: dict):
    from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLTextConfig, Qwen2_5_VLTextModel

    common["rope_parameters"]["mrope_section"] = sections(shape)
    text = Qwen2_5_VLTextConfig(intermediate_size=shape.inner, use_sliding_window=False, **common)
    model = t.Qwen2ForCausalLM(t.Qwen2Config(intermediate_size=shape.inner, use_sliding_window=False, **common))
    return with_text_model(model, Qwen2_5_VLTextModel, text)


def qwen3vl(shape: Shape, common: dict, head: dict, moe: dict):
    from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLTextConfig, Qwen3VLTextModel

    common["rope_parameters"] |= dict(mrope_section=sections(shape), mrope_interleaved=True)
    text = Qwen3VLTextConfig(intermediate_size=shape.inner, **head, **common)
    model = t.Qwen3ForCausalLM(t.Qwen3Config(intermediate_size=shape.inner, **head, **common))
    return with_text_model(model, Qwen3VLTextModel, text)


def qwen3vlmoe(shape: Shape, common: dict, head: dict, moe: dict):
    from transformers.models.qwen3_vl_moe.modeling_qwen3_vl_moe import Qwen3VLMoeTextConfig, Qwen3VLMoeTextModel

    common["rope_parameters"] |= dict(mrope_section=sections(shape), mrope_interleaved=True)
    experts = dict(moe_intermediate_size=shape.inner, norm_topk_prob=True, **moe)
    text = Qwen3VLMoeTextConfig(**experts, **head, **common)
    model = t.Qwen3MoeForCausalLM(t.Qwen3MoeConfig(**experts, **head, **common))
    return with_text_model(model, Qwen3VLMoeTextModel, text)


def ernie4_5(shape: Shape, common: dict, head: dict, moe: dict):
    return t.Ernie4_5ForCausalLM(t.Ernie4_5Config(
        intermediate_size=shape.inner, head_dim=shape.head, bos_token_id=None, pad_token_id=None, **common))


def hunyuan_dense(shape: Shape, common: dict, head: dict, moe: dict):
    return t.HunYuanDenseV1ForCausalLM(t.HunYuanDenseV1Config(
        intermediate_size=shape.inner, head_dim=shape.head, pad_token_id=None, **common))


def llama(shape: Shape, common: dict, head: dict, moe: dict):
    return t.LlamaForCausalLM(t.LlamaConfig(intermediate_size=shape.inner, **head, **common))


def gemma(shape: Shape, common: dict, head: dict, moe: dict):
    return t.GemmaForCausalLM(t.GemmaConfig(intermediate_size=shape.inner, **head, **common))


# MiniCPM's factors of embeddings and residuals, and the width by which that of the model is divided for the logits.
SCALE_EMB, SCALE_DEPTH, BASE_WIDTH = 3.0, 1.4, 16


def minicpm(shape: Shape, common: dict, head: dict, moe: dict):
    return t.GraniteForCausalLM(t.GraniteConfig(
        intermediate_size=shape.inner, embedding_multiplier=SCALE_EMB, attention_multiplier=shape.head**-0.5,
        residual_multiplier=SCALE_DEPTH / shape.layers**0.5, logits_scaling=shape.hidden / BASE_WIDTH, **common))


def mellum(shape: Shape, common: dict, head: dict, moe: dict):
    common["rope_parameters"] = {
        "full_attention": common["rope_parameters"],
        "sliding_attention": dict(rope_type="default", rope_theta=shape.theta)}
    return t.MellumForCausalLM(t.MellumConfig(
        moe_intermediate_size=shape.inner, norm_topk_prob=True, sliding_window=shape.window, layer_types=kinds(shape),
        **head, **moe, **common))


def hy_v3(shape: Shape, common: dict, head: dict, moe: dict):
    return t.HYV3ForCausalLM(t.HYV3Config(
        intermediate_size=3 * shape.inner, moe_intermediate_size=shape.inner, router_scaling_factor=shape.scale,
        num_shared_experts=shape.shared // shape.inner, mlp_layer_types=mlp_kinds(shape), **head, **moe, **common))


def muse_glimmer(shape: Shape, common: dict, head: dict, moe: dict):
    """Its text model with a head, as in the model that sees; norms of queries and keys as parameters, which the file has."""
    from transformers.models.muse_glimmer.modeling_muse_glimmer import MuseGlimmerTextConfig, MuseGlimmerTextModel

    config = MuseGlimmerTextConfig(
        intermediate_size=shape.inner, qk_scale_factor=QK_SCALE, output_multiplier=OUTPUT_SCALE,
        final_logit_softcapping=shapes.LOGIT_CAP, sliding_window=shape.window, layer_types=kinds(shape),
        layer_rope_theta=[shape.theta if window else 0 for window in windowed(shape)], **head, **common)
    model = t.LlamaForCausalLM(t.LlamaConfig(intermediate_size=shape.inner, **head, **common))
    model.model = MuseGlimmerTextModel(config)
    model.config.update(config.to_dict())
    model.lm_head.register_forward_hook(
        lambda _module, _inputs, logits: shapes.LOGIT_CAP * (logits * OUTPUT_SCALE / shapes.LOGIT_CAP).tanh())
    for layer in model.model.layers:
        layer.self_attn.q_norm = torch.nn.Parameter(torch.full((shape.head,), QK_SCALE), requires_grad=False)
        layer.self_attn.k_norm = torch.nn.Parameter(torch.ones(shape.head), requires_grad=False)
    return model


def step35(shape: Shape, common: dict, head: dict, moe: dict):
    """Its text model with a head, as in the model that sees."""
    from transformers.models.step3p7.modeling_step3p7 import Step3p7TextConfig, Step3p7TextModel

    common["num_attention_heads"] = shape.full_heads
    model = t.LlamaForCausalLM(t.LlamaConfig(intermediate_size=shape.inner, **head, **common))
    common["rope_parameters"] = {
        "full_attention": common["rope_parameters"] | dict(partial_rotary_factor=0.5),
        "sliding_attention": dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=1.0)}
    config = Step3p7TextConfig(
        intermediate_size=3 * shape.inner, moe_intermediate_size=shape.inner, n_routed_experts=shape.experts,
        num_experts_per_tok=shape.top_k, share_expert_dim=shape.shared, moe_router_scaling_factor=shape.scale,
        num_sliding_attention_heads=shape.heads, swiglu_limits=list(shape.limits[0]),
        swiglu_limits_shared=list(shape.limits[1]), mlp_layer_types=mlp_kinds(shape), layer_types=kinds(shape),
        sliding_window=shape.window, **head, **common)
    model.model = Step3p7TextModel(config)
    model.config.update({key: value for key, value in config.to_dict().items() if key != "per_layer_config"})
    return model


def mimo2(shape: Shape, common: dict, head: dict, moe: dict):
    common["rope_parameters"] = {
        kind: dict(rope_type="default", rope_theta=theta, partial_rotary_factor=MIMO_SHARE)
        for kind, theta in (("full_attention", shape.theta), ("sliding_attention", 10000.0))}
    assert int(MIMO_SHARE * shape.head) == shape.rotary
    common["num_key_value_heads"] = shape.kv_heads // 2
    return t.MiMoV2FlashForCausalLM(t.MiMoV2FlashConfig(
        intermediate_size=3 * shape.inner, moe_intermediate_size=shape.inner, n_routed_experts=shape.experts,
        num_experts_per_tok=shape.top_k, v_head_dim=shape.value, sliding_window=shape.window, layer_types=kinds(shape),
        mlp_layer_types=mlp_kinds(shape), attention_value_scale=VALUE_SCALE, bos_token_id=None, **head, **common))


def minimax_m3(shape: Shape, common: dict, head: dict, moe: dict):
    """Its text model; layers with experts choose blocks of keys, of which sequences have no more than are chosen."""
    from transformers.models.minimax_m3_vl.modeling_minimax_m3_vl import MiniMaxM3VLForCausalLM, MiniMaxM3VLTextConfig

    common["rope_parameters"] |= dict(partial_rotary_factor=shape.rotary / shape.head)
    return MiniMaxM3VLForCausalLM(MiniMaxM3VLTextConfig(
        intermediate_size=shape.inner, dense_intermediate_size=3 * shape.inner, shared_intermediate_size=shape.shared,
        num_local_experts=shape.experts, num_experts_per_tok=shape.top_k, routed_scaling_factor=shape.scale,
        rotary_dim=shape.rotary, head_dim=shape.head, index_n_heads=shape.kv_heads, index_head_dim=shape.head,
        index_block_size=INDEX_BLOCK, index_topk_blocks=INDEX_BLOCKS, mlp_layer_types=mlp_kinds(shape), layer_types=[
            "full_attention" if i < shape.dense else "minimax_m3_sparse" for i in range(shape.layers)],
        bos_token_id=None, eos_token_id=None, **common))


# The positions of a block of MiniMax M3's index, and how many blocks it chooses.
INDEX_BLOCK, INDEX_BLOCKS = 16, 4
# The part of MiMo's heads that is rotated, and the factor of values.
MIMO_SHARE, VALUE_SCALE = 0.334, 0.707
# Muse Glimmer's factor of queries and of logits.
QK_SCALE, OUTPUT_SCALE = 1.5, 0.4


# ── keys ──


def vision_keys(writer, shape: Shape) -> None:
    writer.add_rope_dimension_sections([*sections(shape), 0])
    if shape.arch != "qwen2vl":
        writer.add_num_deepstack_layers(3)


def minicpm_keys(writer, shape: Shape) -> None:
    writer.add_embedding_scale(SCALE_EMB)
    writer.add_residual_scale(SCALE_DEPTH / shape.layers**0.5)
    writer.add_logit_scale(shape.hidden / BASE_WIDTH)


def mellum_keys(writer, shape: Shape) -> None:
    writer.add_sliding_window_pattern(windowed(shape))


def muse_glimmer_keys(writer, shape: Shape) -> None:
    writer.add_sliding_window_pattern(windowed(shape))
    writer.add_logit_scale(OUTPUT_SCALE)
    writer.add_final_logit_softcapping(shapes.LOGIT_CAP)


def step35_keys(writer, shape: Shape) -> None:
    writer.add_sliding_window_pattern(windows(shape))
    writer.add_rope_freq_base_swa(10000.0)
    writer.add_leading_dense_block_count(shape.dense)
    writer.add_expert_weights_scale(shape.scale)
    writer.add_expert_weights_norm(True)
    for limits, name in zip(shape.limits, ("swiglu_clamp_exp", "swiglu_clamp_shexp")):
        writer.add_array(f"step35.{name}", [float(limit) for limit in limits] + [0.0] * shape.nextn)


def mimo2_keys(writer, shape: Shape) -> None:
    writer.add_sliding_window_pattern([int(window) for window in windows(shape)])
    writer.add_rope_freq_base_swa(10000.0)
    writer.add_float32("mimo2.attention.value_scale", VALUE_SCALE)


def minimax_m3_keys(writer, shape: Shape) -> None:
    writer.add_leading_dense_block_count(shape.dense)
    writer.add_expert_shared_count(shape.shared // shape.inner)
    writer.add_expert_weights_scale(shape.scale)
    writer.add_expert_weights_norm(True)
    for key, value in dict(head_count=shape.kv_heads, key_length=shape.head, top_k=INDEX_BLOCKS, block_size=INDEX_BLOCK,
                           local_blocks=1).items():
        writer.add_uint32(f"minimax-m3.attention.indexer.{key}", value)


def hy_v3_keys(writer, shape: Shape) -> None:
    writer.add_expert_weights_scale(shape.scale)
    writer.add_expert_weights_norm(True)


# ── folders ──


def weights(model) -> dict:
    kept = model._tied_weights_keys if model.config.tie_word_embeddings else []
    return {name: weight for name, weight in model.state_dict().items() if name not in kept}


def renamed(state: dict, names: dict) -> dict:
    def rename(name: str) -> str:
        for ours, theirs in names.items():
            name = name.replace(ours, theirs)
        return name

    return {rename(name): weight for name, weight in state.items()}


def exaone_state(shape: Shape, model) -> dict:
    return renamed(weights(model), {
        "model.embed_tokens": "transformer.wte", "model.norm": "transformer.ln_f", "model.layers": "transformer.h",
        "input_layernorm": "ln_1", "post_attention_layernorm": "ln_2", "self_attn.o_proj": "attn.attention.out_proj",
        "self_attn": "attn.attention", "gate_proj": "c_fc_0", "up_proj": "c_fc_1", "down_proj": "c_proj"})


def internlm2_state(shape: Shape, model) -> dict:
    state = weights(model)
    for i in range(shape.layers):
        parts = [state.pop(f"model.layers.{i}.self_attn.{part}_proj.weight") for part in "qkv"]
        groups = [part.unflatten(0, (shape.kv_heads, -1)) for part in parts]
        state[f"model.layers.{i}.attention.wqkv.weight"] = torch.cat(groups, 1).flatten(0, 1)
    return renamed(state, {
        "embed_tokens": "tok_embeddings", "lm_head": "output", "input_layernorm": "attention_norm",
        "post_attention_layernorm": "ffn_norm", "self_attn.o_proj": "attention.wo", "mlp.gate_proj": "feed_forward.w1",
        "mlp.up_proj": "feed_forward.w3", "mlp.down_proj": "feed_forward.w2"})


def qwen2vl_state(shape: Shape, model) -> dict:
    """Published without a prefix, and with the tower's tensors."""
    return weights(model) | {f"visual.{part}.weight": torch.zeros(1, 1) for part in ("patch_embed.proj", "merger.ln_q")}


def qwen3vl_state(shape: Shape, model) -> dict:
    state = {name.replace("model.", "model.language_model.", 1): weight for name, weight in weights(model).items()}
    state = {name: weight.transpose(1, 2).contiguous() if ".experts." in name else weight for name, weight in state.items()}
    return state | {f"model.visual.{part}.weight": torch.zeros(1, 1) for part in ("patch_embed.proj", "merger.norm")}


def separate_experts(name: str, weight: torch.Tensor) -> dict:
    base, _, last = name.rpartition(".")
    if last == "gate_up_proj":
        gate, up = weight.chunk(2, dim=1)
        return separate_experts(f"{base}.gate_proj", gate) | separate_experts(f"{base}.up_proj", up)
    return {f"{base}.{i}.{last}.weight": one.clone() for i, one in enumerate(weight)}


def hy_v3_state(shape: Shape, model) -> dict:
    state = {}
    for name, weight in renamed(weights(model), {
            "mlp.gate.weight": "mlp.router.gate.weight", "e_score_correction_bias": "expert_bias",
            "shared_experts": "shared_mlp"}).items():
        state |= separate_experts(name, weight) if ".experts." in name else {name: weight}
    return state


def mimo2_state(shape: Shape, model) -> dict:
    """Experts apart, sinks by their published name, and a layer that predicts further tokens."""
    state = {}
    for name, weight in renamed(weights(model), {"self_attn.sinks": "self_attn.attention_sink_bias"}).items():
        state |= separate_experts(name, weight) if ".experts." in name else {name: weight}
    return state | {f"model.mtp.layers.0.{part}.weight": torch.zeros(1, 1) for part in ("eh_proj", "enorm")}


def mimo2_settings(shape: Shape) -> dict:
    return dict(
        hybrid_layer_pattern=[int(window) for window in windowed(shape)],
        moe_layer_freq=[int(i >= shape.dense) for i in range(shape.layers)], num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads // 2, swa_num_attention_heads=shape.heads, swa_num_key_value_heads=shape.kv_heads,
        swa_head_dim=shape.head, swa_v_head_dim=shape.value, rope_theta=shape.theta, swa_rope_theta=10000.0,
        partial_rotary_factor=MIMO_SHARE, sliding_window_size=shape.window, attention_chunk_size=shape.window,
        layernorm_epsilon=shapes.EPS, add_swa_attention_sink_bias=True, add_full_attention_sink_bias=False,
        scoring_func="sigmoid", topk_method="noaux_tc", n_shared_experts=None, routed_scaling_factor=None)


def minimax_m3_state(shape: Shape, model) -> dict:
    """Within a model that sees; experts apart, gate and up of dense MLPs and shared experts too."""
    state = {}
    for name, weight in renamed(weights(model), {
            "mlp.gate.e_score": "block_sparse_moe.e_score", "mlp.gate.weight": "block_sparse_moe.gate.weight",
            "mlp.experts": "block_sparse_moe.experts", "mlp.shared_experts": "block_sparse_moe.shared_experts",
            "self_attn.indexer.": "self_attn.index_"}).items():
        name = f"language_model.{name}"
        if ".experts." in name:
            matrices = {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}
            state |= renamed(separate_experts(name, weight), matrices)
        elif name.endswith("gate_up_proj.weight"):
            base = name.removesuffix("gate_up_proj.weight")
            state |= {f"{base}{part}_proj.weight": half.clone() for part, half in zip(("gate", "up"), weight.chunk(2))}
        else:
            state[name] = weight
    seen = ("vision_tower.vision_model.pre_layrnorm", "multi_modal_projector.linear_1", "patch_merge_mlp.linear_1")
    return state | {f"{part}.weight": torch.zeros(1, 1) for part in seen}


def minimax_m3_settings(shape: Shape) -> dict:
    return dict(model_type="minimax_m3_vl", architectures=["MiniMaxM3SparseForConditionalGeneration"], image_token_index=3,
                vision_config=dict(model_type="minimax_m3_vl_vision", num_hidden_layers=1, hidden_size=32))


def minimax_m3_inner(shape: Shape) -> dict:
    """Settings of the text model by their published names."""
    return dict(
        n_shared_experts=1, scoring_func="sigmoid", hidden_act="swigluoai", rope_theta=shape.theta, rotary_dim=shape.rotary,
        partial_rotary_factor=shape.rotary / shape.head, moe_layer_freq=[int(i >= shape.dense) for i in range(shape.layers)],
        sparse_attention_config=dict(
            use_sparse_attention=True, sparse_num_index_heads=shape.kv_heads, sparse_index_dim=shape.head,
            sparse_topk_blocks=INDEX_BLOCKS, sparse_block_size=INDEX_BLOCK, sparse_local_block=1,
            sparse_attention_freq=[int(i >= shape.dense) for i in range(shape.layers)]))


def step35_state(shape: Shape, model) -> dict:
    """Stacked experts under other names, and a layer that predicts further tokens."""
    state = {}
    for name, weight in renamed(weights(model), {
            "mlp.gate.weight": "moe.gate.weight", "mlp.gate.e_score_correction_bias": "moe.router_bias",
            "mlp.experts.": "moe.", "mlp.shared_experts": "share_expert"}).items():
        if name.endswith("moe.gate_up_proj"):
            base = name.removesuffix("gate_up_proj")
            state |= {f"{base}{part}_proj.weight": half.clone() for part, half in zip(("gate", "up"), weight.chunk(2, 1))}
        else:
            state[name + ".weight" if name.endswith("moe.down_proj") else name] = weight
    for i in range(shape.layers, shape.layers + shape.nextn):
        state |= {f"model.layers.{i}.{part}.weight": torch.zeros(1, 1) for part in ("eh_proj", "transformer.shared_head.norm")}
    return state


def step35_settings(shape: Shape) -> dict:
    flags = windows(shape)
    lists = [list(limits) + [0.0] * shape.nextn for limits in shape.limits]
    return dict(
        model_type="step3p5", architectures=["Step3p5ForCausalLM"], num_attention_groups=shape.kv_heads,
        attention_other_setting=dict(
            attention_type="sliding_attention", num_attention_heads=shape.heads, num_attention_groups=shape.kv_heads,
            head_dim=shape.head, true_head_dim=shape.head),
        moe_layers_enum=",".join(str(i) for i in range(shape.dense, shape.layers)), moe_every_n_layer=1,
        moe_num_experts=shape.experts, moe_top_k=shape.top_k, moe_router_activation="sigmoid", norm_expert_weight=True,
        use_moe_router_bias=True, zero_centered=True, use_head_wise_attn_gate=True, num_nextn_predict_layers=shape.nextn,
        rope_theta=[10000.0 if window else shape.theta for window in flags], rope_scaling=shape.rope,
        partial_rotary_factors=[1.0 if window else 0.5 for window in flags], swiglu_limits=lists[0],
        swiglu_limits_shared=lists[1],
        layer_types=["sliding_attention" if window else "full_attention" for window in flags])


def muse_glimmer_state(shape: Shape, model) -> dict:
    state = {name.replace("model.", "model.language_model.", 1): weight for name, weight in weights(model).items()
             if not name.endswith(("self_attn.q_norm", "self_attn.k_norm"))}
    return state | {f"model.vision_{part}.weight": torch.zeros(1, 1) for part in ("adapter.fc1", "projection")}


def muse_glimmer_settings(shape: Shape) -> dict:
    return dict(model_type="muse_glimmer", architectures=["MuseGlimmerForConditionalGeneration"], image_token_id=3,
                vision_config=dict(model_type="muse_glimmer_vision", num_hidden_layers=1, hidden_size=32))


def qwen2vl_settings(shape: Shape) -> dict:
    return dict(model_type="qwen2_5_vl", architectures=["Qwen2_5_VLForConditionalGeneration"], image_token_id=3,
                rope_theta=shape.theta, rope_scaling=dict(type="mrope", mrope_section=sections(shape)),
                vision_config=dict(model_type="qwen2_5_vl", depth=1, hidden_size=32))


def qwen3vl_settings(shape: Shape) -> dict:
    kind, name = ("qwen3_vl_moe", "Qwen3VLMoe") if shape.experts else ("qwen3_vl", "Qwen3VL")
    return dict(model_type=kind, architectures=[f"{name}ForConditionalGeneration"], image_token_id=3,
                tie_word_embeddings=shape.tied,
                vision_config=dict(model_type=kind, depth=4, hidden_size=32, deepstack_visual_indexes=[0, 1, 2]))


FAMILIES = {
    "qwen2vl": Plain(qwen2vl, keys=vision_keys, settings=qwen2vl_settings, state=qwen2vl_state, dropped=("rope_parameters",)),
    "qwen3vl": Plain(qwen3vl, qk_norms=("q_norm", "k_norm"), keys=vision_keys, settings=qwen3vl_settings,
                     state=qwen3vl_state, within=True, dropped=("use_sliding_window", "norm_topk_prob")),
    "qwen3vlmoe": Plain(qwen3vlmoe, qk_norms=("q_norm", "k_norm"), keys=vision_keys, settings=qwen3vl_settings,
                        state=qwen3vl_state, within=True, dropped=("use_sliding_window", "norm_topk_prob")),
    "ernie4_5": Plain(ernie4_5),
    "hunyuan-dense": Plain(hunyuan_dense, qk_norms=("query_layernorm", "key_layernorm")),
    "exaone": Plain(llama, state=exaone_state, dropped=("num_hidden_layers", "rms_norm_eps", "hidden_act"),
                    settings=lambda shape: dict(
                        model_type="exaone", architectures=["ExaoneForCausalLM"], num_layers=shape.layers,
                        layer_norm_epsilon=shapes.EPS, activation_function="silu")),
    "internlm2": Plain(llama, permuted=True, state=internlm2_state, settings=lambda shape: dict(
        model_type="internlm2", architectures=["InternLM2ForCausalLM"], bias=False), dropped=("vocab_size", "head_dim")),
    "internlm3": Plain(llama, permuted=True, settings=lambda shape: dict(
        model_type="internlm3", architectures=["InternLM3ForCausalLM"], qkv_bias=False, bias=False)),
    "gemma": Plain(gemma, plus_one="norm.weight"),
    "minicpm": Plain(minicpm, permuted=True, keys=minicpm_keys, settings=lambda shape: dict(
        model_type="minicpm", architectures=["MiniCPMForCausalLM"], scale_emb=SCALE_EMB, scale_depth=SCALE_DEPTH,
        dim_model_base=BASE_WIDTH),
        dropped=("embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling")),
    "mellum": Plain(mellum, qk_norms=("q_norm", "k_norm"), keys=mellum_keys, dropped=("num_nextn_predict_layers",)),
    "muse-glimmer": Plain(
        muse_glimmer, permuted=True, norms=[
            ("attn_norm", "input_layernorm"), ("post_attention_norm", "post_attention_layernorm"),
            ("ffn_norm", "pre_feedforward_layernorm"), ("post_ffw_norm", "post_feedforward_layernorm")],
        plus_one="layernorm.weight", keys=muse_glimmer_keys, settings=muse_glimmer_settings, state=muse_glimmer_state,
        within=True, dropped=("hidden_act",), more=[("attn_q_norm.weight", "self_attn.q_norm", 0), ("attn_k_norm.weight", "self_attn.k_norm", 0),
                           ("attn_gate.weight", "self_attn.gate_proj.weight", 0)]),
    "mimo2": Plain(mimo2, full_first=True, keys=mimo2_keys, bias="mlp.gate.e_score_correction_bias", state=mimo2_state,
                   settings=mimo2_settings, dropped=("rope_parameters", "rms_norm_eps", "mlp_layer_types", "layer_types"),
                   of_windows=[("attn_sinks.weight", "self_attn.sinks", 0)]),
    "minimax-m3": Plain(minimax_m3, qk_norms=("q_norm", "k_norm"), plus_one="norm.weight", fused=True, keys=minimax_m3_keys,
                        settings=minimax_m3_settings, inner=minimax_m3_inner, state=minimax_m3_state, within=True, dropped=(
                            "rope_parameters", "layer_types", "mlp_layer_types", "index_n_heads", "index_head_dim",
                            "index_block_size", "index_topk_blocks", "index_local_blocks"),
                        bias="mlp.gate.e_score_correction_bias", of_experts=[
                            (f"indexer.{part}.weight", f"self_attn.indexer.{part}.weight", 0)
                            for part in ("q_proj", "k_proj", "q_norm", "k_norm")]),
    "step35": Plain(step35, qk_norms=("q_norm", "k_norm"), plus_one="norm.weight", full_first=True, keys=step35_keys,
                    bias="mlp.gate.e_score_correction_bias", state=step35_state, settings=step35_settings, dropped=(
                        "rope_parameters", "per_layer_config", "mlp_layer_types", "num_key_value_heads", "num_local_experts",
                        "num_sliding_attention_heads", "n_routed_experts", "num_experts_per_tok", "query_pre_attn_scalar", "mtp_layer_types",
                        "mtp_mlp_layer_types"),
                    more=[("attn_gate.weight", "self_attn.g_proj.weight", 0)]),
    "hy_v3": Plain(hy_v3, qk_norms=("q_norm", "k_norm"), bias="mlp.e_score_correction_bias", keys=hy_v3_keys,
                   state=hy_v3_state),
}


def names(shape: Shape) -> list:
    """GGUF name, transformers name, and the heads by which rows are permuted (0: not at all)."""
    family = FAMILIES[shape.arch]
    q, k = (shape.heads, shape.kv_heads) if family.permuted else (0, 0)
    table = [("token_embd.weight", "model.embed_tokens.weight", 0), ("output_norm.weight", "model.norm.weight", 0)]
    if not shape.tied:
        table.append(("output.weight", "lm_head.weight", 0))
    for i in range(shape.layers):
        rows = [(f"{ours}.weight", f"{theirs}.weight", 0) for ours, theirs in family.norms]
        rows += [("attn_output.weight", "self_attn.o_proj.weight", 0), *family.more]
        rows += family.of_windows if windowed(shape)[i] else []
        for kind in ["weight", "bias"] if shape.bias else ["weight"]:
            rows += [(f"attn_q.{kind}", f"self_attn.q_proj.{kind}", q), (f"attn_k.{kind}", f"self_attn.k_proj.{kind}", k),
                     (f"attn_v.{kind}", f"self_attn.v_proj.{kind}", 0)]
        rows += [(f"attn_{part}_norm.weight", f"self_attn.{norm}.weight", 0) for part, norm in zip("qk", family.qk_norms)]
        rows += experts(shape, family) + family.of_experts if shape.experts and i >= shape.dense else [
            (f"ffn_{part}.weight", f"mlp.{theirs}", 0) for part, theirs in parts_of_mlp(family)]
        table += [(f"blk.{i}.{ours}", f"model.layers.{i}.{theirs}", how) for ours, theirs, how in rows]
    return table


def parts_of_mlp(family: Plain) -> list:
    if family.fused:
        return [("gate", "gate_up_proj.weight:0"), ("up", "gate_up_proj.weight:1"), ("down", "down_proj.weight")]
    return [(part, f"{part}_proj.weight") for part in ("gate", "up", "down")]


def experts(shape: Shape, family: Plain) -> list:
    rows = [("ffn_gate_inp.weight", "mlp.gate.weight", 0), ("ffn_gate_exps.weight", "mlp.experts.gate_up_proj:0", 0),
            ("ffn_up_exps.weight", "mlp.experts.gate_up_proj:1", 0), ("ffn_down_exps.weight", "mlp.experts.down_proj", 0)]
    if family.bias:
        rows.append(("exp_probs_b" if shape.arch == "hy_v3" else "exp_probs_b.bias", family.bias, 0))
    if shape.shared:
        rows += [(f"ffn_{part}_shexp.weight", f"mlp.shared_experts.{theirs}", 0) for part, theirs in parts_of_mlp(family)]
    return rows
