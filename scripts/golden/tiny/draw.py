"""Drawing tokens, so that no router is close to a tie, and running the models on them."""

import numpy as np
import torch

from . import shapes
from .shapes import SPARSE_MIXER_NEAR, Shape


def routers(model) -> list:
    return [module for name, module in model.named_modules() if name.endswith((".mlp.gate", ".router"))]


def sparse_mixer_gap(logits: torch.Tensor) -> torch.Tensor:
    """How far the order of the first three, and every limit of nearness, are from being another."""
    top = logits.sort(descending=True).values
    gap = (top[:, :2] - top[:, 1:3]).min(-1).values
    for best in (0, 1):
        m, rest = top[:, best : best + 1], top[:, best + 1 :]
        limit = (m - rest) - SPARSE_MIXER_NEAR * torch.maximum(rest.abs(), m)
        gap = torch.minimum(gap, limit.abs().min(-1).values)
    return gap


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
    """The smallest gap between the k-th and the next router logit at the last position, over all layers."""
    smallest = torch.full((len(sequences),), torch.inf)

    def look(_module, _inputs, output):
        logits = output[0].reshape(len(sequences), -1, shape.experts)[:, -1]
        gap = sparse_mixer_gap(logits) if shape.arch == "phimoe" else logits.topk(shape.top_k + 1).values[:, -2:]
        smallest.copy_(torch.minimum(smallest, gap if gap.dim() == 1 else gap[:, 0] - gap[:, 1]))

    hooks = [router.register_forward_hook(look) for router in routers(model)]
    model(input_ids=sequences)
    for hook in hooks:
        hook.remove()
    return smallest


def draw(model, shape: Shape, length: int, least: float, generator) -> torch.Tensor:
    """Random tokens; with experts, such that no router is close to a tie at any position."""
    tokens = torch.empty(0, dtype=torch.long)
    while len(tokens) < length:
        candidates = torch.randint(shapes.VOCAB, (64, 1), generator=generator)
        sequences = torch.cat([tokens.expand(64, -1), candidates], dim=1)
        if not shape.experts:
            tokens = sequences[0]
            continue
        gap = router_gap(model, shape, sequences)
        assert gap.max() > least, f"no token in 64 keeps the routers from a tie: {gap.max()}"
        tokens = sequences[int((gap > least).nonzero()[0])]
    return tokens


def run(model, sequences) -> list[torch.Tensor]:
    return [model(input_ids=tokens[None]).logits[0].float() for tokens in sequences]


def nmse(found: list, expected: list) -> float:
    return max((((f - e) ** 2).sum() / (e**2).sum()).item() for f, e in zip(found, expected))


def least_effect(model, shape: Shape, sequences, logits) -> float:
    """The smallest NMSE that zeroing one block's output causes."""
    least = np.inf
    for layer in model.model.layers:
        ends = ("mlp", "block_sparse_moe", "experts", "shared_expert", "shared_mlp")
        mlps = [module for name, module in layer.named_modules() if name.endswith(ends)]
        for block in (layer.self_attn, *mlps):
            zero = lambda _m, _i, out: (out[0] * 0, *out[1:]) if isinstance(out, tuple) else out * 0
            hook = block.register_forward_hook(zero)
            moved = run(model, sequences)
            hook.remove()
            effect = min(nmse([f], [e]) for f, e in zip(moved, logits))
            least = min(least, effect)
    return least
