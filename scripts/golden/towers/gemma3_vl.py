"""Gemma 3: SigLIP for pictures of one size, averages of blocks, and attention both ways in the text model."""

import gguf
import numpy as np
import torch
import transformers as t

import pictures

from . import SAME, draw, every_one, parameters_of, siglip, vision_keys

PATCH, MERGE, SIDE = 4, 2, 8
LAYERS, WIDTH, INNER, HEADS = 2, 64, 96, 4
SIZES = [(SIDE, SIDE)] * 4
# A picture has a mark before and behind it.
TOUCH = False
# Width and height of a picture of pixels.
PIXELS = (53, 37)
PREPROCESSOR = {"image_processor_type": "Gemma3ImageProcessorFast", "size": {"height": SIDE * PATCH, "width": SIDE * PATCH},
                "image_mean": [0.5] * 3, "image_std": [0.5] * 3, "resample": 2}


@torch.no_grad()
def build(text, image_token: int, generator: torch.Generator):
    vision = dict(
        hidden_size=WIDTH, intermediate_size=INNER, num_hidden_layers=LAYERS, num_attention_heads=HEADS, patch_size=PATCH,
        image_size=SIDE * PATCH, num_channels=3, layer_norm_eps=1e-6, hidden_act="gelu_pytorch_tanh",
        vision_use_head=False, model_type="siglip_vision_model")
    config = t.Gemma3Config(
        vision_config=vision, text_config=text.config.to_dict(), image_token_index=image_token, image_token_id=image_token,
        mm_tokens_per_image=(SIDE // MERGE) ** 2, tie_word_embeddings=True)
    model = t.Gemma3ForConditionalGeneration(config)
    model.model.language_model.load_state_dict(text.model.state_dict())
    projector = model.model.multi_modal_projector
    # Rows of pictures are as large as embeddings times the root of the width.
    size = text.model.embed_tokens.weight.std() * text.config.hidden_size**0.5
    draw(parts(model), generator, larger=("out_proj.weight", "fc2.weight"), tables=("position_embedding.weight",))
    projector.mm_input_projection_weight.copy_(
        torch.randn(projector.mm_input_projection_weight.shape, generator=generator) * WIDTH**-0.5 * size * 2)
    projector.mm_soft_emb_norm.weight.copy_(torch.randn(WIDTH, generator=generator) * 0.3)
    return model


def parts(model) -> list:
    return parameters_of(model, ("vision_tower", "multi_modal_projector"))


def tensors(model):
    """GGUF name, parameter, and how values come from the file and to it."""
    parameters = dict(parts(model))
    plus_one = (lambda x: x - 1, lambda x: x + 1)
    prefix = next(name for name in parameters if "patch_embedding" in name).split("embeddings")[0]
    projector = "model.multi_modal_projector."
    rows = [("v.position_embd.weight", prefix + "embeddings.position_embedding.weight", SAME),
            ("mm.soft_emb_norm.weight", projector + "mm_soft_emb_norm.weight", plus_one),
            ("mm.input_projection.weight", projector + "mm_input_projection_weight", SAME)]
    rows += siglip(prefix, LAYERS, {"v.patch_embd": prefix + "embeddings.patch_embedding"})
    return every_one(rows, parameters)


def blocks(model):
    wanted = ("out_proj.weight", "fc2.weight", "position_embedding.weight", "patch_embedding.weight",
              "mm_input_projection_weight", "mm_soft_emb_norm.weight")
    return [(name, parameter) for name, parameter in parts(model) if name.endswith(wanted)]


def run(model, tokens: list, pictures: list) -> torch.Tensor:
    """The logits of every position."""
    ids = torch.tensor([tokens])
    return model(input_ids=ids, pixel_values=torch.stack(pictures), use_cache=False,
                 token_type_ids=(ids == model.config.image_token_id).int()).logits[0]


def write_keys(writer: gguf.GGUFWriter, model) -> None:
    vision_keys(writer, model, "gemma3", image_size=SIDE * PATCH, patch=PATCH, width=WIDTH, inner=INNER, layers=LAYERS,
                heads=HEADS, eps=1e-6, mean=[0.5] * 3, std=[0.5] * 3)
    writer.add_bool("clip.use_gelu", True)
    writer.add_uint32("clip.vision.projector.scale_factor", MERGE)


def prepare(settings: dict, image) -> np.ndarray:
    """Patches of (channel, row, column), row by row."""
    own = pictures.Gemma3ImageProcessorPil(**settings)
    return pictures.planes(own(image, return_tensors="np")["pixel_values"][0], PATCH)
