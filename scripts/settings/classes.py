#!/usr/bin/env python3
"""Writes crates/convert/src/classes.json: for each supported `model_type` that transformers has, the settings that its
configuration class declares. `defaults` are taken when a setting is missing; `names` are those without a default, and
sizes, for which the class has those of one model; `aliases` are other names of fields.

    python scripts/settings/classes.py
"""

import dataclasses
import json
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
# Their classes have parameters of RoPE for folders that have none.
WITH_ROPE = {"gemma4", "gemma4_text", "gpt_oss", "laguna", "ministral3", "mistral4"}
# Where a model lies within another, the class of the text model; Mistral Small 3 has another than Ministral 3.
WITHIN = {"mistral3": "mistral"}


def model_types() -> list:
    """The `model_type`s of all families."""
    found = set()
    for path in sorted((CRATES / "model/src/family").glob("*/published.rs")):
        for names in re.findall(r"model_types: &\[([^]]*)\]", path.read_text(encoding="utf-8")):
            found |= set(re.findall(r'"(\w+)"', names))
    return sorted(found & set(CONFIG_MAPPING.keys()))


def rope(model_type: str, cls) -> dict:
    """The defaults of RoPE's settings."""
    theta = cls.default_theta
    if isinstance(theta, dict):
        return dict(rope_theta=theta["global"], rope_local_base_freq=theta["local"])
    if model_type not in WITH_ROPE:
        return dict(rope_theta=theta)
    parameters = cls().to_dict()["rope_parameters"]
    if parameters.get("rope_theta") == theta:
        del parameters["rope_theta"]
    return dict(rope_theta=theta, rope_parameters=parameters)


def describe(model_type: str) -> dict:
    cls = CONFIG_MAPPING[WITHIN.get(model_type, model_type)]
    if (text := getattr(cls, "sub_configs", {}).get("text_config")) is not None:
        cls = text
    general = {field.name for field in dataclasses.fields(PreTrainedConfig)}
    fields = [field for field in dataclasses.fields(cls)
              if field.name not in NOT_READ and (field.name not in general or field.name in cls.__annotations__)
              and not field.name.endswith("_token_id") and not field.name.startswith(("base_model", "rope_", "default_theta"))]
    found = dict(names=[], defaults={}, aliases={})
    for field in fields:
        default = None if field.default is dataclasses.MISSING else field.default
        if default is None or field.name in SIZES:
            found["names"].append(field.name)
        else:
            found["defaults"][field.name] = default
    found["defaults"] |= rope(model_type, cls)
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
