#!/usr/bin/env python3
"""Writes the golden files of crates/conformance/tests/vision.rs: tiny random vision towers, and the logits of prompts with
pictures.

    pip install torch==2.15.0 torchvision==0.29.0 pillow==11.3.0 transformers==5.23.0 gguf==0.19.0 numpy==2.*
    python scripts/golden/vision.py [NAME…]

The text model of NAME is another golden model. crates/conformance/golden/vision/ gets NAME.mmproj.gguf, with the tensors
and keys of llama.cpp's converter; the folder NAME, what transformers saves of the tower, in F16; and NAME.golden.gguf:
pictures as patches (channel, row, column), prompts with the places of pictures, and the logits of every position as
transformers computes them, in F32; and a prompt with a picture of noise, from its pixels to the logits.

It is asserted that each block of the tower, the positions and the projector matter: without one of them the logits of
later text move by more than 100 times the tolerance of F32, and 20 times that of Q8_0. It is also asserted that keys and values
in F16, as caches have them, move logits by less than the tolerance: a router whose scores are nearly tied chooses another
expert, which moves them by 1e-4.
"""

import contextlib
import json
import pathlib
import sys
import tempfile
import unittest.mock

import gguf
import numpy as np
import torch
from gguf import GGUFReader
from gguf import GGMLQuantizationType as Q
from safetensors.torch import load_file, save_file

import pictures
from tiny.build import build, kept_buffers, norm_shift
from tiny.draw import nmse
from tiny.files import finish
from tiny.formats import decode, encode
from tiny.recurrent import Order
from tiny.shapes import MODELS, VOCAB
from tiny.tensors import half, names, unpermute
from towers import gemma3_vl, gemma4_unified, gemma4_vl, glm4_vl, idefics3_vl, lfm2_vl, mistral3_vl, qwen_vl

MODELS_FOLDER = pathlib.Path(__file__).parents[2] / "crates/conformance/golden"
OUT = MODELS_FOLDER / "vision"
TOWERS = {
    "lfm2-vl-f32": (lfm2_vl, "lfm2-f32", Q.F32, 1e-6), "lfm2-vl-q8_0": (lfm2_vl, "lfm2-f32", Q.Q8_0, 1e-3),
    "qwen3-vl-f32": (qwen_vl, "qwen3vl-f32", Q.F32, 1e-6), "qwen3-vl-q8_0": (qwen_vl, "qwen3vl-f32", Q.Q8_0, 1e-3),
    "mistral3-vl-f32": (mistral3_vl, "mistral3-f32", Q.F32, 1e-6), "mistral3-vl-q8_0": (mistral3_vl, "mistral3-f32", Q.Q8_0, 1e-3),
    "gemma3-vl-f32": (gemma3_vl, "gemma3-f32", Q.F32, 1e-6), "gemma3-vl-q8_0": (gemma3_vl, "gemma3-f32", Q.Q8_0, 1e-3),
    "gemma4-vl-f32": (gemma4_vl, "gemma4-f32", Q.F32, 1e-6), "gemma4-vl-q8_0": (gemma4_vl, "gemma4-f32", Q.Q8_0, 1e-3),
    "gemma4-e-vl-f32": (gemma4_vl, "gemma4-e-f32", Q.F32, 1e-6), "gemma4-moe-vl-f32": (gemma4_vl, "gemma4-moe-f32", Q.F32, 1e-6),
    "gemma4-unified-f32": (gemma4_unified, "gemma4-f32", Q.F32, 1e-6),
    "qwen35-f32": (qwen_vl, "qwen35-f32", Q.F32, 1e-6),
    "glm4-vl-f32": (glm4_vl, "glm4v-f32", Q.F32, 1e-6), "glm4-vl-q8_0": (glm4_vl, "glm4v-f32", Q.Q8_0, 1e-3),
    "glm4-moe-vl-f32": (glm4_vl, "glm4v-moe-f32", Q.F32, 1e-6),
    "idefics3-vl-f32": (idefics3_vl, "llama3-f32", Q.F32, 1e-6), "idefics3-vl-q8_0": (idefics3_vl, "llama3-f32", Q.Q8_0, 1e-3),
}
# The token that stands for a row of a picture.
IMAGE = VOCAB - 8
# Of the pixels of noise.
SEED = 5


@torch.no_grad()
def text_model(name: str):
    """The golden text model."""
    shape = MODELS[name]
    model = build(shape)
    parameters = dict(model.named_parameters()) | kept_buffers(model)
    tensors = {tensor.name: tensor for tensor in GGUFReader(MODELS_FOLDER / f"{name}.gguf").tensors}
    for ours, theirs, heads in names(shape):
        to = half(parameters, theirs)
        values = decode(np.array(tensors[ours].data), tensors[ours].tensor_type) - np.float32(norm_shift(shape, theirs))
        if isinstance(heads, Order):
            values = heads.give(to.numpy(), values)
        elif heads:
            values = unpermute(values, heads)
        to.copy_(torch.from_numpy(np.ascontiguousarray(values)).reshape(to.shape))
    return model


@contextlib.contextmanager
def keys_in_f16():
    """Attention reads keys and values as a cache in F16 has them."""
    attention = torch.nn.functional.scaled_dot_product_attention

    def rounded(query, key, value, *rest, **options):
        return attention(query, key.half().float(), value.half().float(), *rest, **options)

    with unittest.mock.patch("torch.nn.functional.scaled_dot_product_attention", side_effect=rounded) as calls:
        yield
    assert calls.call_count, "attention takes another way"


def words(count: int, generator: torch.Generator) -> list:
    return torch.randint(0, IMAGE, (count,), generator=generator).tolist()


def prompt_of(family, grids: list, parts: tuple, generator: torch.Generator) -> tuple[list, list]:
    """Tokens with spans: start, tokens, picture, and the first of its tokens."""
    tokens, spans, rows = [], [], getattr(family, "ROWS", False)
    for part in parts:
        if isinstance(part, list):
            tokens += part
        else:
            high, wide = grids[part]
            for first in range(0, high * wide, wide) if rows else [0]:
                count = wide if rows else high * wide
                spans.append((len(tokens), count, part, first))
                tokens += [IMAGE] * count + words(1 if rows else 0, generator)
    return tokens, spans


def prompts(family, generator: torch.Generator) -> list:
    """Prompts with pictures of the family's sizes."""
    touch = getattr(family, "TOUCH", False)
    grids = [(rows // family.MERGE, columns // family.MERGE) for rows, columns in family.SIZES]

    def text(count: int) -> list:
        return words(count, generator)

    def prompt(*parts) -> tuple[list, list]:
        return prompt_of(family, grids, parts, generator)

    # A picture first, several in turns of a conversation, one twice, and two that touch where that is possible.
    return [prompt(text(3), 0, text(6)), prompt(1, text(4), 2, text(5), 1, text(3)),
            prompt(text(2), 3, [] if touch else text(1), 0, text(7))]


@torch.no_grad()
def from_pixels(writer: gguf.GGUFWriter, model, family, generator: torch.Generator) -> None:
    """A prompt with a picture of noise, from its pixels through the processor of transformers to the logits."""
    width, height = family.PIXELS
    settings = {key: value for key, value in family.PREPROCESSOR.items() if key != "image_processor_type"}
    patches = torch.from_numpy(np.ascontiguousarray(family.prepare(settings, pictures.noise(width, height, SEED))))
    rows, columns, _ = patches.shape
    side = family.PATCH
    picture = patches.float().reshape(rows, columns, 3, side, side).permute(2, 0, 3, 1, 4).reshape(3, rows * side, columns * side)
    grid = (rows // family.MERGE, columns // family.MERGE)
    tokens, spans = prompt_of(family, [grid], (words(3, generator), 0, words(5, generator)), generator)
    writer.add_array("golden.pixels", [width, height, SEED])
    writer.add_array("golden.pixels.tokens", tokens)
    writer.add_array("golden.pixels.spans", [number for span in spans for number in span])
    writer.add_tensor("pixels.logits", family.run(model, tokens, [picture]).numpy())


@torch.no_grad()
def make(name: str) -> None:
    family, text, kind, tolerance = TOWERS[name]
    generator = torch.Generator().manual_seed(sum(map(ord, name)))
    model = family.build(text_model(text), IMAGE, generator).eval()
    tensors = {}
    for ours, parameter, of_file, to_file in family.tensors(model):
        stored = np.ascontiguousarray(to_file(parameter.numpy()))
        is_matrix = stored.ndim == 2 and "position" not in ours and stored.shape[-1] % 32 == 0
        one = kind if is_matrix else Q.F32
        data = encode(stored, one)
        tensors[ours] = (data, one)
        decoded = decode(data, one).reshape(stored.shape)
        parameter.copy_(torch.from_numpy(np.ascontiguousarray(of_file(decoded))).reshape(parameter.shape))

    drawn_pictures = [torch.randn(3, rows * family.PATCH, columns * family.PATCH, generator=generator)
                      for rows, columns in family.SIZES]
    drawn = prompts(family, generator)

    def logits() -> list:
        return [family.run(model, tokens, [drawn_pictures[picture] for _, _, picture, first in spans if first == 0])
                for tokens, spans in drawn]

    wanted = logits()
    if kind == Q.F32:
        with keys_in_f16():
            moved = nmse(logits(), wanted)
        assert moved < tolerance, f"{name}: keys in F16 move the logits by {moved}, a router may have a tie; take another seed"
    for what, parameter in family.blocks(model):
        kept = parameter.clone()
        parameter.zero_()
        moved = nmse([row[-3:] for row in logits()], [row[-3:] for row in wanted])
        assert moved > (100 if kind == Q.F32 else 20) * tolerance, f"{name}: {what} matters too little: {moved}"
        parameter.copy_(kept)

    writer = gguf.GGUFWriter(OUT / f"{name}.mmproj.gguf", "clip")
    writer.add_type("mmproj")
    writer.add_name(name)
    family.write_keys(writer, model)
    for ours, (data, one) in tensors.items():
        writer.add_tensor(ours, data, raw_dtype=one)
    finish(writer)

    writer = gguf.GGUFWriter(OUT / f"{name}.golden.gguf", "golden")
    writer.add_float32("golden.tolerance", tolerance)
    writer.add_string("golden.text", text)
    for i, (rows, columns) in enumerate(family.SIZES):
        side = family.PATCH
        patches = drawn_pictures[i].reshape(3, rows, side, columns, side).permute(1, 3, 0, 2, 4).reshape(rows * columns, -1)
        writer.add_array(f"golden.size.{i}", [rows, columns])
        writer.add_tensor(f"patches.{i}", np.ascontiguousarray(patches.numpy()))
    for i, ((tokens, spans), values) in enumerate(zip(drawn, wanted)):
        writer.add_array(f"golden.tokens.{i}", tokens)
        writer.add_array(f"golden.spans.{i}", [number for span in spans for number in span])
        writer.add_tensor(f"logits.{i}", values.numpy())
    if family.PREPROCESSOR and kind == Q.F32:
        from_pixels(writer, model, family, generator)
    finish(writer)
    if family.PREPROCESSOR and kind == Q.F32:
        write_folder(OUT / name, model, family)
    print(f"{name:16} deviation of logits {wanted[0].std():.2f}")


def write_folder(folder: pathlib.Path, model, family) -> None:
    """What transformers saves of the tower, in F16, with its settings."""
    with tempfile.TemporaryDirectory() as saved:
        model.half().save_pretrained(saved)
        tensors = load_file(pathlib.Path(saved, "model.safetensors"))
        config = json.loads(pathlib.Path(saved, "config.json").read_text())
    folder.mkdir(exist_ok=True)
    parts = ("visual", "vision_tower", "vision_embedder", "vision_model", "multi_modal_projector", "connector", "embed_vision")
    save_file({name: tensor for name, tensor in tensors.items() if any(part in name for part in parts)},
              folder / "model.safetensors")
    settings = {key: value for key, value in config.items() if key != "text_config"}
    (folder / "config.json").write_text(json.dumps(settings, indent=1) + "\n")
    (folder / "preprocessor_config.json").write_text(json.dumps(family.PREPROCESSOR, indent=1) + "\n")


if __name__ == "__main__":
    OUT.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(2)
    for name in sys.argv[1:] or TOWERS:
        make(name)
    print(f"{sum(f.stat().st_size for f in OUT.glob('*.gguf')):,} bytes")
