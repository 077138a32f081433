#!/usr/bin/env python3
"""Writes crates/convert/src/classes.json: for each supported `model_type` that transformers has, the settings that its
configuration class declares. `defaults` are taken when a setting is missing; `names` are those without a default, and
sizes, for which the class has those of one model; `aliases` are other names of fields. `layers` are lists with a value for
each layer that the class computes from the number of layers alone: the first values, and those that then repeat; the
settings of `unless` are no fields, but may change these lists. `unread` are settings that other classes read.

    python scripts/settings/classes.py
"""

import dataclasses
import inspect
import json
import math
import pathlib
import re

from transformers import PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from variants import IDLE as NOT_READ

CRATES = pathlib.Path(__file__).parents[2] / "crates"
CONVERT = CRATES / "convert/src"
# They say which tensors there are and how large.
SIZES = {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_experts",
         "num_local_experts", "n_routed_experts", "moe_num_experts", "moe_intermediate_size", "intermediate_size_mlp",
         "shared_expert_intermediate_size", "linear_num_key_heads", "linear_num_value_heads"}
# Where a model lies within another, the class of the text model: Mistral Small 3 has another than Ministral 3, and others name
# none.
WITHIN = {"mistral3": "mistral", "lfm2_vl": "lfm2", "glm46v": "glm4v", "idefics3": "llama", "smolvlm": "llama"}
# The code of the authors has a copy of the class.
COPIES = {"kimi_k2": "deepseek_v3"}
# Layers of the models from which the lists of layers are read.
LAYERS = 128


def model_types() -> list:
    """The `model_type`s of all families."""
    found = set()
    for path in sorted((CRATES / "model/src/family").glob("*/published.rs")):
        for names in re.findall(r"model_types: &\[([^]]*)\]", path.read_text(encoding="utf-8")):
            found |= set(re.findall(r'"(\w+)"', names))
    return sorted(found & (set(CONFIG_MAPPING.keys()) | set(COPIES)))


def built(cls, **settings):
    """The attributes of a configuration; None if the class refuses the settings."""
    try:
        config = cls(**settings)
        return vars(config) | dict(rope_parameters=config.to_dict().get("rope_parameters"))
    except Exception:
        return None


def others(default) -> list:
    """Other values of a setting."""
    if isinstance(default, bool):
        return [not default]
    if isinstance(default, int):
        return [default + 2]
    if isinstance(default, float):
        return [default / 2]
    return [1, 4, [0]] if default is None else []


def variants_of(fields: list):
    """Other settings, a field at a time."""
    for field in fields:
        default = None if field.default is dataclasses.MISSING else field.default
        for value in others(default) if field.name != "num_hidden_layers" else []:
            yield {field.name: value}


def lists_of_layers(cls, fields: list) -> dict:
    """The lists with a value for each layer that depend on the number of layers alone."""
    base, shorter = built(cls, num_hidden_layers=LAYERS), built(cls, num_hidden_layers=LAYERS - 1)
    if base is None or shorter is None:
        return {}
    changed = [found for settings in variants_of(fields) if (found := built(cls, num_hidden_layers=LAYERS, **settings))]
    found = {}
    for name, values in base.items():
        if not isinstance(values, list) or len(values) != LAYERS or name not in {field.name for field in fields}:
            continue
        if shorter[name] != values[:-1] or any(other[name] != values for other in changed):
            continue
        for first in range(3):
            repeats = [period for period in range(1, 9) if all(
                values[i] == values[i - period] for i in range(first + period, LAYERS))]
            if repeats:
                found[name] = dict(first=values[:first], then=values[first : first + repeats[0]])
                break
    return found


def rope(cls, fields: list) -> dict:
    """The defaults of RoPE's settings."""
    theta = cls.default_theta
    if isinstance(theta, dict):
        return dict(rope_theta=theta["global"], rope_local_base_freq=theta["local"])
    parameters = dict((built(cls) or {}).get("rope_parameters") or {})
    for other in filter(None, (built(cls, **settings) for settings in variants_of(fields))):
        # Some are computed from other settings.
        parameters = {key: value for key, value in parameters.items() if (other["rope_parameters"] or {}).get(key) == value}
    if parameters.get("rope_theta") == theta:
        del parameters["rope_theta"]
    plain = dict(rope_type="default", rope_theta=theta)
    says_more = any(value != plain for value in parameters.values()) if "full_attention" in parameters else (
        set(parameters) - {"rope_type", "rope_theta", "partial_rotary_factor"})
    return dict(rope_theta=theta) | (dict(rope_parameters=parameters) if says_more else {})


def unread(cls) -> list:
    """Settings of RoPE beside its parameters that the class does not read."""
    name = "original_max_position_embeddings"
    reads = vars(cls).get("convert_rope_params_to_dict")
    source = inspect.getsource(reads) if reads is not None else "super()"
    return [] if "super()" in source or "standardize_rope_params" in source else [name]


def describe(model_type: str) -> dict:
    cls = CONFIG_MAPPING[(WITHIN | COPIES).get(model_type, model_type)]
    if (text := getattr(cls, "sub_configs", {}).get("text_config")) is not None:
        cls = text
    general = {field.name for field in dataclasses.fields(PreTrainedConfig)}
    fields = [field for field in dataclasses.fields(cls)
              if field.name not in NOT_READ and (field.name not in general or field.name in cls.__annotations__)
              and not field.name.endswith("_token_id") and not field.name.startswith(("base_model", "rope_", "default_theta"))]
    found = dict(names=[], defaults={}, aliases={})
    for field in fields:
        default = None if field.default is dataclasses.MISSING else field.default
        if isinstance(default, tuple) and math.inf in default:
            default = None  # which JSON lacks
        if default is None or field.name in SIZES:
            found["names"].append(field.name)
        else:
            found["defaults"][field.name] = default
    found["defaults"] |= rope(cls, fields)
    found["layers"] = lists_of_layers(cls, fields)
    found["unless"] = sorted(set(re.findall(r'kwargs\.(?:get|pop)\(\s*"(\w+)"', inspect.getsource(cls)))) if found["layers"] else []
    found["unread"] = unread(cls)
    declared = {field.name for field in fields}
    for pair in cls.attribute_map.items():
        alias, name = pair if pair[1] in declared else pair[::-1]
        found["aliases"][alias] = name
    return found


def main() -> None:
    found = {model_type: describe(model_type) for model_type in model_types()}
    lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(about)}" for name, about in found.items())
    (CONVERT / "classes.json").write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
