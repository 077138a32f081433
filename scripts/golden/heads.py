#!/usr/bin/env python3
"""Writes the golden files of crates/conformance/tests/heads.rs: tiny random models with one to three prediction heads (MTP),
and the logits of three draft tokens.

    pip install torch==2.15.0 transformers==5.23.0 gguf==0.19.0 sentencepiece==0.2.3 numpy==2.*
    python scripts/golden/heads.py [NAME…]

Models are also written as they are published, as a folder NAME.

crates/conformance/golden/heads/ gets NAME.gguf and NAME.logits.gguf: three texts, and for each the logits of the three
tokens that follow most likely. transformers' MtpLayer computes them, without a cache: each step reads all pairs of a
hidden state and the next token. The second head reads the outputs of the first one, and the tokens after those that the
first one reads, as in transformers' MtpModel. After the last head, the hidden state of a drafted token is the head's own
output.

transformers has no heads of Nemotron 3, whose layers are two of transformers (`NemotronHead`), nor of Step 3.5 and MiMo V2 that read what theirs read. For these families MtpLayer computes only a
head's layer and its input, with the family's classes of layers and norms. What the heads read is written here (`INPUTS_OF`),
from what servers do with the published models: Step's heads form a chain of residual streams (vLLM, SGLang, llama.cpp). All
heads of MiMo read the residual stream of the model (SGLang, and its port to JAX, which measured both ways).
"""

import copy
import dataclasses
import json
import pathlib
import sys

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers.modeling_layers import MtpLayer

from convert import Case, write_folder
from tiny import mamba
from tiny.attention import join
from tiny.build import build, kept_buffers, norm_shift, randomise
from tiny.draw import draw
from tiny.files import write_logits, write_model
from tiny.formats import encode, kind_of
from tiny.recurrent import Order
from tiny.shapes import EPS, LENGTHS, MODELS, SELECTION_GAP, TOLERANCE, Shape
from tiny.tensors import half, names, permute

OUT = pathlib.Path(__file__).parents[2] / "crates/conformance/golden/heads"
# The models, whose shapes are those of these golden models, and their heads.
MODELS_WITH_HEADS = {
    "deepseek2-f32": ("deepseek2-f32", 1), "deepseek2-two-f32": ("deepseek2-f32", 2), "glm4-lite-f32": ("glm4-lite-f32", 1),
    "glm4moe-f32": ("glm4moe-f32", 1), "qwen35-f32": ("qwen35-f32", 1), "qwen35moe-f32": ("qwen35moe-f32", 1),
    "qwen3next-f32": ("qwen3next-f32", 1), "hy_v3-f32": ("hy_v3-f32", 1), "bailingmoe2-f32": ("bailingmoe2-f32", 1),
    "bailingmoe3-f32": ("bailingmoe3-f32", 1), "step35-f32": ("step35-f32", 3), "mimo2-f32": ("mimo2-f32", 3),
    "nemotron_h_moe-f32": ("nemotron_h_moe-f32", 1),
}
# What heads read of the model and of each other: whether after the last norm, and whether they form a chain. Their layers have
# a window and no experts.
INPUTS_OF = {"step35": (False, True), "mimo2": (False, False)}
# Pre-tokenizers of the folders.
TOKENIZERS = {"bailingmoe2": "bailingmoe2", "bailingmoe3": "bailingmoe2", "glm4moe": "glm4", "glm4_moe_lite": "glm4",
              "qwen35": "qwen35"}
# Names of a head's tensors in folders: the layer as if it were one of the model's, and the other parts.
LAYER = {"layer": "model.layers.{layer}.", "post_norm": "shared_head.norm"}
FINAL = LAYER | {"post_norm": "final_layernorm"}
QWEN = {"layer": "mtp.layers.0.", "eh_proj": "mtp.fc", "enorm": "mtp.pre_fc_norm_embedding", "hnorm": "mtp.pre_fc_norm_hidden",
        "post_norm": "mtp.norm"}
PUBLISHED = {
    "deepseek2": LAYER, "glm4_moe_lite": LAYER, "glm4moe": LAYER, "hy_v3": FINAL, "bailingmoe2": FINAL, "bailingmoe3": FINAL,
    "qwen35": QWEN, "qwen3next": QWEN,
    "step35": LAYER | {"post_norm": "transformer.shared_head.norm", "output": "transformer.shared_head.output"},
    "mimo2": FINAL | {"layer": "model.mtp.layers.{head}.", "post_attention_layernorm": "pre_mlp_layernorm"},
}
DRAFTS = 3
# The best logit of a draft is so much better than the next.
GAP = 0.02
INPUTS = {"nextn.eh_proj": "eh_proj", "nextn.enorm": "enorm", "nextn.hnorm": "hnorm"}


def encoded(shape: Shape, parameters: dict, table) -> dict:
    """The tensors of the file, from the parameters of transformers."""
    tensors = {}
    for ours, theirs, how in table:
        weight = np.ascontiguousarray(half(parameters, theirs).numpy()) + np.float32(norm_shift(shape, theirs))
        weight = how.take(weight) if isinstance(how, Order) else permute(weight, how) if how else weight
        kind = kind_of(ours, weight.shape[-1], "f32")
        tensors[ours] = (encode(np.ascontiguousarray(weight), kind), kind)
    return tensors


class NemotronHead(torch.nn.Module):
    """The head of Nemotron 3, of transformers' layers: one of attention, one of experts, and a layer norm without a bias."""

    def __init__(self, model, shape: Shape):
        super().__init__()
        kinds, block = mamba.kinds(shape), type(model.model.layers[0])
        norm = type(model.model.norm_f)
        self.enorm, self.hnorm = norm(shape.hidden, eps=EPS), norm(shape.hidden, eps=EPS)
        self.eh_proj = torch.nn.Linear(2 * shape.hidden, shape.hidden, bias=False)
        self.mtp_block = torch.nn.ModuleList(
            block(model.model.config, layer_idx=kinds.index(kind)) for kind in ("full_attention", "moe"))
        self.post_norm = torch.nn.LayerNorm(shape.hidden, eps=EPS, bias=False)

    def forward(self, inputs_embeds, previous_hidden_state, attention_mask, **_):
        x = self.eh_proj(torch.cat([self.enorm(inputs_embeds), self.hnorm(previous_hidden_state)], -1))
        for block in self.mtp_block:
            x = block(x, attention_mask=attention_mask)
            x = x[0] if isinstance(x, tuple) else x
        return x


def has_plain_layer(shape: Shape) -> bool:
    """Whether a head's layer has a window and no experts."""
    return shape.arch in INPUTS_OF


def head_names(shape: Shape, at: int) -> list:
    """As `names`, of a head."""
    start, first = f"blk.{shape.layers + at}.", f"blk.{shape.layers}."
    longer = dataclasses.replace(shape, layers=shape.layers + 1, full=(*shape.full, shape.layers))
    if has_plain_layer(shape):
        longer.dense = longer.layers
    if shape.arch in mamba.NEMOTRON:
        parts = [("attn_norm.weight", "norm.weight", 0)] + mamba.within("mixer", mamba.attention(shape))
        others = [("post_attention_norm.weight", "norm.weight", 0)] + mamba.within("mixer", mamba.experts(shape))
        rows = mamba.within("mtp_block.0", parts) + mamba.within("mtp_block.1", others)
        rows += [(f"{ours}.weight", f"{theirs}.weight", 0)
                 for ours, theirs in (INPUTS | {"nextn.shared_head_norm": "post_norm"}).items()]
        return [(start + ours, theirs, how) for ours, theirs, how in rows]
    block = [(ours.replace(first, start), theirs.replace(f"model.layers.{shape.layers}.", "mtp_block."), how)
             for ours, theirs, how in names(longer) if ours.startswith(first)]
    parts = INPUTS | {"layer_output_norm" if shape.arch in ("mimo2", "bailingmoe2") else "nextn.shared_head_norm": "post_norm"}
    parts |= {"nextn.shared_head_head": "output"} if shape.arch == "step35" else {}
    return block + [(f"{start}{ours}.weight", f"{theirs}.weight", 0) for ours, theirs in parts.items()]


def write_published(name: str, shape: Shape, model, heads: list) -> None:
    """The model as it is published, with its heads: their layers are written as if they were the model's, then renamed."""
    folder, parts = OUT / name, PUBLISHED[shape.arch]
    blocks = range(shape.layers, shape.layers + len(heads))
    nextn = len(heads) if shape.arch == "step35" else 0
    longer = dataclasses.replace(shape, full=(*shape.full, *blocks) if shape.full else (), nextn=nextn)
    model.model.layers.extend(head.mtp_block for head in heads)
    case = Case(longer, torch.float32, TOKENIZERS.get(shape.arch, "qwen2"), "80KB")
    # A change of the type separates Ling's queries, keys and values, which are parts of one parameter.
    write_folder(folder, name, case, model.double())
    if parts["layer"] == LAYER["layer"]:
        settings = json.loads((folder / "config.json").read_text())
        settings["num_nextn_predict_layers"] = len(heads)
        (folder / "config.json").write_text(json.dumps(settings, indent=1))
    tensors = {}
    for path in folder.glob("*.safetensors"):
        tensors |= load_file(path)
        path.unlink()
    (folder / "model.safetensors.index.json").unlink(missing_ok=True)
    for at, (layer, head) in enumerate(zip(blocks, heads)):
        start, own = f"model.layers.{layer}.", parts["layer"].format(layer=layer, head=at)
        for key in [key for key in tensors if key.startswith(start)]:
            theirs = own + key.removeprefix(start)
            for part, of_head in parts.items():
                theirs = theirs.replace(f".{part}.", f".{of_head}.")
            tensors[theirs] = tensors.pop(key)
        for key, weight in head.state_dict().items():
            part, _, rest = key.partition(".")
            if part != "mtp_block":
                part = parts.get(part, part)
                tensors[f"{part}.{rest}" if part.startswith("mtp.") else f"{own}{part}.{rest}"] = weight
    tensors = {key: weight.contiguous() for key, weight in tensors.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def write_nemotron(name: str, shape: Shape, model, head) -> None:
    """The same of Nemotron 3."""
    folder = OUT / name
    write_folder(folder, name, Case(shape, torch.float32, "pixtral", "80KB"), model)
    settings = json.loads((folder / "config.json").read_text())
    settings["num_nextn_predict_layers"] = 1
    (folder / "config.json").write_text(json.dumps(settings, indent=1))
    tensors = {}
    for path in folder.glob("*.safetensors"):
        tensors |= load_file(path)
        path.unlink()
    (folder / "model.safetensors.index.json").unlink(missing_ok=True)
    for key, weight in head.state_dict().items():
        layer, key = (key.split(".")[1], key.split(".", 2)[2]) if key.startswith("mtp_block.") else ("0", key)
        layer = "1" if key.startswith("post_norm") else layer
        key = f"mtp.layers.{layer}." + key.replace("post_norm", "final_layernorm")
        base, _, last = key.rpartition(".")
        if base.endswith("mixer.experts"):
            tensors |= {f"{base}.{i}.{last}.weight": one.clone() for i, one in enumerate(weight)}
        else:
            tensors[key] = weight
    tensors = {key: weight.contiguous() for key, weight in tensors.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def last_norm(model):
    return getattr(model.model, "norm", None) or model.model.norm_f


def hidden_states(model, tokens: torch.Tensor, normed: bool) -> torch.Tensor:
    """Those after the last norm, or the residual stream before it."""
    before = []
    hook = last_norm(model).register_forward_pre_hook(lambda _norm, inputs: before.append(inputs[0]))
    after = model.model(input_ids=tokens[None]).last_hidden_state
    hook.remove()
    return after if normed else before[0]


def rotation(model, embedded, positions, kind: list):
    rotary = getattr(model.model, "rotary_emb", None)
    return rotary(embedded, positions, *kind) if rotary else None


@torch.no_grad()
def drafts(model, shape: Shape, heads: list, tokens: torch.Tensor) -> torch.Tensor:
    """The logits of the drafts after these tokens."""
    normed, chained = INPUTS_OF.get(shape.arch, (True, True))
    hidden = hidden_states(model, tokens[:-1], normed)
    inputs, logits = tokens[None, 1:], []
    kind = ["sliding_attention"] if has_plain_layer(shape) else []
    for step in range(DRAFTS):
        head = heads[min(step, len(heads) - 1)]
        length = inputs.shape[1]
        positions = torch.arange(length)[None]
        hides = torch.ones(length, length).triu(1)
        if has_plain_layer(shape):
            hides += torch.ones(length, length).tril(-shape.window)
        mask = (hides * torch.finfo(torch.float32).min)[None, None]
        embedded = model.get_input_embeddings()(inputs)
        out = head(inputs_embeds=embedded, previous_hidden_state=hidden, attention_mask=mask, position_ids=positions,
                   position_embeddings=rotation(model, embedded, positions, kind), past_key_values=None)
        last = head.post_norm(out)
        logits.append((head.output if hasattr(head, "output") else model.lm_head)(last[0, -1]))
        best = logits[-1].topk(2)
        if best.values[0] - best.values[1] < GAP:
            return None
        inputs = torch.cat([inputs, best.indices[None, :1]], 1)
        passed = last if normed else out
        if step < len(heads) - 1:
            hidden, inputs = passed if chained else hidden, inputs[:, 1:]
        else:
            hidden = torch.cat([hidden, passed[:, -1:]], 1)
    return torch.stack(logits)


def new_head(model, shape: Shape) -> MtpLayer:
    """A head, whose last norm is not part of its output."""
    if shape.arch in mamba.NEMOTRON:
        head = NemotronHead(model, shape)
        head.mtp_block[1].mixer.experts.config._experts_implementation = "eager"
        return head.eval()
    index, config = max(shape.full) if shape.full else shape.layers - 1, model.model.config
    if has_plain_layer(shape):
        config = copy.deepcopy(config)
        index = config.layer_types.index("sliding_attention")
        config.mlp_layer_types[index] = "dense"
        if shape.limits:
            config.swiglu_limits_shared[index] = 0
    norm = type(model.model.norm)
    head = MtpLayer(config, type(model.model.layers[index]), norm, index, use_post_norm=False)
    head.post_norm = norm(config.hidden_size, eps=config.rms_norm_eps)
    if shape.arch == "step35":
        head.output = torch.nn.Linear(shape.hidden, config.vocab_size, bias=False)
    if shape.arch == "bailingmoe2":
        join(head.mtp_block.self_attn)
    return head.eval()


@torch.no_grad()
def make(name: str, shape: Shape, count: int) -> None:
    generator = torch.Generator().manual_seed(sum(map(ord, name)))
    model = build(shape)
    randomise(model, shape, generator)
    heads = [new_head(model, shape) for _ in range(count)]
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
            found = drafts(model, shape, heads, text)
        texts.append(text)
        logits.append(found)
    # The whole context counts: without its first token, the logits are others.
    for text, found in zip(texts, logits):
        other = drafts(model, shape, heads, text[1:])
        assert other is None or ((other[0] - found[0]).square().sum() / found[0].square().sum()) > 1e-3
    write_model(OUT / f"{name}.gguf", dataclasses.replace(shape, nextn=count), tensors)
    write_logits(OUT / f"{name}.logits.gguf", TOLERANCE["f32"], texts, logits)
    if shape.arch in mamba.NEMOTRON:
        write_nemotron(name, shape, model, heads[0])
    elif shape.arch in PUBLISHED:
        write_published(name, shape, model, heads)
    print(name, "deviation of the logits", float(logits[0].std()))


if __name__ == "__main__":
    OUT.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(2)
    for name in sys.argv[1:] or MODELS_WITH_HEADS:
        of, count = MODELS_WITH_HEADS[name]
        make(name, dataclasses.replace(MODELS[of], nextn=0), count)
