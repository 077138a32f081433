"""The towers of scripts/golden/vision.py, one module for each family."""

import gguf
import torch

SAME = (lambda x: x, lambda x: x)
# A layer of SigLIP: the file's names and those of transformers.
SIGLIP = {"ln1": "layer_norm1", "ln2": "layer_norm2", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
          "attn_v": "self_attn.v_proj", "attn_out": "self_attn.out_proj", "ffn_up": "mlp.fc1", "ffn_down": "mlp.fc2"}


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


def parameters_of(model, outside: tuple) -> list:
    """The parameters that are not of the text model."""
    return [(name, parameter) for name, parameter in model.named_parameters() if any(part in name for part in outside)]


def siglip(prefix: str, layers: int, others: dict) -> list:
    """Names of weights and biases of SigLIP's layers and last norm, and of others."""
    names = {f"v.blk.{i}.{ours}": f"{prefix}encoder.layers.{i}.{theirs}" for i in range(layers) for ours, theirs in SIGLIP.items()}
    names |= {"v.post_ln": prefix + "post_layernorm"} | others
    return [(f"{ours}.{part}", f"{theirs}.{part}", SAME) for ours, theirs in names.items() for part in ("weight", "bias")]


def every_one(rows: list, parameters: dict) -> list:
    """Rows of names and changes with their parameters. None is left over."""
    assert {theirs for _, theirs, _ in rows} == set(parameters), set(parameters) ^ {theirs for _, theirs, _ in rows}
    return [(ours, parameters[theirs], *change) for ours, theirs, change in rows]


def patches_of(pictures: list, patch: int) -> tuple[torch.Tensor, list]:
    """Pictures as patches of (row, column, channel), with zeros behind the shorter ones; and rows and columns of each."""
    shapes = [(picture.shape[1] // patch, picture.shape[2] // patch) for picture in pictures]
    pixels = torch.zeros(len(pictures), max(rows * columns for rows, columns in shapes), 3 * patch * patch)
    for row, picture, (rows, columns) in zip(pixels, pictures, shapes):
        grid = picture.reshape(3, rows, patch, columns, patch).permute(1, 3, 2, 4, 0)
        row[: rows * columns] = grid.reshape(rows * columns, -1)
    return pixels, shapes


def run_in_blocks(model, tokens: list, pictures: list, patch: int, merge: int) -> torch.Tensor:
    """The logits of every position of a model that reads the patches of a block one after another, each of two frames."""
    pixels, grids = [], []
    for picture in pictures:
        rows, columns = picture.shape[1] // patch, picture.shape[2] // patch
        grid = picture.reshape(3, rows // merge, merge, patch, columns // merge, merge, patch).permute(1, 4, 2, 5, 0, 3, 6)
        grid = grid.reshape(rows * columns, 3, 1, patch, patch).expand(-1, -1, 2, -1, -1)
        pixels.append(grid.reshape(rows * columns, -1))
        grids.append([1, rows, columns])
    ids = torch.tensor([tokens])
    return model(input_ids=ids, pixel_values=torch.cat(pixels), image_grid_thw=torch.tensor(grids),
                 mm_token_type_ids=(ids == model.config.image_token_id).int(), use_cache=False).logits[0]


def places_of(shapes: list) -> torch.Tensor:
    """Column and row of each patch, -1 behind the shorter pictures."""
    places = torch.full((len(shapes), max(rows * columns for rows, columns in shapes), 2), -1)
    for row, (rows, columns) in zip(places, shapes):
        row[: rows * columns] = torch.tensor([(x, y) for y in range(rows) for x in range(columns)])
    return places
