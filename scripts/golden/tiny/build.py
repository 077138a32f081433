"""The models as transformers has them, with random weights."""

import torch
from transformers import Dots1Config, Dots1ForCausalLM, Ernie4_5_MoeConfig, Ernie4_5_MoeForCausalLM
from transformers import Gemma2Config, Gemma2ForCausalLM
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, GptOssConfig, GptOssForCausalLM
from transformers import Glm4MoeConfig, Glm4MoeForCausalLM
from transformers import GraniteConfig, GraniteForCausalLM
from transformers import GraniteMoeConfig, GraniteMoeForCausalLM, GraniteMoeSharedConfig, GraniteMoeSharedForCausalLM
from transformers import HunYuanMoEV1Config, HunYuanMoEV1ForCausalLM
from transformers import LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM
from transformers import MiniMaxM2Config, MiniMaxM2ForCausalLM
from transformers import OlmoeConfig, OlmoeForCausalLM, PhimoeConfig, PhimoeForCausalLM
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2MoeConfig, Qwen2MoeForCausalLM
from transformers import Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM
from transformers.models.deepseek_v2.configuration_deepseek_v2 import DeepseekV2Config
from transformers.models.deepseek_v2.modeling_deepseek_v2 import DeepseekV2Moe

from . import attention, gemma4, kda, latent, mamba, plain, recurrent, shapes
from .shapes import ATTENTION_CAP, CONTEXT, EPS, GRANITE, LENGTHS, LOGIT_CAP, LONG, SPARSE_MIXER_NEAR, Shape

SELECTION_BIAS = ("e_score_correction_bias", "expert_bias")
# Where it is added to shares of a softmax, not to sigmoids.
SOFTMAX = ("ernie4_5-moe",)


def norm_shift(shape: Shape, name: str) -> float:
    """Norms of Gemma, and most of Qwen3-Next and its successors, multiply by 1 + weight; the file has the sum."""
    plus_one = shape.arch in ("gemma2", "gemma3") or shape.arch in recurrent.QWEN and "linear_attn" not in name
    if shape.arch in plain.FAMILIES:
        end = plain.FAMILIES[shape.arch].plus_one
        return 1.0 if end and name.endswith(end) else 0.0
    return 1.0 if plus_one and name.endswith("norm.weight") else 0.0


def routed(shape: Shape) -> dict:
    """The settings of DeepSeek-V3's kind of router and experts."""
    return dict(
        moe_intermediate_size=shape.inner, n_routed_experts=shape.experts, num_experts_per_tok=shape.top_k,
        n_shared_experts=shape.shared // shape.inner, first_k_dense_replace=shape.dense, n_group=shape.groups,
        topk_group=(shape.groups + 1) // 2, routed_scaling_factor=shape.scale)


def selection_biases(model) -> dict:
    """What is added to the scores that choose experts, which in some families are no parameters."""
    both = dict(model.named_buffers()) | dict(model.named_parameters())
    return {name: bias for name, bias in both.items() if name.endswith(SELECTION_BIAS)}


def kept_buffers(model) -> dict:
    """What the file has besides parameters."""
    scales = {name: scale for name, scale in model.named_buffers() if name.endswith(gemma4.LAYER_SCALE)}
    return selection_biases(model) | scales


def build(shape: Shape):
    common = dict(
        vocab_size=shapes.VOCAB, hidden_size=shape.hidden, num_hidden_layers=shape.layers,
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
            routed_scaling_factor=shapes.ROUTED_SCALE)
        config._experts_implementation = "eager"
        for layer in model.model.layers[shape.dense:]:
            layer.mlp = DeepseekV2Moe(config)
    elif shape.arch == "dots1":
        model = Dots1ForCausalLM(Dots1Config(
            intermediate_size=3 * shape.inner, norm_topk_prob=True, sliding_window=None, **head, **routed(shape),
            **common))
    elif shape.arch == "ernie4_5-moe":
        model = Ernie4_5_MoeForCausalLM(Ernie4_5_MoeConfig(
            intermediate_size=3 * shape.inner, moe_intermediate_size=shape.inner, moe_num_experts=shape.experts,
            moe_k=shape.top_k, moe_num_shared_experts=shape.shared // shape.inner, moe_layer_start_index=shape.dense,
            head_dim=shape.head, bos_token_id=None, pad_token_id=None, **common))
    elif shape.arch == "glm4moe":
        common["rope_parameters"] |= dict(partial_rotary_factor=shape.rotary / shape.head)
        model = Glm4MoeForCausalLM(Glm4MoeConfig(
            intermediate_size=3 * shape.inner, use_qk_norm=shape.qk_norm, norm_topk_prob=True, num_mtp_layers=0,
            **head, **routed(shape), **common))
    elif shape.arch == "hunyuan-moe":
        model = HunYuanMoEV1ForCausalLM(HunYuanMoEV1Config(
            intermediate_size=shape.inner, num_experts=shape.experts, moe_topk=shape.top_k, head_dim=shape.head, **common))
    elif shape.arch == "minimax-m2":
        common["rope_parameters"] |= dict(partial_rotary_factor=shape.rotary / shape.head)
        model = MiniMaxM2ForCausalLM(MiniMaxM2Config(
            intermediate_size=shape.inner, head_dim=shape.head, **local, **common))
    elif shape.arch == "gemma2":
        model = Gemma2ForCausalLM(Gemma2Config(
            intermediate_size=shape.inner, sliding_window=shape.window, query_pre_attn_scalar=shape.head,
            attn_logit_softcapping=ATTENTION_CAP, final_logit_softcapping=LOGIT_CAP, **head, **common))
        assert model.config.layer_types[:2] == ["sliding_attention", "full_attention"]
    elif shape.arch == "gemma3":
        common["rope_parameters"] = {"full_attention": common["rope_parameters"], "sliding_attention": {
            "rope_type": "default", "rope_theta": 10000.0}}
        model = Gemma3ForCausalLM(Gemma3TextConfig(
            intermediate_size=shape.inner, sliding_window=shape.window, query_pre_attn_scalar=shape.head,
            sliding_window_pattern=shape.period or 6, **head, **common))
    elif shape.arch == "gemma4":
        model = gemma4.build(shape, common)
    elif shape.arch in recurrent.FAMILIES:
        model = recurrent.build(shape, common, head, moe)
    elif shape.arch in plain.FAMILIES:
        model = plain.FAMILIES[shape.arch].build(shape, common, head, moe)
    elif shape.arch in latent.FAMILIES:
        model = latent.build(shape, common)
    elif shape.arch in kda.FAMILIES:
        model = kda.build(shape, common)
    elif shape.arch in mamba.FAMILIES:
        model = mamba.build(shape, common)
    elif shape.arch in attention.FAMILIES:
        model = attention.build(shape, common, head, moe)
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
        "shared_mlp.output_linear": 3.0, "conv.out_proj": 3.5, "out_proj": 3.0, "feed_forward.w2": 3.0,
        "down_proj": 2.5, "mlp.gate.weight": 1.5, "feed_forward.gate.weight": 1.5, "router.weight": 1.5, "router.gate.weight": 1.5, "gate.wg.weight": 1.5}
# The biases of gates and ups are large, so that the clamp at ±7 is seen and int8's error does not grow with it.
GPT_OSS_GAIN = GAIN | {"q_proj": 1.0, "k_proj": 1.0, "down_proj": 0.8, "mlp.router.weight": 1.5}
# The embedding's standard deviation, where the model scales it up again, or where it would outweigh the blocks.
EMBEDDING = {"granite": 1 / 3, "granitemoe": 1 / 3, "minicpm": 1 / 3, "gemma": 1 / 8, "gemma2": 1 / 8, "gemma3": 1 / 8, "gemma4": 1 / 8, "lfm2moe": 1 / 4,
             "afmoe": 1 / 10, "cohere2moe": 1 / 2,
             "olmo2": 1 / 2, "cohere2": 1 / 2}


def randomise(model, shape: Shape, generator) -> None:
    gains = GPT_OSS_GAIN if shape.arch == "gpt-oss" else GAIN
    for name, weight in (dict(model.named_parameters()) | kept_buffers(model)).items():
        noise = torch.randn(weight.shape, generator=generator)
        if name.endswith((".q_norm", ".k_norm")):
            continue  # Muse Glimmer's, which settings say
        if shape.arch == "gemma4" and (own := gemma4.value(shape, name, noise)) is not None:
            value = own
        elif (own := mamba.value(shape, name, noise)) is not None:
            value = own
        elif name.endswith("norm.weight"):
            value = 1.2 + 0.3 * noise - norm_shift(shape, name)
        elif (own := recurrent.value(name, noise)) is not None:
            value = own
        elif name.endswith(SELECTION_BIAS):
            value = (0.15 if shape.arch in SOFTMAX else 0.3) * noise
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
            gain *= next((g for part, g in shape.gain.items() if part in name), 1.0)
            inputs = weight.shape[-2 if shape.arch in ("gpt-oss", "llama4") and ".experts." in name else -1]
            value = noise * gain / inputs**0.5
        weight.data.copy_(value)
