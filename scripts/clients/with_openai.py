"""The package openai: chat, streams, tools, structured output, completions, responses, embeddings, errors, many at a time."""

import asyncio
import math
import sys
from typing import Annotated, Literal

import openai
from pydantic import BaseModel, Field

BASE = sys.argv[1] + "/v1"
client = openai.OpenAI(base_url=BASE, api_key="none")
model = client.models.list().data[0].id
messages = [{"role": "user", "content": "Name a colour."}]
same = dict(model=model, messages=messages, max_tokens=16, temperature=0)


class Colour(BaseModel):
    name: Annotated[str, Field(max_length=20)]
    red: Literal[1, 2, 3]
    tags: Annotated[list[Literal["warm", "cold"]], Field(max_length=3)]


PLACE = {
    "type": "object",
    "properties": {"place": {"type": "string", "maxLength": 40}},
    "required": ["place"],
    "additionalProperties": False,
}
tool = {"name": "get_weather", "description": "The weather of a place", "parameters": PLACE, "strict": True}
tools = [{"type": "function", "function": tool}]
question = [{"role": "user", "content": "What is the weather in Rome?"}]


def ok(what):
    print("ok:", what)


assert client.models.retrieve(model).id == model
ok("models")

whole = client.chat.completions.create(**same, logprobs=True, top_logprobs=2)
choice = whole.choices[0]
assert len(choice.logprobs.content) == whole.usage.completion_tokens > 0
assert all(len(token.top_logprobs) == 2 for token in choice.logprobs.content)
ok("chat with log-probabilities")

text, usage = "", None
for event in client.chat.completions.create(**same, stream=True, stream_options={"include_usage": True}):
    text += event.choices[0].delta.content or "" if event.choices else ""
    usage = event.usage or usage
assert text == choice.message.content, (text, choice.message.content)
assert usage.completion_tokens == whole.usage.completion_tokens
ok("a stream gives the same text and usage")

parsed = client.chat.completions.parse(model=model, messages=messages, max_tokens=200, temperature=0, response_format=Colour)
assert parsed.choices[0].message.parsed.red in (1, 2, 3)
ok("structured output")

asked = dict(model=model, messages=question, tools=tools, max_tokens=100, temperature=0)
reply = client.chat.completions.create(**asked, tool_choice="required").choices[0]
call = reply.message.tool_calls[0]
assert reply.finish_reason == "tool_calls" and call.function.name == "get_weather"
ok("a call of a tool")

named = {"type": "function", "function": {"name": "get_weather"}}
with client.chat.completions.stream(**asked, tool_choice=named) as stream:
    for _ in stream:
        pass
    streamed = stream.get_final_completion().choices[0].message.tool_calls[0]
assert streamed.function.arguments == call.function.arguments
ok("a call in a stream")

result = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
history = question + [reply.message.model_dump(exclude_none=True), result]
assert client.chat.completions.create(**{**asked, "messages": history}).choices[0].finish_reason
ok("the result of a call")

several = client.completions.create(model=model, prompt=["The mill", "A river"], max_tokens=3, echo=True, logprobs=1)
assert [one.text[:7] for one in several.choices] == ["The mil", "A river"]
assert several.choices[0].logprobs.token_logprobs[0] is None
ok("completions with echo")

answer = client.responses.create(model=model, input="Name a colour.", max_output_tokens=16, temperature=0)
assert answer.output_text == choice.message.content
final = None
for event in client.responses.create(model=model, input="Name a colour.", max_output_tokens=16, temperature=0, stream=True):
    if event.type in ("response.completed", "response.incomplete"):
        final = event.response
assert final.output_text == answer.output_text
ok("responses, whole and in events")

inputs = ["The mill", "A river that turns the mill", "The mill"]
# The package asks for Base64 unless told otherwise.
encoded = client.embeddings.create(model=model, input=inputs)
numbers = client.embeddings.create(model=model, input=inputs, encoding_format="float")
vectors = [one.embedding for one in encoded.data]
assert all(math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-9) for v, w in zip(vectors, numbers.data) for a, b in zip(v, w.embedding))
assert [one.index for one in encoded.data] == [0, 1, 2] and vectors[0] == vectors[2] != vectors[1]
assert all(math.isclose(sum(x * x for x in vector), 1, abs_tol=1e-5) for vector in vectors)
assert encoded.usage.prompt_tokens == encoded.usage.total_tokens > 0
try:
    client.embeddings.create(model=model, input=inputs, dimensions=len(vectors[0]) - 1)
    raise AssertionError("fewer dimensions are accepted")
except openai.BadRequestError as error:
    assert error.param == "dimensions", error
ok("embeddings, in Base64 and as numbers")

for wrong in [{"temperature": -1}, {"max_tokens": 0}, {"top_logprobs": 99, "logprobs": True}]:
    try:
        client.chat.completions.create(**{**same, **wrong})
        raise AssertionError(f"{wrong} is accepted")
    except openai.BadRequestError as error:
        assert error.param in wrong, (wrong, error.param)
try:
    client.chat.completions.create(**{**same, "model": "no-such-model"})
    raise AssertionError("a model that is not there is accepted")
except openai.NotFoundError as error:
    assert error.code == "model_not_found", error
ok("errors name their field")


async def at_a_time():
    several = openai.AsyncOpenAI(base_url=BASE, api_key="none")
    replies = await asyncio.gather(*[several.chat.completions.create(**same) for _ in range(16)])
    assert {reply.choices[0].message.content for reply in replies} == {choice.message.content}


asyncio.run(at_a_time())
ok("16 at a time are the same as one alone")
