"""Programs whose models call tools: how each is started, and the calls by which its model works on files."""

import json
import os
import subprocess
import sys
import tempfile

from scripted import call

# Nothing but the server can be reached: whatever goes elsewhere goes to a proxy that is not there.
NOWHERE = "http://127.0.0.1:9"
OFFLINE = dict(HTTPS_PROXY=NOWHERE, HTTP_PROXY=NOWHERE, NO_PROXY="127.0.0.1", https_proxy=NOWHERE, no_proxy="127.0.0.1")


# A server of tools (`mcp_server.py`), as programs that can use one call its tool.
WORD_SERVER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "mcp_server.py")


class Program:
    """A program with an empty home and a folder to work in."""

    word_of = "mcp__mill__word_of"

    # Tokens of the context that the program is told of, if it has to be.
    window = 200_000
    compacts_by_itself = True

    def __init__(self, programs, word=None):
        """With a word, the program has the tool of the server, which returns it."""
        self.programs = programs
        self.tools = [sys.executable, WORD_SERVER, word] if word else None
        self.home = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.folder = os.path.join(self.home.name, "work")
        os.mkdir(self.folder)

    def first(self, use):
        """What the model does to use the tool of the server: pairs of what a prompt has (first: the task) and a reply."""
        return [("", use)]

    def path(self, name):
        return os.path.join(self.folder, name)

    def file(self, name, text):
        """Writes a file of the folder, and returns its path."""
        with open(self.path(name), "w") as file:
            file.write(text)
        return self.path(name)

    def run(self, program, *arguments, codes=(0,), **variables):
        """What a program prints until it ends with one of these codes, with nothing of this environment but the path."""
        command = [os.path.join(self.programs, program), *arguments]
        environment = dict(PATH=os.environ["PATH"], HOME=self.home.name, **OFFLINE, **variables)
        streams = dict(stdin=subprocess.DEVNULL, capture_output=True, text=True)
        done = subprocess.run(command, cwd=self.folder, env=environment, timeout=300, **streams)
        said = f"{program}: {done.returncode}\n{done.stdout[-6000:]}\n{done.stderr[-4000:]}"
        assert done.returncode in codes, said
        return done.stdout


class Claude(Program):
    """Claude Code with its instructions and all its tools."""

    written = "File created successfully"
    compacts = "Your task is to create a detailed summary"

    def answer(self, address, task):
        variables = dict(ANTHROPIC_BASE_URL=address, ANTHROPIC_API_KEY="none", CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1")
        allowed = ["--allowedTools", f"Bash,Read,Write,{self.word_of}", "--permission-mode", "acceptEdits"]
        if self.tools:
            server = dict(command=self.tools[0], args=self.tools[1:])
            allowed += ["--mcp-config", json.dumps(dict(mcpServers=dict(mill=server))), "--strict-mcp-config"]
        said = self.run("claude", "--print", "--output-format", "json", *allowed, "--", task, **variables)
        said = json.loads(said)
        assert not said["is_error"], said
        return said["result"]

    def read(self, name):
        return call("Read", file_path=self.path(name))

    def shell(self, command):
        return call("Bash", command=command, description="Run a command")

    def write(self, name, text):
        return call("Write", file_path=self.path(name), content=text)


class NewestClaude(Claude):
    """It shows tools of servers by their names, and loads them where its model asks for them."""

    def first(self, use):
        return [("", call("ToolSearch", query=f"select:{self.word_of}")), ("Tool loaded.", use)]


class Codex(Program):
    """Codex, whose tools are commands. It compacts at nine tenths of the context that it is told of; a refusal ends its
    turn."""

    compacts_by_itself = False
    written = "written-42"
    compacts = "CONTEXT CHECKPOINT COMPACTION"

    def answer(self, address, task):
        provider = dict(name="gristmill", base_url=address + "/v1", env_key="KEY", wire_api="responses")
        provider |= dict(request_max_retries=0, stream_max_retries=0)
        settings = {f"model_providers.gristmill.{key}": value for key, value in provider.items()}
        settings |= dict(model_provider="gristmill", model_context_window=self.window)
        if self.tools:
            settings |= {"mcp_servers.mill.command": self.tools[0], "mcp_servers.mill.args": self.tools[1:]}
        words = [word for key, value in settings.items() for word in ("--config", f"{key}={json.dumps(value)}")]
        options = ["--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--model", "gpt-5.1"]
        said = self.run("codex", "exec", *options, *words, task, KEY="none")
        events = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
        assert events[-1]["type"] == "turn.completed", said
        items = [event["item"] for event in events if event["type"] == "item.completed"]
        return [item["text"] for item in items if item["type"] == "agent_message"][-1]

    def read(self, name):
        return call("exec_command", cmd=f"cat {self.path(name)}")

    def shell(self, command):
        return call("exec_command", cmd=command)

    def write(self, name, text):
        return call("exec_command", cmd=f"printf %s {text} > {self.path(name)} && echo written-$((40 + 2))")


class Opencode(Program):
    word_of = "mill_word_of"
    written = "Wrote file successfully"
    compacts = "anchored summary"

    def answer(self, address, task):
        reads = dict(input=["text", "image"], output=["text"])
        model = dict(name="scripted", limit=dict(context=self.window, output=2048), attachment=True, modalities=reads)
        models = dict(scripted=model)
        options = dict(baseURL=address + "/v1", apiKey="none")
        provider = dict(npm="@ai-sdk/openai-compatible", name="gristmill", options=options, models=models)
        settings = dict(provider=dict(gristmill=provider), model="gristmill/scripted", autoupdate=False, share="disabled")
        if self.tools:
            settings["mcp"] = dict(mill=dict(type="local", command=self.tools, enabled=True))
        self.file("opencode.json", json.dumps(settings))
        variables = dict(OPENCODE_DISABLE_MODELS_FETCH="1", OPENCODE_DISABLE_AUTOUPDATE="1")
        # It ends with 1 if there was an error, even one after which it went on.
        said = self.run("opencode", "run", "--format", "json", task, codes=(0, 1), **variables)
        events = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
        errors = [event["error"]["name"] for event in events if event["type"] == "error"]
        assert all(name == "ContextOverflowError" for name in errors), said
        return [event["part"]["text"] for event in events if event["type"] == "text"][-1]

    def read(self, name):
        return call("read", filePath=self.path(name))

    def shell(self, command):
        return call("bash", command=command, description="Run a command")

    def write(self, name, text):
        return call("write", filePath=self.path(name), content=text)


class Qwen(Program):
    written = "Successfully created and wrote to new file"
    compacts = "state_snapshot"

    def answer(self, address, task):
        if self.tools:
            settings = os.path.join(self.folder, ".qwen")
            os.mkdir(settings)
            with open(os.path.join(settings, "settings.json"), "w") as file:
                json.dump(dict(mcpServers=dict(mill=dict(command=self.tools[0], args=self.tools[1:]))), file)
        variables = dict(OPENAI_API_KEY="none", OPENAI_BASE_URL=address + "/v1", OPENAI_MODEL="scripted")
        return self.run("qwen", "--auth-type", "openai", "--yolo", "--prompt", task, **variables)

    def read(self, name):
        return call("read_file", file_path=self.path(name))

    def shell(self, command):
        return call("run_shell_command", command=command, is_background=False)

    def write(self, name, text):
        return call("write_file", file_path=self.path(name), content=text)


class Aider(Program):
    """aider, which has no tools."""

    def answer(self, address, task):
        quiet = ["--no-git", "--no-check-update", "--no-show-model-warnings", "--analytics-disable", "--no-show-release-notes"]
        files = ["--edit-format", "whole", "--read", "note.txt", "copy.txt"]
        variables = dict(OPENAI_API_BASE=address + "/v1", OPENAI_API_KEY="none", LITELLM_LOCAL_MODEL_COST_MAP="True")
        model = ["--model", "openai/scripted", "--yes-always"]
        return self.run("aider", *model, *quiet, *files, "--message", task, **variables)
