"""Packages that call tools for their callers, against a server that plays a script: python with_tools.py SCRIPTED MODEL."""

import json
import os
import secrets
import sys

# It would ask another host for prices.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import anthropic
import instructor
import litellm
import openai
import outlines
from anthropic import beta_tool
from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from scripted import Scripted, call

SCRIPTED, MODEL = sys.argv[1:3]
WORD = secrets.token_hex(8)
TASK = "Which word does the mill have?"
ASK = call("word_of", place="mill")
END = "FINISHED"
MILL = dict(name="Old mill", stones=3)


class Mill(BaseModel):
    """A mill."""

    name: str
    stones: int


def word_of(place: str) -> str:
    """The word of a place.

    Args:
        place: The name of the place.
    """
    return WORD if place == "mill" else "none"


SCHEMA = dict(type="object", properties=dict(place=dict(type="string")), required=["place"], additionalProperties=False)
FUNCTION = dict(name="word_of", description="The word of a place.", parameters=SCHEMA)
ask = dict(messages=[dict(role="user", content=TASK)])


def play(what, run, *rules):
    """Runs a client against a server with these rules."""
    with Scripted(SCRIPTED, MODEL, rules) as server:
        try:
            run(server.address)
        except Exception:
            print(what, "completions:", json.dumps(server.log())[-6000:], file=sys.stderr)
            raise
    print("ok:", what, flush=True)


def answers(what, run):
    """A client whose tool is called, and which then gets an answer."""

    def checked(address):
        text = run(address)
        assert END in text, text

    play(what, checked, (TASK, f"I ask.\n{ASK}"), (WORD, f"I have it. {END}"))


def makes(what, run, answer):
    """A client whose tool is called, and which then gets a mill."""

    def checked(address):
        same(run(address))

    play(what, checked, (TASK, ASK), (WORD, answer))


def openai_chat(address, stream):
    client = openai.OpenAI(base_url=address + "/v1", api_key="none")
    messages = list(ask["messages"])
    for _ in range(2):
        same = dict(model="gpt-5", messages=messages, tools=[dict(type="function", function=FUNCTION | dict(strict=True))])
        if stream:
            with client.chat.completions.stream(**same) as events:
                for _ in events:
                    pass
                message = events.get_final_completion().choices[0].message
        else:
            message = client.chat.completions.create(**same).choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        for one in message.tool_calls or []:
            result = word_of(**json.loads(one.function.arguments))
            messages.append(dict(role="tool", tool_call_id=one.id, content=result))
    return message.content


def openai_responses(address):
    client = openai.OpenAI(base_url=address + "/v1", api_key="none")
    items = list(ask["messages"])
    for _ in range(2):
        response = client.responses.create(model="gpt-5", input=items, tools=[dict(type="function", strict=True, **FUNCTION)])
        for item in response.output:
            items.append(item.model_dump(exclude_none=True))
            if item.type == "function_call":
                result = word_of(**json.loads(item.arguments))
                items.append(dict(type="function_call_output", call_id=item.call_id, output=result))
    return response.output_text


def anthropic_runner(address, stream):
    client = anthropic.Anthropic(base_url=address, api_key="none")
    runner = client.beta.messages.tool_runner(
        model="claude-opus-5", max_tokens=1000, tools=[beta_tool(word_of)], stream=stream, **ask
    )
    for message in runner:
        last = message.get_final_message() if stream else message
    return last.content[-1].text


def langchain_agent(model):
    done = create_agent(model, [tool(word_of)], system_prompt="Use the tool.").invoke(ask)
    return done["messages"][-1].text


def litellm_loop(model, **where):
    messages = list(ask["messages"])
    for _ in range(2):
        same = dict(model=model, api_key="none", messages=messages, tools=[dict(type="function", function=FUNCTION)])
        message = litellm.completion(max_tokens=1000, **same, **where).choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        for one in message.tool_calls or []:
            result = word_of(**json.loads(one.function.arguments))
            messages.append(dict(role="tool", tool_call_id=one.id, content=result))
    return message.content


def pydantic_agent(model, **more):
    return Agent(model, tools=[word_of], **more).run_sync(TASK).output


def pydantic_models(address):
    """The models of pydantic-ai by interface."""
    provider = OpenAIProvider(base_url=address + "/v1", api_key="none")
    anthropic_provider = AnthropicProvider(anthropic_client=anthropic.AsyncAnthropic(base_url=address, api_key="none"))
    return dict(
        chat=OpenAIChatModel("gpt-5", provider=provider),
        responses=OpenAIResponsesModel("gpt-5", provider=provider),
        messages=AnthropicModel("claude-sonnet-4-5", provider=anthropic_provider),
    )


def instructed(address, mode):
    client = instructor.from_openai(openai.OpenAI(base_url=address + "/v1", api_key="none"), mode=mode)
    return client.chat.completions.create(model="gpt-5", response_model=Mill, max_retries=0, **ask)


def outlined(address):
    client = openai.OpenAI(base_url=address + "/v1", api_key="none")
    return Mill.model_validate_json(outlines.from_openai(client, "gpt-5")(TASK, Mill))


def lines():
    """All checks: what, and what runs it."""
    typed, final = json.dumps(MILL), call("final_result", **MILL)
    for stream in (False, True):
        how = "in events" if stream else "whole"
        yield answers, f"openai, chat, {how}", lambda address, stream=stream: openai_chat(address, stream)
        yield answers, f"anthropic, its tool runner, {how}", lambda address, stream=stream: anthropic_runner(address, stream)
    yield answers, "openai, responses", openai_responses
    yield answers, "langchain's agent, chat", lambda address: langchain_agent(
        ChatOpenAI(model="gpt-5", base_url=address + "/v1", api_key="none")
    )
    yield answers, "langchain's agent, responses", lambda address: langchain_agent(
        ChatOpenAI(model="gpt-5", base_url=address + "/v1", api_key="none", use_responses_api=True)
    )
    yield answers, "langchain's agent, messages", lambda address: langchain_agent(
        ChatAnthropic(model="claude-sonnet-4-5", base_url=address, api_key="none")
    )
    yield answers, "litellm, chat", lambda address: litellm_loop("openai/gpt-5", api_base=address + "/v1")
    yield answers, "litellm, messages", lambda address: litellm_loop("anthropic/claude-sonnet-4-5", api_base=address)
    for name in ("chat", "responses", "messages"):
        model = lambda address, name=name: pydantic_models(address)[name]
        yield answers, f"pydantic-ai, {name}", lambda address, model=model: pydantic_agent(model(address))
        yield (
            lambda what, run: makes(what, run, final),
            f"pydantic-ai, {name}, a typed answer as a call",
            lambda address, model=model: pydantic_agent(model(address), output_type=ToolOutput(Mill)),
        )
        yield (
            lambda what, run: makes(what, run, typed),
            f"pydantic-ai, {name}, a tool beside a response format",
            lambda address, model=model: pydantic_agent(model(address), output_type=NativeOutput(Mill)),
        )
    Mode = instructor.Mode
    for mode, answer in (
        (Mode.TOOLS, call("Mill", **MILL)),
        (Mode.TOOLS_STRICT, call("Mill", **MILL)),
        (Mode.JSON, typed),
        (Mode.JSON_SCHEMA, typed),
        (Mode.MD_JSON, f"Here it is:\n```json\n{typed}\n```"),
        (Mode.RESPONSES_TOOLS, call("Mill", **MILL)),
    ):
        yield (
            lambda what, run, answer=answer: play(what, lambda address: same(run(address)), (TASK, answer)),
            f"instructor, {mode.name}",
            lambda address, mode=mode: instructed(address, mode),
        )
    yield lambda what, run: play(what, lambda address: same(run(address)), (TASK, typed)), "outlines, a typed answer", outlined


def same(mill):
    assert mill.model_dump() == MILL, mill


failed = []
for kind, what, run in lines():
    if len(sys.argv) > 3 and sys.argv[3] not in what:
        continue
    try:
        kind(what, run)
    except Exception as error:
        print(f"FAILED: {what}", flush=True)
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        failed.append(what)
sys.exit(f"failed: {failed}" if failed else 0)
