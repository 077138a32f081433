"""A model in this process."""

from __future__ import annotations

import atexit
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any, overload

from . import _calls, _native, _options, _parse
from .errors import OptionError, ToolError
from .results import Completion, Event, Ranked, Reply, TokenLogprob
from .sampling import SamplingParams, merged
from .tools import Format, call, tools_of

if TYPE_CHECKING:
    import numpy as np

Message = Mapping[str, Any]
Messages = str | Sequence[Message]
Prompt = str | Sequence[int]

#: The most prompts of one request to the router.
_MOST_PROMPTS = 1024
_open: weakref.WeakSet[_native.Engine] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    # The threads of an engine must not call an interpreter that ends.
    for engine in list(_open):
        engine.close()


class Stream(Iterator[Event]):
    """The events of a reply as they are generated. ``close``, the end of a ``with`` block and ``break`` cancel the request."""

    def __init__(self, response: _native.Response) -> None:
        self._response = response
        self._events = self._read()

    def _read(self) -> Iterator[Event]:
        parser = _parse.EventParser()
        for chunk in _calls.chunks(self._response):
            yield from parser.add(chunk)
        yield from parser.end()

    def __next__(self) -> Event:
        return next(self._events)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Cancels the request, if it has not ended."""
        self._response.close()


class AsyncStream(AsyncIterator[Event]):
    """The same for ``async for``. A cancelled task cancels the request."""

    def __init__(self, response: _native.Response) -> None:
        self._response = response
        self._events = self._read()

    async def _read(self) -> AsyncIterator[Event]:
        parser = _parse.EventParser()
        async for chunk in _calls.achunks(self._response):
            for event in parser.add(chunk):
                yield event
        for event in parser.end():
            yield event

    async def __anext__(self) -> Event:
        try:
            return await self._events.__anext__()
        except StopAsyncIteration:
            raise
        except BaseException:
            # asyncio.CancelledError too.
            self._response.close()
            raise

    async def __aenter__(self) -> AsyncStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        self._response.close()

    async def aclose(self) -> None:
        """Cancels the request, if it has not ended."""
        self._response.close()


class LLM:
    """A model with its engine, which serves requests of all threads and tasks at the same time.

    :param model: a GGUF file, a folder of Hugging Face or MLX, ``ORG/REPO[:QUANT]`` of the hub's cache,
        ``hf:ORG/REPO[:QUANT]``, which is downloaded if it is missing, or ``builtin``.
    :param device: ``auto``, ``cpu``, ``cuda``, ``cuda:N``, ``metal``, or another ``LLM``, whose device is shared.
    :param ctx: tokens of a prompt with its completion.
    :param parallel: texts that are generated at the same time; longer lists of prompts wait. The KV cache has
        ``parallel`` times ``ctx`` tokens, or ``kv_tokens``.
    :param sampling: defaults of requests that have none of their own.

    The other options are those of ``gristmill serve``; ``docs/python.md`` has them all.
    """

    def __init__(
        self,
        model: str | PathLike[str],
        *,
        device: str | LLM = "auto",
        ctx: int | None = None,
        parallel: int = 8,
        kv_tokens: int | None = None,
        queue: int | None = None,
        batch: int | None = None,
        threads: int | None = None,
        kv: str | None = None,
        precision: str | None = None,
        cpu_level: str | None = None,
        deterministic: bool = False,
        experts_on: str | None = None,
        gpu_memory: str | int | None = None,
        cpu_memory: str | int | None = None,
        kernels: str | PathLike[str] | None = None,
        count_experts: bool = False,
        draft: str | None = None,
        draft_tokens: int | None = None,
        draft_model: str | PathLike[str] | None = None,
        mmproj: str | PathLike[str] | None = None,
        max_images: int | None = None,
        max_image_pixels: int | None = None,
        max_image_bytes: int | None = None,
        allow_image_urls: Sequence[str] | None = None,
        quantize: str | None = None,
        chat_template: str | PathLike[str] | None = None,
        name: str | None = None,
        offline: bool = False,
        sampling: SamplingParams | None = None,
        progress: bool = False,
        verbose: bool = False,
    ) -> None:
        shared = device.engine if isinstance(device, LLM) else None
        if shared is not None:
            own = {
                "threads": threads,
                "cpu_level": cpu_level,
                "gpu_memory": gpu_memory,
                "experts_on": experts_on,
                "kernels": kernels,
            }
            if given := [option for option, value in own.items() if value is not None]:
                raise OptionError(f"{given[0]}: the device is that of another LLM; leave it out")
        settings = sampling.fields() if sampling is not None else {}
        allowed = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")
        if unknown := [option for option in settings if option not in allowed]:
            raise OptionError(f"sampling: {unknown[0]} is no default of a model; pass it with each request")
        if "repetition_penalty" in settings:
            settings["repeat_penalty"] = settings.pop("repetition_penalty")
        options: dict[str, Any] = {
            "device": None if shared is not None else device,
            "ctx": ctx,
            "parallel": parallel,
            "kv_tokens": kv_tokens,
            "batch": batch,
            "threads": threads,
            "kv": kv,
            "precision": precision,
            "cpu_level": cpu_level,
            "deterministic": deterministic,
            "experts_on": experts_on,
            "gpu_memory": gpu_memory,
            "cpu_memory": cpu_memory,
            "kernels": kernels,
            "count_experts": count_experts,
            "draft": draft,
            "draft_tokens": draft_tokens,
            "draft_model": draft_model,
            "mmproj": mmproj,
            "max_images": max_images,
            "max_image_pixels": max_image_pixels,
            "max_image_bytes": max_image_bytes,
            "allow_image_urls": allow_image_urls,
            "quantize": quantize,
            "name": name,
            "offline": offline,
            "verbose": verbose,
            "quiet": not (verbose or progress),
            **settings,
        }
        if queue is not None:
            options["queue"] = queue
        self._engine = _options.open_engine(model, shared, chat_template, options)
        _open.add(self._engine)

    # --- the model ---

    @property
    def engine(self) -> _native.Engine:
        """The native engine. Its interface may change with each version."""
        return self._engine

    @property
    def info(self) -> dict[str, Any]:
        """Facts: name, architecture, context, vocabulary, width of vectors, device, fingerprint, chat template."""
        return self._engine.info()

    @property
    def notices(self) -> list[str]:
        """Warnings about the model, its device, the context and the chat template."""
        return self._engine.info()["notices"]

    @property
    def stats(self) -> dict[str, int]:
        """Running and waiting requests, and tokens of the KV cache."""
        return self._engine.stats()

    def close(self) -> None:
        """Cancels all requests and frees the memory."""
        self._engine.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError("an LLM cannot be pickled: its threads belong to this process; open the model in the other one")

    # --- texts ---

    @overload
    def generate(
        self, prompts: Prompt, params: SamplingParams | None = None, **keywords: Any
    ) -> Completion: ...
    @overload
    def generate(
        self, prompts: Sequence[Prompt], params: SamplingParams | None = None, **keywords: Any
    ) -> list[Completion]: ...
    def generate(self, prompts: Prompt | Sequence[Prompt], params: SamplingParams | None = None, **keywords: Any) -> Any:
        """Continues a text, or a list of texts as one batch. Without ``max_tokens``: to the end of the model's text.

        Returns a :class:`Completion`, or a list of them.
        """
        requests, n, is_one, form = self._completions(prompts, params, keywords)
        found = self._finish_completions(self._all("/v1/completions", requests), n, form)
        return found[0] if is_one else found

    @overload
    async def agenerate(
        self, prompts: Prompt, params: SamplingParams | None = None, **keywords: Any
    ) -> Completion: ...
    @overload
    async def agenerate(
        self, prompts: Sequence[Prompt], params: SamplingParams | None = None, **keywords: Any
    ) -> list[Completion]: ...
    async def agenerate(
        self, prompts: Prompt | Sequence[Prompt], params: SamplingParams | None = None, **keywords: Any
    ) -> Any:
        """The same without blocking the event loop. A cancelled task cancels the request."""
        requests, n, is_one, form = self._completions(prompts, params, keywords)
        found = self._finish_completions(await self._aall("/v1/completions", requests), n, form)
        return found[0] if is_one else found

    def stream_text(self, prompt: Prompt, params: SamplingParams | None = None, **keywords: Any) -> Stream:
        """Continues a text: an iterator of :class:`Content` and one :class:`Finish`."""
        return Stream(self._start_text(prompt, params, keywords))

    def astream_text(self, prompt: Prompt, params: SamplingParams | None = None, **keywords: Any) -> AsyncStream:
        """The same for ``async for``."""
        return AsyncStream(self._start_text(prompt, params, keywords))

    def _start_text(self, prompt: Prompt, params: SamplingParams | None, keywords: dict[str, Any]) -> _native.Response:
        requests, *_ = self._completions(prompt, params, keywords)
        return _calls.start(self._engine, "/v1/completions", _streamed(requests[0]))

    def _completions(
        self, prompts: Prompt | Sequence[Prompt], params: SamplingParams | None, keywords: dict[str, Any]
    ) -> tuple[list[dict[str, Any]], int, bool, Format]:
        form = Format(keywords.pop("response_format", None))
        fields = {"max_tokens": -1, "return_token_ids": True, **merged(params, keywords)}
        if form.field is not None:
            fields["response_format"] = form.field
        is_one = isinstance(prompts, str) or (len(prompts) > 0 and isinstance(prompts[0], int))
        several: Any = [prompts] if is_one else prompts
        listed = [one if isinstance(one, str) else list(one) for one in several]
        kinds = {isinstance(one, str) for one in listed}
        # A request has texts or tokens.
        groups = [listed[at : at + _MOST_PROMPTS] for at in range(0, len(listed), _MOST_PROMPTS)]
        if len(kinds) > 1:
            groups = [[one] for one in listed]
        return [{**fields, "prompt": group} for group in groups], int(fields.get("n") or 1), is_one, form

    def _finish_completions(self, bodies: list[Any], n: int, form: Format) -> list[Completion]:
        found = [completion for body in bodies for completion in _parse.completions(body, n)]
        return [replace(one, parsed=form.parse(one.text, one)) for one in found]

    def token_logprobs(self, text: Prompt, top: int = 0) -> list[TokenLogprob]:
        """The log-probability of each token of a text; None for the first, which no token precedes."""
        fields = {"prompt": text if isinstance(text, str) else list(text), "max_tokens": 0, "echo": True, "logprobs": top}
        return _parse.completions(self._call("/v1/completions", fields), 1)[0].logprobs or []

    # --- conversations ---

    @overload
    def chat(
        self,
        messages: Messages,
        params: SamplingParams | None = None,
        *,
        tools: Sequence[Callable[..., Any] | Mapping[str, Any]] | None = None,
        response_format: Any = None,
        **keywords: Any,
    ) -> Reply: ...
    @overload
    def chat(
        self,
        messages: Sequence[Sequence[Message]],
        params: SamplingParams | None = None,
        *,
        tools: Sequence[Callable[..., Any] | Mapping[str, Any]] | None = None,
        response_format: Any = None,
        **keywords: Any,
    ) -> list[Reply]: ...
    def chat(
        self,
        messages: Messages | Sequence[Sequence[Message]],
        params: SamplingParams | None = None,
        *,
        tools: Sequence[Callable[..., Any] | Mapping[str, Any]] | None = None,
        response_format: Any = None,
        **keywords: Any,
    ) -> Any:
        """Answers a conversation, or a list of conversations as one batch. A string is a message of the user.

        ``tools`` are functions with type hints, or dictionaries of OpenAI's interface. They are not called: see
        :meth:`run_tools`. ``response_format`` is a dictionary, or a type whose value is then in ``parsed``.

        Returns a :class:`Reply`, or a list of them.
        """
        requests, is_one, form = self._chats(messages, params, tools, response_format, keywords)
        found = self._finish_chats(self._all("/v1/chat/completions", requests), form)
        return found[0] if is_one else found

    @overload
    async def achat(
        self,
        messages: Messages,
        params: SamplingParams | None = None,
        *,
        tools: Sequence[Callable[..., Any] | Mapping[str, Any]] | None = None,
        response_format: Any = None,
        **keywords: Any,
    ) -> Reply: ...
    @overload
    async def achat(
        self,
        messages: Sequence[Sequence[Message]],
        params: SamplingParams | None = None,
        *,
        tools: Sequence[Callable[..., Any] | Mapping[str, Any]] | None = None,
        response_format: Any = None,
        **keywords: Any,
    ) -> list[Reply]: ...
    async def achat(
        self,
        messages: Messages | Sequence[Sequence[Message]],
        params: SamplingParams | None = None,
        *,
        tools: Sequence[Callable[..., Any] | Mapping[str, Any]] | None = None,
        response_format: Any = None,
        **keywords: Any,
    ) -> Any:
        """The same without blocking the event loop. A cancelled task cancels the request."""
        requests, is_one, form = self._chats(messages, params, tools, response_format, keywords)
        found = self._finish_chats(await self._aall("/v1/chat/completions", requests), form)
        return found[0] if is_one else found

    def stream(
        self,
        messages: Messages,
        params: SamplingParams | None = None,
        *,
        tools: Sequence[Callable[..., Any] | Mapping[str, Any]] | None = None,
        response_format: Any = None,
        **keywords: Any,
    ) -> Stream:
        """Answers a conversation: an iterator of :class:`Reasoning`, :class:`Content`, :class:`ToolCall` and one
        :class:`Finish`."""
        requests, *_ = self._chats(messages, params, tools, response_format, keywords)
        return Stream(_calls.start(self._engine, "/v1/chat/completions", _streamed(requests[0])))

    def astream(
        self,
        messages: Messages,
        params: SamplingParams | None = None,
        *,
        tools: Sequence[Callable[..., Any] | Mapping[str, Any]] | None = None,
        response_format: Any = None,
        **keywords: Any,
    ) -> AsyncStream:
        """The same for ``async for``."""
        requests, *_ = self._chats(messages, params, tools, response_format, keywords)
        return AsyncStream(_calls.start(self._engine, "/v1/chat/completions", _streamed(requests[0])))

    def run_tools(
        self,
        messages: Messages,
        tools: Sequence[Callable[..., Any]],
        params: SamplingParams | None = None,
        *,
        max_rounds: int = 4,
        **keywords: Any,
    ) -> tuple[Reply, list[Message]]:
        """Answers a conversation and calls the functions that the model asks for, until it answers without a call.

        Returns the answer and the whole conversation. An exception of a function is a message to the model.
        """
        functions = {function.__name__: function for function in tools}
        conversation: list[Message] = _messages(messages)
        for _ in range(max_rounds + 1):
            reply = self.chat(conversation, params, tools=tools, **keywords)
            conversation.append(reply.message)
            if not reply.tool_calls:
                return reply, conversation
            for asked in reply.tool_calls:
                if asked.name not in functions:
                    raise ToolError(f"tools: the model calls {asked.name}, which is no function of the list")
                try:
                    result = call(functions[asked.name], asked.arguments)
                except Exception as error:
                    result = f"{type(error).__name__}: {error}"
                conversation.append({"role": "tool", "tool_call_id": asked.id, "content": result})
        raise ToolError(f"max_rounds: the model still calls tools after {max_rounds} rounds; raise it, or change the tools")

    def _chats(
        self,
        messages: Any,
        params: SamplingParams | None,
        tools: Sequence[Any] | None,
        response_format: Any,
        keywords: dict[str, Any],
    ) -> tuple[list[dict[str, Any]], bool, Format]:
        form = Format(response_format)
        fields = {"return_token_ids": True, **merged(params, keywords)}
        if "logprobs" in fields and not isinstance(fields["logprobs"], bool):
            fields["top_logprobs"] = fields["logprobs"]
            fields["logprobs"] = True
        if tools:
            fields["tools"] = tools_of(tools)
        if form.field is not None:
            fields["response_format"] = form.field
        is_one = isinstance(messages, str) or not messages or isinstance(messages[0], Mapping)
        listed = [messages] if is_one else messages
        return [{**fields, "messages": _messages(one)} for one in listed], is_one, form

    def _finish_chats(self, bodies: list[Any], form: Format) -> list[Reply]:
        found = []
        for body in bodies:
            reply = _parse.reply(body)
            is_answer = not reply.tool_calls
            found.append(replace(reply, parsed=form.parse(reply.content, reply)) if is_answer else reply)
        return found

    # --- vectors and scores ---

    def embed(self, texts: Prompt | Sequence[Prompt]) -> np.ndarray:
        """The vector of a text, or a matrix with one row for each of several. Each has length 1; no value is copied."""
        embedding, is_one = self._start_vectors(texts)
        return _vectors(embedding, is_one)

    async def aembed(self, texts: Prompt | Sequence[Prompt]) -> np.ndarray:
        """The same without blocking the event loop. A cancelled task cancels the request."""
        embedding, is_one = self._start_vectors(texts)
        try:
            await _calls.arrival(embedding)
            return _vectors(embedding, is_one)
        finally:
            embedding.close()

    def _start_vectors(self, texts: Prompt | Sequence[Prompt]) -> tuple[_native.Embedding, bool]:
        is_one = isinstance(texts, str) or (len(texts) > 0 and isinstance(texts[0], int))
        several: Any = [texts] if is_one else texts
        return self._engine.embed(list(several)), is_one

    def logits(self, tokens: Prompt, *, last: bool = False) -> np.ndarray:
        """The logits after each token, one row each, or with ``last`` one row after the last. No value is copied."""
        listed = self.tokenize(tokens) if isinstance(tokens, str) else list(tokens)
        logits = _array(self._engine.logits(listed, last))
        return logits[0] if last else logits

    def rerank(
        self, query: str, documents: Sequence[str], *, top_n: int | None = None, instruction: str | None = None
    ) -> list[Ranked]:
        """Orders documents by their likeness to a query."""
        body = self._call("/v1/rerank", _rerank(query, documents, top_n, instruction))
        return _ranked(body, documents)

    async def arerank(
        self, query: str, documents: Sequence[str], *, top_n: int | None = None, instruction: str | None = None
    ) -> list[Ranked]:
        """The same without blocking the event loop."""
        [body] = await self._aall("/v1/rerank", [_rerank(query, documents, top_n, instruction)])
        return _ranked(body, documents)

    def score(
        self, first: str | Sequence[str], second: str | Sequence[str], *, instruction: str | None = None
    ) -> list[float]:
        """The likeness of pairs: one text with each of a list, or each text with the one of its index."""
        fields = {"text_1": _list(first), "text_2": _list(second)}
        if instruction is not None:
            fields["instruction"] = instruction
        return [entry["score"] for entry in self._call("/v1/score", fields)["data"]]

    # --- tokens ---

    def tokenize(self, text: str | Sequence[Message], *, add_special: bool = True, parse_special: bool = True) -> list[int]:
        """The tokens of a text, or of the prompt that the chat template makes of a conversation."""
        if isinstance(text, str):
            return self._engine.tokenize(text, add_special, parse_special)
        return self._call("/tokenize", {"messages": _messages(text)})["tokens"]

    def detokenize(self, tokens: Sequence[int], *, skip_special: bool = False) -> str:
        """The text of tokens."""
        return self._engine.detokenize(list(tokens), skip_special)

    def apply_template(self, messages: Messages, **keywords: Any) -> str:
        """The prompt that :meth:`chat` makes of a conversation."""
        return self._call("/apply-template", {"messages": _messages(messages), **keywords})["prompt"]

    # --- OpenAI's dictionaries ---

    def create_chat_completion(self, **fields: Any) -> Any:
        """`/v1/chat/completions` of OpenAI: a dictionary, or with ``stream=True`` an iterator of chunks."""
        return self._create("/v1/chat/completions", fields)

    def create_completion(self, **fields: Any) -> Any:
        """`/v1/completions` of OpenAI: a dictionary, or with ``stream=True`` an iterator of chunks."""
        return self._create("/v1/completions", fields)

    def create_response(self, **fields: Any) -> Any:
        """`/v1/responses` of OpenAI: a dictionary, or with ``stream=True`` an iterator of events."""
        return self._create("/v1/responses", fields)

    def create_embedding(self, **fields: Any) -> Any:
        """`/v1/embeddings` of OpenAI."""
        return self._create("/v1/embeddings", fields)

    def _create(self, path: str, fields: dict[str, Any]) -> Any:
        response = _calls.start(self._engine, path, fields)
        return _calls.chunks(response) if fields.get("stream") else _calls.whole(response)

    # --- requests ---

    def _call(self, path: str, fields: dict[str, Any]) -> Any:
        return _calls.whole(_calls.start(self._engine, path, fields))

    def _all(self, path: str, requests: list[dict[str, Any]]) -> list[Any]:
        started: list[_native.Response] = []
        try:
            started.extend(_calls.start(self._engine, path, fields) for fields in requests)
            return [_calls.whole(response) for response in started]
        finally:
            # After an error the others have no reader.
            for response in started:
                response.close()

    async def _aall(self, path: str, requests: list[dict[str, Any]]) -> list[Any]:
        import asyncio

        started = [_calls.start(self._engine, path, fields) for fields in requests]
        try:
            return list(await asyncio.gather(*map(_calls.awhole, started)))
        finally:
            for response in started:
                response.close()


def _streamed(fields: dict[str, Any]) -> dict[str, Any]:
    if (fields.get("n") or 1) > 1:
        raise OptionError("n: a stream has one text; start several streams, or use chat or generate")
    return {**fields, "stream": True, "stream_options": {"include_usage": True}}


def _messages(messages: Messages) -> list[Message]:
    return [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages)


def _list(texts: str | Sequence[str]) -> str | list[str]:
    return texts if isinstance(texts, str) else list(texts)


def _array(floats: _native.Floats) -> Any:
    try:
        import numpy
    except ImportError:
        raise OptionError('vectors and logits are arrays of numpy; pip install "gristmill[numpy]"') from None
    return numpy.asarray(floats)


def _vectors(embedding: _native.Embedding, is_one: bool) -> Any:
    vectors = _array(embedding.wait()[0])
    return vectors[0] if is_one else vectors


def _rerank(query: str, documents: Sequence[str], top_n: int | None, instruction: str | None) -> dict[str, Any]:
    fields: dict[str, Any] = {"query": query, "documents": list(documents), "return_documents": False}
    if top_n is not None:
        fields["top_n"] = top_n
    if instruction is not None:
        fields["instruction"] = instruction
    return fields


def _ranked(body: dict[str, Any], documents: Sequence[str]) -> list[Ranked]:
    return [Ranked(found["index"], found["relevance_score"], documents[found["index"]]) for found in body["results"]]
