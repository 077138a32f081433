#!/usr/bin/env python3
"""Writes the folders of crates/convert/tests/convert/packed.rs with the programs that quantise so.

    pip install torch==2.15.0 transformers==5.23.* gguf==0.19.0 safetensors loguru psutil accelerate py-cpuinfo omegaconf scipy pulp
    pip install --no-deps compressed-tensors==0.20.1 auto-gptq==0.7.1 autoawq==0.2.9 auto-round==0.16.1 nvidia-modelopt==0.47.0
    python scripts/golden/packed_folders.py [NAME…]

golden/packed/NAME has config.json and the weights of a tiny Qwen 3 with random weights, which the program's own classes
have packed. Scales and zero points are those of the smallest and the largest value of a group, or random where said.
golden/packed/NAME.logits.gguf has token sequences and the logits that transformers computes with the weights as the
program unpacks them, with scales in F32. golden/packed/NAME.sums.json has a sum over the bits of each of these weights, by
the names of GGUF.
"""

import contextlib
import importlib.util
import json
import pathlib
import sys
import types

import numpy as np
import torch
from safetensors.torch import save_file
from tiny.draw import run
from tiny.files import write_logits
from tiny.shapes import TOLERANCE
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3MoeConfig


def bare(*names: str) -> None:
    """Packages whose own imports need a GPU, or older versions of others."""
    for name in names:
        package = types.ModuleType(name)
        package.__path__ = list(importlib.util.find_spec(name).submodule_search_locations)
        sys.modules[name] = package


bare("awq", "awq.utils", "awq.modules", "awq.modules.linear")
bare("auto_gptq", "auto_gptq.nn_modules", "auto_gptq.nn_modules.qlinear")
bare("auto_round", "auto_round.utils", "auto_round_extension", "auto_round_extension.torch")
sys.modules["auto_round.utils"].get_packing_device = lambda device: "cpu"

from auto_gptq.nn_modules.qlinear import qlinear_cuda  # noqa: E402
from awq.modules.linear.gemm import WQLinear_GEMM  # noqa: E402
from awq.utils.packing_utils import dequantize_gemm  # noqa: E402
from compressed_tensors.compressors import BaseCompressor  # noqa: E402
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8  # noqa: E402
from compressed_tensors.quantization.lifecycle.forward import dequantize  # noqa: E402
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme  # noqa: E402
from compressed_tensors.quantization.utils import calculate_qparams  # noqa: E402

OUT = pathlib.Path(__file__).parents[2] / "crates/conformance/golden/packed"
LENGTHS = (5, 3, 2)
DENSE = dict(
    vocab_size=288, hidden_size=128, intermediate_size=256, num_hidden_layers=1, num_attention_heads=4,
    num_key_value_heads=2, head_dim=32, max_position_embeddings=128, tie_word_embeddings=True, rms_norm_eps=1e-5,
    initializer_range=0.1, eos_token_id=286,
)
MOE = DENSE | dict(moe_intermediate_size=64, num_experts=4, num_experts_per_tok=2)
OURS = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}


def groups_of(w: torch.Tensor, group: int) -> torch.Tensor:
    return w.unflatten(1, (-1, group))


def smallest_to_largest(w: torch.Tensor, bits: int, group: int, symmetric: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Scales in F16, and zero points, each [rows, groups]."""
    parts = groups_of(w.float(), group)
    if symmetric:
        scales = (parts.abs().amax(-1) / (2 ** (bits - 1) - 1)).half()
        return scales, torch.full_like(scales, 2 ** (bits - 1))
    least, most = parts.amin(-1).clamp(max=0), parts.amax(-1).clamp(min=0)
    scales = ((most - least) / (2**bits - 1)).half()
    return scales, (-least / scales.float()).round().clamp(1, 2**bits - 1).half()


def linear(w: torch.Tensor) -> torch.nn.Linear:
    module = torch.nn.Linear(w.shape[1], w.shape[0], bias=False)
    module.weight.data = w.float()
    return module


def gptq(bits: int, group: int, symmetric: bool, ordered: bool):
    def pack(name: str, w: torch.Tensor):
        rows, columns = w.shape
        module = qlinear_cuda.QuantLinear(bits, group, columns, rows, bias=False, weight_dtype=torch.float16)
        generator = torch.Generator().manual_seed(columns)
        shuffled = torch.randperm(columns, generator=generator)
        order = torch.arange(columns, dtype=torch.int32) // group
        if ordered:
            order = order[shuffled]
        # The columns of each group next to each other.
        scales, zeros = smallest_to_largest(w[:, torch.argsort(order, stable=True)], bits, group, symmetric)
        module.pack(linear(w.half()), scales.float(), zeros.float(), order)
        packed = {key: getattr(module, key) for key in ("qweight", "qzeros", "scales", "g_idx")}
        packed["scales"] = packed["scales"].half()
        module.scales = packed["scales"].float()
        with torch.no_grad():
            values = module(torch.eye(columns)).T
        return packed, values

    return pack


def auto_round(bits: int, group: int):
    from auto_round_extension.torch.qlinear_torch import QuantLinear

    def pack(name: str, w: torch.Tensor):
        rows, columns = w.shape
        scales, zeros = smallest_to_largest(w, bits, group, False)
        module = QuantLinear(bits, group, columns, rows, bias=False)
        module.device = "cpu"
        module.pack(linear(w), scales, zeros, None)
        packed = {key: getattr(module, key) for key in ("qweight", "qzeros", "scales")}
        module.scales = packed["scales"].float()
        with torch.no_grad():
            values = module(torch.eye(columns)).T
        return packed, values

    return pack


def awq(group: int):
    def pack(name: str, w: torch.Tensor):
        scales, zeros = smallest_to_largest(w, 4, group, False)
        module = WQLinear_GEMM.from_linear(linear(w.half().float()), 4, group, scales=scales.T.contiguous(), zeros=zeros.T.contiguous())
        packed = {key: getattr(module, key).contiguous() for key in ("qweight", "qzeros", "scales")}
        values = dequantize_gemm(packed["qweight"], packed["qzeros"], packed["scales"].float(), 4, group).T
        return packed, values

    return pack


def compressed(schemes: dict[str, tuple[str, dict]]):
    """By parts of names: the format, and the arguments of weights."""

    def pack(name: str, w: torch.Tensor):
        form, arguments = next(scheme for part, scheme in schemes.items() if part in name)
        args = QuantizationArgs(**arguments)
        scheme = QuantizationScheme(targets=["Linear"], weights=args)
        rows, columns = w.shape
        strategy = str(args.strategy)
        block = args.block_structure or [rows if strategy == "tensor" else 1, args.group_size or columns]
        parts = w.float().reshape(rows // block[0], block[0], columns // block[1], block[1])
        least, most = parts.amin((1, 3)), parts.amax((1, 3))
        state = {"weight": w.float()}
        if form == "nvfp4-pack-quantized":
            state["weight_global_scale"] = torch.tensor([448 * 6 / float(w.abs().max())])
        scales, zeros = calculate_qparams(least, most, args, **(
            {"global_scale": state["weight_global_scale"]} if form.startswith("nvfp4") else {}))
        if strategy == "tensor":
            scales, zeros = scales.reshape(1), zeros.reshape(1)
        # Scales have the type of the model.
        if form in ("pack-quantized", "int-quantized"):
            scales = scales.bfloat16()
        state |= {"weight_scale": scales}
        if not args.symmetric:
            state["weight_zero_point"] = zeros.to(torch.int8)
        compressor = BaseCompressor.get_value_from_registry(form)
        packed = compressor.compress(dict(state), scheme)
        exact = {key: value.float() if key == "weight_scale" and value.dtype == torch.bfloat16 else value for key, value in packed.items()}
        if form == "nvfp4-pack-quantized":
            # The class unpacks to BF16.
            codes = unpack_fp4_from_uint8(packed["weight_packed"], rows, columns, dtype=torch.float32)
            scales, outer = packed["weight_scale"].float(), packed["weight_global_scale"]
            return packed, dequantize(codes, scale=scales, args=args, global_scale=outer, dtype=torch.float32)
        values = compressor.decompress(exact, scheme)["weight"].float()
        return packed, values

    return pack


def modelopt(name: str, w: torch.Tensor):
    from modelopt.torch.quantization.qtensor import FP8QTensor, NVFP4QTensor

    if "mlp" in name:
        # The class reduces by kernels of a GPU, of which only the largest value is needed.
        outer = (w.abs().max() / (6 * 448)).float()
        packed, scales, outer = NVFP4QTensor.quantize(w.float(), 16, weights_scaling_factor_2=outer)
        values = packed.dequantize(dtype=torch.float32, scale=scales, double_scale=outer, block_sizes={-1: 16})
        return {"weight": packed._quantized_data, "weight_scale": scales, "weight_scale_2": outer,
                "input_scale": torch.tensor(0.25)}, values
    packed, scale = FP8QTensor.quantize(w.float())
    values = packed.dequantize(dtype=torch.float32, scale=scale)
    return {"weight": packed._quantized_data, "weight_scale": scale.reshape(()), "input_scale": torch.tensor(0.25)}, values


def group(form: str, targets: str, arguments: dict) -> dict:
    return {"targets": [f"re:.*{targets}.*"], "weights": arguments, "input_activations": None, "format": form}


def settings_of(schemes: dict[str, tuple[str, dict]]) -> dict:
    forms = {form for form, _ in schemes.values()}
    groups = {f"group_{i}": group(form, part, json.loads(QuantizationArgs(**a).model_dump_json()))
              for i, (part, (form, a)) in enumerate(schemes.items())}
    return {"quant_method": "compressed-tensors", "quantization_status": "compressed", "config_groups": groups,
            "format": forms.pop() if len(forms) == 1 else "mixed-precision", "ignore": ["lm_head", "re:.*mlp.gate$"],
            "kv_cache_scheme": None, "sparsity_config": {}, "transform_config": {}}


def integers(bits: int, symmetric: bool, size: int | None) -> dict:
    of_groups = {"strategy": "group", "group_size": size} if size else {"strategy": "channel"}
    return {"num_bits": bits, "type": "int", "symmetric": symmetric, **of_groups}


W4A16 = {"proj": ("pack-quantized", integers(4, True, 32))}
ASYMMETRIC = {"proj": ("pack-quantized", integers(4, False, 128))}
CHANNEL = {
    "self_attn": ("pack-quantized", integers(8, True, None)), "gate_proj": ("int-quantized", integers(8, True, None)),
    "up_proj": ("pack-quantized", integers(3, True, 64)), "down_proj": ("pack-quantized", integers(8, False, 64)),
}
FP8 = {
    "self_attn": ("float-quantized", {"num_bits": 8, "type": "float", "strategy": "channel"}),
    "up_proj": ("float-quantized", {"num_bits": 8, "type": "float", "strategy": "tensor"}),
    "mlp": ("float-quantized", {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [32, 64]}),
}
FP4 = {
    "experts": ("nvfp4-pack-quantized", {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16,
                                         "scale_dtype": "torch.float8_e4m3fn"}),
    "q_proj": ("mxfp8-quantized", {"num_bits": 8, "type": "float", "strategy": "group", "group_size": 32,
                                   "scale_dtype": "torch.uint8"}),
    "self_attn": ("mxfp4-pack-quantized", {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32,
                                           "scale_dtype": "torch.uint8"}),
}
GPTQ = {"quant_method": "gptq", "bits": 4, "sym": False, "desc_act": False, "group_size": 64, "damp_percent": 0.01}

# The model, how it is packed, and the settings.
CASES = {
    "gptq": (DENSE, gptq(4, 64, False, False), GPTQ),
    "gptq-order": (DENSE, gptq(4, 32, True, True), GPTQ | {"group_size": 32, "desc_act": True, "sym": True}),
    "auto-round": (DENSE, auto_round(4, 64), {"quant_method": "auto-round", "bits": 4, "group_size": 64,
                   "sym": False, "packing_format": "auto_round:gptqmodel"}),
    "awq": (MOE, awq(64), {"quant_method": "awq", "bits": 4, "group_size": 64, "version": "gemm", "zero_point": True}),
    "w4a16": (MOE, compressed(W4A16), settings_of(W4A16)),
    "w4a16-asymmetric": (DENSE, compressed(ASYMMETRIC), settings_of(ASYMMETRIC)),
    "w8a16-channel": (DENSE, compressed(CHANNEL), settings_of(CHANNEL)),
    "fp8": (DENSE, compressed(FP8), settings_of(FP8)),
    "fp4": (MOE, compressed(FP4), settings_of(FP4)),
    "modelopt": (DENSE, modelopt, {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}),
}


def sum_of(values: torch.Tensor) -> int:
    """A sum over the bits of all values, in which their order counts; of −0 those of 0."""
    bits = (values.float().contiguous() + 0.0).numpy().view(np.uint32).flatten().astype(np.uint64)
    places = np.arange(1, 2 * len(bits), 2, dtype=np.uint64)
    return int((bits * places).sum() & np.uint64((1 << 63) - 1))


def state_of(model) -> dict[str, torch.Tensor]:
    """Weights by published names: each expert on its own."""
    state = {}
    for name, w in model.state_dict().items():
        if name.endswith("experts.gate_up_proj"):
            for e, both in enumerate(w):
                for part, half in zip(("gate", "up"), both.chunk(2)):
                    state[f"{name.removesuffix('gate_up_proj')}{e}.{part}_proj.weight"] = half.contiguous()
        elif name.endswith("experts.down_proj"):
            for e, one in enumerate(w):
                state[f"{name.removesuffix('down_proj')}{e}.down_proj.weight"] = one.contiguous()
        elif name != "lm_head.weight":
            state[name] = w
    return state


def put(model, values: dict[str, torch.Tensor]) -> None:
    """Loads published names."""
    own = model.state_dict()
    for name, w in values.items():
        if ".experts." in name:
            stack, expert, part, _ = name.rsplit(".", 3)
            w_of = own[f"{stack}.{'down_proj' if part == 'down_proj' else 'gate_up_proj'}"][int(expert)]
            half = len(w_of) // 2
            target = {"down_proj": w_of, "gate_proj": w_of[:half], "up_proj": w_of[half:]}[part]
            target.copy_(w)
        else:
            own[name].copy_(w)


def sums(values: dict[str, torch.Tensor]) -> dict[str, int]:
    found = {}
    for name, w in values.items():
        module = name.removesuffix(".weight").removeprefix("model.layers.0.")
        if ".experts.0." in name:
            part = module.rsplit(".", 1)[1]
            stack = [values[name.replace(".experts.0.", f".experts.{e}.")] for e in range(MOE["num_experts"])]
            found[f"blk.0.ffn_{part.removesuffix('_proj')}_exps.weight"] = sum_of(torch.stack(stack))
        elif module in OURS:
            found[f"blk.0.{OURS[module]}.weight"] = sum_of(w)
    return found


def write(name: str) -> None:
    sizes, pack, settings = CASES[name]
    torch.manual_seed(sum(name.encode()))
    config = (Qwen3MoeConfig if sizes is MOE else Qwen3Config)(**sizes)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for w in model.parameters():
            # Scales differ from column to column.
            w.copy_(w * (1 if w.dim() == 1 else torch.randn(w.shape[-1]).exp()))
            w.copy_(w.bfloat16())
        published, values = {}, {}
        for key, w in state_of(model).items():
            if "_proj.weight" not in key:
                published[key] = w.bfloat16().clone()
                continue
            packed, values[key] = pack(key, w)
            published |= {f"{key.removesuffix('weight')}{part}": tensor for part, tensor in packed.items()}
        put(model, values)
        folder = OUT / name
        folder.mkdir(parents=True, exist_ok=True)
        save_file({key: w.contiguous() for key, w in published.items()}, folder / "model.safetensors", metadata={"format": "pt"})
        own = json.loads(config.to_json_string(use_diff=False))
        kept = {**sizes, "model_type": own["model_type"], "dtype": "bfloat16", "rope_parameters": own["rope_parameters"]}
        (folder / "config.json").write_text(json.dumps(kept | {"quantization_config": settings}, indent=1) + "\n")
        generator = torch.Generator().manual_seed(41)
        sequences = [torch.randint(config.vocab_size, (n,), generator=generator) for n in LENGTHS]
        write_logits(OUT / f"{name}.logits.gguf", TOLERANCE["f32"], sequences, run(model, sequences))
    (OUT / f"{name}.sums.json").write_text(json.dumps(sums(values), indent=1) + "\n")


if __name__ == "__main__":
    for case in sys.argv[1:] or CASES:
        write(case)
        print(case)
