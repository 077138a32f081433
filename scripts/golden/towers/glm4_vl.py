"""GLM-4.1V, dense, and GLM-4.5V and 4.6V with experts."""

import gguf
import numpy as np
import torch
import transformers as t

import pictures

from . import SAME, draw, every_one, parameters_of, run_in_blocks, vision_keys

PATCH, MERGE, SIDE = 4, 2, 3
LAYERS, WIDTH, INNER, HEADS, EPS = 2, 32, 48, 2, 1e-5
# Rows and columns of patches: smaller and larger than the table, and long.
SIZES = [(4, 6), (2, 2), (2, 14), (10, 2)]
# A picture has a mark before and behind it.
TOUCH = False
# Width and height of a picture of pixels.
PIXELS = (53, 37)
MEAN, STD = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]
PREPROCESSOR = {"image_processor_type": "Glm4vImageProcessorFast", "patch_size": PATCH, "merge_size": MERGE,
                "size": {"shortest_edge": 256, "longest_edge": 65536}, "image_mean": MEAN, "image_std": STD}
CLASSES = {
    "glm4": (t.Glm4vConfig, t.Glm4vForConditionalGeneration),
    "glm4_moe": (t.Glm4vMoeConfig, t.Glm4vMoeForConditionalGeneration),
}
TEXT = {"glm4": "glm4v_text", "glm4_moe": "glm4v_moe_text"}


@torch.no_grad()
def build(text, image_token: int, generator: torch.Generator):
    settings = text.model.config.to_dict()
    config, cls = CLASSES[settings["model_type"]]
    vision = dict(
        hidden_size=WIDTH, intermediate_size=INNER, depth=LAYERS, num_heads=HEADS, patch_size=PATCH, spatial_merge_size=MERGE,
        temporal_patch_size=2, image_size=SIDE * PATCH, out_hidden_size=settings["hidden_size"], rms_norm_eps=EPS)
    settings["model_type"] = TEXT[settings["model_type"]]
    model = cls(config(vision_config=vision, text_config=settings, image_token_id=image_token,
                       tie_word_embeddings=settings["tie_word_embeddings"]))
    model.model.language_model.load_state_dict(text.model.state_dict())
    model.lm_head.load_state_dict(text.lm_head.state_dict())
    draw(parts(model), generator, tables=("position_embedding.weight",))
    std = text.model.embed_tokens.weight.std()
    model.model.visual.merger.down_proj.weight.mul_(2 * std)
    return model


def parts(model) -> list:
    return parameters_of(model, ("model.visual.",))


def tensors(model):
    """GGUF name, parameter, and how values come from the file and to it."""
    parameters = dict(parts(model))
    visual = "model.visual."
    frames = parameters.pop(visual + "patch_embed.proj.weight")
    rows = [("v.patch_embd.weight", frames[:, :, 0], *SAME), ("v.patch_embd.weight.1", frames[:, :, 1], *SAME)]
    names = {"v.patch_embd.bias": "patch_embed.proj.bias", "v.position_embd.weight": "embeddings.position_embedding.weight",
             "mm.patch_merger.bias": "downsample.bias", "mm.post_norm.bias": "merger.post_projection_norm.bias"}
    layer = {"ln1": "norm1", "ln2": "norm2", "attn_qkv": "attn.qkv", "attn_out": "attn.proj", "ffn_gate": "mlp.gate_proj",
             "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
    pairs = {f"v.blk.{i}.{ours}": f"blocks.{i}.{theirs}" for i in range(LAYERS) for ours, theirs in layer.items()}
    pairs |= {"v.norm_embd": "post_conv_layernorm", "v.post_ln": "post_layernorm", "mm.patch_merger": "downsample",
              "mm.model.fc": "merger.proj", "mm.post_norm": "merger.post_projection_norm", "mm.gate": "merger.gate_proj",
              "mm.up": "merger.up_proj", "mm.down": "merger.down_proj"}
    names |= {f"{ours}.weight": f"{theirs}.weight" for ours, theirs in pairs.items()}
    return rows + every_one([(ours, visual + theirs, SAME) for ours, theirs in names.items()], parameters)


def blocks(model):
    """What later text depends on."""
    wanted = ("attn.proj.weight", "mlp.down_proj.weight", "position_embedding.weight", "patch_embed.proj.weight",
              "downsample.weight", "merger.proj.weight", "merger.down_proj.weight")
    return [(name, parameter) for name, parameter in parts(model) if name.endswith(wanted)]


def run(model, tokens: list, pictures: list) -> torch.Tensor:
    """The logits of every position."""
    return run_in_blocks(model, tokens, pictures, PATCH, MERGE)


def write_keys(writer: gguf.GGUFWriter, model) -> None:
    vision_keys(writer, model, "glm4v", image_size=SIDE * PATCH, patch=PATCH, width=WIDTH, inner=INNER, layers=LAYERS,
                heads=HEADS, eps=EPS, mean=MEAN, std=STD)
    writer.add_bool("clip.use_silu", True)
    writer.add_uint32("clip.vision.spatial_merge_size", MERGE)


def prepare(settings: dict, image) -> np.ndarray:
    """Patches of (channel, row, column), row by row."""
    return pictures.glm4v(settings, image)[0][0]
