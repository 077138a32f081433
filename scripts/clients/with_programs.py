"""Claude Code and Codex, the programs themselves, each asking a server for an answer.

python with_programs.py SERVER FOLDER-OF-PROGRAMS
"""

import json
import os
import subprocess
import sys
import tempfile

SERVER, PROGRAMS = sys.argv[1:]
# Nothing but the server can be reached: whatever goes elsewhere goes to a proxy that is not there.
NOWHERE = "http://127.0.0.1:9"
OFFLINE = dict(HTTPS_PROXY=NOWHERE, HTTP_PROXY=NOWHERE, NO_PROXY="127.0.0.1", https_proxy=NOWHERE, no_proxy="127.0.0.1")


def run(home, program, codes, arguments, **variables):
    """What a program prints until it ends with one of these codes, started with an empty home and with nothing of this environment but the path."""
    path = os.path.join(PROGRAMS, "node_modules", ".bin")
    environment = dict(PATH=os.pathsep.join([path, os.environ["PATH"]]), HOME=home, **OFFLINE, **variables)
    command = [os.path.join(path, program), *arguments, "Name a colour."]
    done = subprocess.run(
        command, cwd=home, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600
    )
    assert done.returncode in codes, f"{program}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def claude(home, what, *arguments):
    """Claude Code with the model that it takes by itself. A small model may go on without end, so the reply is cut: then
    Claude Code says so, and has counted what it read."""
    variables = dict(
        ANTHROPIC_BASE_URL=SERVER,
        ANTHROPIC_API_KEY="none",
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
        CLAUDE_CODE_MAX_OUTPUT_TOKENS="32",
    )
    text = run(home, "claude", (0, 1), ["--print", "--bare", "--output-format", "json", *arguments], **variables)
    said = json.loads(text)
    cut = said["is_error"] and "exceeded the 32 output token maximum" in said["result"]
    assert said["result"].strip() and (cut or not said["is_error"]), said
    read = said["usage"]["input_tokens"] + said["usage"]["cache_read_input_tokens"]
    assert read > 0 and said["usage"]["output_tokens"] > 0, said
    print(f"ok: claude, {what}")


def codex(home):
    """Codex with its tools."""
    provider = dict(name="gristmill", base_url=SERVER + "/v1", env_key="KEY", wire_api="responses")
    settings = dict(model_provider="gristmill", **{f"model_providers.gristmill.{key}": text for key, text in provider.items()})
    arguments = [word for key, text in settings.items() for word in ("--config", f"{key}={json.dumps(text)}")]
    retries = [word for kind in ("request", "stream") for word in ("--config", f"model_providers.gristmill.{kind}_max_retries=0")]
    said = run(
        home,
        "codex",
        (0,),
        ["exec", "--json", "--skip-git-repo-check", "--sandbox", "read-only", "--model", "gpt-5.1", *arguments, *retries],
        KEY="none",
    )
    events = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    items = [event["item"] for event in events if event["type"] == "item.completed"]
    assert any(item["type"] == "agent_message" and item["text"].strip() for item in items), said
    assert events[-1]["type"] == "turn.completed" and events[-1]["usage"]["output_tokens"] > 0, said
    print("ok: codex, its instructions and tools")


with tempfile.TemporaryDirectory() as home:
    claude(home, "without tools", "--tools", "", "--system-prompt", "Be brief.")
    claude(home, "its instructions and tools")
    codex(home)
