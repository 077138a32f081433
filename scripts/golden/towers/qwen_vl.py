"""Qwen3-VL, and Qwen 3.5 without outputs of layers for the text model."""

import gguf
import numpy as np
import torch
import transformers as t

import pictures

from . import SAME, every_one, parameters_of, run_in_blocks, vision_keys

PATCH, MERGE, SIDE = 4, 2, 3
LAYERS, WIDTH, INNER, HEADS = 4, 32, 64, 2
DEEPSTACK = [0, 1, 2]
# Rows and columns of patches: smaller and larger than the table, and long.
SIZES = [(4, 6), (2, 2), (2, 14), (10, 2)]
# A picture has a mark before and behind it.
TOUCH = False
# Width and height of a picture of pixels.
PIXELS = (53, 37)
PREPROCESSOR = {"image_processor_type": "Qwen2VLImageProcessorFast", "patch_size": PATCH, "merge_size": MERGE,
                "size": {"shortest_edge": 256, "longest_edge": 65536}, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
CLASSES = {
    "qwen3_vl_text": (t.Qwen3VLConfig, t.Qwen3VLForConditionalGeneration, DEEPSTACK),
    "qwen3_vl_moe_text": (t.Qwen3VLMoeConfig, t.Qwen3VLMoeForConditionalGeneration, DEEPSTACK),
    "qwen3_5_text": (t.Qwen3_5Config, t.Qwen3_5ForConditionalGeneration, []),
}


@torch.no_grad()
def build(text, image_token: int, generator: torch.Generator):
    settings = text.model.config.to_dict()
    config, cls, deepstack = CLASSES[settings["model_type"]]
    vision = dict(
        hidden_size=WIDTH, intermediate_size=INNER, depth=LAYERS, num_heads=HEADS, patch_size=PATCH, spatial_merge_size=MERGE,
        temporal_patch_size=2, num_position_embeddings=SIDE * SIDE, out_hidden_size=settings["hidden_size"])
    if deepstack:
        vision["deepstack_visual_indexes"] = deepstack
    model = cls(config(vision_config=vision, text_config=settings, image_token_id=image_token,
                       tie_word_embeddings=settings["tie_word_embeddings"]))
    model.model.language_model.load_state_dict(text.model.state_dict())
    model.lm_head.load_state_dict(text.lm_head.state_dict())
    std = text.model.embed_tokens.weight.std()
    for name, parameter in parts(model):
        inputs = parameter[0].numel() if parameter.ndim > 1 else 1
        scale = 0.5 if parameter.ndim == 1 else inputs**-0.5
        if name.endswith(("attn.proj.weight", "mlp.linear_fc2.weight")):
            scale *= 2
        if name.endswith("pos_embed.weight"):
            scale = 1.5
        if "merger" in name and "linear_fc2" in name:
            scale *= 2 * std
        parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
        if "norm" in name and name.endswith("weight"):
            parameter.add_(1.0)
    return model


def parts(model) -> list:
    return parameters_of(model, ("model.visual.",))


def tensors(model):
    """GGUF name, parameter, and how values come from the file and to it."""
    parameters = dict(parts(model))
    visual = "model.visual."
    frames = parameters.pop(visual + "patch_embed.proj.weight")
    rows = [("v.patch_embd.weight", frames[:, :, 0], *SAME), ("v.patch_embd.weight.1", frames[:, :, 1], *SAME)]
    names = {"v.patch_embd.bias": "patch_embed.proj.bias", "v.position_embd.weight": "pos_embed.weight"}
    layer = {"ln1": "norm1", "ln2": "norm2", "attn_qkv": "attn.qkv", "attn_out": "attn.proj", "ffn_up": "mlp.linear_fc1",
             "ffn_down": "mlp.linear_fc2"}
    pairs = {f"v.blk.{i}.{ours}": f"blocks.{i}.{theirs}" for i in range(LAYERS) for ours, theirs in layer.items()}
    pairs |= {"v.post_ln": "merger.norm", "mm.0": "merger.linear_fc1", "mm.2": "merger.linear_fc2"}
    for at, i in enumerate(deepstack(model)):
        pairs |= {f"v.deepstack.{i}.{ours}": f"deepstack_merger_list.{at}.{theirs}"
                  for ours, theirs in {"norm": "norm", "fc1": "linear_fc1", "fc2": "linear_fc2"}.items()}
    names |= {f"{ours}.{part}": f"{theirs}.{part}" for ours, theirs in pairs.items() for part in ("weight", "bias")}
    return rows + every_one([(ours, visual + theirs, SAME) for ours, theirs in names.items()], parameters)


def deepstack(model) -> list:
    return list(getattr(model.config.vision_config, "deepstack_visual_indexes", []))


def blocks(model):
    """What later text depends on: not the rows that are added after the last of the text model's two layers."""
    wanted = ("attn.proj.weight", "mlp.linear_fc2.weight", "pos_embed.weight", "patch_embed.proj.weight",
              "merger.linear_fc2.weight", "merger_list.0.linear_fc2.weight")
    return [(name, parameter) for name, parameter in parts(model) if name.endswith(wanted)]


def run(model, tokens: list, pictures: list) -> torch.Tensor:
    """The logits of every position."""
    return run_in_blocks(model, tokens, pictures, PATCH, MERGE)


def write_keys(writer: gguf.GGUFWriter, model) -> None:
    vision_keys(writer, model, "qwen3vl_merger", image_size=SIDE * PATCH, patch=PATCH, width=WIDTH, inner=INNER, layers=LAYERS,
                heads=HEADS, eps=1e-6, mean=[0.5] * 3, std=[0.5] * 3)
    writer.add_bool("clip.use_gelu", True)
    writer.add_uint32("clip.vision.spatial_merge_size", MERGE)
    writer.add_array("clip.vision.is_deepstack_layers", [i in deepstack(model) for i in range(LAYERS)])


def prepare(settings: dict, image) -> np.ndarray:
    """Patches of (channel, row, column), row by row."""
    return pictures.qwen(settings, image)[0][0]
