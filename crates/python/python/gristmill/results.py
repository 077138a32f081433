"""What requests return."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class TokenLogprob:
    """The natural logarithm of a token's probability before penalties and temperature, and the most likely tokens."""

    token: str
    logprob: float | None
    top: dict[str, float]


@dataclass(frozen=True)
class Usage:
    """Tokens of a request."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """Tokens of prompt and completion."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True)
class Choice:
    """One text of a request with ``n``."""

    text: str
    finish_reason: str | None
    token_ids: list[int]
    logprobs: list[TokenLogprob] | None = None
    #: The seed with which these tokens are sampled again.
    seed: int | None = None


@dataclass(frozen=True)
class Completion:
    """A text that continues a prompt. With ``n``, ``choices`` has all, and this is the first."""

    text: str
    finish_reason: str | None
    token_ids: list[int]
    prompt_token_ids: list[int]
    logprobs: list[TokenLogprob] | None
    seed: int | None
    choices: list[Choice]
    receipt: dict[str, Any] | None = None
    #: The value of ``response_format``, if it is a type.
    parsed: Any = None

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class ToolCall:
    """A call of a tool that the model asks for."""

    id: str
    name: str
    #: As the model wrote them, JSON.
    arguments_json: str

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments by their names."""
        return json.loads(self.arguments_json or "{}")


@dataclass(frozen=True)
class Reply:
    """The answer to a conversation."""

    content: str
    reasoning: str
    tool_calls: list[ToolCall]
    finish_reason: str | None
    usage: Usage
    seed: int | None = None
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] | None = None
    receipt: dict[str, Any] | None = None
    #: The value of ``response_format``, if it is a type.
    parsed: Any = None
    #: With ``n``, all answers, of which this is the first.
    choices: list[Reply] = field(default_factory=list)

    def __str__(self) -> str:
        return self.content

    @property
    def message(self) -> dict[str, Any]:
        """The answer as a message, for the next turn of the conversation."""
        message: dict[str, Any] = {"role": "assistant", "content": self.content}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.tool_calls:
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments_json}}
                for call in self.tool_calls
            ]
        return message


@dataclass(frozen=True)
class Content:
    """A piece of the answer's text."""

    text: str
    logprobs: list[TokenLogprob] | None = None

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Reasoning:
    """A piece of the model's reasoning."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Finish:
    """The last event of a stream."""

    reason: str | None
    usage: Usage | None = None
    seed: int | None = None
    receipt: dict[str, Any] | None = None

    def __str__(self) -> str:
        return ""


Event = Content | Reasoning | ToolCall | Finish


@dataclass(frozen=True)
class Ranked:
    """A document with its score, from the likest to the least like."""

    index: int
    score: float
    document: str
