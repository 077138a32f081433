"""From the dictionaries of OpenAI's interface to results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .results import Choice, Completion, Content, Event, Finish, Reasoning, Reply, TokenLogprob, ToolCall, Usage


def _details(body: dict[str, Any]) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    details = (body.get("usage") or {}).get("gristmill") or {}
    return details.get("choices") or [], details.get("receipt")


def usage(body: dict[str, Any]) -> Usage | None:
    found = body.get("usage")
    if not found:
        return None
    cached = (found.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    return Usage(found["prompt_tokens"], found["completion_tokens"], cached)


def _text_logprobs(found: dict[str, Any] | None) -> list[TokenLogprob] | None:
    if found is None:
        return None
    lists = zip(found["tokens"], found["token_logprobs"], found["top_logprobs"], strict=True)
    return [TokenLogprob(token, logprob, top or {}) for token, logprob, top in lists]


def _chat_logprobs(found: dict[str, Any] | None) -> list[TokenLogprob] | None:
    if found is None:
        return None
    return [
        TokenLogprob(entry["token"], entry["logprob"], {top["token"]: top["logprob"] for top in entry["top_logprobs"]})
        for entry in found["content"]
    ]


def completions(body: dict[str, Any], n: int) -> list[Completion]:
    """The completions of each prompt of a request."""
    details, receipt = _details(body)
    choices = []
    for index, choice in enumerate(body["choices"]):
        seed = details[index]["seed"] if index < len(details) else None
        logprobs = _text_logprobs(choice.get("logprobs"))
        choices.append(
            Choice(choice["text"], choice["finish_reason"], choice.get("token_ids") or [], logprobs, seed)
        )
    found = []
    for start in range(0, len(choices), n):
        first, own = choices[start], choices[start : start + n]
        prompt = body["choices"][start].get("prompt_token_ids") or []
        found.append(
            Completion(
                first.text, first.finish_reason, first.token_ids, prompt, first.logprobs, first.seed, own, receipt
            )
        )
    return found


def _calls(found: list[dict[str, Any]] | None) -> list[ToolCall]:
    return [
        ToolCall(call["id"], call["function"]["name"], call["function"].get("arguments") or "") for call in found or []
    ]


def reply(body: dict[str, Any]) -> Reply:
    """The answer, or the first of several, which has all in ``choices``."""
    details, receipt = _details(body)
    tokens = usage(body) or Usage(0, 0)
    replies = []
    for index, choice in enumerate(body["choices"]):
        message = choice["message"]
        replies.append(
            Reply(
                content=message.get("content") or "",
                reasoning=message.get("reasoning_content") or "",
                tool_calls=_calls(message.get("tool_calls")),
                finish_reason=choice["finish_reason"],
                usage=tokens,
                seed=details[index]["seed"] if index < len(details) else None,
                token_ids=choice.get("token_ids") or [],
                logprobs=_chat_logprobs(choice.get("logprobs")),
                receipt=receipt,
            )
        )
    first = replies[0]
    first.choices.extend(replies)
    return first


class EventParser:
    """Turns chunks into events. A tool call is an event when its arguments are complete."""

    def __init__(self) -> None:
        self._calls: dict[int, list[str]] = {}
        self._reason: str | None = None
        self._usage: Usage | None = None
        self._seed: int | None = None
        self._receipt: dict[str, Any] | None = None

    def add(self, chunk: dict[str, Any]) -> Iterator[Event]:
        if found := usage(chunk):
            self._usage = found
            details, self._receipt = _details(chunk)
            self._seed = details[0]["seed"] if details else self._seed
        for choice in chunk.get("choices") or []:
            if "text" in choice:
                if choice["text"] or choice.get("logprobs"):
                    yield Content(choice["text"], _text_logprobs(choice.get("logprobs")))
            else:
                yield from self._delta(choice)
            self._reason = choice.get("finish_reason") or self._reason

    def _delta(self, choice: dict[str, Any]) -> Iterator[Event]:
        delta = choice["delta"]
        if text := delta.get("reasoning_content"):
            yield Reasoning(text)
        if text := delta.get("content"):
            yield Content(text, _chat_logprobs(choice.get("logprobs")))
        for call in delta.get("tool_calls") or []:
            parts = self._calls.setdefault(call["index"], ["", "", ""])
            function = call.get("function") or {}
            parts[0] += call.get("id") or ""
            parts[1] += function.get("name") or ""
            parts[2] += function.get("arguments") or ""

    def end(self) -> Iterator[Event]:
        for _, (identity, name, arguments) in sorted(self._calls.items()):
            yield ToolCall(identity, name, arguments)
        yield Finish(self._reason, self._usage, self._seed, self._receipt)
