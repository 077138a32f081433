"""Gemma 4 12B, which has no tower: norms around a product of patches that are whole tokens, and tables of positions for columns
and rows."""

import gguf
import numpy as np
import torch
import transformers as t

import pictures

from . import SAME, draw, every_one, parameters_of, patches_of, places_of, vision_keys

# Of the model's patches; the settings have smaller ones, of which a block is one.
PATCH, MERGE, POOLED, POSITIONS = 8, 1, 2, 288
WIDTH = 64
# Rows and columns of patches.
SIZES = [(2, 3), (1, 1), (1, 6), (4, 1)]
# A picture has a mark before and behind it.
TOUCH = False
# Width and height of a picture of pixels.
PIXELS = (45, 61)
PREPROCESSOR = {"image_processor_type": "Gemma4UnifiedImageProcessor", "patch_size": PATCH // POOLED,
                "pooling_kernel_size": POOLED, "max_soft_tokens": 70, "do_normalize": False, "image_mean": [0.0] * 3,
                "image_std": [1.0] * 3}


@torch.no_grad()
def build(text, image_token: int, generator: torch.Generator):
    settings = text.config.to_dict()
    for absent in ("vocab_size_per_layer_input", "hidden_size_per_layer_input", "enable_moe_block", "num_experts",
                   "top_k_experts", "moe_intermediate_size", "model_type"):
        settings.pop(absent, None)
    settings["use_bidirectional_attention"] = "vision"
    vision = dict(patch_size=PATCH // POOLED, pooling_kernel_size=POOLED, mm_embed_dim=WIDTH, mm_posemb_size=POSITIONS,
                  output_proj_dims=WIDTH)
    config = t.Gemma4UnifiedConfig(vision_config=vision, text_config=settings, audio_config=None, image_token_id=image_token,
                                   video_token_id=image_token + 1, audio_token_id=image_token + 2, tie_word_embeddings=True)
    model = t.Gemma4UnifiedForConditionalGeneration(config)
    model.model.language_model.load_state_dict(text.model.state_dict())
    size = text.model.embed_tokens.weight.std() * text.config.hidden_size**0.5
    draw(parts(model), generator, tables=("pos_embedding",))
    for name, parameter in parts(model):
        if name.endswith(("_ln1.weight", "_ln2.weight")):
            parameter.add_(1.0)
    model.model.embed_vision.multimodal_embedder.embedding_projection.weight.mul_(size * 2)
    return model


def parts(model) -> list:
    return parameters_of(model, ("embed_vision",))


def channels_first(x: np.ndarray) -> np.ndarray:
    """The last axis from (row, column, channel) to (channel, row, column)."""
    return np.moveaxis(x.reshape(*x.shape[:-1], PATCH, PATCH, 3), -1, -3).reshape(x.shape)


def channels_last(x: np.ndarray) -> np.ndarray:
    return np.moveaxis(x.reshape(*x.shape[:-1], 3, PATCH, PATCH), -3, -1).reshape(x.shape)


def tensors(model):
    """GGUF name, parameter, and how values come from the file and to it."""
    parameters = dict(parts(model))
    pixels = (channels_last, channels_first)
    tables = (lambda x: x.transpose(1, 0, 2), lambda x: x.transpose(1, 0, 2))
    own = "model.embed_vision."
    rows = [("v.patch_embd.weight", "patch_dense.weight", pixels), ("v.patch_embd.bias", "patch_dense.bias", SAME),
            ("v.position_embd.weight", "pos_embedding", tables),
            ("mm.input_projection.weight", "multimodal_embedder.embedding_projection.weight", SAME)]
    for number, (norm, change) in enumerate((("patch_ln1", pixels), ("patch_ln2", SAME), ("pos_norm", SAME)), 1):
        rows += [(f"v.patch_norm.{number}.{end}", f"{norm}.{end}", change) for end in ("weight", "bias")]
    return every_one([(ours, own + theirs, change) for ours, theirs, change in rows], parameters)


def blocks(model):
    return parts(model)


def run(model, tokens: list, pictures: list) -> torch.Tensor:
    """The logits of every position."""
    pixels, shapes = patches_of(pictures, PATCH)
    ids = torch.tensor([tokens])
    kinds = (ids == model.config.image_token_id).int()
    # The masks of generate(): pictures see each other's tokens only in layers with a window. Without them, forward() lets them
    # do so in all layers, which is Gemma 3's rule.
    masks = model.create_masks_for_generate(
        config=model.config, inputs_embeds=model.get_input_embeddings()(ids), attention_mask=None, past_key_values=None,
        position_ids=torch.arange(len(tokens))[None], mm_token_type_ids=kinds)
    return model(input_ids=ids, pixel_values=pixels, image_position_ids=places_of(shapes), use_cache=False, mm_token_type_ids=kinds,
                 attention_mask=masks).logits[0]


def write_keys(writer: gguf.GGUFWriter, model) -> None:
    # As the converter writes them: the settings' patch, and no layers.
    vision_keys(writer, model, "gemma4uv", image_size=224, patch=PATCH // POOLED, width=WIDTH, inner=0, layers=0, heads=0,
                eps=1e-6, mean=[0.0] * 3, std=[1.0] * 3)


def prepare(settings: dict, image) -> np.ndarray:
    """Patches of (channel, row, column), row by row."""
    return pictures.gemma4_unified(settings, image)
