"""Transports of httpx that answer in this process, for the published clients of OpenAI and Anthropic."""

from __future__ import annotations

import functools
import importlib
from collections.abc import AsyncIterator, Iterator
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _calls, _native
from .errors import ClosedError, GristmillError, OptionError
from .llm import LLM

if TYPE_CHECKING:
    import anthropic
    import httpx
    import openai

#: No host has this name: the address only has the form of one.
ADDRESS = "http://localhost"


class Classes(NamedTuple):
    """Transports of one of the packages ``httpx`` and ``httpx2``, whose classes are alike and not the same."""

    http: Any
    #: ``Client(transport=transport(llm))`` sends requests to the router of an LLM, without a port.
    transport: Any
    #: The same for ``AsyncClient``. A cancelled task cancels its request.
    async_transport: Any


@functools.cache
def classes(package: str = "httpx") -> Classes:
    """The transports of a package."""
    http: Any = importlib.import_module(package)

    def start(llm: LLM, request: Any, body: bytes) -> _native.Response:
        headers = [(name.decode("ascii"), value) for name, value in request.headers.raw if name.lower() != b"host"]
        target = request.url.raw_path.decode("ascii")
        return llm.engine.request(request.method, target, [("host", b"localhost"), *headers], body, False)

    def failed(request: Any, error: GristmillError) -> Exception:
        kind = http.ConnectError if isinstance(error, ClosedError) else http.ReadError
        return kind(str(error), request=request)

    def replied(head: tuple[int, list[tuple[str, bytes]]], request: Any, body: Any) -> Any:
        status, headers = head
        raw = [(name.encode(), value) for name, value in headers]
        return http.Response(status, headers=raw, stream=body, request=request)

    class Body(http.SyncByteStream):
        def __init__(self, response: _native.Response, request: Any) -> None:
            self._response, self._request = response, request

        def __iter__(self) -> Iterator[bytes]:
            try:
                yield from iter(self._response.read, b"")
            except GristmillError as error:
                raise failed(self._request, error) from error

        def close(self) -> None:
            self._response.close()

    class AsyncBody(http.AsyncByteStream):
        def __init__(self, response: _native.Response, request: Any) -> None:
            self._response, self._request = response, request

        async def __aiter__(self) -> AsyncIterator[bytes]:
            try:
                async for part in _calls.aparts(self._response):
                    yield part
            except GristmillError as error:
                raise failed(self._request, error) from error

        async def aclose(self) -> None:
            self._response.close()

    class Transport(http.BaseTransport):
        def __init__(self, llm: LLM) -> None:
            self._llm = llm

        def handle_request(self, request: Any) -> Any:
            try:
                response = start(self._llm, request, request.read())
                return replied(response.head(), request, Body(response, request))
            except GristmillError as error:
                raise failed(request, error) from error

    class AsyncTransport(http.AsyncBaseTransport):
        def __init__(self, llm: LLM) -> None:
            self._llm = llm

        async def handle_async_request(self, request: Any) -> Any:
            try:
                response = start(self._llm, request, await request.aread())
                try:
                    return replied(await _calls.ahead(response), request, AsyncBody(response, request))
                except BaseException:
                    response.close()
                    raise
            except GristmillError as error:
                raise failed(request, error) from error

    return Classes(http, Transport, AsyncTransport)


def _of_package(client: type) -> Classes:
    """The transports of the package that a client is made of."""
    roots = [base.__module__.split(".")[0] for base in client.__mro__]
    return classes(next((root for root in roots if root.startswith("httpx")), "httpx"))


def _imported(package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError:
        raise OptionError(f'{package}: the package is not installed; pip install "gristmill[{package}]"') from None


def _llm(model: str | PathLike[str] | LLM, options: dict[str, Any]) -> LLM:
    return model if isinstance(model, LLM) else LLM(model, **options)


def _client(of: Classes, model: str | PathLike[str] | LLM, options: dict[str, Any]) -> Any:
    return of.http.Client(transport=of.transport(_llm(model, options)), base_url=ADDRESS, timeout=None)


def _async_client(of: Classes, model: str | PathLike[str] | LLM, options: dict[str, Any]) -> Any:
    return of.http.AsyncClient(transport=of.async_transport(_llm(model, options)), base_url=ADDRESS, timeout=None)


def http_client(model: str | PathLike[str] | LLM, **options: Any) -> httpx.Client:
    """A client of httpx for a model."""
    client: httpx.Client = _client(classes(), model, options)
    return client


def async_http_client(model: str | PathLike[str] | LLM, **options: Any) -> httpx.AsyncClient:
    """An asynchronous client of httpx for a model."""
    client: httpx.AsyncClient = _async_client(classes(), model, options)
    return client


def openai_client(model: str | PathLike[str] | LLM, **options: Any) -> openai.OpenAI:
    """See :func:`gristmill.openai`."""
    openai = _imported("openai")
    client = _client(_of_package(openai.DefaultHttpxClient), model, options)
    return openai.OpenAI(base_url=f"{ADDRESS}/v1", api_key="none", http_client=client, max_retries=0)


def async_openai_client(model: str | PathLike[str] | LLM, **options: Any) -> openai.AsyncOpenAI:
    """See :func:`gristmill.async_openai`."""
    openai = _imported("openai")
    client = _async_client(_of_package(openai.DefaultAsyncHttpxClient), model, options)
    return openai.AsyncOpenAI(base_url=f"{ADDRESS}/v1", api_key="none", http_client=client, max_retries=0)


def anthropic_client(model: str | PathLike[str] | LLM, **options: Any) -> anthropic.Anthropic:
    """See :func:`gristmill.anthropic`."""
    anthropic = _imported("anthropic")
    client = _client(_of_package(anthropic.DefaultHttpxClient), model, options)
    return anthropic.Anthropic(base_url=ADDRESS, api_key="none", http_client=client, max_retries=0)


def async_anthropic_client(model: str | PathLike[str] | LLM, **options: Any) -> anthropic.AsyncAnthropic:
    """See :func:`gristmill.async_anthropic`."""
    anthropic = _imported("anthropic")
    client = _async_client(_of_package(anthropic.DefaultAsyncHttpxClient), model, options)
    return anthropic.AsyncAnthropic(base_url=ADDRESS, api_key="none", http_client=client, max_retries=0)
