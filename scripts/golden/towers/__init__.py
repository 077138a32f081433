"""The towers of scripts/golden/vision.py, one module for each family."""

import gguf
import torch


@torch.no_grad()
def draw(parts: list, generator: torch.Generator, larger: tuple = (), tables: tuple = ()) -> None:
    """Draws parameters: matrices that keep the size of their inputs (`larger`: twice that), tables of positions, and norms
    around 1."""
    for name, parameter in parts:
        scale = 0.5 if parameter.ndim == 1 else parameter[0].numel() ** -0.5
        if name.endswith(tables):
            scale = 1.5
        if name.endswith(larger):
            scale *= 2
        parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
        if "norm" in name and name.endswith("weight"):
            parameter.add_(1.0)


def vision_keys(writer: gguf.GGUFWriter, model, projector: str, *, image_size: int, patch: int, width: int, inner: int,
                layers: int, heads: int, eps: float, mean: list, std: list) -> None:
    """The keys of all towers."""
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_string("clip.projector_type", projector)
    writer.add_uint32("clip.vision.image_size", image_size)
    writer.add_uint32("clip.vision.patch_size", patch)
    writer.add_uint32("clip.vision.embedding_length", width)
    writer.add_uint32("clip.vision.feed_forward_length", inner)
    writer.add_uint32("clip.vision.projection_dim", model.config.text_config.hidden_size)
    writer.add_uint32("clip.vision.block_count", layers)
    writer.add_uint32("clip.vision.attention.head_count", heads)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", eps)
    writer.add_array("clip.vision.image_mean", mean)
    writer.add_array("clip.vision.image_std", std)
