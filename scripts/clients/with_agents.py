"""Programs whose model calls tools, against a server that plays a script.

python with_agents.py SCRIPTED MODEL FOLDER-OF-PROGRAMS FOLDER-OF-EARLIER-PROGRAMS PYTHON-WITH-AIDER [NAME...]
"""

import os
import secrets
import subprocess
import sys

from agents import Aider, Claude, Codex, NewestClaude, Opencode, Qwen
from scripted import Scripted, call

SCRIPTED, MODEL, PROGRAMS, EARLIER, AIDER = sys.argv[1:6]
ONLY = sys.argv[6:]
TASK = "Copy the word in note.txt to copy.txt."
ASK = "Which word does the mill have?"
FOLLOW = "Print the parts one after another, then name the colour."
PARTS = 8
# What a command prints when a program has run it is not in the call.
COMMAND, PRINTED = "echo shell-$((40 + 2))", "shell-42"
# In the marks in which some programs ask for it.
SUMMARY = "<analysis>Parts.</analysis>\n<summary>Some parts are read.</summary>"
SUMMARISED = "Some parts are read."
END = "FINISHED"
# Each with a context that its instructions and some parts fill.
AGENTS = {
    "claude": (NewestClaude, PROGRAMS, 28_000),
    "claude 2.1.197": (Claude, EARLIER, 28_000),
    "codex": (Codex, PROGRAMS, 16_000),
    "opencode": (Opencode, PROGRAMS, 16_000),
    "qwen": (Qwen, PROGRAMS, 28_000),
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


def serves(name, kind, folder):
    """A tool of a server of tools."""
    word = secrets.token_hex(8)
    program = kind(folder, word)
    steps = [(event or ASK, reply) for event, reply in program.first(call(program.word_of, place="mill"))]
    rules = [("", "A title"), *steps, (word, f"It has it. {END}")]
    with Scripted(SCRIPTED, MODEL, rules) as server:
        answer(program, server, ASK)
        assert word in server.played(), server.played()
    print(f"ok: {name}: a tool of an MCP server", flush=True)


def compacts(name, program, context):
    """A session that outgrows the context: the program lets the model write a summary, and goes on. Unless it needs to
    be told of the context, it recognises the server's refusal."""
    if not program.compacts_by_itself:
        program.window = context
    # Not files, which a program may show the model again after the summary.
    part = "yes The mill stands by the river and grinds. | head -n 220; echo PART $((0 + {})) ENDS"
    shown = [program.shell(part.format(number)) for number in range(1, PARTS + 1)]
    ends = [f"PART {number} ENDS" for number in range(1, PARTS + 1)]
    steps = list(zip([FOLLOW, *ends], [*shown, END]))
    with Scripted(SCRIPTED, MODEL, [("", "A title"), *steps, (program.compacts, SUMMARY), (SUMMARISED, END)], context) as server:
        answer(program, server, FOLLOW)
        assert program.compacts in server.played(), server.played()
    print(f"ok: {name}: a session that outgrows {context} tokens is compacted and goes on", flush=True)


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


def checks():
    """Each check: the program, what is checked, and what runs it before the next one is asked for."""
    for name, (kind, programs, context) in AGENTS.items():
        folder = f"{programs}/node_modules/.bin"
        yield name, "calls", lambda: calls(name, kind(folder))
        yield name, "a tool of an MCP server", lambda: serves(name, kind, folder)
        yield name, "compaction", lambda: compacts(name, kind(folder), context)
    yield "aider", "a file", edits


failed = 0
for name, what, check in checks():
    if ONLY and name not in ONLY:
        continue
    try:
        check()
    except (AssertionError, subprocess.TimeoutExpired) as error:
        print(error, file=sys.stderr)
        print(f"FAILED: {name}: {what}", flush=True)
        failed += 1
sys.exit(failed > 0)
