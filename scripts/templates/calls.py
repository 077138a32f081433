"""Whether published templates keep the form in which a model was trained to call tools.

calls.py READER FOLDER: READER is the example `calls`, FOLDER has *.jinja. For each template jinja2 writes conversations
with tools, calls of earlier turns and results, as transformers does. gristmill must write the same, name the form of the
calls, and read the calls in what jinja2 has written, in pieces of each length. What differs needs a reason.
"""

import json
import subprocess
import sys
from pathlib import Path

from conversations import assistant, call, tool, user
from jinja import NOW, render

PARAMETERS = {"type": "object", "required": ["city"], "properties": {
    "city": {"type": "string", "description": "A city."}, "days": {"type": "integer", "description": "Days."},
    "exact": {"type": "boolean", "description": "Exactly?"}, "tags": {"type": "array", "items": {"type": "string"}, "description": "Tags."},
    "place": {"type": "object", "description": "A place."}}}
TOOLS = [{"type": "function", "function": {"name": name, "description": "Returns it.", "parameters": PARAMETERS}} for name in ("q7weather", "q7time")]
ASKED = "q7asked"
ARGUMENTS = {"city": "Paris <x> \"q\" & l1\nl2", "days": 3, "exact": True, "tags": ["a'b", "c"], "place": {"k": "v", "n": 1.5}}

ONE = assistant("", tool_calls=[call("q7weather", ARGUMENTS, "abcdefghi")])
TWO = assistant("", tool_calls=[call("q7weather", ARGUMENTS, "abcdefghi"), call("q7time", {"city": "Rome"}, "abcdefghj")])
SYSTEM = {"role": "system", "content": "Be brief."}
# The messages, and whether a reply is asked for.
CONVERSATIONS = {
    "tools": ([user(ASKED)], True),
    "call": ([user(ASKED), ONE], False),
    "result": ([user(ASKED), ONE, tool("Sunny.", "abcdefghi")], True),
    "two calls": ([user(ASKED), TWO], False),
    "two results": ([user(ASKED), TWO, tool("Sunny.", "abcdefghi"), tool("Noon.", "abcdefghj")], True),
    "answered": ([user(ASKED), ONE, tool("Sunny.", "abcdefghi"), assistant("It is sunny."), user("Thanks.")], True),
}

# Why a template has another form than its model was trained with, or none: its name begins so.
SPELLED_OUT = {
    "CohereForAI-c4ai-command-r-plus-tool_use": "it fails for an object without `additionalProperties`, as in transformers",
    "HuggingFaceTB-SmolLM3-3B": "it shows tools only in `xml_tools` or `python_tools`",
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": "it shows no tools",
    "deepseek-ai-DeepSeek-V3.1": "it shows no tools",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": "it shows no tools",
    "fireworks-ai-llama-3-firefunction-v2": "it reads the tools in `functions`",
    "google-gemma-2-2b-it": "it shows no tools",
    "llama-cpp-deepseek-r1": "it prints an iterator as JSON, which jinja2 refuses too",
    "llama-cpp-rwkv-world": "it shows no tools",
    "microsoft-Phi-3.5-mini-instruct": "it shows no tools",
}


def as_text(messages):
    """The same with the text of arguments, which some templates take."""
    messages = json.loads(json.dumps(messages))
    for message in messages:
        for made in message.get("tool_calls", []):
            made["function"]["arguments"] = json.dumps(made["function"]["arguments"])
    return messages


def rendered(template, messages, begins_reply):
    """What jinja2 writes, with a system message or the text of arguments where it needs them, and the conversation."""
    for variant in (messages, as_text(messages), [SYSTEM, *messages], [SYSTEM, *as_text(messages)]):
        variables = {"messages": variant, "tools": TOOLS, "add_generation_prompt": begins_reply, "bos_token": "<s>", "eos_token": "</s>"}
        text, error = render(template, variables)
        if text is not None:
            return text, variant[: len(variant) - len(messages)] + messages
    return None, error


def replies(name, template, written):
    """What the assistant wrote, after the start of a reply, and the calls that are meant."""
    prompt, _ = written["tools"]
    for of, message in (("call", ONE), ("two calls", TWO)):
        text = written[of][0]
        if text is None or prompt is None or "q7weather" not in text[text.rfind(ASKED):]:
            continue
        at = next((at for at, (a, b) in enumerate(zip(prompt, text)) if a != b), min(len(prompt), len(text)))
        # A mark can start like the one of another reply.
        start = max(text.rfind("<", 0, at), text.rfind("[", 0, at))
        if start > text.rfind(">", 0, at) and start > text.rfind("]", 0, at):
            at = start
        calls = [[made["function"]["name"], made["function"]["arguments"]] for made in message["tool_calls"]]
        yield of, {"prompt": text[:at], "text": text[at:]}, calls


def leaves_out_calls(conversation, text):
    """Whether a template has not written all calls of a conversation."""
    made = [made for message in CONVERSATIONS[conversation][0] for made in message.get("tool_calls", [])]
    said = text[text.index(ASKED):]
    return not all(made["function"]["name"] in said and made["function"]["arguments"]["city"][:4] in said for made in made)


def problems(name, template, reader):
    written = {of: rendered(template, *conversation) for of, conversation in CONVERSATIONS.items()}
    sent = [{"messages": of[1], "add_generation_prompt": CONVERSATIONS[key][1]} for key, of in written.items() if of[0] is not None]
    expected = {key: of[0] for key, of in written.items() if of[0] is not None}
    asked = list(replies(name, template, written))
    case = {"template": template, "bos_token": "<s>", "eos_token": "</s>", "tools": TOOLS, "now": NOW, "conversations": sent, "replies": [reply for _, reply, _ in asked]}
    done = subprocess.run([reader], input=json.dumps(case) + "\n", capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    out = []
    why = next((why for begin, why in SPELLED_OUT.items() if name == begin), None)
    if found["form"] is None:
        out.append("" if why else f"spelled out: {found['support']}")
        return found["support"], [text for text in out if text], why, "0 | 0"
    for (key, text), ours in zip(expected.items(), found["prompts"]):
        if leaves_out_calls(key, text):
            # jinja2 would show a conversation without its calls.
            if leaves_out_calls(key, ours):
                out.append(f"{key}: a call is left out")
        elif text != ours:
            at = next((at for at, (a, b) in enumerate(zip(text, ours)) if a != b), min(len(text), len(ours)))
            out.append(f"{key}: at {at} jinja2 {text[max(at - 30, 0):at + 50]!r}, gristmill {ours[max(at - 30, 0):at + 50]!r}")
    derived = 0
    for (of, reply, calls), read in zip(asked, found["replies"]):
        parsed = lambda calls: [[name, json.loads(arguments)] for name, arguments in calls]
        made = parsed(read["calls"])
        derived += bool(read["derived"]) and parsed(read["derived"]) == made
        # Some templates write only the first call.
        if made != calls and made != calls[:1]:
            out.append(f"{of} read as {made}, content {read['content'][:200]!r}, of {reply['text'][:300]!r}")
        if not read["same_in_pieces"]:
            out.append(f"{of} is read otherwise in pieces")
    return found["support"], out, why, f"{len(asked)} | {derived}"


def main(reader, folder):
    print("| template | form of calls | written calls that are read | and by the derived form | as transformers |\n| --- | --- | ---: | ---: | --- |")
    failed, forms = [], 0
    for path in sorted(Path(folder).glob("*.jinja")):
        support, out, why, count = problems(path.stem, path.read_text(encoding="utf-8"), reader)
        failed += [f"- {path.stem}, {text}" for text in out]
        print(f"| {path.stem} | {support} | {count} | {'no' if out else why or 'yes'} |")
        forms += why is None and not out
    print(f"| all in their own form | {forms} | | | |")
    print(*failed, sep="\n")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main(*sys.argv[1:])
