"""SmolVLM, whose tower is that of Idefics3: SigLIP for tiles of one size, blocks of patches become one token."""

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
# Width and height of a picture of pixels. The processor makes one tile of it.
PIXELS = (53, 37)
PREPROCESSOR = {"image_processor_type": "SmolVLMImageProcessor", "do_image_splitting": True, "resample": 1,
                "size": {"longest_edge": SIDE * PATCH}, "max_image_size": {"longest_edge": SIDE * PATCH},
                "image_mean": [0.5] * 3, "image_std": [0.5] * 3}


@torch.no_grad()
def build(text, image_token: int, generator: torch.Generator):
    vision = dict(
        hidden_size=WIDTH, intermediate_size=INNER, num_hidden_layers=LAYERS, num_attention_heads=HEADS, patch_size=PATCH,
        image_size=SIDE * PATCH, num_channels=3, layer_norm_eps=1e-6, hidden_act="gelu_pytorch_tanh")
    config = t.SmolVLMConfig(vision_config=vision, text_config=text.config.to_dict(), image_token_id=image_token,
                             scale_factor=MERGE, tie_word_embeddings=text.config.tie_word_embeddings)
    model = t.SmolVLMForConditionalGeneration(config)
    model.model.text_model.load_state_dict(text.model.state_dict())
    model.lm_head.load_state_dict(text.lm_head.state_dict())
    draw(parts(model), generator, larger=("out_proj.weight", "fc2.weight"), tables=("position_embedding.weight",))
    # As large as the model's own embeddings.
    model.model.connector.modality_projection.proj.weight.mul_(text.model.embed_tokens.weight.std() * 2)
    return model


def parts(model) -> list:
    return parameters_of(model, ("vision_model", "connector"))


def tensors(model):
    """GGUF name, parameter, and how values come from the file and to it."""
    parameters = dict(parts(model))
    prefix = "model.vision_model."
    rows = [("v.position_embd.weight", prefix + "embeddings.position_embedding.weight", SAME),
            ("mm.model.fc.weight", "model.connector.modality_projection.proj.weight", SAME)]
    rows += siglip(prefix, LAYERS, {"v.patch_embd": prefix + "embeddings.patch_embedding"})
    return every_one(rows, parameters)


def blocks(model):
    wanted = ("out_proj.weight", "fc2.weight", "position_embedding.weight", "patch_embedding.weight",
              "modality_projection.proj.weight")
    return [(name, parameter) for name, parameter in parts(model) if name.endswith(wanted)]


def run(model, tokens: list, pictures: list) -> torch.Tensor:
    """The logits of every position."""
    return model(input_ids=torch.tensor([tokens]), pixel_values=torch.stack(pictures)[None], use_cache=False).logits[0]


def write_keys(writer: gguf.GGUFWriter, model) -> None:
    vision_keys(writer, model, "idefics3", image_size=SIDE * PATCH, patch=PATCH, width=WIDTH, inner=INNER, layers=LAYERS,
                heads=HEADS, eps=1e-6, mean=[0.5] * 3, std=[0.5] * 3)
    writer.add_bool("clip.use_gelu", True)
    writer.add_uint32("clip.vision.projector.scale_factor", MERGE)
    writer.add_uint32("clip.vision.preproc_image_size", SIDE * PATCH)


def prepare(settings: dict, image) -> np.ndarray:
    """Patches of (channel, row, column), row by row."""
    return pictures.idefics3(settings, image, PATCH, MERGE)[0][0]
