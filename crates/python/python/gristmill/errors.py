"""Errors: one class for each cause. Each is also the built-in class that fits, so ``except ValueError`` works."""

from __future__ import annotations

from typing import Any


class GristmillError(Exception):
    """The base of all errors of this package."""


class OptionError(GristmillError, ValueError):
    """An option of :class:`gristmill.LLM` has a value that it cannot have."""


class ModelFileError(GristmillError, OSError):
    """The model's file is missing or damaged, is no model that can run, or cannot be downloaded."""


class DeviceError(GristmillError, RuntimeError):
    """The device cannot be used, or failed."""


class OutOfMemoryError(GristmillError, MemoryError):
    """The memory of the device or of the host does not suffice."""


class BadRequestError(GristmillError, ValueError):
    """A request must be changed. ``param`` is the name of the argument, if there is one, and ``code`` a short name."""

    def __init__(self, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.param, self.code)


class ContextLengthError(BadRequestError):
    """The prompt is longer than the context."""


class NotFoundError(GristmillError, LookupError):
    """A request names something that does not exist."""


class BusyError(GristmillError, RuntimeError):
    """The queue is full. The same request can succeed later."""


class ClosedError(GristmillError, RuntimeError):
    """The engine is closed, or a request was cancelled."""


class ForkError(GristmillError, RuntimeError):
    """The engine was opened before this process was forked; its threads do not exist here."""


class ResponseFormatError(GristmillError, ValueError):
    """A reply ended before it was a value of the response format. ``reply`` is that reply."""

    def __init__(self, message: str, reply: Any = None) -> None:
        super().__init__(message)
        self.reply = reply


class ToolError(GristmillError, RuntimeError):
    """Tools cannot be run: one is unknown, or the rounds did not suffice."""


class UnsupportedError(GristmillError, NotImplementedError):
    """An argument or method of another library that this package does not have."""


class InternalError(GristmillError, RuntimeError):
    """A bug of gristmill. Please report it."""


def of_reply(status: int, body: Any) -> GristmillError:
    """The error of a refusal of the server's router."""
    error = body.get("error") if isinstance(body, dict) else None
    error = error if isinstance(error, dict) else {}
    message = str(error.get("message") or f"the request failed with status {status}")
    param, code = error.get("param"), error.get("code")
    # The router's words for a field that it does not have.
    message = message.replace(" would be ignored, and this server is strict;", ": there is no such parameter;")
    if code == "context_length_exceeded":
        return ContextLengthError(message, param, code)
    if status == 404:
        return NotFoundError(message)
    if status == 429:
        return BusyError(message)
    if 400 <= status < 500:
        return BadRequestError(message, param, code)
    if status == 503:
        return ClosedError(message)
    return InternalError(message)
