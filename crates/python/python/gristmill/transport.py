"""Transports of httpx that answer in this process, for the published clients of OpenAI and Anthropic."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from os import PathLike
from typing import TYPE_CHECKING, Any

import httpx

from . import _calls, _native
from .errors import ClosedError, GristmillError
from .llm import LLM

if TYPE_CHECKING:
    import anthropic
    import openai

#: No host has this name: the address only has the form of one.
ADDRESS = "http://localhost"


def _start(engine: _native.Engine, request: httpx.Request, body: bytes) -> _native.Response:
    headers = [(name.decode("ascii"), value) for name, value in request.headers.raw if name.lower() != b"host"]
    target = request.url.raw_path.decode("ascii")
    return engine.request(request.method, target, [("host", b"localhost"), *headers], body, False)


def _failed(request: httpx.Request, error: GristmillError) -> httpx.TransportError:
    kind = httpx.ConnectError if isinstance(error, ClosedError) else httpx.ReadError
    return kind(str(error), request=request)


class _Body(httpx.SyncByteStream):
    def __init__(self, response: _native.Response, request: httpx.Request) -> None:
        self._response, self._request = response, request

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from iter(self._response.read, b"")
        except GristmillError as error:
            raise _failed(self._request, error) from error

    def close(self) -> None:
        self._response.close()


class _AsyncBody(httpx.AsyncByteStream):
    def __init__(self, response: _native.Response, request: httpx.Request) -> None:
        self._response, self._request = response, request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for part in _calls.aparts(self._response):
                yield part
        except GristmillError as error:
            raise _failed(self._request, error) from error

    async def aclose(self) -> None:
        self._response.close()


class Transport(httpx.BaseTransport):
    """``httpx.Client(transport=Transport(llm))`` sends requests to the router of an LLM, without a port."""

    def __init__(self, llm: LLM) -> None:
        self._llm = llm

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        try:
            response = _start(self._llm.engine, request, request.read())
            status, headers = response.head()
        except GristmillError as error:
            raise _failed(request, error) from error
        raw = [(name.encode(), value) for name, value in headers]
        return httpx.Response(status, headers=raw, stream=_Body(response, request), request=request)


class AsyncTransport(httpx.AsyncBaseTransport):
    """The same for ``httpx.AsyncClient``. A cancelled task cancels its request."""

    def __init__(self, llm: LLM) -> None:
        self._llm = llm

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        try:
            response = _start(self._llm.engine, request, await request.aread())
            try:
                status, headers = await _calls.ahead(response)
            except BaseException:
                response.close()
                raise
        except GristmillError as error:
            raise _failed(request, error) from error
        raw = [(name.encode(), value) for name, value in headers]
        return httpx.Response(status, headers=raw, stream=_AsyncBody(response, request), request=request)


def _llm(model: str | PathLike[str] | LLM, options: dict[str, Any]) -> LLM:
    return model if isinstance(model, LLM) else LLM(model, **options)


def http_client(model: str | PathLike[str] | LLM, **options: Any) -> httpx.Client:
    """A client of httpx for a model."""
    return httpx.Client(transport=Transport(_llm(model, options)), base_url=ADDRESS, timeout=None)


def async_http_client(model: str | PathLike[str] | LLM, **options: Any) -> httpx.AsyncClient:
    """An asynchronous client of httpx for a model."""
    return httpx.AsyncClient(transport=AsyncTransport(_llm(model, options)), base_url=ADDRESS, timeout=None)


def openai_client(model: str | PathLike[str] | LLM, **options: Any) -> openai.OpenAI:
    """See :func:`gristmill.openai`."""
    import openai

    client = http_client(model, **options)
    return openai.OpenAI(base_url=f"{ADDRESS}/v1", api_key="none", http_client=client, max_retries=0)


def async_openai_client(model: str | PathLike[str] | LLM, **options: Any) -> openai.AsyncOpenAI:
    """See :func:`gristmill.async_openai`."""
    import openai

    client = async_http_client(model, **options)
    return openai.AsyncOpenAI(base_url=f"{ADDRESS}/v1", api_key="none", http_client=client, max_retries=0)


def anthropic_client(model: str | PathLike[str] | LLM, **options: Any) -> anthropic.Anthropic:
    """See :func:`gristmill.anthropic`."""
    import anthropic

    client = http_client(model, **options)
    return anthropic.Anthropic(base_url=ADDRESS, api_key="none", http_client=client, max_retries=0)


def async_anthropic_client(model: str | PathLike[str] | LLM, **options: Any) -> anthropic.AsyncAnthropic:
    """See :func:`gristmill.async_anthropic`."""
    import anthropic

    client = async_http_client(model, **options)
    return anthropic.AsyncAnthropic(base_url=ADDRESS, api_key="none", http_client=client, max_retries=0)
