"""Run quantised language models in this process: GGUF files, and folders of Hugging Face and MLX.

>>> from gristmill import LLM
>>> with LLM("builtin", ctx=256) as llm:
...     for event in llm.stream_text("Once upon a time", max_tokens=8):
...         print(event, end="")  # doctest: +ELLIPSIS
,...
"""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Any

from ._native import __version__
from .errors import (
    BadRequestError,
    BusyError,
    ClosedError,
    ContextLengthError,
    DeviceError,
    ForkError,
    GristmillError,
    InternalError,
    ModelFileError,
    NotFoundError,
    OptionError,
    OutOfMemoryError,
    ResponseFormatError,
    ToolError,
    UnsupportedError,
)
from .llm import LLM, AsyncStream, Stream
from .results import (
    Choice,
    Completion,
    Content,
    Event,
    Finish,
    Ranked,
    Reasoning,
    Reply,
    TokenLogprob,
    ToolCall,
    Usage,
)
from .sampling import SamplingParams

if TYPE_CHECKING:
    from anthropic import Anthropic, AsyncAnthropic
    from openai import AsyncOpenAI, OpenAI

__all__ = [
    "LLM",
    "AsyncStream",
    "BadRequestError",
    "BusyError",
    "Choice",
    "ClosedError",
    "Completion",
    "Content",
    "ContextLengthError",
    "DeviceError",
    "Event",
    "Finish",
    "ForkError",
    "GristmillError",
    "InternalError",
    "ModelFileError",
    "NotFoundError",
    "OptionError",
    "OutOfMemoryError",
    "Ranked",
    "Reasoning",
    "Reply",
    "ResponseFormatError",
    "SamplingParams",
    "Stream",
    "TokenLogprob",
    "ToolCall",
    "ToolError",
    "UnsupportedError",
    "Usage",
    "__version__",
    "anthropic",
    "async_anthropic",
    "async_openai",
    "openai",
]


def openai(model: str | PathLike[str] | LLM, **options: Any) -> OpenAI:
    """A client of the package ``openai`` for a model in this process: its requests use no port.

    ``model`` and ``options`` are those of :class:`LLM`, or ``model`` is an ``LLM``. The client takes any name of a model.
    """
    from .transport import openai_client

    return openai_client(model, **options)


def async_openai(model: str | PathLike[str] | LLM, **options: Any) -> AsyncOpenAI:
    """The same for ``openai.AsyncOpenAI``."""
    from .transport import async_openai_client

    return async_openai_client(model, **options)


def anthropic(model: str | PathLike[str] | LLM, **options: Any) -> Anthropic:
    """The same for the package ``anthropic``."""
    from .transport import anthropic_client

    return anthropic_client(model, **options)


def async_anthropic(model: str | PathLike[str] | LLM, **options: Any) -> AsyncAnthropic:
    """The same for ``anthropic.AsyncAnthropic``."""
    from .transport import async_anthropic_client

    return async_anthropic_client(model, **options)
