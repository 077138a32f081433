#!/usr/bin/env python3
"""Writes the golden files of crates/conformance/tests/heads.rs: tiny random models with one or two prediction heads (MTP),
and the logits of three draft tokens.

    pip install torch==2.15.0 transformers==5.23.0 gguf==0.19.0 numpy==2.*
    python scripts/golden/heads.py

Some models are also written as they are published, as a folder NAME, with the tokenizer of a folder of convert.py.

crates/conformance/golden/heads/ gets NAME.gguf and NAME.logits.gguf: three texts, and for each the logits of the three
tokens that follow most likely. transformers' MtpLayer computes them, without a cache: each step reads all pairs of a
hidden state and the next token. The second head reads the outputs of the first one, and the tokens after those that the
first one reads, as in transformers' MtpModel. After the last head, the hidden state of a drafted token is the head's own
output.
"""

import dataclasses
import pathlib
import shutil

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers.modeling_layers import MtpLayer

from tiny.build import build, kept_buffers, norm_shift, randomise
from tiny.draw import draw
from tiny.files import write_logits, write_model
from tiny.formats import encode, kind_of
from tiny.recurrent import Order
from tiny.shapes import LENGTHS, MODELS, SELECTION_GAP, TOLERANCE, Shape
from tiny.tensors import half, names

OUT = pathlib.Path(__file__).parents[2] / "crates/conformance/golden/heads"
NAMES = ("deepseek2-f32", "glm4moe-f32", "qwen35-f32", "qwen35moe-f32", "qwen3next-f32", "hy_v3-f32",
         "bailingmoe3-f32")
# Models with two heads, and whose shapes they have.
TWO_HEADS = {"deepseek2-two-f32": "deepseek2-f32"}
# Models that are also folders, and the names that the parts of their heads have there.
LAYER = {"": "model.layers.{layer}.", "post_norm": "shared_head.norm"}
FOLDERS = {
    "deepseek2-f32": LAYER,
    "deepseek2-two-f32": LAYER,
    "glm4moe-f32": LAYER,
    "qwen3next-f32": {"": "mtp.", "mtp_block.": "mtp.layers.0.", "eh_proj": "fc", "enorm": "pre_fc_norm_embedding",
                      "hnorm": "pre_fc_norm_hidden", "post_norm": "norm"},
}
DRAFTS = 3
# The best logit of a draft is so much better than the next.
GAP = 0.02
INPUTS = {"eh_proj": "eh_proj", "enorm": "enorm", "hnorm": "hnorm", "shared_head_norm": "post_norm"}


def encoded(shape: Shape, parameters: dict, table) -> dict:
    """The tensors of the file, from the parameters of transformers."""
    tensors = {}
    for ours, theirs, how in table:
        weight = np.ascontiguousarray(half(parameters, theirs).numpy()) + np.float32(norm_shift(shape, theirs))
        weight = how.take(weight) if isinstance(how, Order) else weight
        kind = kind_of(ours, weight.shape[-1], "f32")
        tensors[ours] = (encode(np.ascontiguousarray(weight), kind), kind)
    return tensors


def head_names(shape: Shape, at: int) -> list:
    """As `names`, of a head."""
    start, first = f"blk.{shape.layers + at}.", f"blk.{shape.layers}."
    longer = dataclasses.replace(shape, layers=shape.layers + 1, full=(*shape.full, shape.layers))
    block = [(ours.replace(first, start), theirs.replace(f"model.layers.{shape.layers}.", "mtp_block."), how)
             for ours, theirs, how in names(longer) if ours.startswith(first)]
    return block + [(f"{start}nextn.{ours}.weight", f"{theirs}.weight", 0) for ours, theirs in INPUTS.items()]


def write_folder(name: str, shape: Shape, model, heads: list) -> None:
    """The model as it is published, with its heads."""
    folder, parts = OUT / name, FOLDERS[name]
    shutil.rmtree(folder, ignore_errors=True)
    if hasattr(model.config, "num_nextn_predict_layers"):
        model.config.num_nextn_predict_layers = len(heads)
    model.save_pretrained(folder)
    tensors = {}
    weights = [(at, *item) for at, head in enumerate(heads) for item in head.state_dict().items()]
    for at, key, weight in weights:
        start = parts[""].format(layer=shape.layers + at)
        part, _, rest = key.partition(".")
        theirs = (parts.get("mtp_block.", start) + rest) if part == "mtp_block" else f"{start}{parts.get(part, part)}.{rest}"
        if theirs.endswith("experts.gate_up_proj"):
            for expert, both in enumerate(weight):
                for half, matrix in zip(("gate_proj", "up_proj"), both.chunk(2)):
                    tensors[theirs.replace("gate_up_proj", f"{expert}.{half}.weight")] = matrix.contiguous()
        elif theirs.endswith("experts.down_proj"):
            for expert, matrix in enumerate(weight):
                tensors[theirs.replace("down_proj", f"{expert}.down_proj.weight")] = matrix.contiguous()
        else:
            tensors[theirs] = weight.contiguous()
    save_file(load_file(folder / "model.safetensors") | tensors, folder / "model.safetensors", metadata={"format": "pt"})
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(OUT.parent / "convert" / shape.arch / file, folder)


@torch.no_grad()
def drafts(model, heads: list, tokens: torch.Tensor) -> torch.Tensor:
    """The logits of the drafts after these tokens."""
    hidden = model.model(input_ids=tokens[None, :-1]).last_hidden_state
    inputs, logits = tokens[None, 1:], []
    for step in range(DRAFTS):
        head = heads[min(step, len(heads) - 1)]
        length = inputs.shape[1]
        positions = torch.arange(length)[None]
        mask = torch.full((length, length), torch.finfo(torch.float32).min).triu(1)[None, None]
        embedded = model.get_input_embeddings()(inputs)
        out = head(inputs_embeds=embedded, previous_hidden_state=hidden, attention_mask=mask, position_ids=positions,
                   position_embeddings=model.model.rotary_emb(embedded, positions), past_key_values=None)
        logits.append(model.lm_head(out[0, -1]))
        best = logits[-1].topk(2)
        if best.values[0] - best.values[1] < GAP:
            return None
        inputs = torch.cat([inputs, best.indices[None, :1]], 1)
        if step < len(heads) - 1:
            hidden, inputs = out, inputs[:, 1:]
        else:
            hidden = torch.cat([hidden, out[:, -1:]], 1)
    return torch.stack(logits)


@torch.no_grad()
def make(name: str, shape: Shape, count: int) -> None:
    generator = torch.Generator().manual_seed(sum(map(ord, name)))
    model = build(shape)
    randomise(model, shape, generator)
    last = model.model.layers[max(shape.full) if shape.full else shape.layers - 1]
    index = max(shape.full) if shape.full else shape.layers - 1
    heads = [MtpLayer(model.config, type(last), type(model.model.norm), index).eval() for _ in range(count)]
    tensors = encoded(shape, dict(model.named_parameters()) | kept_buffers(model), names(shape))
    for at, head in enumerate(heads):
        randomise(head, shape, generator)
        # A cache in f16 has errors, those of the model's layers too. They stay below the tolerance if less depends on caches.
        head.eh_proj.weight.data *= 1.6
        head.eh_proj.weight.data[:, shape.hidden:] *= 0.5
        tensors |= encoded(shape, dict(head.named_parameters()) | kept_buffers(head), head_names(shape, at))

    texts, logits = [], []
    for length in LENGTHS:
        found = None
        while found is None:
            text = draw(model, shape, length, SELECTION_GAP, generator)
            found = drafts(model, heads, text)
        texts.append(text)
        logits.append(found)
    # The whole context counts: without its first token, the logits are others.
    for text, found in zip(texts, logits):
        other = drafts(model, heads, text[1:])
        assert other is None or ((other[0] - found[0]).square().sum() / found[0].square().sum()) > 1e-3
    write_model(OUT / f"{name}.gguf", dataclasses.replace(shape, nextn=count), tensors)
    write_logits(OUT / f"{name}.logits.gguf", TOLERANCE["f32"], texts, logits)
    if name in FOLDERS:
        write_folder(name, shape, model, heads)
    print(name, "deviation of the logits", float(logits[0].std()))


if __name__ == "__main__":
    OUT.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(2)
    for name in (*NAMES, *TWO_HEADS):
        make(name, dataclasses.replace(MODELS[TWO_HEADS.get(name, name)], nextn=0), 2 if name in TWO_HEADS else 1)
