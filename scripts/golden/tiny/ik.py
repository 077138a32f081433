"""Tensors in ik_llama.cpp's formats, which PyPI's gguf does not have."""

import enum
import pathlib
import zlib

import format_files
import numpy as np

# Elements of a block.
BLOCK = 256

V2 = np.array([-31, -13, 1, 17])
V3 = np.array([-63, -40, -23, -10, 1, 13, 28, 47])
V4 = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113])
V5 = np.array([-126, -114, -103, -92, -83, -74, -65, -57, -50, -43, -36, -30, -24, -18, -12, -6,
               -1, 5, 11, 17, 23, 29, 36, 43, 51, 59, 68, 77, 87, 97, 109, 121])
PAIRS = np.array([-63, -23, -63, 13, -40, -63, -40, -10, -40, 13, -40, 47, -23, -40, -23, -23, -23, 1, -23, 13, -23, 28, -10, -63,
                  -10, 1, -10, 13, -10, 47, 1, -23, 1, -10, 1, 1, 1, 13, 1, 28, 13, -40, 13, -23, 13, -10, 13, 1, 13, 13,
                  28, -63, 28, -23, 28, 1, 28, 28, 28, 47, 47, -23, 47, 13]).reshape(32, 2)


class Type(enum.IntEnum):
    """The numbers of the types in GGUF files."""

    IQ4_K = 139
    IQ5_K = 140
    IQ4_KS = 144
    IQ2_KS = 145
    IQ4_KSS = 146
    IQ5_KS = 152
    IQ3_KS = 156
    IQ2_KL = 157


def sixteens(b: np.ndarray, g: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scale and shift bit of groups of 16."""
    scale = b[:, 8 + g // 2] >> 4 * (g % 2) & 15 | (b[:, 4 + g // 4] >> 2 * (g % 4) & 3) << 4
    return scale - 32, b[:, 2 + g // 8] >> g % 8 & 1


def five_bits(b: np.ndarray, i: np.ndarray, qs: int, qh: int) -> np.ndarray:
    return b[:, qs + 32 * (i // 64) + i % 32] >> 4 * (i // 32 % 2) & 15 | (b[:, qh + i % 32] >> i // 32 & 1) << 4


GOLDEN = {kind: format_files.read(kind.name) for kind in Type}


def decode_blocks(b: np.ndarray, kind: Type) -> tuple[np.ndarray, np.ndarray]:
    """Integer scale and value of each element of some blocks, whose bytes are integers."""
    i = np.arange(BLOCK)
    g = i // 32
    nibbles = lambda qs: b[:, qs + 16 * g + i % 16] >> 4 * (i // 16 % 2) & 15
    pairs_of_bits = lambda qs: b[:, qs + 32 * (i // 128) + i % 32] >> 2 * (g % 4) & 3
    match kind:
        case Type.IQ4_K:
            scale, shift = sixteens(b, i // 16)
            return scale, V4[nibbles(16)] + 4 * shift
        case Type.IQ5_K:
            scale, shift = sixteens(b, i // 16)
            return scale, V5[five_bits(b, i, 16, 144)] + 2 * shift
        case Type.IQ4_KS:
            return (b[:, g] & 254) - 127, V4[nibbles(8)] + 4 * (b[:, g] & 1)
        case Type.IQ5_KS:
            return (b[:, g] & 254) - 127, V5[five_bits(b, i, 8, 136)] + 2 * (b[:, g] & 1)
        case Type.IQ4_KSS:
            words = b[:, 0::2] | b[:, 1::2] << 8
            byte = ((words & 1).reshape(-1, 8, 8) << np.arange(8)).sum(-1)
            v = words & ~1
            v ^= v >> 1
            codes = np.stack([v & 255, v >> 8], -1).reshape(-1, 128)
            q = codes[:, 16 * g + i % 16] >> 4 * (i // 16 % 2) & 15
            return (byte[:, g] & 254) - 127, V4[q] + 4 * (byte[:, g] & 1)
        case Type.IQ3_KS:
            scale = b[:, 2 + g % 4] >> 4 * (g // 4) & 15 | (b[:, :1] >> g & 1) << 4
            return scale - 16, V3[pairs_of_bits(6) | (b[:, 70 + i % 32] >> g & 1) << 2] + 4 * (b[:, 1:2] >> g & 1)
        case Type.IQ2_KS:
            scale = b[:, 2 + g // 2] >> 4 * (g % 2) & 15 | (b[:, 1:2] >> g & 1) << 4
            return scale - 16, V2[pairs_of_bits(6)] + 5 * (b[:, :1] >> g & 1)
        case Type.IQ2_KL:
            scale = b[:, 2 + g % 4] >> 4 * (g // 4) & 15 | (b[:, g // 4] >> 2 * (g % 4) & 3) << 4
            j = i % 32 // 2
            q = b[:, 6 + 16 * (g // 2) + j] >> 4 * (g % 2) & 15 | (b[:, 70 + j] >> g & 1) << 4
            return scale - 32, PAIRS[q, i % 2]


def decode(rows: np.ndarray, kind: Type) -> np.ndarray:
    """Rows of bytes, in the last dimension, as floats."""
    scale, block = GOLDEN[kind].row_scale, GOLDEN[kind].bytes
    data = rows.reshape(-1, rows.shape[-1])
    blocks = data[:, scale:].reshape(-1, block)
    units = data[:, :scale] if scale else blocks[:, :2]
    d = np.ascontiguousarray(units).view("<f4" if scale == 4 else "<f2").astype(np.float32)
    if scale:
        d = np.repeat(d, len(blocks) // len(data), 0)
    scales, values = decode_blocks(blocks.astype(np.int64), kind)
    with np.errstate(all="ignore"):
        decoded = (d * scales.astype(np.float32)) * values.astype(np.float32)
    return decoded.reshape(*rows.shape[:-1], -1)


def random_rows(x: np.ndarray, kind: Type) -> np.ndarray:
    """Random codes with about the deviation of `x`. The scales of rows differ."""
    scale, block = GOLDEN[kind].row_scale, GOLDEN[kind].bytes
    rng = np.random.default_rng(zlib.crc32(x.tobytes()))
    count = x.shape[-1] // BLOCK
    data = rng.integers(0, 256, (x.size // x.shape[-1], scale + count * block), np.uint8)
    factors = rng.uniform(0.7, 1.4, len(data))

    def put(units: np.ndarray) -> None:
        number = units.astype("<f4" if scale == 4 else "<f2")
        for at in [0] if scale else range(0, count * block, block):
            data[:, at : at + number.itemsize] = number[:, None].view(np.uint8)

    put(np.ones(len(data)))
    put(factors * x.std() / decode(data, kind).std())
    return data.reshape(*x.shape[:-1], -1)


def check() -> None:
    """These decoders are those that wrote the golden files."""
    for kind in Type:
        np.testing.assert_array_equal(decode(GOLDEN[kind].rows, kind), GOLDEN[kind].values, kind.name)


check()
