"""Sampling in Python, for completions whose logits a Python function changes."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import Any

import numpy as np

#: Logits are changed by functions of the tokens so far and the logits, in place or by their result.
LogitsProcessor = Any


class LogitsProcessorList(list[LogitsProcessor]):
    """Functions that change logits, in their order."""

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        for processor in self:
            changed = processor(input_ids, scores)
            scores = scores if changed is None else changed
        return scores


class StoppingCriteriaList(list[Any]):
    """Functions of the tokens so far and the logits; a text ends as soon as one returns true."""

    def __call__(self, input_ids: Any, logits: Any) -> bool:
        return any(criterion(input_ids, logits) for criterion in self)


class MinTokensLogitsProcessor:
    """A text does not end before it has this number of tokens."""

    def __init__(self, min_tokens: int, token_eos: int) -> None:
        self.min_tokens = min_tokens
        self.token_eos = token_eos
        self.prompt_tokens: int | None = None

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        if self.prompt_tokens is None:
            self.prompt_tokens = len(input_ids)
        if len(input_ids) - self.prompt_tokens < self.min_tokens:
            scores[self.token_eos] = -np.inf
        return scores


def sample(
    logits: Any,
    generated: Sequence[int],
    random: np.random.Generator,
    *,
    temperature: float = 0.8,
    top_k: int = 40,
    top_p: float = 0.95,
    min_p: float = 0.05,
    repeat_penalty: float = 1.0,
    frequency_penalty: float = 0.0,
    presence_penalty: float = 0.0,
) -> int:
    """Samples a token as the engine does: penalties, top_k, temperature, top_p, min_p."""
    logits = np.array(logits, dtype=np.float64)
    for token, count in collections.Counter(generated).items():
        logit = logits[token]
        logit = logit / repeat_penalty if logit > 0 else logit * repeat_penalty
        logits[token] = logit - frequency_penalty * count - presence_penalty
    if temperature <= 0:
        return int(np.argmax(logits))
    order = np.argsort(-logits, kind="stable")
    if top_k > 0:
        order = order[:top_k]
    weights = np.exp((logits[order] - logits[order[0]]) / temperature)
    weights /= weights.sum()
    if top_p < 1:
        order = order[: int(np.searchsorted(np.cumsum(weights), top_p)) + 1]
        weights = weights[: len(order)]
    if min_p > 0:
        kept = weights >= min_p * weights[0]
        order, weights = order[kept], weights[kept]
    return int(random.choice(order, p=weights / weights.sum()))
