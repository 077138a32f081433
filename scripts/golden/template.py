"""Golden file for the chat templates: crates/text/tests/golden/template.json.

Renders the templates of templates/ as transformers does, for several conversations.

Run with Python 3.11, transformers 5.23.0 and jinja2 3.1.6, without arguments.
"""

import json
from pathlib import Path

from transformers.utils.chat_template_utils import render_jinja_template

HERE = Path(__file__).parent
OUT = HERE.parent.parent / "crates/text/tests/golden/template.json"

TOOLS = [{"type": "function", "function": {"name": "weigh", "description": "Weighs <grain> & says 'how much'.", "parameters": {
    "type": "object", "properties": {"sacks": {"type": "integer", "minimum": 1}, "unit": {"enum": ["kg", "t"], "default": None}},
    "required": ["sacks"], "strict": True, "ratio": 0.5}}}]

ASK = {"role": "user", "content": "How much flour?  "}
ANSWER = {"role": "assistant", "content": "<think>\nTwo sacks.\n</think>\n\n Two sacks, \"fine\" & 'white'.\n"}
SYSTEM = {"role": "system", "content": "You are a miller. Größe 小麦 😀\n"}
CONVERSATIONS = {
    "one": [ASK],
    "system": [SYSTEM, ASK],
    "long": [SYSTEM, ASK, ANSWER, {"role": "user", "content": "  And tomorrow?"}],
    "answered": [ASK, ANSWER],
    "reasoned": [ASK, {"role": "assistant", "content": "Two.", "reasoning_content": "\nCounting.\n"}, {"role": "user", "content": "Sure?"}],
    "calls": [ASK, {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {
        "name": "weigh", "arguments": {"sacks": 2, "unit": "kg"}}}]},
        {"role": "tool", "content": "{\"kg\": 50}"}, {"role": "tool", "content": "done"}],
    "wrong": [ASK, ASK],
}


def outcome(template, messages, **variables):
    try:
        [text], _ = render_jinja_template(conversations=[messages], chat_template=template, **variables)
        return {"text": text}
    except Exception as error:
        return {"error": str(error)}


def main():
    templates = {path.stem: path.read_text(encoding="utf-8") for path in sorted((HERE / "templates").glob("*.jinja"))}
    cases = []
    for name, template in templates.items():
        for conversation, messages in CONVERSATIONS.items():
            for thinking in ([None, True, False] if "enable_thinking" in template else [None]):
                for tools in ([None, TOOLS] if "tools" in template else [None]):
                    variables = {"tools": tools} if tools else {}
                    if thinking is not None:
                        variables["enable_thinking"] = thinking
                    prompt = conversation != "answered"
                    result = outcome(template, messages, add_generation_prompt=prompt, bos_token="<s>", eos_token="</s>", **variables)
                    cases.append({"template": name, "messages": messages, "add_generation_prompt": prompt, **variables, **result})
    dump = lambda value: json.dumps(value, ensure_ascii=False)
    text = "{\"templates\": " + json.dumps(templates, ensure_ascii=False, indent=1) + ",\n\"cases\": [\n"
    OUT.write_text(text + ",\n".join(map(dump, cases)) + "\n]}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
