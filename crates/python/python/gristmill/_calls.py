"""Requests to the server's router within the process, in the dictionaries of OpenAI's interface."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

from . import _native
from .errors import of_reply

_HEADERS = [("host", b"localhost"), ("content-type", b"application/json")]


def start(engine: _native.Engine, path: str, fields: dict[str, Any]) -> _native.Response:
    """Starts a request that refuses unknown fields."""
    body = json.dumps(fields, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return engine.request("POST", path, _HEADERS, body, True)


def whole(response: _native.Response) -> Any:
    """Waits for a reply."""
    status, _ = response.head()
    parts = list(iter(response.read, b""))
    return _checked(status, b"".join(parts))


async def awhole(response: _native.Response) -> Any:
    """The same without blocking the event loop. A cancelled task cancels the request."""
    try:
        status, _ = await ahead(response)
        return _checked(status, b"".join([part async for part in aparts(response)]))
    finally:
        response.close()


def _checked(status: int, body: bytes) -> Any:
    try:
        value = json.loads(body)
    except ValueError:
        value = {"error": {"message": body.decode("utf-8", "replace")}}
    if status >= 400:
        raise of_reply(status, value)
    return value


async def arrival(response: _native.Response | _native.Embedding) -> None:
    """Awaits something to read."""
    import asyncio

    loop = asyncio.get_running_loop()
    arrived = asyncio.Event()
    if not response.notify(lambda: loop.call_soon_threadsafe(arrived.set)):
        await arrived.wait()


async def ahead(response: _native.Response) -> tuple[int, list[tuple[str, bytes]]]:
    """Awaits status and headers."""
    await arrival(response)
    return response.head()


async def aparts(response: _native.Response) -> AsyncIterator[bytes]:
    """The bytes of a reply, as they arrive."""
    while True:
        await arrival(response)
        part = response.read()
        if not part:
            return
        yield part


class _Events:
    """Splits the bytes of server-sent events into JSON."""

    def __init__(self) -> None:
        self._rest = b""

    def add(self, part: bytes) -> list[Any]:
        *events, self._rest = (self._rest + part).split(b"\n\n")
        values = []
        for event in events:
            data = b"\n".join(line[6:] for line in event.split(b"\n") if line.startswith(b"data: "))
            if data and data != b"[DONE]":
                value = json.loads(data)
                if isinstance(value, dict) and value.get("error"):
                    raise of_reply(500, value)
                values.append(value)
        return values


def chunks(response: _native.Response) -> Iterator[Any]:
    """The events of a reply, as they arrive. Closing the iterator cancels the request."""
    try:
        status, _ = response.head()
        if status >= 400:
            whole_body = b"".join(iter(response.read, b""))
            _checked(status, whole_body)
        events = _Events()
        for part in iter(response.read, b""):
            yield from events.add(part)
    finally:
        response.close()


async def achunks(response: _native.Response) -> AsyncIterator[Any]:
    """The same without blocking the event loop."""
    try:
        status, _ = await ahead(response)
        if status >= 400:
            _checked(status, b"".join([part async for part in aparts(response)]))
        events = _Events()
        async for part in aparts(response):
            for value in events.add(part):
                yield value
    finally:
        response.close()
