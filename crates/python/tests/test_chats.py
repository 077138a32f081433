"""Conversations: formats, tools, templates."""

import dataclasses
import enum
from typing import Annotated, Literal

import pydantic
import pytest

from gristmill import Content, Finish, ResponseFormatError, ToolCall, ToolError
from gristmill.tools import schema, tool


class Person(pydantic.BaseModel):
    name: Annotated[str, pydantic.StringConstraints(max_length=8)]
    age: Annotated[int, pydantic.Field(ge=0, le=150)]
    pet: Literal["dog", "cat"] | None = None


@dataclasses.dataclass
class Point:
    x: int
    y: int


class Unit(enum.Enum):
    CELSIUS = "celsius"
    FAHRENHEIT = "fahrenheit"


def weather(city: Literal["Paris", "Rome"], unit: Unit = Unit.CELSIUS) -> str:
    """Get the weather.

    Args:
        city: The name of the city.
        unit: The unit
            of degrees.

    Returns:
        A text.
    """
    return f"{city}: 20 {unit.value}"


def test_a_conversation_is_answered(chat_llm):
    reply = chat_llm.chat([{"role": "user", "content": "Hi"}], max_tokens=6, temperature=0)
    assert reply.content and reply.finish_reason == "length" and reply.usage.completion_tokens == 6
    assert reply.message == {"role": "assistant", "content": reply.content}
    assert str(chat_llm.chat("Hi", max_tokens=6, temperature=0)) == reply.content
    batch = chat_llm.chat([[{"role": "user", "content": "Hi"}], [{"role": "user", "content": "Bye"}]], max_tokens=6, temperature=0)
    assert batch[0].content == reply.content and len(batch) == 2
    assert "<|user|>Hi" in chat_llm.apply_template("Hi")
    assert chat_llm.detokenize(chat_llm.tokenize([{"role": "user", "content": "Hi"}])) == chat_llm.apply_template("Hi")
    assert len({one.content for one in chat_llm.chat("Hi", max_tokens=8, temperature=2, n=3, seed=1).choices}) == 3


@pytest.mark.parametrize("form", [Person, Point, Annotated[list[bool], pydantic.Field(max_length=3)]])
def test_a_type_is_a_response_format(chat_llm, form):
    reply = chat_llm.chat("Invent one.", response_format=form, max_tokens=400, temperature=0.5, seed=3)
    pydantic.TypeAdapter(form).validate_python(reply.parsed, strict=True)
    assert chat_llm.generate("A person: ", response_format=Person, max_tokens=200, seed=3).parsed.age <= 150


def test_a_reply_that_is_cut_is_no_value(chat_llm):
    with pytest.raises(ResponseFormatError, match="finish_reason length; raise max_tokens") as error:
        chat_llm.chat("Invent one.", response_format=Person, max_tokens=2)
    assert error.value.reply.finish_reason == "length"


def test_schemas_of_functions_are_those_of_pydantic():
    made = tool(weather)["function"]
    assert made["name"] == "weather" and made["description"] == "Get the weather."
    parameters = made["parameters"]
    assert parameters["required"] == ["city"]
    assert parameters["properties"]["city"] == {"description": "The name of the city.", "enum": ["Paris", "Rome"]}
    assert parameters["properties"]["unit"] == {"description": "The unit of degrees.", "enum": ["celsius", "fahrenheit"]}
    for hint in (str, int, float, bool, list[int], dict[str, float], int | None, list[dict[str, int]], type(None)):
        assert schema(hint) == pydantic.TypeAdapter(hint).json_schema(), hint
    assert schema(Annotated[int, "a number"]) == {"type": "integer", "description": "a number"}
    assert schema(Person)["properties"]["age"]["maximum"] == 150

    def free(*words: str) -> None: ...

    with pytest.raises(ValueError, match=r"free takes \*words"):
        tool(free)


def test_a_call_is_asked_for_and_not_run(chat_llm):
    reply = chat_llm.chat("Weather in Rome?", tools=[weather], tool_choice="required", max_tokens=200, temperature=0)
    [call, *_] = reply.tool_calls
    assert call.name == "weather" and call.arguments["city"] in ("Paris", "Rome")
    assert reply.message["tool_calls"][0]["function"]["name"] == "weather"
    events = list(
        chat_llm.stream("Weather in Rome?", tools=[weather], tool_choice="required", max_tokens=200, temperature=0)
    )
    streamed = [event for event in events if isinstance(event, ToolCall)]
    assert [one.arguments for one in streamed] == [one.arguments for one in reply.tool_calls]
    assert isinstance(events[-1], Finish) and events[-1].reason == "tool_calls"


def test_tools_are_run_on_request(chat_llm):
    called = []

    def look_up(city: Literal["Paris", "Rome"]) -> dict:
        """Look up."""
        called.append(city)
        return {"city": city, "degrees": 20}

    with pytest.raises(ToolError, match="max_rounds"):
        chat_llm.run_tools("Look.", [look_up], max_rounds=1, tool_choice="required", max_tokens=300, temperature=0)
    assert called and set(called) <= {"Paris", "Rome"}
    reply, conversation = chat_llm.run_tools("Hi", [look_up], tool_choice="none", max_tokens=5, temperature=0)
    assert reply.content and conversation[-1] == reply.message


def test_a_failing_tool_is_a_message(chat_llm):
    def broken(city: Literal["Paris"]) -> str:
        """Break."""
        raise RuntimeError("no network")

    rounds = []
    original = chat_llm.chat

    def chat(messages, *arguments, **keywords):
        rounds.append(list(messages))
        keywords["tool_choice"] = "required" if len(rounds) == 1 else "none"
        return original(messages, *arguments, **keywords)

    chat_llm.chat = chat
    try:
        chat_llm.run_tools("Break.", [broken], max_tokens=300, temperature=0)
    finally:
        del chat_llm.chat
    assert rounds[1][-1]["content"] == "RuntimeError: no network"


def test_a_stream_of_a_conversation(chat_llm):
    *pieces, last = chat_llm.stream("Hi", max_tokens=6, temperature=0, logprobs=2)
    assert all(isinstance(piece, Content) and len(piece.logprobs[0].top) == 2 for piece in pieces)
    assert "".join(map(str, pieces)) == chat_llm.chat("Hi", max_tokens=6, temperature=0).content
    assert last.usage.prompt_tokens > 0
