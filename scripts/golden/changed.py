#!/usr/bin/env python3
"""Writes golden/changed.json: what transformers computes for golden folders whose settings are changed.

    pip install torch==2.15.0 transformers==5.24.0 safetensors==0.8.0
    python scripts/golden/changed.py

Each entry has a folder of golden/convert, its changed settings, and the loss of each token of two sequences. The changes
are ones that `cargo xtask prove settings` found to differ.
"""

import copy
import json
import os
import pathlib
import sys

os.environ["TQDM_DISABLE"] = "1"

import torch
import transformers

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "settings"))
import theirs
import variants

GOLDEN = pathlib.Path(__file__).parents[2] / "crates/conformance/golden"
YARN = dict(rope_type="yarn", rope_theta=6e6, factor=4.0, original_max_position_embeddings=32)
# The folder, the settings that it gets (`variants.REMOVED`: it gets none), and the type of the class if transformers has
# not that of the folder.
CHANGES = [
    ("bailingmoe3", dict(rope_parameters=YARN | dict(mscale_all_dim=0.7)), None),
    ("bailingmoe3", dict(rope_parameters=YARN | dict(mscale=1.0, mscale_all_dim=0.5)), None),
    ("mellum", dict(layer_types=variants.REMOVED), None),
    ("mellum", dict(layer_types=None), None),
    ("mellum", dict(rope_parameters=variants.REMOVED), None),
    ("mellum", dict(original_max_position_embeddings=64), None),
    ("mistral4", dict(n_group=2, topk_group=1), None),
    ("deepseek2", dict(model_type="kimi_k2", routed_scaling_factor=variants.REMOVED), "deepseek_v3"),
    ("deepseek2", dict(model_type="kimi_k2", norm_topk_prob=variants.REMOVED), "deepseek_v3"),
]


def main() -> None:
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    torch.set_num_threads(1)
    found = []
    for name, changes, model_type in CHANGES:
        config = json.loads((GOLDEN / "convert" / name / "config.json").read_text())
        for key, value in changes.items():
            config = variants.set_in(config, (key,), value)
        settings = copy.deepcopy(variants.inner(config))
        if model_type is not None:
            settings["model_type"] = model_type
        losses = theirs.loss(settings, theirs.class_of(settings), theirs.weights(GOLDEN / "convert" / name), theirs.tokens(name))
        assert "losses" in losses, losses
        rounded = [[round(loss, 6) for loss in sequence] for sequence in losses["losses"]]
        found.append(dict(folder=name, config=config, tokens=theirs.tokens(name), losses=rounded))
    lines = ",\n".join(json.dumps(one) for one in found)
    (GOLDEN / "changed.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
