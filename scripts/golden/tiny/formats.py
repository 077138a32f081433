"""Tensors in GGUF's formats."""

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Q


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


def encode(x: np.ndarray, kind: Q) -> np.ndarray:
    own = {Q.Q4_K: encode_q4_k, Q.Q6_K: encode_q6_k}.get(kind)
    if own is None:
        return gguf.quants.quantize(x, kind)
    data = own(x.astype(np.float32)).reshape(*x.shape[:-1], -1)
    error = ((gguf.quants.dequantize(data, kind) - x) ** 2).mean() / (x**2).mean()
    assert error < 0.01, f"{kind.name}: NMSE {error}"
    return data


def kind_of(name: str, columns: int, mix: str) -> Q:
    """As llama.cpp's quantiser chooses, with its fallback for rows that are not whole super-blocks."""
    if mix == "f32" or "norm" in name or "sinks" in name or "ffn_gate_inp" in name or name.endswith("bias") \
            or name.endswith(".scale") or "output_scale" in name \
            or "conv" in name and "proj" not in name \
            or name.endswith("ssm_a"):
        return Q.F32
    if mix == "mxfp4":
        return Q.MXFP4 if "_exps" in name else Q.Q8_0
    if mix == "q8_0":
        return Q.Q8_0
    fine = name.startswith("output") or "blk.0.attn_v" in name or "blk.1.ffn_down" in name
    if columns % 256:
        return Q.Q8_0 if fine else Q.Q5_0
    return Q.Q6_K if fine else Q.Q4_K
