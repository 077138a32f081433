"""Three replicas behind a proxy: a replica that ends loses no request, one that is killed breaks only its own streams, and a
client that leaves frees its sequence.

replicas.py GRISTMILL PROXY CONFIGURATION [OPTION…]: PROXY is nginx or haproxy, CONFIGURATION the file of deploy/, whose
ports are replaced. Each replica gets the options. Prints one line for each check; the exit code is 1 if one failed.
"""

import concurrent.futures
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid

STREAMS = 30
TOKENS = 1200
REPLICAS = 3


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def request(port, method, path, body=None, timeout=120):
    """The status and the text of a reply; the connection carries no other request."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    headers = {"content-type": "application/json", "x-session-id": str(uuid.uuid4()), "connection": "close"}
    connection.request(method, path, body and json.dumps(body), headers)
    reply = connection.getresponse()
    text = reply.read().decode()
    connection.close()
    return reply.status, text


def wait_until(what, is_true, seconds=60):
    end = time.monotonic() + seconds
    while not is_true():
        if time.monotonic() > end:
            raise SystemExit(f"FAILED: {what} within {seconds} s")
        time.sleep(0.02)


def is_ready(port):
    try:
        return request(port, "GET", "/ready", timeout=5)[0] == 200
    except OSError:
        return False


class Replica:
    """A process of the server; the model has the replica's name, so that each reply names its replica."""

    def __init__(self, program, options, index, port):
        self.name, self.port, self.command = f"replica{index}", port, [
            program, "serve", "--quiet", "--no-page", "--name", f"replica{index}", "--alias", "any", "--threads", "1",
            "--parallel", "16", "--ctx", "2048", "--kv-tokens", "32768", "--port", str(port), *options]
        self.process = None

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL)
        wait_until(f"{self.name} is ready", lambda: is_ready(self.port), 120)

    def running(self):
        text = request(self.port, "GET", "/metrics")[1]
        return int(re.search(r"^gristmill_requests_running\S* (\d+)", text, re.M)[1])

    def end(self, number):
        self.process.send_signal(number)


class Stream(threading.Thread):
    """A reply in events through the proxy."""

    def __init__(self, port, tokens=TOKENS):
        super().__init__(daemon=True)
        self.port, self.tokens = port, tokens
        self.replica, self.events, self.complete, self.error = None, 0, False, None

    def run(self):
        body = {"model": "any", "prompt": "Once", "max_tokens": self.tokens, "ignore_eos": True, "stream": True}
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
            session = {"content-type": "application/json", "x-session-id": str(uuid.uuid4())}
            connection.request("POST", "/v1/completions", json.dumps(body), session)
            reply = connection.getresponse()
            if reply.status != 200:
                raise ValueError(f"status {reply.status}: {reply.read()[:200]}")
            for line in reply:
                if line.startswith(b"data: {"):
                    self.replica = json.loads(line[6:])["model"]
                    self.events += 1
                if line.startswith(b"data: [DONE]"):
                    self.complete = True
        except (OSError, ValueError, KeyError, http.client.HTTPException) as error:
            self.error = repr(error)


class Proxy:
    def __init__(self, kind, configuration, ports):
        self.port = free_port()
        with open(configuration) as file:
            text = file.read()
        for old, new in zip((8080, 8081, 8082, 8083), (self.port, *ports)):
            text = text.replace(f"127.0.0.1:{old}", f"127.0.0.1:{new}")
        self.folder = tempfile.mkdtemp()
        path = os.path.join(self.folder, "proxy.conf")
        if kind == "nginx":
            # Files of its own, and one process.
            text = f"daemon off; pid {self.folder}/pid; error_log {self.folder}/error.log;\n" + text.replace(
                "http {", "http {\n" + "".join(
                    f"    {name}_temp_path {self.folder}/{name};\n"
                    for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")) + "    access_log off;\n", 1)
            command = ["nginx", "-p", self.folder, "-c", path]
        else:
            command = ["haproxy", "-f", path]
        with open(path, "w") as file:
            file.write(text)
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        wait_until(f"{kind} answers", lambda: is_ready(self.port))


def version(kind):
    told = subprocess.run([kind, "-v"], capture_output=True, text=True)
    return re.search(r"\d+\.\d+\.\d+", told.stdout + told.stderr)[0]


failed = []


def check(what, holds):
    print(f"{'ok' if holds else 'FAILED'}: {what}", flush=True)
    if not holds:
        failed.append(what)


def new_requests(port, count):
    """How many of so many requests, which start within two seconds, are answered; and the other results."""
    body = {"model": "any", "prompt": "Then", "max_tokens": 8, "ignore_eos": True}

    def one(index):
        time.sleep(2 * index / count)
        try:
            return request(port, "POST", "/v1/completions", body)[0]
        except (OSError, http.client.HTTPException) as error:
            return repr(error)

    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        results = list(pool.map(one, range(count)))
    return results.count(200), sorted({str(result) for result in results if result != 200})


def begin(port, replicas):
    streams = [Stream(port) for _ in range(STREAMS)]
    for stream in streams:
        stream.start()
    wait_until("each stream has started", lambda: all(s.events > 2 or s.error for s in streams))
    busiest = max(replicas, key=lambda replica: sum(s.replica == replica.name for s in streams))
    return streams, busiest, [s for s in streams if s.replica == busiest.name]


def ends(label, port, replicas, number):
    streams, victim, own = begin(port, replicas)
    # A stream that has ended already proves nothing.
    own = [stream for stream in own if not stream.complete]
    victim.end(number)
    answered, others = new_requests(port, STREAMS)
    for stream in streams:
        stream.join(300)
    complete = sum(stream.complete for stream in streams)
    broken = [stream for stream in streams if not stream.complete]
    told = f"{answered} of {STREAMS} new requests were answered {others or ''}".strip()
    where = f"{len(own)} of {STREAMS} streams ran on it"
    if number == signal.SIGTERM:
        holds = complete == STREAMS and answered == STREAMS and own
        errors = sorted({stream.error for stream in broken if stream.error})
        check(f"{label}: SIGTERM to the busiest replica ({where}): {complete} of {STREAMS} streams were complete, {told} {errors or ''}".strip(), holds)
    else:
        only_own = all(stream in own for stream in broken)
        holds = only_own and 0 < len(broken) <= len(own) and answered == STREAMS
        check(f"{label}: SIGKILL to the busiest replica ({where}): {len(broken)} streams broke, {'all on it' if only_own else 'NOT all on it'}, {told}", holds)
    victim.process.wait(300)
    victim.start()
    # The proxy uses the replica again after its own checks.
    time.sleep(6)


def leaves(label, port, replicas, is_stream):
    body = {"model": "any", "prompt": "Once", "max_tokens": TOKENS, "ignore_eos": True, "stream": is_stream}
    text = json.dumps(body)
    head = (f"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nx-session-id: {uuid.uuid4()}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(text)}\r\n\r\n")
    client = socket.create_connection(("127.0.0.1", port))
    client.sendall((head + text).encode())
    count = lambda: sum(replica.running() for replica in replicas)
    wait_until("the request runs", lambda: count() == 1)
    start = time.monotonic()
    client.close()
    wait_until("the sequence is free", lambda: count() == 0, 30)
    seconds = time.monotonic() - start
    kind = "a stream" if is_stream else "a whole reply"
    check(f"{label}: a client that leaves {kind} frees its sequence ({seconds:.2f} s, at most 1 s)", seconds <= 1)


def main():
    program, kind, configuration, *options = sys.argv[1:]
    ports = [free_port() for _ in range(REPLICAS)]
    replicas = [Replica(program, options, index, port) for index, port in enumerate(ports, 1)]
    proxy = None
    try:
        for replica in replicas:
            replica.start()
        proxy = Proxy(kind, configuration, ports)
        label = f"{kind} {version(kind)}"
        for is_stream in (True, False):
            leaves(label, proxy.port, replicas, is_stream)
        ends(label, proxy.port, replicas, signal.SIGTERM)
        ends(label, proxy.port, replicas, signal.SIGKILL)
    finally:
        for process in [replica.process for replica in replicas] + [proxy and proxy.process]:
            if process:
                process.kill()
    sys.exit(1 if failed else 0)


main()
