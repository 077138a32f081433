"""The changed settings: one key of a golden folder's config.json removed, changed or added at a time."""

import copy
import json

# Settings of training, of tokens and of other programs, which no forward pass reads.
IDLE = {
    "architectures", "transformers_version", "dtype", "torch_dtype", "initializer_range", "bos_token_id", "eos_token_id",
    "pad_token_id", "attention_dropout", "resid_pdrop", "embd_pdrop", "residual_dropout", "output_router_logits",
    "router_aux_loss_coef", "use_cache", "pretraining_tp", "output_attentions", "output_hidden_states", "return_dict",
    "chunk_size_feed_forward", "is_encoder_decoder", "id2label", "label2id", "problem_type", "_name_or_path", "image_token_id",
    "image_token_index", "vision_config", "audio_config", "text_config", "model_type", "quantization_config",
    "router_z_loss_coef", "is_decoder", "cross_attention_hidden_size", "add_cross_attention", "boi_token_id", "eoi_token_id",
}

# What a text may say instead.
CHOICES = {
    "hidden_act": ["silu", "gelu", "gelu_pytorch_tanh", "relu"],
    "hidden_activation": ["silu", "gelu", "gelu_pytorch_tanh", "relu"],
    "rope_type": ["default", "linear", "dynamic", "yarn", "llama3", "longrope"],
    "type": ["default", "linear", "dynamic", "yarn", "llama3", "longrope"],
    "scoring_func": ["sigmoid", "softmax"],
    "score_func": ["sigmoid", "softmax"],
    "score_function": ["sigmoid", "softmax"],
    "expert_selection_fn": ["sigmoid", "softmax"],
    "topk_method": ["greedy", "noaux_tc", "group_limited_greedy"],
    "shared_expert_combination_strategy": ["average", "sum"],
    "use_bidirectional_attention": ["vision", "all"],
}

# Values of keys that no golden file has, or has only as null.
OTHERS = {
    "sliding_window": [4, 3], "clip_qkv": [0.5, 8.0], "attn_logit_softcapping": [2.0, 50.0],
    "final_logit_softcapping": [3.0, 30.0], "rotary_dim": [4, 8], "partial_rotary_factor": [0.5, 1.0], "rope_theta": [500.0, 1e6],
    "rotary_pct": [0.5, 1.0], "mup_enabled": [False, True], "use_qk_norm": [False, True], "qk_layernorm": [False, True],
    "attention_bias": [False, True], "mlp_bias": [False, True], "use_bias": [False, True], "qkv_bias": [False, True],
    "moe_layers": [[0], [1], [0, 1]], "mlp_only_layers": [[0], []], "num_experts_per_tok": [1, 2],
    "layer_types": [], "head_dim": [8, 16], "n_group": [1, 2], "topk_group": [1, 2], "norm_topk_prob": [False, True],
    "routed_scaling_factor": [1.0, 2.5], "rope_local_base_freq": [500.0, 10000.0], "use_expert_bias": [False, True],
    "max_window_layers": [0, 1, 28], "no_rope_layers": [[1, 0], []], "moe_layer_start_index": [0, 1], "moe_layer_end_index": [-1, 0],
    "logit_scale": [0.5, 1.0], "query_pre_attn_scalar": [8, 32], "hidden_act": ["silu", "gelu"], "hidden_activation": ["gelu_pytorch_tanh", "silu"],
    "attention_multiplier": [0.5], "embedding_multiplier": [2.0], "residual_multiplier": [0.5], "logits_scaling": [2.0],
    "swiglu_limit": [7.0, 0.5], "swiglu_alpha": [1.702, 1.0],
}

# In place of a value: the key is taken out.
REMOVED = object()

FACTORS = lambda half, x: [x + 0.5 * i for i in range(half)]


def scalings(half: int) -> dict:
    """Scalings of RoPE by name; `half`: pairs of a head that are rotated."""
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
    longrope = {"rope_type": "longrope", "short_factor": FACTORS(half, 1.0), "long_factor": FACTORS(half, 2.0),
                "original_max_position_embeddings": 64}
    return {
        "linear": {"rope_type": "linear", "factor": 4.0},
        "linear, named type": {"type": "linear", "factor": 4.0},
        "yarn": yarn,
        "yarn, named type": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
        "yarn without the original context": {"rope_type": "yarn", "factor": 4.0},
        "yarn with betas": yarn | {"beta_fast": 16.0, "beta_slow": 2.0},
        "yarn with its magnitude": yarn | {"attention_factor": 1.3},
        "yarn with mscale": yarn | {"mscale": 0.7},
        "yarn with mscale_all_dim": yarn | {"mscale_all_dim": 0.7},
        "yarn with mscale and mscale_all_dim": yarn | {"mscale": 1.0, "mscale_all_dim": 0.5},
        "yarn with equal mscales": yarn | {"mscale": 1.0, "mscale_all_dim": 1.0},
        "yarn, not truncated": yarn | {"truncate": False},
        "yarn, truncated": yarn | {"truncate": True},
        "llama3": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                   "original_max_position_embeddings": 32},
        "llama3 without its bands": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 32},
        "llama3 without the original context": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                                                "high_freq_factor": 4.0},
        "dynamic": {"rope_type": "dynamic", "factor": 4.0},
        "dynamic with alpha": {"rope_type": "dynamic", "factor": 1.0, "alpha": 50.0},
        "dynamic as Hunyuan's": {"type": "dynamic", "factor": 1.0, "alpha": 1000.0, "mscale": 1.0, "mscale_all_dim": 1.0,
                                 "beta_fast": 32, "beta_slow": 1},
        "longrope": longrope,
        "longrope with a factor": longrope | {"factor": 2.0},
        "longrope with its magnitude": longrope | {"attention_factor": 1.3},
        "longrope with magnitudes": longrope | {"short_mscale": 1.2, "long_mscale": 1.2},
        "su": longrope | {"rope_type": "su"},
        "default": {"rope_type": "default"},
        "proportional": {"rope_type": "proportional", "partial_rotary_factor": 0.5},
        "nothing known": {"rope_type": "mystery", "factor": 2.0},
        "empty": {},
    }


def inner(config: dict) -> dict:
    """The settings of the text model."""
    return config.get("text_config", config)


def others(key: str, value) -> list:
    """Values that may stand for a value."""
    if isinstance(value, bool):
        found = [not value, 0, 1, 4]
    elif isinstance(value, int):
        found = [value + 1, value - 1, value * 2, value // 2, 0, -1, float(value)]
    elif isinstance(value, float):
        found = [value * 2, value / 2, 0.0, -value, int(value)]
    elif isinstance(value, str):
        found = [*CHOICES.get(key, []), "mystery"]
    elif isinstance(value, list):
        found = [[], value[:-1], value[::-1], value + value[:1]]
        if key == "layer_types":
            kinds = ["full_attention", "sliding_attention", "chunked_attention", "linear_attention", "conv", "mystery"]
            found += [[kind] * len(value) for kind in kinds]
        elif key == "mlp_layer_types":
            found += [[kind] * len(value) for kind in ("dense", "sparse")]
        elif value and isinstance(value[0], (int, float)):
            found += [[value[0] * 2, *value[1:]], [0 * x for x in value], [1] * len(value)]
    else:
        found = []
    found += OTHERS.get(key, [])
    return [None, *found]


def once(values: list, *there) -> list:
    """Each value once, without those that are there. JSON tells 1 from 1.0 and from true."""
    found = {json.dumps(one): one for one in values}
    for value in there:
        found.pop(json.dumps(value), None)
    return list(found.values())


def set_in(config: dict, path: tuple, value) -> dict:
    """A changed copy of the settings; `value` may be `REMOVED`."""
    config = copy.deepcopy(config)
    at = inner(config)
    for key in path[:-1]:
        at = at[key]
    if value is REMOVED:
        at.pop(path[-1], None)
    else:
        at[path[-1]] = value
    return config


def of_object(config: dict, path: tuple, settings: dict):
    """Changes of the keys of an object."""
    for key, value in settings.items():
        if key in IDLE:
            continue
        here = (*path, key)
        yield ".".join(here), "removed", set_in(config, here, REMOVED)
        if isinstance(value, dict):
            yield ".".join(here), "null", set_in(config, here, None)
            yield ".".join(here), "{}", set_in(config, here, {})
            yield from of_object(config, here, value)
            continue
        for other in once(others(key, value), value):
            yield ".".join(here), json.dumps(other), set_in(config, here, other)


def of_rope(config: dict):
    """Changes of RoPE's settings together: other scalings, older forms."""
    settings = inner(config)
    parameters = settings.get("rope_parameters") or {}
    kinds = [kind for kind in ("full_attention", "sliding_attention") if isinstance(parameters.get(kind), dict)]
    flat = parameters[kinds[0]] if kinds else parameters
    head = settings.get("global_head_dim") or settings.get("head_dim") or settings["hidden_size"] // settings["num_attention_heads"]
    base = {key: flat[key] for key in ("rope_theta", "partial_rotary_factor", "mrope_section", "mrope_interleaved") if key in flat}
    half = int(head * base.get("partial_rotary_factor", 1.0)) // 2
    for name, scaling in scalings(half).items():
        yield "rope_parameters", f"{name}, with the base", set_in(config, ("rope_parameters",), base | scaling)
        if kinds:
            for kind in kinds:
                yield (f"rope_parameters.{kind}", f"{name}, with the base",
                       set_in(config, ("rope_parameters", kind), base | scaling))
        yield "rope_scaling", f"{name}, beside rope_parameters", set_in(config, ("rope_scaling",), scaling)
        old = set_in(set_in(config, ("rope_parameters",), REMOVED), ("rope_scaling",), scaling)
        inner(old).update(base)
        yield "rope_scaling", f"{name}, in place of rope_parameters", old
    scaling = {key: value for key, value in flat.items() if key not in base}
    old = set_in(config, ("rope_parameters",), REMOVED)
    inner(old).update(base | ({} if scaling.get("rope_type", "default") == "default" else {"rope_scaling": scaling}))
    yield "rope_parameters", "in the older form", old
    for share in (0.25, 0.5, 1.0):
        yield "partial_rotary_factor", f"{share}, in the older form", set_in(old, ("partial_rotary_factor",), share)
    for name, more in {"attention_factor": [1.3], "beta_fast": [16.0, 8], "beta_slow": [2.0], "mscale": [0.7, 1.0], "mscale_all_dim": [0.7, 1.0],
                       "truncate": [True, False], "partial_rotary_factor": [0.25, 0.5, 1.0], "factor": [2.0], "alpha": [50.0],
                       "llama_4_scaling_beta": [0.1, 0.0], "extrapolation_factor": [1.0], "type": ["yarn", "linear"],
                       "original_max_position_embeddings": [16, 64], "rope_theta": [500.0], "mrope_section": [[1, 1, 0]],
                       "max_position_embeddings": [64]}.items():
        whole = [("rope_parameters",)] if parameters else []
        for path in [("rope_parameters", kind) for kind in kinds] or whole:
            at = settings
            for key in path:
                at = at[key]
            if name not in at:
                for value in more:
                    yield ".".join((*path, name)), json.dumps(value), set_in(config, (*path, name), value)


def of_folder(config: dict, defaults: dict, pool: dict):
    """All changes of a folder's settings: the key, what it became, the settings. `defaults`: those of the family's
    class; `pool`: values that other folders have, by key."""
    settings = inner(config)
    yield "", "unchanged", config
    yield from of_object(config, (), settings)
    yield from of_rope(config)
    for key, default in defaults.items():
        if key in settings or key in IDLE or isinstance(default, dict):
            continue
        for other in once([default, *others(key, default), *pool.get(key, [])]):
            yield key, json.dumps(other), set_in(config, (key,), other)
    for key, values in pool.items():
        if key in settings or key in defaults or key in IDLE:
            continue
        for other in once([*values[:1], *OTHERS.get(key, [])])[:3]:
            yield key, json.dumps(other), set_in(config, (key,), other)


def pool(configs: list) -> dict:
    """The values that folders have, by key."""
    found = {key: list(values) for key, values in OTHERS.items()}
    for config in configs:
        for key, value in inner(config).items():
            if key not in IDLE and value is not None and not isinstance(value, dict) and value not in found.setdefault(key, []):
                found[key].append(value)
    return found
