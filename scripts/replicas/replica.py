"""Replicas of the server, requests to them or to a router, and waiting."""

import http.client
import json
import re
import socket
import subprocess
import threading
import time
import uuid

# Seconds that a step of the proof can take on a busy machine; what is proved has bounds of its own.
PATIENCE = 600


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def request(port, method, path, body=None, timeout=PATIENCE, session=None, padding=0):
    """The status and the text of a reply; the connection carries no other request. `padding` bytes follow the body's JSON."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    connection.request(method, path, body and json.dumps(body) + " " * padding, headers(session) | {"connection": "close"})
    reply = connection.getresponse()
    text = reply.read().decode()
    connection.close()
    return reply.status, text


def headers(session=None):
    return {"content-type": "application/json", "x-session-id": session or str(uuid.uuid4())}


def wait_until(what, is_true, seconds=PATIENCE):
    end = time.monotonic() + seconds
    while not is_true():
        if time.monotonic() > end:
            raise SystemExit(f"FAILED: {what} within {seconds} s")
        time.sleep(0.02)


def is_ok(port, path="/ready"):
    try:
        return request(port, "GET", path, timeout=5)[0] == 200
    except (OSError, http.client.HTTPException):
        return False


class Replica:
    """A process of the server. With `has_own_name` the model has the replica's name, so that each reply names its
    replica; all replicas also have the name `any`."""

    def __init__(self, program, index, options, has_own_name=True):
        self.name, self.port, self.process = f"replica{index}", free_port(), None
        names = ["--name", self.name, "--alias", "any"] if has_own_name else ["--name", "any"]
        self.command = [program, "serve", "--quiet", "--no-page", *names, "--threads", "1", "--ctx", "2048",
                        "--port", str(self.port), *options]

    @property
    def address(self):
        return f"http://127.0.0.1:{self.port}"

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(f"{self.name} is ready", lambda: is_ok(self.port))

    def metric(self, name):
        """The sum of a metric over its labels."""
        text = request(self.port, "GET", "/metrics")[1]
        return sum(int(value) for value in re.findall(rf"^gristmill_{name}(?:{{[^}}]*}})? (\d+)$", text, re.M))

    def running(self):
        return self.metric("requests_running")

    def end(self, number):
        self.process.send_signal(number)


class Stream(threading.Thread):
    """A reply in events through a router."""

    def __init__(self, port, tokens, prompt="Once", more=None):
        super().__init__(daemon=True)
        self.port, self.body = port, {
            "model": "any", "prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "stream": True, **(more or {})}
        self.replica, self.events, self.is_complete, self.error, self.text = None, 0, False, None, ""

    def run(self):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
            connection.request("POST", "/v1/completions", json.dumps(self.body), headers())
            reply = connection.getresponse()
            if reply.status != 200:
                raise ValueError(f"status {reply.status}: {reply.read()[:200]}")
            for line in reply:
                if line.startswith(b"data: {"):
                    self.read(json.loads(line[6:]))
                if line.startswith(b"data: [DONE]"):
                    self.is_complete = True
        except (OSError, ValueError, KeyError, http.client.HTTPException) as error:
            self.error = repr(error)

    def read(self, event):
        if "error" in event:
            raise ValueError(f"event: {event['error']}")
        self.replica = event["model"]
        self.events += 1
        self.text += "".join(choice["text"] for choice in event["choices"])
