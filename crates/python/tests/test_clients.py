"""The published clients of OpenAI and Anthropic, in this process."""

import asyncio
import time

import anthropic
import openai
import pydantic
import pytest

import gristmill
from gristmill.transport import async_http_client, http_client


def test_openai(chat_llm):
    client = gristmill.openai(chat_llm)
    message = [{"role": "user", "content": "Hi"}]
    whole = client.chat.completions.create(model="gpt-4o", messages=message, max_tokens=8, temperature=0)
    stream = client.chat.completions.create(model="any", messages=message, max_tokens=8, temperature=0, stream=True)
    pieces = [chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices]
    assert len([piece for piece in pieces if piece]) > 3
    assert "".join(pieces) == whole.choices[0].message.content == chat_llm.chat("Hi", max_tokens=8, temperature=0).content
    assert len(client.embeddings.create(model="any", input=["a", "b"]).data) == 2
    assert client.models.list().data[0].id == "gristmill-stories"
    response = client.responses.create(model="any", input="Hi", max_output_tokens=16, temperature=0)
    assert response.output_text.startswith(whole.choices[0].message.content)

    class Pet(pydantic.BaseModel):
        legs: int

    parsed = client.chat.completions.parse(model="any", messages=message, response_format=Pet, max_tokens=100, seed=1)
    assert isinstance(parsed.choices[0].message.parsed, Pet)
    with pytest.raises(openai.BadRequestError, match="temperature"):
        client.chat.completions.create(model="any", messages=message, temperature=-1)


def test_a_stream_comes_in_pieces_and_ends_with_the_client(chat_llm):
    with http_client(chat_llm) as client:
        body = {"prompt": "The", "max_tokens": 900, "stream": True, "ignore_eos": True}
        with client.stream("POST", "/v1/completions", json=body) as response:
            assert response.headers["content-type"] == "text/event-stream"
            pieces = response.iter_bytes()
            assert next(pieces).startswith(b"data: {")
            assert chat_llm.stats["running"] == 1
        end = time.monotonic() + 2
        while chat_llm.stats["running"] and time.monotonic() < end:
            time.sleep(0.01)
        assert chat_llm.stats["running"] == 0


def test_async_openai(chat_llm):
    async def run():
        async with gristmill.async_openai(chat_llm) as client:
            async def one():
                message = [{"role": "user", "content": "Hi"}]
                stream = await client.chat.completions.create(
                    model="any", messages=message, max_tokens=8, temperature=0, stream=True
                )
                return "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])

            texts = await asyncio.gather(*(one() for _ in range(8)))
            assert set(texts) == {chat_llm.chat("Hi", max_tokens=8, temperature=0).content}

            task = asyncio.create_task(client.completions.create(model="any", prompt="The", max_tokens=900, extra_body={"ignore_eos": True}))
            while not chat_llm.stats["running"]:
                await asyncio.sleep(0.001)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            for _ in range(200):
                if not chat_llm.stats["running"]:
                    break
                await asyncio.sleep(0.01)
            assert chat_llm.stats["running"] == 0

    asyncio.run(run())


#: The newest client has no parameter for it.
GREEDY = {"temperature": 0}


def test_anthropic(chat_llm):
    client = gristmill.anthropic(chat_llm)
    message = [{"role": "user", "content": "Hi"}]
    whole = client.messages.create(model="claude", max_tokens=8, messages=message, extra_body=GREEDY)
    with client.messages.stream(model="claude", max_tokens=8, messages=message, extra_body=GREEDY) as stream:
        assert "".join(stream.text_stream) == whole.content[0].text

    async def run():
        async with gristmill.async_anthropic(chat_llm) as client:
            return await client.messages.create(model="claude", max_tokens=8, messages=message, extra_body=GREEDY)

    assert asyncio.run(run()).content[0].text == whole.content[0].text
    with pytest.raises(anthropic.BadRequestError):
        client.messages.create(model="claude", max_tokens=0, messages=message)


def test_a_closed_model_is_a_refused_connection():
    llm = gristmill.LLM("builtin", ctx=64, threads=1)
    client = gristmill.openai(llm)
    llm.close()
    with pytest.raises(openai.APIConnectionError):
        client.completions.create(model="any", prompt="The")


def test_async_transport_reports_the_status(chat_llm):
    async def run():
        async with async_http_client(chat_llm) as client:
            assert (await client.get("/nothing")).status_code == 404
            assert (await client.get("/health")).status_code == 200

    asyncio.run(run())
