"""LFM2-VL: SigLIP2 with resized positions, 2 × 2 patches become one token."""

import gguf
import numpy as np
import torch
from transformers import Lfm2VlConfig, Lfm2VlForConditionalGeneration

import pictures

from . import SAME, draw, every_one, parameters_of, patches_of, siglip, vision_keys

PATCH, MERGE, SIDE = 4, 2, 4
LAYERS, WIDTH, INNER, HEADS, PROJECTOR = 2, 64, 96, 4, 96
# Rows and columns of patches: smaller and larger than the table, and long.
SIZES = [(4, 6), (2, 2), (2, 14), (10, 2)]
# Pictures may follow each other without a token between.
TOUCH = True
# Width and height of a picture of pixels.
PIXELS = (90, 61)
PREPROCESSOR = {"image_processor_type": "Lfm2VlImageProcessorFast", "encoder_patch_size": PATCH, "downsample_factor": MERGE}


@torch.no_grad()
def build(text, image_token: int, generator: torch.Generator):
    vision = dict(
        hidden_size=WIDTH, intermediate_size=INNER, num_hidden_layers=LAYERS, num_attention_heads=HEADS, patch_size=PATCH,
        num_patches=SIDE * SIDE, num_channels=3, layer_norm_eps=1e-6, hidden_act="gelu_pytorch_tanh",
        vision_use_head=False, model_type="siglip2_vision_model")
    config = Lfm2VlConfig(
        vision_config=vision, text_config=text.config.to_dict(), image_token_id=image_token, downsample_factor=MERGE,
        projector_hidden_size=PROJECTOR, projector_use_layernorm=True, projector_bias=True, projector_hidden_act="gelu")
    model = Lfm2VlForConditionalGeneration(config)
    model.model.language_model.load_state_dict(text.model.state_dict())
    model.lm_head.load_state_dict(text.lm_head.state_dict())
    draw(parts(model), generator, larger=("out_proj.weight", "fc2.weight"), tables=("position_embedding.weight",))
    # As large as the model's own embeddings.
    model.model.multi_modal_projector.linear_2.weight.mul_(text.model.embed_tokens.weight.std() * 2)
    model.model.multi_modal_projector.linear_2.bias.mul_(text.model.embed_tokens.weight.std())
    return model


def parts(model) -> list:
    return parameters_of(model, ("vision_tower", "multi_modal_projector"))


def tensors(model):
    """GGUF name, parameter, and how values come from the file and to it."""
    parameters = dict(parts(model))
    # Linear columns are (row, column, channel), the file's (channel, row, column).
    patches = (lambda x: x.transpose(0, 2, 3, 1).reshape(WIDTH, -1),
               lambda x: x.reshape(WIDTH, PATCH, PATCH, 3).transpose(0, 3, 1, 2))
    tower, projector = "model.vision_tower.", "model.multi_modal_projector."
    rows = [("v.patch_embd.weight", tower + "embeddings.patch_embedding.weight", patches),
            ("v.patch_embd.bias", tower + "embeddings.patch_embedding.bias", SAME),
            ("v.position_embd.weight", tower + "embeddings.position_embedding.weight", SAME)]
    rows += siglip(tower, LAYERS, {"mm.input_norm": projector + "layer_norm", "mm.1": projector + "linear_1",
                                   "mm.2": projector + "linear_2"})
    return every_one(rows, parameters)


def blocks(model):
    wanted = ("out_proj.weight", "fc2.weight", "position_embedding.weight", "patch_embedding.weight", "linear_2.weight")
    return [(name, parameter) for name, parameter in parts(model) if name.endswith(wanted)]


def run(model, tokens: list, pictures: list) -> torch.Tensor:
    """The logits of every position."""
    pixels, shapes = patches_of(pictures, PATCH)
    mask = torch.tensor([[int(i < rows * columns) for i in range(pixels.shape[1])] for rows, columns in shapes])
    return model(input_ids=torch.tensor([tokens]), pixel_values=pixels, spatial_shapes=torch.tensor(shapes), pixel_attention_mask=mask,
                 use_cache=False).logits[0]


def write_keys(writer: gguf.GGUFWriter, model) -> None:
    vision_keys(writer, model, "lfm2", image_size=SIDE * PATCH, patch=PATCH, width=WIDTH, inner=INNER, layers=LAYERS,
                heads=HEADS, eps=1e-6, mean=[0.5] * 3, std=[0.5] * 3)
    writer.add_bool("clip.use_gelu", True)
    writer.add_uint32("clip.vision.projector.scale_factor", MERGE)


def prepare(settings: dict, image) -> np.ndarray:
    """Patches of (channel, row, column), row by row."""
    return pictures.lfm2(settings, image)[0][0]
