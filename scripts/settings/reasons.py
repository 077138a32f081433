"""Why gristmill refuses some settings that transformers runs, or computes something else."""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Reason:
    """The class of the difference, patterns of the whole folder's name, key and change, and why."""

    kind: str
    folder: str
    key: str
    change: str
    why: str

    def explains(self, kind: str, *found: str) -> bool:
        patterns = (self.folder, self.key, self.change)
        return kind == self.kind and all(re.fullmatch(pattern, one) for pattern, one in zip(patterns, found))


REFUSES, ANY = "gristmill refuses", ".*"
ROPE = r"(rope_parameters|rope_scaling)(\..*)?"


def refuses(key: str, change: str, why: str, folder: str = ANY) -> Reason:
    return Reason(REFUSES, folder, key, change, why)


REASONS = [
    Reason("differ", "phimoe", "original_max_position_embeddings", ANY,
           "transformers never takes Phi-3.5-MoE's long factors, which its authors' code does"),
    refuses(ROPE, r"llama3.*", "Llama 3's frequencies are not read in this architecture's files", "bailingmoe3.*"),
    refuses(r"kda_safe_gate|linear_attention|no_kda_lora|gated_attention_proj_granularity_type|moe_shared_expert_intermediate_size",
            ANY, "the code of the model's authors reads it, and transformers does not", "bailingmoe3.*"),
    refuses(r"intermediate_size", "removed", "a width of dense layers is needed, also where there are none", "mistral4"),
    refuses(r"rope_interleave", r"false|0", "rotated pairs of latent attention are interleaved in files"),
    refuses(r"head_dim", ANY, "RoPE's frequencies are those of a head as wide as a query", "mistral4"),
    refuses(ROPE, r"\"(linear|dynamic|llama3)\"", "files have mscale_all_dim for YaRN alone",
            "mistral4|deepseek2.*|glm4-lite|youtu"),
    Reason("differ", "deepseek2.*|glm4-lite", "scoring_func", ANY,
           "the code of the model's authors reads it; transformers has one function alone"),
    Reason("differ", "deepseek2-lite", "norm_topk_prob", "true",
           "the code of the model's authors reads it; transformers' class of DeepSeek V2 does not"),
    Reason("differ", "deepseek2.*", r"rope_parameters\.llama_4_scaling_beta", ANY,
           "Mistral Large 3 has these layers and this temperature, which other programs compute; transformers ignores it"),
    refuses("moe_layer_freq", ANY, "the code of the model's authors reads it", "deepseek2.*|glm4-lite"),
    refuses(ROPE, ANY, "no layer has RoPE; a scaling that is not known, or that needs tensors, is refused all the same", "kimi-linear.*"),
    refuses(r"moe_renormalize|num_expert_group|moe_layer_freq|mla_use_nope|moe_router_activation_func", ANY,
            "the code of the model's authors reads it, or files have no key for it", "kimi-linear.*"),
    Reason("differ", "bailingmoe3-saved", ROPE, r".* without the original context.*",
           "transformers takes the class's context instead, because it reads the folder's other name for it later"),
    Reason("differ", "mimo2(-saved)?", "sliding_window_size|layer_types", ANY,
           "transformers adds 1 to the published number; the code of the model's authors and llama.cpp do not"),
    refuses(r"hidden_act(ivation)?", ANY, "no kernel computes another activation function than the family's own"),
    refuses(ROPE, r"yarn, (not )?truncated.*", "whether YaRN's ramp is rounded is a property of the architecture in files"),
    refuses(ROPE + r"|.*truncate", r".*", "whether YaRN's ramp is rounded is a property of the architecture in files",
            "gpt-oss-dense"),
    refuses(r".*\.truncate", ANY, "whether YaRN's ramp is rounded is a property of the architecture in files"),
    refuses(ROPE, r"proportional.*|\"proportional\"", "the proportional rotation is Gemma 4's alone in files"),
    refuses(r"rope_parameters\.sliding_attention(\..*)?", ANY, "files have no scaling of layers with a window"),
    refuses(ROPE + r"|.*rope_type", ANY, "Gemma 4's layers with full attention have the proportional rotation in files",
            "gemma4.*"),
    refuses(ROPE, r"longrope.*", "LongRoPE's tensors are not read in this architecture's files", "cohere2(moe)?"),
    refuses(ROPE, ANY, "a scaling for layers with full attention alone has no keys in this architecture's files", "laguna"),
    refuses(r".*partial_rotary_factor", ANY, "a scaled rotation of a part of a head, or of none of it, has no keys in files"),
    refuses(r".*(short|long)_mscale", ANY, "files have one magnitude of LongRoPE"),
    refuses("rope_parameters|rope_scaling", r"removed|\{\}|.* (beside|in place of) rope_parameters|in the older form",
            "the class's sections are those of a published head, which is wider than the golden model's", "qwen35(moe)?"),
    refuses(r".*mrope_(section|interleaved)", ANY, "the sections of a head are checked, which transformers does not read for a text"),
    refuses(r"attention_bias|qkv_bias|use_qk_norm|use_expert_bias|enable_moe_block|attention_k_eq_v|shared_intermediate_size"
            r"|moe_num_shared_experts|lm_head_bias|tie_word_embeddings", r"false|true|removed|0", "weights that these settings "
            "do not read, which transformers leaves out without a word"),
    refuses(r"scoring_func|score_func|score_function|route_norm|n_group|topk_group|rotary_pct|mup_enabled", ANY,
            "the code of the model's authors reads it, or no kernel computes it; transformers ignores it or runs it"),
    refuses(r"moe_topk|num_shared_expert|moe_intermediate_size", r"\[.*", "layers with other numbers of experts than each other",
            "hunyuan-moe"),
    refuses(r"use_bidirectional_attention|use_sliding_window|use_double_wide_mlp|clip_qkv|swiglu_(limit|alpha)|router_jitter_noise"
            r"|attn_logit_softcapping|attn_temperature_tuning|num_experts_per_tok(en)?|topk_method", ANY, "no kernel computes it in this family"),
    refuses(r"num_attention_heads", "removed", "a number of heads is needed beside those of each layer", "laguna"),
    refuses(ANY, r"-.*|\[-.*", "a negative number that no model has"),
    refuses(ANY, r"0|0\.0|\[0.*\]|\[\]", "0, which no model has, or which stands in files for none"),
    refuses(ANY, r"-?\d+\.\d+|4|1", "a number of another type: a whole number is one without a fraction, and a flag is true or false"),
    refuses(ANY, r"null", "null where the class has no None, or that the code of the model's authors does not take"),
    refuses(r"num_hidden_layers|layer_types|mlp_layer_types|moe_layers|interleave_moe_layer_step|no_rope.*|first_k_dense_replace"
            r"|attention_chunk_size|attn_scale|floor_scale", ANY,
            "other layers than those of the weights: tensors are left over or missing, or no key of files says which layers"),
]
