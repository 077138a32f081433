#!/usr/bin/env python3
"""Draws the changed settings of all golden folders, and runs transformers with each.

    python scripts/settings/theirs.py OUT [FOLDER…]

OUT is written as a line of JSON for each change: the folder, the key, what it became, the settings, and what
transformers makes of them: the loss of each token of two sequences, or why it refuses.
"""

import json
import os
import pathlib
import sys
import time
import warnings

os.environ["TQDM_DISABLE"] = "1"
warnings.filterwarnings("ignore")

import torch
import transformers
import variants
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

GOLDEN = pathlib.Path(__file__).parents[2] / "crates/conformance/golden/convert"
# Families whose class reads other settings than the published ones: their folders run as transformers saves them, too.
SAVED = ("mimo2", "kimi-linear", "bailingmoe3")
AS_SAVED = "-saved"
# The second is longer than any window, and than the context that a scaling of RoPE begins from.
LENGTHS = (12, 80)
# transformers never takes the long factors of Phi-3.5-MoE, whose authors' code does beyond 64 tokens.
SHORTER = {"phimoe": (12, 60)}
# How the names of a text model's tensors begin within another model.
WITHIN = ("model.language_model.", "language_model.model.")


def folders() -> dict:
    """The golden folders by name. The weights of those that are saved may be in the published ones."""
    found = {path.parent.name: path.parent for path in sorted(GOLDEN.glob("*/config.json"))}
    return found | {name + AS_SAVED: GOLDEN.parent / "saved" / name for name in SAVED}


def tokens(folder: str) -> list:
    lengths = SHORTER.get(folder, LENGTHS)
    return [[(37 * i + 11 + 5 * n) % 280 for i in range(length)] for n, length in enumerate(lengths)]


def weights(folder: pathlib.Path) -> dict:
    """The tensors of a folder's text model, under the names that they have without another around it."""
    state = {}
    has_own = any(folder.glob("*.safetensors"))
    for path in sorted((folder if has_own else GOLDEN / folder.name).glob("*.safetensors")):
        state |= load_file(path)
    prefix = next((prefix for prefix in WITHIN if any(name.startswith(prefix) for name in state)), None)
    if prefix is None:
        return state
    inner = {"model." + name.removeprefix(prefix): weight for name, weight in state.items() if name.startswith(prefix)}
    outer = {name.removeprefix("language_model."): weight for name, weight in state.items() if "lm_head" in name}
    return inner | outer


def class_of(config: dict):
    """The configuration class of a folder's text model; None if transformers has none, or no text model of that class."""
    own, outer = (of.get("model_type") for of in (variants.inner(config), config))
    if own in CONFIG_MAPPING:
        found = CONFIG_MAPPING[own]
    else:
        found = CONFIG_MAPPING[outer].sub_configs.get("text_config") if outer in CONFIG_MAPPING else None
    return found if found is not None and model_of(found) is not None else None


def model_of(cls):
    """The text model of a configuration class; None if transformers has none."""
    if cls in AutoModelForCausalLM._model_mapping.keys():
        return AutoModelForCausalLM._model_mapping[cls]
    # Not all are in the table.
    return getattr(transformers, cls.__name__.replace("TextConfig", "Config").replace("Config", "ForCausalLM"), None)


def loss(settings: dict, cls, state: dict, sequences: list) -> dict:
    """What transformers makes of these settings."""
    config = cls.from_dict(settings)
    # Some classes' default is beyond a tiny vocabulary.
    config.pad_token_id = None
    model, about = model_of(cls).from_pretrained(
        None, config=config, state_dict=dict(state), dtype=torch.float32, attn_implementation="eager",
        output_loading_info=True)
    if about["missing_keys"]:
        return dict(refused=f"random weights: {sorted(about['missing_keys'])[0]}")
    losses = []
    for sequence in sequences:
        ids = torch.tensor([sequence])
        with torch.no_grad():
            logits = model(input_ids=ids).logits[0, :-1].double()
        losses.append(torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="none").tolist())
    return dict(losses=losses) if torch.tensor(sum(losses, [])).isfinite().all() else dict(refused="not finite")


def main(out: str, only: list) -> None:
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    torch.set_num_threads(1)
    paths = folders()
    configs = {name: json.loads((path / "config.json").read_text()) for name, path in paths.items()}
    pool = variants.pool(list(configs.values()))
    with open(out, "w", encoding="utf-8") as file:
        for name, config in configs.items():
            settings = variants.inner(config)
            if "quantization_config" in settings or (only and name not in only):
                continue
            cls = class_of(config)
            if cls is None:
                print(f"{name}: transformers has no text model of this type", file=sys.stderr, flush=True)
                continue
            start, state = time.time(), weights(paths[name])
            defaults = cls().to_dict()
            seen = set()
            for key, change, changed in variants.of_folder(config, defaults, pool):
                line = json.dumps(changed)
                if line in seen:
                    continue
                seen.add(line)
                try:
                    found = loss(json.loads(line).get("text_config") or json.loads(line), cls, state, tokens(name))
                except Exception as error:
                    found = dict(refused=f"{type(error).__name__}: {error}"[:300])
                about = dict(folder=name, key=key, change=change, config=changed, tokens=tokens(name))
                file.write(json.dumps(about | found) + "\n")
            print(f"{name}: {len(seen)} changes in {time.time() - start:.0f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
