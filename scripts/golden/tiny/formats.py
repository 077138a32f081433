"""Tensors in GGUF's formats."""

import zlib

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Q

from . import ik
from .ik import Type as Ik


def encode_q6_k(x: np.ndarray) -> np.ndarray:
    """Plain rounding: the logits are computed from what was decoded, so the best fit does not matter."""
    groups = x.reshape(-1, 16, 16)
    scale = np.abs(groups).max(-1) / 31
    d = (scale.max(-1, keepdims=True) / 127).astype(np.float16)
    steps = np.round(scale / d.astype(np.float32)).clip(1, 127)
    codes = np.round(groups / (steps * d.astype(np.float32))[..., None]).clip(-32, 31).astype(np.int32) + 32
    codes = codes.reshape(-1, 2, 4, 32).astype(np.uint8)  # half, quarter of a half, element
    low = (codes[:, :, :2] & 15) | (codes[:, :, 2:] & 15) << 4
    high = codes[:, :, 0] >> 4 | codes[:, :, 1] >> 4 << 2 | codes[:, :, 2] >> 4 << 4 | codes[:, :, 3] >> 4 << 6
    n = len(groups)
    parts = [low.reshape(n, 128), high.reshape(n, 64), steps.astype(np.int8).view(np.uint8), d.view(np.uint8)]
    return np.concatenate(parts, axis=1)


def encode_q4_k(x: np.ndarray) -> np.ndarray:
    groups = x.reshape(-1, 8, 32)
    low = np.minimum(groups.min(-1), 0)
    scale, low = (groups.max(-1) - low) / 15, -low
    d = (scale.max(-1, keepdims=True) / 63).astype(np.float16)
    dmin = (low.max(-1, keepdims=True) / 63).astype(np.float16)
    sc = np.round(scale / d.astype(np.float32)).clip(1, 63).astype(np.uint8)
    mn = np.round(low / dmin.astype(np.float32)).clip(0, 63).astype(np.uint8)
    step, base = sc * d.astype(np.float32), mn * dmin.astype(np.float32)
    codes = np.round((groups + base[..., None]) / step[..., None]).clip(0, 15).astype(np.uint8)
    packed = np.concatenate(
        [sc[:, :4] | sc[:, 4:] >> 4 << 6, mn[:, :4] | mn[:, 4:] >> 4 << 6, sc[:, 4:] & 15 | (mn[:, 4:] & 15) << 4], axis=1)
    pairs = codes.reshape(-1, 4, 2, 32)
    nibbles = (pairs[:, :, 0] | pairs[:, :, 1] << 4).reshape(-1, 128)
    return np.concatenate([d.view(np.uint8), dmin.view(np.uint8), packed, nibbles], axis=1)


# Formats that gguf decodes and does not encode, with the byte of their f16 scale.
RANDOM = {
    Q.IQ1_S: 0, Q.IQ1_M: None, Q.IQ2_XXS: 0, Q.IQ2_XS: 0, Q.IQ2_S: 0, Q.IQ3_XXS: 0, Q.IQ3_S: 0, Q.TQ1_0: 52, Q.TQ2_0: 64,
}


def put_scale(blocks: np.ndarray, kind: Q, scale: np.ndarray) -> None:
    if RANDOM[kind] is None:
        # IQ1_M: the upper nibbles of four numbers.
        words = blocks[:, 48:].view("<u2")
        words[:] = words & 0x0FFF | (int(scale.view(np.uint16)) >> np.array([0, 4, 8, 12]) & 15).astype(np.uint16) << 12
    else:
        blocks[:, RANDOM[kind] : RANDOM[kind] + 2] = np.array([scale]).view(np.uint8)


def random_blocks(x: np.ndarray, kind: Q) -> np.ndarray:
    """Random codes with the deviation of `x`: a random model's weights are as good as any others."""
    length, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = np.random.default_rng(zlib.crc32(x.tobytes())).integers(0, 256, (x.size // length, size), np.uint8)
    put_scale(blocks, kind, np.float16(1))
    put_scale(blocks, kind, np.float16(x.std() / gguf.quants.dequantize(blocks, kind).std()))
    return blocks.reshape(*x.shape[:-1], -1)


def encode_nvfp4(x: np.ndarray) -> np.ndarray:
    groups = x.reshape(-1, 4, 16)
    scales = gguf.quants.NVFP4.fp32_to_ue4m3(np.abs(groups).max(-1) / 6)
    half = gguf.quants.NVFP4.ue4m3_to_fp32(scales)[..., None]
    values = np.array(gguf.quants.NVFP4.kvalues, np.float32)
    codes = np.abs(groups[..., None] / np.maximum(half, 1e-9)[..., None] - values).argmin(-1).astype(np.uint8)
    return np.concatenate([scales, (codes[..., :8] | codes[..., 8:] << 4).reshape(-1, 32)], axis=1)


def decode(data: np.ndarray, kind: Q | Ik) -> np.ndarray:
    return ik.decode(data, kind) if isinstance(kind, Ik) else gguf.quants.dequantize(data, kind)


def encode(x: np.ndarray, kind: Q | Ik) -> np.ndarray:
    if isinstance(kind, Ik):
        return ik.random_rows(x.astype(np.float32), kind)
    if kind in RANDOM:
        return random_blocks(x.astype(np.float32), kind)
    own = {Q.Q4_K: encode_q4_k, Q.Q6_K: encode_q6_k, Q.NVFP4: encode_nvfp4}.get(kind)
    if own is None:
        return gguf.quants.quantize(x, kind)
    data = own(x.astype(np.float32)).reshape(*x.shape[:-1], -1)
    error = ((gguf.quants.dequantize(data, kind) - x) ** 2).mean() / (x**2).mean()
    assert error < 0.015, f"{kind.name}: NMSE {error}"
    return data


# The mix of formats below 4 bits, and NVFP4: gate and up of a layer differ.
LOW = {
    "token_embd": Q.IQ3_S,
    "blk.0.attn_q": Q.IQ2_XS,
    "blk.0.attn_k": Q.IQ2_S,
    "blk.0.attn_v": Q.IQ3_S,
    "blk.0.attn_output": Q.IQ3_XXS,
    "blk.0.ffn_gate_exps": Q.IQ1_S,
    "blk.0.ffn_up_exps": Q.IQ1_M,
    "blk.0.ffn_down_exps": Q.IQ2_XXS,
    "blk.1.attn_q": Q.NVFP4,
    "blk.1.attn_k": Q.TQ1_0,
    "blk.1.attn_v": Q.TQ2_0,
    "blk.1.attn_output": Q.IQ2_S,
    "blk.1.ffn_gate_exps": Q.IQ3_XXS,
    "blk.1.ffn_up_exps": Q.IQ2_XS,
    "blk.1.ffn_down_exps": Q.NVFP4,
    "output": Q.IQ3_XXS,
}

# The mix of ik_llama.cpp's formats.
IK = {
    "token_embd": Ik.IQ4_KS,
    "blk.0.attn_q": Ik.IQ5_KS,
    "blk.0.attn_k": Ik.IQ4_KSS,
    "blk.0.attn_v": Ik.IQ5_K,
    "blk.0.attn_output": Ik.IQ4_K,
    "blk.0.ffn_gate_exps": Ik.IQ2_KL,
    "blk.0.ffn_up_exps": Ik.IQ2_KS,
    "blk.0.ffn_down_exps": Ik.IQ3_KS,
    "blk.1.attn_q": Ik.IQ4_KS,
    "blk.1.attn_k": Ik.IQ3_KS,
    "blk.1.attn_v": Ik.IQ5_KS,
    "blk.1.attn_output": Ik.IQ4_KSS,
    "blk.1.ffn_gate_exps": Ik.IQ4_KSS,
    "blk.1.ffn_up_exps": Ik.IQ4_KS,
    "blk.1.ffn_down_exps": Ik.IQ5_K,
    "output": Ik.IQ5_KS,
}


def kind_of(name: str, columns: int, mix: str) -> Q | Ik:
    """As llama.cpp's quantiser chooses, with its fallback for rows that are not whole super-blocks."""
    if mix == "f32" or "norm" in name or "sinks" in name or "ffn_gate_inp" in name or name.endswith(("bias", "exp_probs_b")) \
            or name.endswith(".scale") or "output_scale" in name \
            or "conv" in name and "proj" not in name \
            or name.endswith(("ssm_a", "ssm_d")):
        return Q.F32
    if mix in ("low", "ik"):
        return (LOW if mix == "low" else IK)[name.removesuffix(".weight")]
    if mix == "mxfp4":
        return Q.MXFP4 if "_exps" in name else Q.Q8_0
    if mix == "q8_0":
        return Q.Q8_0
    fine = name.startswith("output") or "blk.0.attn_v" in name or "blk.1.ffn_down" in name
    if columns % 256:
        return Q.Q8_0 if fine else Q.Q5_0
    return Q.Q6_K if fine else Q.Q4_K
