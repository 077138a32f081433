"""LFM2-VL: SigLIP2 with resized positions, 2 × 2 patches become one token."""

import gguf
import numpy as np
import torch
from transformers import Lfm2VlConfig, Lfm2VlForConditionalGeneration

import pictures

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
    for name, parameter in parts(model):
        scale = 0.5 if parameter.ndim == 1 else parameter.shape[-1] ** -0.5
        if parameter.shape == (SIDE * SIDE, WIDTH):
            scale = 1.5
        if name.endswith(("out_proj.weight", "fc2.weight")):
            scale *= 2
        parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
    for name, parameter in parts(model):
        if "norm" in name and name.endswith("weight"):
            parameter.add_(1.0)
    # As large as the model's own embeddings.
    model.model.multi_modal_projector.linear_2.weight.mul_(text.model.embed_tokens.weight.std() * 2)
    model.model.multi_modal_projector.linear_2.bias.mul_(text.model.embed_tokens.weight.std())
    return model


def parts(model) -> list:
    outside = ("vision_tower", "multi_modal_projector")
    return [(name, parameter) for name, parameter in model.named_parameters() if any(part in name for part in outside)]


def tensors(model):
    """GGUF name, parameter, and how values come from the file and to it."""
    parameters = dict(parts(model))
    same = (lambda x: x, lambda x: x)
    # Linear columns are (row, column, channel), the file's (channel, row, column).
    patches = (lambda x: x.transpose(0, 2, 3, 1).reshape(WIDTH, -1),
               lambda x: x.reshape(WIDTH, PATCH, PATCH, 3).transpose(0, 3, 1, 2))
    tower, projector = "model.vision_tower.", "model.multi_modal_projector."
    rows = [("v.patch_embd.weight", tower + "embeddings.patch_embedding.weight", patches),
            ("v.patch_embd.bias", tower + "embeddings.patch_embedding.bias", same),
            ("v.position_embd.weight", tower + "embeddings.position_embedding.weight", same)]
    layer = {"ln1": "layer_norm1", "ln2": "layer_norm2", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
             "attn_v": "self_attn.v_proj", "attn_out": "self_attn.out_proj", "ffn_up": "mlp.fc1", "ffn_down": "mlp.fc2"}
    names = {f"v.blk.{i}.{ours}": f"{tower}encoder.layers.{i}.{theirs}" for i in range(LAYERS) for ours, theirs in layer.items()}
    names |= {"v.post_ln": tower + "post_layernorm", "mm.input_norm": projector + "layer_norm",
              "mm.1": projector + "linear_1", "mm.2": projector + "linear_2"}
    rows += [(f"{ours}.{part}", f"{theirs}.{part}", same) for ours, theirs in names.items() for part in ("weight", "bias")]
    assert {theirs for _, theirs, _ in rows} == set(parameters), set(parameters) ^ {theirs for _, theirs, _ in rows}
    return [(ours, parameters[theirs], *change) for ours, theirs, change in rows]


def blocks(model):
    wanted = ("out_proj.weight", "fc2.weight", "position_embedding.weight", "patch_embedding.weight", "linear_2.weight")
    return [(name, parameter) for name, parameter in parts(model) if name.endswith(wanted)]


def run(model, tokens: list, pictures: list) -> torch.Tensor:
    """The logits of every position."""
    patches = []
    for picture in pictures:
        _, height, width = picture.shape
        rows, columns = height // PATCH, width // PATCH
        grid = picture.reshape(3, rows, PATCH, columns, PATCH).permute(1, 3, 2, 4, 0)
        patches.append((grid.reshape(rows * columns, -1), (rows, columns)))
    most = max(len(values) for values, _ in patches)
    pixels = torch.zeros(len(patches), most, 3 * PATCH * PATCH)
    mask = torch.zeros(len(patches), most, dtype=torch.long)
    for i, (values, _) in enumerate(patches):
        pixels[i, : len(values)], mask[i, : len(values)] = values, 1
    shapes = torch.tensor([shape for _, shape in patches])
    return model(input_ids=torch.tensor([tokens]), pixel_values=pixels, spatial_shapes=shapes, pixel_attention_mask=mask,
                 use_cache=False).logits[0]


def write_keys(writer: gguf.GGUFWriter, model) -> None:
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_string("clip.projector_type", "lfm2")
    writer.add_uint32("clip.vision.image_size", SIDE * PATCH)
    writer.add_uint32("clip.vision.patch_size", PATCH)
    writer.add_uint32("clip.vision.embedding_length", WIDTH)
    writer.add_uint32("clip.vision.feed_forward_length", INNER)
    writer.add_uint32("clip.vision.projection_dim", model.config.text_config.hidden_size)
    writer.add_uint32("clip.vision.block_count", LAYERS)
    writer.add_uint32("clip.vision.attention.head_count", HEADS)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-6)
    writer.add_array("clip.vision.image_mean", [0.5, 0.5, 0.5])
    writer.add_array("clip.vision.image_std", [0.5, 0.5, 0.5])
    writer.add_bool("clip.use_gelu", True)
    writer.add_uint32("clip.vision.projector.scale_factor", MERGE)


def prepare(settings: dict, image) -> np.ndarray:
    """Patches of (channel, row, column), row by row."""
    return pictures.lfm2(settings, image)[0][0]
