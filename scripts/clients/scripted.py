"""A server whose completions are a script's: `crates/server/examples/scripted.rs`."""

import json
import os
import subprocess
import sys
import tempfile

TEMPLATE = open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "tools.jinja")).read()
# Names by which programs ask for models.
ALIASES = ["claude-*", "gpt-*", "openai/*"]


def call(name, /, **arguments):
    """A call as a model writes it."""
    return f"<tool_call>\n{json.dumps(dict(name=name, arguments=arguments))}\n</tool_call>"


class Scripted:
    """A server with these rules, pairs of what a prompt has and the completion; the newest event of a prompt counts. With a
    tower of LFM2-VL its model reads images."""

    def __init__(self, program, model, rules, context=65536, tower=None):
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, "log.jsonl")
        setup = dict(context=context, template=TEMPLATE, aliases=ALIASES, log=self.path, tower=tower)
        setup["rules"] = [dict(when=when, reply=reply) for when, reply in rules]
        script = os.path.join(self.folder.name, "script.json")
        with open(script, "w") as file:
            json.dump(setup, file)
        self.process = subprocess.Popen([program, model, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.address = self.process.stdout.readline().strip()
        assert self.address, "the server does not start"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.folder.cleanup()

    def log(self):
        """The completions so far: rule and prompt of each."""
        with open(self.path) as file:
            return [json.loads(line) for line in file]

    def played(self):
        """The rules that were followed, in order."""
        return [line["when"] for line in self.log()]


if __name__ == "__main__":
    # For scripts in other languages: SCRIPTED MODEL RULES. It prints its address, and ends when its input does.
    program, model, rules = sys.argv[1:]
    with Scripted(program, model, json.loads(rules)) as server:
        print(server.address, flush=True)
        sys.stdin.read()
