"""Drawing tokens, so that no router is close to a tie, and running the models on them."""

import numpy as np
import torch

from . import kda, shapes
from .build import SOFTMAX, selection_biases
from .shapes import SPARSE_MIXER_NEAR, Shape


def routers(model) -> list:
    return [module for name, module in model.named_modules() if name.endswith((".mlp.gate", ".mixer.gate", ".feed_forward.gate", ".router"))]


def sparse_mixer_gap(logits: torch.Tensor) -> torch.Tensor:
    """How far the order of the first three, and every limit of nearness, are from being another."""
    top = logits.sort(descending=True).values
    gap = (top[:, :2] - top[:, 1:3]).min(-1).values
    for best in (0, 1):
        m, rest = top[:, best : best + 1], top[:, best + 1 :]
        limit = (m - rest) - SPARSE_MIXER_NEAR * torch.maximum(rest.abs(), m)
        gap = torch.minimum(gap, limit.abs().min(-1).values)
    return gap


def gap_after(scores: torch.Tensor, count: int) -> torch.Tensor:
    """How far the best so many scores are from the next."""
    top = scores.topk(count + 1).values
    return top[:, -2] - top[:, -1]


def selection_gap(scores: torch.Tensor, shape: Shape, counted: int = 2) -> torch.Tensor:
    """How far the choice of groups, and of experts in them, is from being another."""
    gap = torch.full((len(scores),), torch.inf)
    if shape.groups > 1:
        groups = scores.unflatten(-1, (shape.groups, -1))
        worth, kept = groups.topk(counted).values.sum(-1), (shape.groups + 1) // 2
        gap = gap_after(worth, kept)
        left_out = worth < worth.topk(kept).values[:, -1:]
        scores = groups.masked_fill(left_out[..., None], -torch.inf).flatten(1)
    return torch.minimum(gap, gap_after(scores, shape.top_k))


def shared_weights(model, sequences) -> int:
    """How many of all the experts' weights SparseMixer has made less than 1."""
    count = 0

    def look(_module, _inputs, output):
        nonlocal count
        count += int((output[1] < 0.99).sum())

    hooks = [router.register_forward_hook(look) for router in routers(model)]
    run(model, sequences)
    for hook in hooks:
        hook.remove()
    return count


def router_gap(model, shape: Shape, sequences) -> torch.Tensor:
    """The smallest gap between the k-th and the next router logit, or score that chooses, at the last position, over all
    layers."""
    smallest = torch.full((len(sequences),), torch.inf)
    biases = selection_biases(model)

    def look(module, _inputs, output):
        # Llama 4's router gives its weights first.
        logits = output[shape.arch == "llama4"].reshape(len(sequences), -1, shape.experts)[:, -1]
        if shape.arch == "gemma4":
            logits = logits.log()  # its router gives shares
        bias = next((b for name, b in biases.items() if name.startswith(names[module].rsplit(".", 1)[0])), None)
        if shape.arch == "phimoe":
            gap = sparse_mixer_gap(logits)
        elif bias is None:
            # Without a bias, groups are those of DeepSeek V2, worth their best.
            gap = selection_gap(logits, shape, counted=1)
        else:
            scores = logits.softmax(-1) if shape.arch in SOFTMAX else logits.sigmoid()
            gap = selection_gap(scores + bias.flatten(), shape)
        smallest.copy_(torch.minimum(smallest, gap))

    names = {module: name for name, module in model.named_modules()}
    hooks = [router.register_forward_hook(look) for router in routers(model)]
    model(input_ids=sequences)
    for hook in hooks:
        hook.remove()
    return smallest


def draw(model, shape: Shape, length: int, least: float, generator) -> torch.Tensor:
    """Random tokens; with experts, such that no router is close to a tie at any position."""
    tokens = torch.empty(0, dtype=torch.long)
    # transformers' chunks of a delta rule with many gates need much memory for each sequence.
    count = 4 if shape.arch in kda.FAMILIES else 64
    left = 64
    while len(tokens) < length:
        candidates = torch.randint(shapes.VOCAB, (count, 1), generator=generator)
        sequences = torch.cat([tokens.expand(count, -1), candidates], dim=1)
        if not shape.experts:
            tokens = sequences[0]
            continue
        gap, left = router_gap(model, shape, sequences), left - count
        assert gap.max() > least or left > 0, f"no token in 64 keeps the routers from a tie: {gap.max()}"
        if gap.max() > least:
            tokens, left = sequences[int((gap > least).nonzero()[0])], 64
    return tokens


def run(model, sequences) -> list[torch.Tensor]:
    return [model(input_ids=tokens[None]).logits[0].float() for tokens in sequences]


def nmse(found: list, expected: list) -> float:
    return max((((f - e) ** 2).sum() / (e**2).sum()).item() for f, e in zip(found, expected))


def least_effect(model, shape: Shape, sequences, logits) -> float:
    """The smallest NMSE that zeroing one block's output causes."""
    least = np.inf
    for layer in getattr(model, model.base_model_prefix).layers:
        ends = ("mlp", "block_sparse_moe", "experts", "shared_expert", "shared_mlp", "feed_forward",
                "per_layer_projection")
        mlps = [module for name, module in layer.named_modules() if name.endswith(ends)]
        mixers = (getattr(layer, name, None) for name in ("self_attn", "linear_attn", "conv", "mamba", "mixer"))
        for block in (*filter(None, mixers), *mlps):
            zero = lambda _m, _i, out: (out[0] * 0, *out[1:]) if isinstance(out, tuple) else out * 0
            hook = block.register_forward_hook(zero)
            moved = run(model, sequences)
            hook.remove()
            effect = min(nmse([f], [e]) for f, e in zip(moved, logits))
            least = min(least, effect)
    return least


def limit_effect(model, sequences, logits) -> float:
    """The smallest NMSE that the lack of one limit of SwiGLU causes."""
    least = np.inf
    for module in model.modules():
        if 0 < (limit := getattr(module, "limit", 0)) < np.inf:
            module.limit = np.inf
            least = min(least, max(nmse([f], [e]) for f, e in zip(run(model, sequences), logits)))
            module.limit = limit
    return least


def bias_effect(model, sequences, logits) -> float:
    """The smallest NMSE that zeroing one router's selection bias causes, which lets other experts be chosen."""
    least = np.inf
    for bias in selection_biases(model).values():
        kept = bias.clone()
        bias.zero_()
        least = min(least, max(nmse([f], [e]) for f, e in zip(run(model, sequences), logits)))
        bias.copy_(kept)
    return least
