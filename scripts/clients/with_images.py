"""Packages and programs that send images, against a tiny model with a vision tower: what they send is read, and usage counts
the images' tokens. The replies of programs are a script's.

python with_images.py SCRIPTED MODEL TOWER FOLDER-OF-PROGRAMS [NAME...]
"""

import base64
import json
import random
import struct
import subprocess
import sys
import urllib.request
import zlib

import anthropic
import openai
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI

from agents import NewestClaude, Opencode
from scripted import Scripted

SCRIPTED, MODEL, TOWER, PROGRAMS = sys.argv[1:5]
ONLY = sys.argv[5:]
# 8 × 8 pixels are a token, and each image has two marks.
SIDE, TOKENS = 64, 64 + 2
QUESTION, TASK, END = "What does it show?", "Look at the screenshot in screen.png and describe it.", "FINISHED"
# What the prompt has of an image: the mark after its tokens.
SEEN = "<|image_end|>"


def png(seed):
    """An image of noise."""
    noise = random.Random(seed)
    rows = b"".join(b"\0" + noise.randbytes(3 * SIDE) for _ in range(SIDE))

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


BASE64 = base64.b64encode(png(1)).decode()
URL = f"data:image/png;base64,{BASE64}"
TEXT_PART = dict(type="text", text=QUESTION)
URL_PART = dict(type="image_url", image_url=dict(url=URL))
BLOCK = dict(type="image", source=dict(type="base64", media_type="image/png", data=BASE64))


def server():
    return Scripted(SCRIPTED, MODEL, [("", END)], tower=TOWER)


def is_larger(with_image, without, images=1):
    assert with_image == without + images * TOKENS, (with_image, without)


def with_openai(address):
    client = openai.OpenAI(base_url=address + "/v1", api_key="none")

    def chat(*parts, **options):
        return client.chat.completions.create(model="gpt-5", messages=[dict(role="user", content=list(parts))], **options)

    without = chat(TEXT_PART).usage.prompt_tokens
    reply = chat(TEXT_PART, URL_PART)
    assert reply.choices[0].message.content == END
    is_larger(reply.usage.prompt_tokens, without)
    is_larger(chat(URL_PART, TEXT_PART, URL_PART).usage.prompt_tokens, without, images=2)
    *_, last = chat(TEXT_PART, URL_PART, stream=True, stream_options=dict(include_usage=True))
    is_larger(last.usage.prompt_tokens, without)
    yield "chat, whole and as a stream, with one image and with two"

    def respond(*parts):
        return client.responses.create(model="gpt-5", input=[dict(role="user", content=list(parts))])

    asked = dict(type="input_text", text=QUESTION)
    reply = respond(asked, dict(type="input_image", image_url=URL, detail="auto"))
    assert reply.output_text == END
    is_larger(reply.usage.input_tokens, respond(asked).usage.input_tokens)
    yield "responses"

    call = dict(id="c1", type="function", function=dict(name="look", arguments="{}"))
    asked = [dict(role="user", content="Look."), dict(role="assistant", tool_calls=[call])]

    def result(*parts):
        history = [*asked, dict(role="tool", tool_call_id="c1", content=[*parts])]
        return client.chat.completions.create(model="gpt-5", messages=history).usage.prompt_tokens

    is_larger(result(TEXT_PART, URL_PART), result(TEXT_PART))
    yield "a tool's result with an image"
    try:
        chat(dict(type="image_url", image_url=dict(url="https://images.example/a.png")))
        raise AssertionError("an address is fetched")
    except openai.BadRequestError as error:
        assert error.param == "messages[0].content[0].image_url.url", error
    yield "the address of an image is refused by its path"


def with_anthropic(address):
    client = anthropic.Anthropic(base_url=address, api_key="none")

    def ask(*blocks, history=()):
        messages = [*history, dict(role="user", content=list(blocks))]
        reply = client.messages.create(model="claude-5", max_tokens=20, messages=messages)
        counted = client.messages.count_tokens(model="claude-5", messages=messages).input_tokens
        read = reply.usage.input_tokens + (reply.usage.cache_read_input_tokens or 0)
        assert read == counted and reply.content[0].text == END, (read, counted)
        return read

    is_larger(ask(BLOCK, TEXT_PART), ask(TEXT_PART))
    yield "a message, and the count of its tokens"
    use = dict(type="tool_use", id="t1", name="Read", input=dict(file_path="/screen.png"))
    history = [dict(role="user", content="Look."), dict(role="assistant", content=[use])]

    def result(content):
        return dict(type="tool_result", tool_use_id="t1", content=content)

    read = [ask(result(content), history=history) for content in ([TEXT_PART, BLOCK], [TEXT_PART])]
    is_larger(*read)
    yield "a tool's result with an image, as Claude Code sends a screenshot"


def with_langchain(address):
    image = dict(type="image", base64=BASE64, mime_type="image/png")
    models = {
        "langchain-openai": ChatOpenAI(model="gpt-5", base_url=address + "/v1", api_key="none"),
        "langchain-anthropic": ChatAnthropic(model="claude-5", base_url=address, api_key="none"),
    }
    for name, model in models.items():
        replies = [model.invoke([HumanMessage(content=[TEXT_PART, *images])]) for images in ([image], [])]
        assert all(reply.text == END for reply in replies), replies
        is_larger(*(reply.usage_metadata["input_tokens"] for reply in replies))
        yield f"{name}: an image"


def with_webui(address):
    """The request of Open WebUI for a message with a picture: text, then the picture as a data URL, as a stream."""

    def usage(*parts):
        body = dict(model="scripted", stream=True, stream_options=dict(include_usage=True))
        body["messages"] = [dict(role="user", content=list(parts))]
        headers = {"Content-Type": "application/json", "Authorization": "Bearer none"}
        request = urllib.request.Request(address + "/v1/chat/completions", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request) as reply:
            lines = [line[6:] for line in reply.read().decode().splitlines() if line.startswith("data: ")]
        assert lines.pop() == "[DONE]"
        events = [json.loads(line) for line in lines]
        text = "".join(choice["delta"].get("content") or "" for event in events for choice in event["choices"])
        assert text == END, text
        return next(event["usage"]["prompt_tokens"] for event in reversed(events) if event.get("usage"))

    is_larger(usage(TEXT_PART, URL_PART), usage(TEXT_PART))
    yield "Open WebUI's request"


def with_program(name, kind):
    """A program reads a screenshot with its own tool, and sends it to the model."""
    program = kind(f"{PROGRAMS}/node_modules/.bin")
    with open(program.path("screen.png"), "wb") as file:
        file.write(png(2))
    rules = [("", "A title"), (TASK, program.read("screen.png")), (SEEN, f"It is noise. {END}")]
    with Scripted(SCRIPTED, MODEL, rules, tower=TOWER) as server:
        try:
            said = program.answer(server.address, TASK)
            assert END in said and SEEN in server.played(), said
        except Exception:
            print("completions:", server.played(), [line["prompt"][-600:] for line in server.log()], file=sys.stderr)
            raise
    yield f"{name}: a screenshot that its tool reads"


def against_server(check):
    with server() as running:
        yield from check(running.address)


CHECKS = {
    "openai": lambda: against_server(with_openai),
    "anthropic": lambda: against_server(with_anthropic),
    "langchain": lambda: against_server(with_langchain),
    "webui": lambda: against_server(with_webui),
    "claude": lambda: with_program("claude", NewestClaude),
    "opencode": lambda: with_program("opencode", Opencode),
}
failed = 0
for name, check in CHECKS.items():
    if ONLY and name not in ONLY:
        continue
    try:
        for what in check():
            print(f"ok: {what if name in what else f'{name}: {what}'}", flush=True)
    except (AssertionError, subprocess.TimeoutExpired, openai.OpenAIError, anthropic.AnthropicError) as error:
        print(error, file=sys.stderr)
        print(f"FAILED: {name}", flush=True)
        failed += 1
sys.exit(failed > 0)
