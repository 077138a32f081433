"""Gemma 4: tables of positions for columns and rows, averages of blocks; with ranges of products in the E models, and
standardised tokens in others."""

import gguf
import numpy as np
import torch
import transformers as t

import pictures

from . import SAME, draw, every_one, parameters_of, patches_of, places_of, vision_keys

PATCH, MERGE, POSITIONS = 4, 3, 210
LAYERS, WIDTH, INNER, HEADS = 2, 64, 96, 4
# Rows and columns of patches.
SIZES = [(6, 9), (3, 3), (3, 18), (12, 3)]
# A picture has a mark before and behind it.
TOUCH = False
# Width and height of a picture of pixels.
PIXELS = (53, 37)
PREPROCESSOR = {"image_processor_type": "Gemma4ImageProcessor", "patch_size": PATCH, "pooling_kernel_size": MERGE,
                "max_soft_tokens": 70, "do_normalize": False, "image_mean": [0.0] * 3, "image_std": [1.0] * 3}
ENDS = ("input_min", "input_max", "output_min", "output_max")


@torch.no_grad()
def build(text, image_token: int, generator: torch.Generator):
    settings = text.config.to_dict()
    # The E models have per-layer inputs, ranges of products, and attention as in text.
    is_e = bool(settings.get("hidden_size_per_layer_input"))
    settings["use_bidirectional_attention"] = None if is_e else "vision"
    vision = dict(
        hidden_size=WIDTH, intermediate_size=INNER, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        num_key_value_heads=HEADS, head_dim=WIDTH // HEADS, patch_size=PATCH, pooling_kernel_size=MERGE,
        position_embedding_size=POSITIONS, use_clipped_linears=is_e, standardize=not is_e, rms_norm_eps=1e-6,
        model_type="gemma4_vision")
    config = t.Gemma4Config(vision_config=vision, text_config=settings, audio_config=None, image_token_id=image_token,
                            video_token_id=image_token + 1, audio_token_id=image_token + 2, tie_word_embeddings=True)
    model = t.Gemma4ForConditionalGeneration(config)
    model.model.language_model.load_state_dict(text.model.state_dict())
    # Rows of pictures are as large as embeddings times the root of the width.
    size = text.model.embed_tokens.weight.std() * text.config.hidden_size**0.5
    draw(parts(model), generator, larger=("o_proj.linear.weight", "down_proj.linear.weight"),
         tables=("position_embedding_table",))
    for name, parameter in parts(model):
        if name.endswith(("q_norm.weight", "k_norm.weight")):
            # Attention has no scale of its own.
            parameter.mul_(parameter.numel() ** -0.25)
    model.model.embed_vision.embedding_projection.weight.mul_(size * (0.5 if is_e else 2))
    for name, buffer in buffers(model):
        if name.endswith("std_bias"):
            buffer.copy_(torch.randn(WIDTH, generator=generator) * 2)
        elif name.endswith("std_scale"):
            buffer.copy_(torch.rand(WIDTH, generator=generator) * 0.5 + 0.1)
        else:
            # Ranges that many values are beyond, each another.
            end = 0.7 + torch.rand((), generator=generator)
            buffer.copy_(-end if name.endswith("min") else end)
    return model


def parts(model) -> list:
    return parameters_of(model, ("vision_tower", "embed_vision"))


def buffers(model) -> list:
    return [(name, buffer) for name, buffer in model.named_buffers() if "vision_tower" in name and name.endswith(
        (*ENDS, "std_bias", "std_scale"))]


def tensors(model):
    """GGUF name, parameter, and how values come from the file and to it."""
    parameters = dict(parts(model)) | dict(buffers(model))
    one = (lambda x: x.reshape(()), lambda x: x.reshape(1))
    # Linear columns are (row, column, channel), the file's (channel, row, column).
    patches = (lambda x: x.transpose(0, 2, 3, 1).reshape(WIDTH, -1),
               lambda x: x.reshape(WIDTH, PATCH, PATCH, 3).transpose(0, 3, 1, 2))
    tower = "model.vision_tower."
    rows = [("v.patch_embd.weight", tower + "patch_embedder.input_proj.weight", patches),
            ("v.position_embd.weight", tower + "patch_embedder.position_embedding_table", SAME),
            ("mm.input_projection.weight", "model.embed_vision.embedding_projection.weight", SAME)]
    rows += [(f"v.{name}", tower + name, SAME) for name in ("std_bias", "std_scale") if tower + name in parameters]
    norms = {"ln1": "input_layernorm", "ln2": "pre_feedforward_layernorm", "attn_post_norm": "post_attention_layernorm",
             "ffn_post_norm": "post_feedforward_layernorm", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
    linear = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
              "attn_out": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
    for i in range(LAYERS):
        ours, theirs = f"v.blk.{i}.", f"{tower}encoder.layers.{i}."
        rows += [(f"{ours}{a}.weight", f"{theirs}{b}.weight", SAME) for a, b in norms.items()]
        for a, b in linear.items():
            rows.append((f"{ours}{a}.weight", f"{theirs}{b}.linear.weight", SAME))
            rows += [(f"{ours}{a}.{end}", f"{theirs}{b}.{end}", one) for end in ENDS if f"{theirs}{b}.{end}" in parameters]
    return every_one(rows, parameters)


def blocks(model):
    wanted = ("o_proj.linear.weight", "down_proj.linear.weight", "position_embedding_table", "input_proj.weight",
              "embedding_projection.weight", "q_norm.weight", "std_scale")
    return [(name, parameter) for name, parameter in parts(model) + buffers(model) if name.endswith(wanted)]


def run(model, tokens: list, pictures: list) -> torch.Tensor:
    """The logits of every position."""
    pixels, shapes = patches_of(pictures, PATCH)
    ids = torch.tensor([tokens])
    return model(input_ids=ids, pixel_values=pixels, image_position_ids=places_of(shapes), use_cache=False,
                 mm_token_type_ids=(ids == model.config.image_token_id).int()).logits[0]


def write_keys(writer: gguf.GGUFWriter, model) -> None:
    vision_keys(writer, model, "gemma4v", image_size=224, patch=PATCH, width=WIDTH, inner=INNER, layers=LAYERS,
                heads=HEADS, eps=1e-6, mean=[0.0] * 3, std=[1.0] * 3)
    writer.add_uint32("clip.vision.projector.scale_factor", MERGE)
    writer.add_uint32("clip.vision.image_max_pixels", 70 * (PATCH * MERGE) ** 2)


def prepare(settings: dict, image) -> np.ndarray:
    """Patches of (channel, row, column), row by row."""
    return pictures.gemma4(settings, image)[0][0]
