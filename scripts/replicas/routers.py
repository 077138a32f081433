"""The routers: how each is started from its file of `deploy`, whose ports are replaced."""

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from replica import free_port, is_ok, request, wait_until

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


class Router:
    """A router in front of replicas. `options` are those that its configuration wants of the replicas."""

    options = []
    # Whether the streams of a replica that is killed continue on another one.
    moves_streams = False
    # Whether it bounds the load of a replica. A plain hash does not: of 48 sessions, chance gives a replica more than 1.3
    # times the mean in one run of four.
    is_balanced = True
    ready = "/ready"

    def __init__(self, replicas):
        self.port, self.replicas, self.processes = free_port(), replicas, []
        self.folder = tempfile.mkdtemp()
        self.log = open(os.path.join(self.folder, "log"), "w")
        self.start()
        wait_until(f"{self.name} answers", self.is_ready)

    def is_ready(self):
        return is_ok(self.port, self.ready)

    def run(self, command, **more):
        self.processes.append(subprocess.Popen(command, stdout=self.log, stderr=self.log, **more))
        return self.processes[-1]

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()

    def configuration(self, name, changes=()):
        """A copy of a file of `deploy` with the ports of this run."""
        text = (DEPLOY / name).read_text()
        ports = (self.port, *(replica.port for replica in self.replicas))
        for old, new in zip((8080, 8081, 8082, 8083), ports):
            text = text.replace(f"127.0.0.1:{old}", f"127.0.0.1:{new}")
        for old, new in changes:
            if old not in text:
                raise SystemExit(f"FAILED: {name} has no {old}")
            text = text.replace(old, new, 1)
        path = os.path.join(self.folder, name)
        Path(path).write_text(text)
        return path

    @staticmethod
    def package(name):
        return f"{name} {importlib.metadata.version(name)}"


class Nginx(Router):
    name, is_balanced = "nginx", False

    def start(self):
        # Files of its own, and one process.
        temporary = "".join(f"    {name}_temp_path {self.folder}/{name};\n"
                            for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        head = f"daemon off; master_process off; pid {self.folder}/pid; error_log {self.folder}/error.log;\nevents {{"
        path = self.configuration("nginx.conf", [
            ("events {", head), ("http {", "http {\n" + temporary + "    access_log off;\n")])
        self.run(["nginx", "-p", self.folder, "-c", path])

    def label(self):
        return program_version("nginx")


class Haproxy(Router):
    name, options = "haproxy", ["--drain-delay", "3"]

    def start(self):
        self.run(["haproxy", "-f", self.configuration("haproxy.cfg")])

    def label(self):
        return program_version("haproxy")


class VllmRouter(Router):
    name, ready, options = "vllm-router", "/health", ["--drain-delay", "3"]

    def start(self):
        port = ("--port 8080", f"--port {self.port} --prometheus-port {free_port()}")
        path = self.configuration(f"{self.name}.sh", [port])
        self.run(["sh", path, *(replica.address for replica in self.replicas)])

    def label(self):
        return self.package(self.name)


class SglangRouter(VllmRouter):
    name = "sglang-router"


class Dynamo(Router):
    """A frontend, and a worker for each replica."""

    name, moves_streams = "dynamo", True

    def start(self):
        self.tokenizer = os.path.join(self.folder, "tokenizer")
        subprocess.run([sys.executable, Path(__file__).with_name("tokenizer.py"), self.tokenizer], check=True)
        self.path = self.configuration("dynamo.sh", [("--http-port 8080", f"--http-port {self.port}")])
        (Path(self.folder) / "dynamo_worker.py").write_text((DEPLOY / "dynamo_worker.py").read_text())
        self.environment = dict(os.environ, DYN_FILE_KV=os.path.join(self.folder, "discovery"))
        self.run(["sh", self.path, "frontend"], env=self.environment)
        self.workers = {}
        for replica in self.replicas:
            self.replace(replica)

    def is_ready(self):
        """Whether all workers are registered, and the frontend has the model."""
        registered = Path(self.log.name).read_text().count(": registered ")
        return registered >= len(self.workers) and is_ok(self.port, "/v1/models") and json.loads(
            request(self.port, "GET", "/v1/models")[1])["data"]

    def replace(self, replica):
        """Starts the worker of a replica, as a supervisor would."""
        words = ["worker", "--server", replica.address, "--tokenizer", self.tokenizer]
        events = [word for word in replica.command if word.startswith("tcp://")][:1]
        more = ["--kv-events", *events] if events else []
        self.workers[replica.name] = self.run(["sh", self.path, *words, *more], env=self.environment)

    def label(self):
        return self.package("ai-dynamo").replace("ai-dynamo", "Dynamo")


def program_version(kind):
    told = subprocess.run([kind, "-v"], capture_output=True, text=True)
    return f"{kind} {re.search(r'[0-9]+[.][0-9]+[.][0-9]+', told.stdout + told.stderr)[0]}"


ROUTERS = {router.name: router for router in (Nginx, Haproxy, VllmRouter, SglangRouter, Dynamo)}
