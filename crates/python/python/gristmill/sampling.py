"""Parameters of sampling."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """How tokens are sampled and where a text ends. What is left out is the model's recommendation.

    Methods of :class:`gristmill.LLM` take the same names as keywords, which override a ``SamplingParams``, and every other
    field of the server's interfaces too.
    """

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    stop: str | Sequence[str] | None = None
    stop_token_ids: Sequence[int] | None = None
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = None
    bad_words: Sequence[str] | None = None
    allowed_token_ids: Sequence[int] | None = None
    logit_bias: dict[int, float] | None = None
    seed: int | None = None
    n: int | None = None
    #: The number of most likely tokens whose log-probabilities are returned with that of each token.
    logprobs: int | None = None
    #: Return all that `gristmill replay` needs to generate the same again.
    receipt: bool | None = None

    def fields(self) -> dict[str, Any]:
        """The fields of a request."""
        return {
            field.name: value for field in dataclasses.fields(self) if (value := getattr(self, field.name)) is not None
        }


def merged(params: SamplingParams | None, keywords: dict[str, Any]) -> dict[str, Any]:
    """The fields of parameters and of keywords, which win."""
    fields = params.fields() if params is not None else {}
    fields.update({name: value for name, value in keywords.items() if value is not None})
    if "logit_bias" in fields:
        fields["logit_bias"] = {str(token): bias for token, bias in fields["logit_bias"].items()}
    return fields
