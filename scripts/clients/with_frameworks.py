"""litellm, langchain-openai and instructor, as their users call a server of their own."""

import os
import sys

# It would ask another host for prices.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import instructor
import litellm
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI
from openai import OpenAI as Client
from pydantic import BaseModel, ConfigDict, Field

BASE = sys.argv[1] + "/v1"
model = Client(base_url=BASE, api_key="none").models.list().data[0].id
messages = [{"role": "user", "content": "Name a colour."}]


def ok(what):
    print("ok:", what)


class Closed(BaseModel):
    # A small model would add properties without end.
    model_config = ConfigDict(extra="forbid")


class Mill(Closed):
    name: str = Field(max_length=20)
    stones: int = Field(ge=1, le=9)


same = dict(model=f"openai/{model}", api_base=BASE, api_key="none", messages=messages, max_tokens=16, temperature=0)
whole = litellm.completion(**same).choices[0].message.content
parts = [chunk.choices[0].delta.content or "" for chunk in litellm.completion(**same, stream=True)]
assert "".join(parts) == whole
ok("litellm, whole and streamed")
claude = litellm.completion(
    model=f"anthropic/{model}", api_base=sys.argv[1], api_key="none", messages=messages, max_tokens=16, temperature=0
)
assert claude.choices[0].message.content
ok("litellm by Anthropic's interface")


class Place(Closed):
    place: str = Field(max_length=20)


@tool(args_schema=Place)
def get_weather(place: str) -> str:
    """The weather of a place."""
    return "sunny in " + place


chat = ChatOpenAI(model=model, base_url=BASE, api_key="none", max_tokens=100, temperature=0)
text = chat.invoke("Name a colour.").content
assert "".join(chunk.content for chunk in chat.stream("Name a colour.")) == text
ok("langchain, whole and streamed")
assert len(chat.batch(["Name a colour.", "Name a town."])) == 2
ok("langchain, a batch")
called = chat.bind_tools([get_weather], tool_choice="get_weather", strict=True).invoke("What is the weather in Rome?")
assert called.tool_calls[0]["name"] == "get_weather" and get_weather.invoke(called.tool_calls[0]).content
ok("langchain, a tool")
assert 1 <= chat.with_structured_output(Mill, method="json_schema").invoke("Describe a mill.").stones <= 9
ok("langchain, structured output")
assert OpenAI(model=model, base_url=BASE, api_key="none", max_tokens=8).invoke("The mill")
ok("langchain, completions")

for mode in (instructor.Mode.JSON_SCHEMA, instructor.Mode.TOOLS):
    client = instructor.from_openai(Client(base_url=BASE, api_key="none"), mode=mode)
    made = client.chat.completions.create(
        model=model, response_model=Mill, max_tokens=100, temperature=0, messages=[{"role": "user", "content": "Describe a mill."}]
    )
    assert 1 <= made.stones <= 9
    ok(f"instructor, {mode.name}")
