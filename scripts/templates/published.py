"""Renders published templates with jinja2 and with gristmill, and prints what differs.

published.py RENDERER FOLDER [EVERY]: RENDERER is the example `render`, FOLDER has *.jinja; of the conversations each
EVERY-th is rendered, other ones for each template. A difference without a reason is a failure.
"""

import json
import subprocess
import sys
from pathlib import Path

from conversations import conversations
from jinja import NOW, render

# Differences that stay: the name of the template begins so, an error has this text, and why.
REASONS = []

# The template of gpt-oss reads fields otherwise, by this mark.
MARK = "<|channel|>"
PROBE = "{{ messages | tojson }}\n{{ tools | tojson }}"


def switches(case):
    """The variables of a case besides the conversation: the same on both sides, whatever a template calls its switch."""
    return {} if case.get("thinking") is None else {"enable_thinking": case["thinking"]}


def run(renderer, cases):
    lines = "".join(json.dumps({"variables": switches(case), **case, "now": NOW}) + "\n" for case in cases)
    done = subprocess.run([renderer], input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.split("\n") if line]


def variables(case, probed):
    """What a template sees: the messages and tools as gristmill passes them, and the rest."""
    messages, tools = map(json.loads, probed["text"].split("\n"))
    out = {"messages": messages, "tools": tools, "add_generation_prompt": case["add_generation_prompt"]}
    for name in ("bos_token", "eos_token"):
        if case[name] is not None:
            out[name] = case[name]
    return {**out, **switches(case)}


def main(renderer, folder, every=1):
    cases = conversations()
    probes = {mark: run(renderer, [{**case, "template": mark + PROBE} for case in cases.values()]) for mark in ("", "{#" + MARK + "#}")}
    print("| template | equal | refused | differ |\n| --- | ---: | ---: | ---: |")
    sums, explained, failed = [0, 0, 0], [], []
    for index, path in enumerate(sorted(Path(folder).glob("*.jinja"))):
        template = path.read_text(encoding="utf-8")
        probed = probes["{#" + MARK + "#}" if MARK in template else ""]
        chosen = [(name, case, probe) for at, ((name, case), probe) in enumerate(zip(cases.items(), probed)) if (at + index) % every == 0]
        ours = run(renderer, [{**case, "template": template} for _, case, _ in chosen])
        counts = [0, 0, 0]
        for (name, case, probe), outcome in zip(chosen, ours):
            text, error = render(template, variables(case, probe))
            counts[2 if text != outcome.get("text") else 0 if text is not None else 1] += 1
            if text != outcome.get("text"):
                why = reason(path.stem, error, outcome)
                (explained if why else failed).append(f"- {path.stem}, {name}: {why or difference(text, error, outcome)}")
        print(f"| {path.stem} | {counts[0]} | {counts[1]} | {counts[2]} |")
        sums = [sum(pair) for pair in zip(sums, counts)]
    print(f"| all | {sums[0]} | {sums[1]} | {sums[2]} |")
    print(*explained, *failed, sep="\n")
    sys.exit(bool(failed) or not sums[0])


def reason(name, error, outcome):
    errors = f"{error} {outcome.get('error')}"
    return next((why for begin, text, why in REASONS if name.startswith(begin) and text in errors), None)


def difference(text, error, outcome):
    """Where two texts begin to differ, or the errors."""
    ours = outcome.get("text")
    if text is None or ours is None:
        return f"jinja2 {error or 'renders'}; gristmill {outcome.get('error', 'renders')}"
    at = next((at for at, (a, b) in enumerate(zip(text, ours)) if a != b), min(len(text), len(ours)))
    return f"at {at}: jinja2 {text[at - 40:at + 60]!r}, gristmill {ours[at - 40:at + 60]!r}"


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
