"""The package anthropic: messages, streams, tools, counts of tokens, errors, a cache that tells the truth."""

import sys

import anthropic

client = anthropic.Anthropic(base_url=sys.argv[1], api_key="none")
model = client.models.list().data[0].id
messages = [{"role": "user", "content": "Name a colour."}]
same = dict(model=model, max_tokens=20, messages=messages, system="Be brief.", extra_body={"temperature": 0})


def ok(what):
    print("ok:", what)


whole = client.messages.create(**same)
assert whole.stop_reason in ("end_turn", "max_tokens") and whole.content[0].text
ok("a message")

with client.messages.stream(**same) as stream:
    text = "".join(stream.text_stream)
    final = stream.get_final_message()
assert text == whole.content[0].text and final.usage.output_tokens == whole.usage.output_tokens
ok("a stream gives the same text and usage")

counted = client.messages.count_tokens(model=model, messages=messages, system="Be brief.").input_tokens
read = [reply.usage.input_tokens + (reply.usage.cache_read_input_tokens or 0) for reply in (whole, final)]
assert read == [counted, counted], (read, counted)
ok("the count of tokens is what a message uses")

story = [{"type": "text", "text": "A mill stood by the river. " * 40, "cache_control": {"type": "ephemeral"}}]
first, second = (
    client.messages.create(model=model, max_tokens=1, system=story, messages=[{"role": "user", "content": question}])
    for question in ("What stood there?", "By what did it stand?")
)
# All conversations begin with some of the same control tokens.
cached = [reply.usage.cache_read_input_tokens for reply in (first, second)]
assert cached[0] < 16 and cached[1] > 200, cached
ok("the second of two messages with one beginning reads it from the cache")

# Closed, because a small model would add properties without end.
place = {
    "type": "object",
    "properties": {"place": {"type": "string", "maxLength": 20}},
    "required": ["place"],
    "additionalProperties": False,
}
tools = [{"name": "get_weather", "description": "The weather of a place", "input_schema": place}]
asked = dict(model=model, max_tokens=100, messages=messages, tools=tools)
with client.messages.stream(**asked, tool_choice={"type": "tool", "name": "get_weather"}) as stream:
    for _ in stream:
        pass
    called = stream.get_final_message()
use = next(block for block in called.content if block.type == "tool_use")
assert called.stop_reason == "tool_use" and isinstance(use.input["place"], str)
ok("a call of a tool in a stream")

result = {"type": "tool_result", "tool_use_id": use.id, "content": "sunny"}
history = messages + [{"role": "assistant", "content": called.content}, {"role": "user", "content": [result]}]
assert client.messages.create(**{**asked, "messages": history}).stop_reason
ok("the result of a call")

try:
    client.messages.create(**{**same, "max_tokens": 0})
    raise AssertionError("max_tokens of 0 is accepted")
except anthropic.BadRequestError as error:
    assert "max_tokens" in str(error)
ok("errors name their field")
