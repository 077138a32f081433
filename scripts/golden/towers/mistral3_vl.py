"""Mistral 3: Pixtral's tower with a merger of 2 × 2 patches."""

import gguf
import numpy as np
import torch
import transformers as t

import pictures

from tiny.tensors import permute, unpermute

from . import SAME, every_one, parameters_of, vision_keys

PATCH, MERGE = 4, 2
LAYERS, WIDTH, INNER, HEADS = 2, 32, 64, 2
SIZES = [(4, 6), (2, 2), (2, 14), (10, 2)]
# A token ends each row of a picture.
ROWS = True
# Width and height of a picture of pixels.
PIXELS = (75, 41)
PREPROCESSOR = {"image_processor_type": "PixtralImageProcessor", "patch_size": PATCH, "size": {"longest_edge": 64}}


@torch.no_grad()
def build(text, image_token: int, generator: torch.Generator):
    vision = dict(hidden_size=WIDTH, intermediate_size=INNER, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
                  patch_size=PATCH, image_size=64, hidden_act="silu", head_dim=WIDTH // HEADS, model_type="pixtral",
                  rope_parameters=dict(rope_theta=10000.0, rope_type="default"))
    config = t.Mistral3Config(
        vision_config=vision, text_config=text.model.config.to_dict(), image_token_index=image_token, spatial_merge_size=MERGE,
        projector_hidden_act="gelu", multimodal_projector_bias=False, vision_feature_layer=-1,
        tie_word_embeddings=text.config.tie_word_embeddings)
    model = t.Mistral3ForConditionalGeneration(config)
    model.model.language_model.load_state_dict(text.model.state_dict())
    model.lm_head.load_state_dict(text.lm_head.state_dict())
    std = text.model.embed_tokens.weight.std()
    for name, parameter in parts(model):
        inputs = parameter[0].numel() if parameter.ndim > 1 else 1
        scale = 0.3 if parameter.ndim == 1 else inputs**-0.5
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            scale *= 2
        if name.endswith("linear_2.weight"):
            scale *= 2 * std
        parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
        if parameter.ndim == 1:
            parameter.add_(1.0)
    return model


def parts(model) -> list:
    return parameters_of(model, ("vision_tower", "multi_modal_projector"))


def tensors(model):
    """GGUF name, parameter, and how values come from the file and to it."""
    parameters = dict(parts(model))
    pairs = (lambda x: unpermute(x, HEADS), lambda x: permute(x, HEADS))
    names = {"v.patch_embd": "vision_tower.patch_conv", "v.pre_ln": "vision_tower.ln_pre",
             "mm.input_norm": "multi_modal_projector.norm", "mm.1": "multi_modal_projector.linear_1",
             "mm.patch_merger": "multi_modal_projector.patch_merger.merging_layer", "mm.2": "multi_modal_projector.linear_2"}
    layer = {"ln1": "attention_norm", "ln2": "ffn_norm", "attn_q": "attention.q_proj", "attn_k": "attention.k_proj",
             "attn_v": "attention.v_proj", "attn_out": "attention.o_proj", "ffn_gate": "feed_forward.gate_proj",
             "ffn_up": "feed_forward.up_proj", "ffn_down": "feed_forward.down_proj"}
    names |= {f"v.blk.{i}.{ours}": f"vision_tower.transformer.layers.{i}.{theirs}"
              for i in range(LAYERS) for ours, theirs in layer.items()}
    pairs_of = lambda ours: pairs if ours.endswith(("attn_q", "attn_k")) else SAME
    return every_one([(f"{ours}.weight", f"model.{theirs}.weight", pairs_of(ours)) for ours, theirs in names.items()], parameters)


def blocks(model):
    wanted = ("o_proj.weight", "down_proj.weight", "patch_conv.weight", "merging_layer.weight", "linear_2.weight")
    return [(name, parameter) for name, parameter in parts(model) if name.endswith(wanted)]


def run(model, tokens: list, pictures: list) -> torch.Tensor:
    """The logits of every position."""
    high, wide = max(p.shape[1] for p in pictures), max(p.shape[2] for p in pictures)
    pixels = torch.zeros(len(pictures), 3, high, wide)
    for i, picture in enumerate(pictures):
        pixels[i, :, : picture.shape[1], : picture.shape[2]] = picture
    sizes = torch.tensor([picture.shape[1:] for picture in pictures])
    return model(input_ids=torch.tensor([tokens]), pixel_values=pixels, image_sizes=sizes, use_cache=False).logits[0]


def write_keys(writer: gguf.GGUFWriter, model) -> None:
    vision_keys(writer, model, "pixtral", image_size=64, patch=PATCH, width=WIDTH, inner=INNER, layers=LAYERS, heads=HEADS,
                eps=1e-5, mean=[0.48145466, 0.4578275, 0.40821073], std=[0.26862954, 0.26130258, 0.27577711])
    writer.add_bool("clip.use_silu", True)
    writer.add_uint32("clip.vision.spatial_merge_size", MERGE)


def prepare(settings: dict, image) -> np.ndarray:
    """Patches of (channel, row, column), row by row."""
    return pictures.pixtral(settings, image, PATCH, MERGE)[0][0]
