#!/usr/bin/env python3
"""Writes the folders of crates/convert/tests/convert/quantised.rs: tiny models that whole quantisers saved.

packed_folders.py packs matrices with the classes of each program. Here the programs read a folder, calibrate, quantise
and save it, so settings and names of tensors are theirs too. They need different versions of transformers:

    pip install torch==2.15.0 transformers==5.24.0 gptqmodel==7.7.0
    python scripts/golden/quantised_folders.py VALUES gptqmodel
    pip install torch==2.15.0 transformers==5.17.0 llmcompressor==0.14.0.1 compressed-tensors==0.19.0
    python scripts/golden/quantised_folders.py VALUES llmcompressor
    pip install torch==2.15.0 transformers==5.23.0 gguf==0.19.0 auto-round==0.16.1 datasets
    TORCHDYNAMO_DISABLE=1 python scripts/golden/quantised_folders.py VALUES autoround
    python scripts/golden/quantised_folders.py VALUES logits

golden/packed/NAME has config.json and the weights. VALUES/NAME.safetensors gets the weights that the program itself reads
from that folder, in F32, and golden/packed/NAME.logits.gguf token sequences, and the logits of transformers with them.
"""

import json
import os
import pathlib
import sys
import tempfile

os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ.setdefault("GPTQMODEL_CPU_WORKERS", "4")

import torch  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen3Config, Qwen3MoeConfig  # noqa: E402

GOLDEN = pathlib.Path(__file__).parents[2] / "crates/conformance/golden"
OUT = GOLDEN / "packed"
LENGTHS = (5, 3, 2)
DENSE = dict(
    vocab_size=288, hidden_size=128, intermediate_size=256, num_hidden_layers=1, num_attention_heads=4,
    num_key_value_heads=2, head_dim=32, max_position_embeddings=128, tie_word_embeddings=False, rms_norm_eps=1e-5,
    initializer_range=0.1, eos_token_id=286,
)
MOE = DENSE | dict(moe_intermediate_size=64, num_experts=4, num_experts_per_tok=2)
KEPT = ("architectures", "model_type", "dtype", "rope_parameters", "quantization_config", "num_local_experts", *MOE)

GPTQMODEL = {
    "gptqmodel-v2": (DENSE, dict(bits=4, group_size=32, desc_act=False, sym=False, format="gptq_v2")),
    "gptqmodel-order": (DENSE, dict(bits=4, group_size=32, desc_act=True, sym=True)),
    "gptqmodel-order-experts": (MOE, dict(bits=4, group_size=32, desc_act=True, sym=True)),
    "gptqmodel-dynamic": (MOE, dict(bits=4, group_size=64, desc_act=False, sym=True, dynamic={
        "-:.*o_proj": {}, "+:.*q_proj": {"bits": 8, "group_size": 32}})),
    "gptqmodel-head": (DENSE, dict(bits=4, group_size=64, desc_act=False, sym=True, lm_head=True)),
    "gptqmodel-3bit": (DENSE, dict(bits=3, group_size=64, desc_act=False, sym=True)),
    "gptqmodel-awq": (MOE, dict(bits=4, group_size=32, sym=False, method="awq", format="gemm")),
    "gptqmodel-5bit": (DENSE, dict(bits=5, group_size=32, desc_act=False, sym=False)),
}
# The bits of matrices, and the format.
MIXED = {"self_attn.q_proj": 5, "self_attn.k_proj": 6, "self_attn.v_proj": 7, "self_attn.o_proj": 8,
         "mlp.gate_proj": 3, "mlp.up_proj": 2}
AWQ_MIXED = {"self_attn.q_proj": 5, "self_attn.k_proj": 6, "self_attn.v_proj": 7, "mlp.down_proj": 5}
AUTOROUND = {
    "autoround-w4a16": (MOE, dict(bits=4, group_size=32, sym=True), {}, "auto_round"),
    "autoround-mixed": (DENSE, dict(bits=4, group_size=32, sym=False), MIXED, "auto_round"),
    "autoround-awq": (DENSE, dict(bits=4, group_size=32, sym=False), AWQ_MIXED, "auto_round:auto_awq"),
}
# The modifier, and its arguments.
LLMCOMPRESSOR = {
    "llmcompressor-w4a16": (DENSE, "GPTQModifier", dict(scheme="W4A16", ignore=["lm_head"], actorder="static")),
    "llmcompressor-w4a16-head": (DENSE, "QuantizationModifier", dict(scheme="W4A16_ASYM")),
    "llmcompressor-embedding": (DENSE, "QuantizationModifier", dict(scheme="W8A16", targets=["Linear", "Embedding"])),
    "llmcompressor-fp8": (MOE, "QuantizationModifier", dict(scheme="FP8_DYNAMIC", ignore=["lm_head", "re:.*mlp.gate$"])),
    "llmcompressor-nvfp4": (DENSE, "QuantizationModifier", dict(scheme="NVFP4A16", ignore=["lm_head"])),
}
ALL = GPTQMODEL | AUTOROUND | LLMCOMPRESSOR


def source(sizes: dict, folder: pathlib.Path) -> None:
    """A model in BF16 with random weights, and a tokenizer."""
    torch.manual_seed(5)
    model = AutoModelForCausalLM.from_config((Qwen3MoeConfig if sizes is MOE else Qwen3Config)(**sizes), dtype=torch.float32)
    with torch.no_grad():
        for w in model.parameters():
            # Scales differ from column to column.
            w.copy_(w * (1 if w.dim() == 1 else torch.randn(w.shape[-1]).exp()))
    model.bfloat16().save_pretrained(folder)
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(GOLDEN / "convert/qwen3/tokenizer.json"))
    tokenizer.save_pretrained(folder)


def texts(vocabulary: int) -> list[dict]:
    """Texts to calibrate with."""
    generator = torch.Generator().manual_seed(1)
    return [{"input_ids": torch.randint(vocabulary, (64,), generator=generator).tolist(), "attention_mask": [1] * 64}
            for _ in range(16)]


def with_gptqmodel(name: str, folder: pathlib.Path, saved: pathlib.Path) -> dict[str, torch.Tensor]:
    from gptqmodel import BACKEND, GPTQModel, QuantizeConfig
    from gptqmodel.quantization.awq.utils.packing_utils import dequantize_gemm

    sizes, arguments = GPTQMODEL[name]
    settings = QuantizeConfig(device="cpu", offload_to_disk=False, **arguments)
    model = GPTQModel.load(str(folder), settings)
    model.quantize(texts(sizes["vocab_size"]), batch_size=1)
    model.save(str(saved))
    model = GPTQModel.load(str(saved), device="cpu", backend=BACKEND.TORCH, dtype=torch.float16).model
    values = {}
    for module, linear in model.named_modules():
        if hasattr(linear, "qzeros") and arguments.get("method") == "awq":
            values[f"{module}.weight"] = dequantize_gemm(
                linear.qweight, linear.qzeros, linear.scales.float(), arguments["bits"], arguments["group_size"]).T.float()
        elif hasattr(linear, "dequantize_weight"):
            linear.scales = linear.scales.float()
            values[f"{module}.weight"] = linear.dequantize_weight().T.float()
    return values


def with_autoround(name: str, folder: pathlib.Path, saved: pathlib.Path) -> dict[str, torch.Tensor]:
    from auto_round import AutoRound
    from auto_round.export.export_to_awq.utils import dequantize_gemm
    from auto_round_extension.torch import qlinear_torch, qlinear_torch_zp

    _, arguments, mixed, packing = AUTOROUND[name]
    group, layers = arguments["group_size"], {f"model.layers.0.{module}": {"bits": bits} for module, bits in mixed.items()}
    program = AutoRound(str(folder), scheme="W4A16", iters=0, device_map="cpu", disable_opt_rtn=True,
                        layer_config=layers or None, disable_model_free=bool(mixed), **arguments)
    program.quantize_and_save(str(saved), format=packing)
    # Not all of its ways to save write one file, or write into this folder.
    made = next(saved.rglob("config.json"))
    shards = [load_file(shard) for shard in sorted(made.parent.glob("*.safetensors"))]
    if made.parent != saved:
        made.rename(saved / "config.json")
    save_file({key: w for shard in shards for key, w in shard.items()}, saved / "model.safetensors", {"format": "pt"})
    packing = json.loads((saved / "config.json").read_text())["quantization_config"]["packing_format"]
    # The zero points of GPTQ are stored less one.
    of_packing = qlinear_torch_zp if "gptq" in packing else qlinear_torch
    state, values = load_file(saved / "model.safetensors"), {}
    for module in (key.removesuffix(".qweight") for key in state if key.endswith(".qweight")):
        rows = state[f"{module}.scales"].shape[1]
        bits = state[f"{module}.qzeros"].shape[1] * 32 // rows
        if "awq" in packing:
            parts = [state[f"{module}.{part}"] for part in ("qweight", "qzeros", "scales")]
            values[f"{module}.weight"] = dequantize_gemm(parts[0], parts[1], parts[2].float(), bits, group).T
            continue
        columns = state[f"{module}.qweight"].shape[0] * 32 // bits
        linear = of_packing.QuantLinear(bits, group, columns, rows, bias=False)
        for part in ("qweight", "qzeros", "scales"):
            setattr(linear, part, state[f"{module}.{part}"])
        linear.scales = linear.scales.float()
        with torch.no_grad():
            values[f"{module}.weight"] = linear(torch.eye(columns)).T
    return values


def with_llmcompressor(name: str, folder: pathlib.Path, saved: pathlib.Path) -> dict[str, torch.Tensor]:
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    from compressed_tensors.quantization.lifecycle.forward import dequantize
    from datasets import Dataset
    from llmcompressor import oneshot
    from llmcompressor.modifiers import quantization
    from transformers import CompressedTensorsConfig

    sizes, modifier, arguments = LLMCOMPRESSOR[name]
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    recipe = getattr(quantization, modifier)(**{"targets": "Linear"} | arguments)
    oneshot(model=model, processor=PreTrainedTokenizerFast.from_pretrained(folder), recipe=recipe, pipeline="basic",
            dataset=Dataset.from_list(texts(sizes["vocab_size"])), max_seq_length=64, num_calibration_samples=16)
    model.save_pretrained(saved, save_compressed=True)
    state, values = load_file(saved / "model.safetensors"), {}
    if "embedding" in name:
        # transformers does not load quantised embeddings.
        groups = json.loads((saved / "config.json").read_text())["quantization_config"]["config_groups"]
        scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**groups["group_0"]["weights"]))
        compressor = BaseCompressor.get_value_from_registry("pack-quantized")
        for module in (key.removesuffix(".weight_packed") for key in state if key.endswith(".weight_packed")):
            parts = {part: state[f"{module}.{part}"] for part in ("weight_packed", "weight_scale", "weight_shape")}
            parts["weight_scale"] = parts["weight_scale"].float()
            values[f"{module}.weight"] = compressor.decompress(parts, scheme)["weight"].float()
        return values
    model = AutoModelForCausalLM.from_pretrained(
        saved, dtype=torch.float32, quantization_config=CompressedTensorsConfig(run_compressed=False))
    # transformers rounds experts to BF16 when it stacks them.
    values = {key: w.float() for key, w in model.state_dict().items() if ".experts." not in key}
    compressor = BaseCompressor.get_value_from_registry("float-quantized")
    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(num_bits=8, type="float", strategy="channel"))
    for key in (key for key in state if ".experts." in key and key.endswith(".weight")):
        parts = {"weight": state[key], "weight_scale": state[f"{key}_scale"].float()}
        values[key] = compressor.decompress(parts, scheme)["weight"].float()
    # The class unpacks NVFP4 to BF16.
    args = QuantizationArgs(num_bits=4, type="float", strategy="tensor_group", group_size=16)
    for module in (key.removesuffix(".weight_packed") for key in state if "nvfp4" in name and key.endswith(".weight_packed")):
        of = lambda part: state[f"{module}.{part}"]  # noqa: B023, E731
        rows, columns = of("weight_packed").shape
        codes = unpack_fp4_from_uint8(of("weight_packed"), rows, 2 * columns, dtype=torch.float32)
        values[f"{module}.weight"] = dequantize(
            codes, scale=of("weight_scale").float(), args=args, global_scale=of("weight_global_scale"), dtype=torch.float32)
    return values


def put(model, values: dict[str, torch.Tensor]) -> None:
    """Loads values by published names: experts may be tensors of their own."""
    for key, w in model.state_dict().items():
        if ".experts." not in key or key in values:
            w.copy_(values[key])
            continue
        stack, part = key.rsplit(".", 1)
        for expert, matrix in enumerate(w):
            of = lambda part: values[f"{stack}.{expert}.{part}.weight"]  # noqa: B023, E731
            matrix.copy_(of("down_proj") if part == "down_proj" else torch.cat([of("gate_proj"), of("up_proj")]))


def write_folder(name: str, values: pathlib.Path) -> None:
    programs = [(with_gptqmodel, GPTQMODEL), (with_autoround, AUTOROUND), (with_llmcompressor, LLMCOMPRESSOR)]
    quantise, cases = next(program for program in programs if name in program[1])
    with tempfile.TemporaryDirectory() as at:
        folder, saved = pathlib.Path(at, "source"), pathlib.Path(at, "saved")
        source(cases[name][0], folder)
        read = quantise(name, folder, saved)
        plain = load_file(saved / "model.safetensors")
        read |= {key: w.float() for key, w in plain.items() if key.endswith("weight") and key not in read}
        save_file({key: w.contiguous() for key, w in read.items()}, values / f"{name}.safetensors")
        out = OUT / name
        out.mkdir(parents=True, exist_ok=True)
        written = json.loads((saved / "config.json").read_text())
        kept = {key: value for key, value in written.items() if key in KEPT}
        (out / "config.json").write_text(json.dumps(kept, indent=1) + "\n")
        (out / "model.safetensors").write_bytes((saved / "model.safetensors").read_bytes())


def write_logits_of(name: str, values: pathlib.Path) -> None:
    from tiny.draw import run
    from tiny.files import write_logits
    from tiny.shapes import TOLERANCE

    sizes = ALL[name][0]
    config = (Qwen3MoeConfig if sizes is MOE else Qwen3Config)(**sizes)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        put(model, load_file(values / f"{name}.safetensors"))
        generator = torch.Generator().manual_seed(41)
        sequences = [torch.randint(sizes["vocab_size"], (n,), generator=generator) for n in LENGTHS]
        write_logits(OUT / f"{name}.logits.gguf", TOLERANCE["f32"], sequences, run(model, sequences))


if __name__ == "__main__":
    values, what, *names = sys.argv[1:]
    all_names = {"gptqmodel": GPTQMODEL, "autoround": AUTOROUND, "llmcompressor": LLMCOMPRESSOR, "logits": ALL}[what]
    for case in names or all_names:
        (write_logits_of if what == "logits" else write_folder)(case, pathlib.Path(values))
        print(case)
