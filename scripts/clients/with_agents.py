"""Programs whose model calls tools, against a server that plays a script.

python with_agents.py SCRIPTED MODEL FOLDER-OF-PROGRAMS FOLDER-OF-EARLIER-PROGRAMS PYTHON-WITH-AIDER [NAME...]
"""

import os
import secrets
import sys

from agents import Aider, Claude, Codex, Opencode, Qwen
from scripted import Scripted

SCRIPTED, MODEL, PROGRAMS, EARLIER, AIDER = sys.argv[1:6]
ONLY = sys.argv[6:]
TASK = "Copy the word in note.txt to copy.txt."
FOLLOW = "Read part1.txt, part2.txt and so on, then name the colour."
# What a command prints when a program has run it is not in the call.
COMMAND, PRINTED = "echo shell-$((40 + 2))", "shell-42"
SUMMARY = "SUMMARY: some parts are read."
END = "FINISHED"
AGENTS = {
    "claude": (Claude, PROGRAMS),
    "claude 2.1.197": (Claude, EARLIER),
    "codex": (Codex, PROGRAMS),
    "opencode": (Opencode, PROGRAMS),
    "qwen": (Qwen, PROGRAMS),
}


def answer(program, server, task):
    """The program's answer, which has to be the last of the script."""
    try:
        said = program.answer(server.address, task)
        assert END in said, said
    except Exception:
        print("completions:", server.played(), file=sys.stderr)
        raise


def calls(name, program):
    """Two calls in one reply, one that needs their results, then an answer."""
    word = secrets.token_hex(8)
    program.file("note.txt", word)
    both = "I read it.\n" + program.read("note.txt") + "\n" + program.shell(COMMAND)
    write = program.write("copy.txt", word)
    rules = [("", "A title"), (TASK, both), (word, write), (PRINTED, write), (program.written, f"It is copied. {END}")]
    with Scripted(SCRIPTED, MODEL, rules) as server:
        answer(program, server, TASK)
        with open(program.path("copy.txt")) as file:
            assert file.read().strip() == word
        results = [line["prompt"] for line in server.log() if line["when"] in (word, PRINTED)]
        assert word in results[0] and PRINTED in results[0], results[0][-3000:]
    print(f"ok: {name}: two calls in one reply, one that needs their results, an answer", flush=True)


def edits():
    """aider calls no tools: it reads changes out of answers."""
    word = secrets.token_hex(8)
    program = Aider(os.path.dirname(AIDER))
    program.file("note.txt", word)
    with Scripted(SCRIPTED, MODEL, [("", "A change"), (TASK, f"{END}\n\ncopy.txt\n```\n{word}\n```\n")]) as server:
        answer(program, server, TASK)
        with open(program.path("copy.txt")) as file:
            assert file.read().strip() == word
        assert any(word in line["prompt"] for line in server.log())
    print("ok: aider: a file is written as the answer says", flush=True)


for name, (kind, programs) in AGENTS.items():
    if not ONLY or name in ONLY:
        calls(name, kind(f"{programs}/node_modules/.bin"))
if not ONLY or "aider" in ONLY:
    edits()
