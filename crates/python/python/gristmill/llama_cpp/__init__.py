"""The calls of llama-cpp-python that programs use, over an engine of gristmill.

Programs change ``from llama_cpp import Llama`` to ``from gristmill.llama_cpp import Llama``. For libraries that import
``llama_cpp`` themselves, call :func:`install` first. What is not supported is refused by name.
"""

from __future__ import annotations

import sys
from typing import Any

from ..errors import UnsupportedError
from . import llama_grammar, llama_speculative
from .llama import LLAMA_DEFAULT_SEED, Llama, LlamaState
from .llama_grammar import LlamaGrammar

__all__ = [
    "GGML_TYPE_F16",
    "GGML_TYPE_Q8_0",
    "LLAMA_DEFAULT_SEED",
    "Llama",
    "LlamaGrammar",
    "LlamaRAMCache",
    "LlamaState",
    "LogitsProcessorList",
    "MinTokensLogitsProcessor",
    "StoppingCriteriaList",
    "UnsupportedError",
    "install",
    "llama_grammar",
    "llama_model_get_vocab",
    "llama_speculative",
    "llama_token_to_piece",
]
#: The version of llama-cpp-python whose calls these are.
__version__ = "0.3.36"
GGML_TYPE_F16 = 1
GGML_TYPE_Q8_0 = 8


class LlamaRAMCache:
    """Prefixes of prompts are always cached, within the KV cache."""

    def __init__(self, capacity_bytes: int = 2 << 30) -> None:
        self.capacity_bytes = capacity_bytes


LlamaCache = LlamaRAMCache


def llama_model_get_vocab(model: Llama) -> Llama:
    """The vocabulary of :attr:`Llama.model`, for :func:`llama_token_to_piece`."""
    return model


def llama_token_to_piece(
    vocab: Llama, token: int, buffer: Any, length: int, lstrip: int = 0, special: bool = False
) -> int:
    """Writes the bytes of a token into a buffer of ctypes. Returns their number, negative if it exceeds the length."""
    if vocab.llm.engine.is_special(token) and not special:
        return 0
    piece = vocab.llm.engine.token_bytes(token)
    stripped = piece.lstrip(b" ")
    piece = piece[min(lstrip, len(piece) - len(stripped)) :]
    if len(piece) > length:
        return -len(piece)
    buffer[: len(piece)] = piece
    return len(piece)


def install() -> None:
    """Makes ``import llama_cpp`` this module, in this process."""
    for name in ("", ".llama", ".llama_grammar", ".llama_speculative"):
        sys.modules[f"llama_cpp{name}"] = sys.modules[f"{__name__}{name}"]


def __getattr__(name: str) -> object:
    # They need numpy.
    if name in ("LogitsProcessor", "LogitsProcessorList", "MinTokensLogitsProcessor", "StoppingCriteriaList"):
        from . import _sampling

        return getattr(_sampling, name)
    if name.startswith(("llama_", "ggml_", "LLAMA_", "GGML_")):
        raise AttributeError(f"{name}: gristmill.llama_cpp has no such function of llama.cpp's C API; use Llama")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
