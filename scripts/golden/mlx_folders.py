#!/usr/bin/env python3
"""Writes the folders of crates/conformance/tests/convert/mlx.rs with mlx-lm, the reference implementation.

    pip install mlx==0.32.4 mlx-cpu==0.32.4 transformers==5.23.* && pip install --no-deps mlx-lm==0.32.2
    python scripts/golden/mlx_folders.py

golden/mlx/NAME is the folder golden/convert/SOURCE, quantised by mlx-lm: its config.json and weights.
golden/mlx/NAME.decoded.safetensors has the same weights as MLX decodes them to float32, each expert on its own as
transformers names them.
"""

import importlib.metadata
import json
import pathlib
import shutil
import tempfile

import mlx.core as mx
import mlx_lm

assert importlib.metadata.version("mlx") == "0.32.4", "the golden files are those of mlx 0.32.4"
assert importlib.metadata.version("mlx-lm") == "0.32.2", "the golden files are those of mlx-lm 0.32.2"
GOLDEN = pathlib.Path(__file__).parents[2] / "crates/conformance/golden"
OUT = GOLDEN / "mlx"


def widths(bits: dict[str, int], default: int):
    """Widths by parts of the names of modules; groups of 32; 0: not quantised."""

    def of(path: str, module, *_):
        if not hasattr(module, "to_quantized"):
            return False
        chosen = next((n for part, n in bits.items() if part in path), default)
        return {"bits": chosen, "group_size": 32} if chosen else False

    return of


CASES = {
    "qwen3moe-4bit": ("qwen3moe", 4, {"mlp.gate": 8}),
    "llama3-mixed": ("llama3", 3, {"embed": 6, "q_proj": 2, "k_proj": 5, "v_proj": 8, "down_proj": 4, "lm_head": 0}),
}


def decoded(folder: pathlib.Path) -> dict[str, mx.array]:
    weights = {}
    for file in sorted(folder.glob("*.safetensors")):
        weights |= mx.load(str(file))
    config = mlx_lm.utils.load_config(folder)["quantization"]
    plain = {}
    for name, w in weights.items():
        module = name.removesuffix(".weight")
        if name.endswith((".scales", ".biases")):
            continue
        if module + ".scales" in weights:
            own = config.get(module, config)
            own = own if isinstance(own, dict) else config
            scales, biases = (weights[f"{module}.{part}"].astype(mx.float32) for part in ("scales", "biases"))
            w = mx.dequantize(w, scales, biases, group_size=own["group_size"], bits=own["bits"])
        w = w.astype(mx.float32)
        if ".switch_mlp." in name:
            for expert in range(w.shape[0]):
                plain[name.replace(".switch_mlp.", f".experts.{expert}.")] = w[expert]
        else:
            plain[name] = w
    return plain


def main() -> None:
    OUT.mkdir(exist_ok=True)
    for name, (source, default, bits) in CASES.items():
        with tempfile.TemporaryDirectory() as scratch:
            folder, plain = pathlib.Path(scratch) / "mlx", pathlib.Path(scratch) / "plain"
            shutil.copytree(GOLDEN / "convert" / source, plain)
            # mlx-lm knows these settings by the names of transformers 4 alone.
            config = json.loads((plain / "config.json").read_text())
            config["rope_theta"] = config["rope_parameters"]["rope_theta"]
            if "num_local_experts" in config:
                config["num_experts"] = config["num_local_experts"]
            (plain / "config.json").write_text(json.dumps(config))
            mlx_lm.convert(
                str(plain),
                str(folder),
                quantize=True,
                q_bits=default,
                q_group_size=32,
                quant_predicate=widths(bits, default),
            )
            (OUT / name).mkdir(exist_ok=True)
            for file in ("config.json", "model.safetensors", "model.safetensors.index.json"):
                shutil.copy(folder / file, OUT / name / file)
            mx.save_safetensors(str(OUT / f"{name}.decoded.safetensors"), decoded(folder))


main()
