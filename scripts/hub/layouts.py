"""Repositories and folders in the layouts that publishers use: one language model, and files next to it.

layouts.py GRISTMILL STANDIN MODEL FOLDER [SEED]: a stand-in of the hub (`crates/hub/examples/standin.rs`) serves
random repositories. `pull` must take the language model and no byte of another file, `fit` must print its table,
and `serve` of a folder with the same files must answer with it. Prints a line `ok: ...` for each thing that holds.
"""

import json
import os
import random
import shutil
import socket
import struct
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

gristmill, standin, model, folder = sys.argv[1:5]
seed = int(sys.argv[5]) if len(sys.argv) > 5 else time.time_ns() % 10**9
print(f"seed {seed}")
draw = random.Random(seed)
folder = Path(folder)
shutil.rmtree(folder, ignore_errors=True)
folder.mkdir(parents=True)

# Names of language models, from published repositories; {tag} is the quantisation.
MODELS = [
    "gemma-4-12B-it-qat-{tag}.gguf", "ornith-9b-mtp-kl-{tag}.gguf", "Qwen3.6-27B-MTP-{tag}.gguf", "m.{tag}.gguf",
    "{tag}/m-{tag}.gguf", "openassistant-7b-{tag}.gguf", "Step-3.7-Flash-APEX-I-Mini.gguf", "model.gguf",
]
TAGS = ["Q4_K_M", "UD-Q4_K_XL", "Q8_0", "Q6_K", "BF16", "IQ3_M", "Q4_K_XL"]
# Names of files next to them, with the architecture and the type of their headers.
COMPANIONS = [
    ("mtp-gemma-4-12B-it.gguf", "gemma4-assistant", None), ("MTP/gemma-4-12B-it-{tag}-MTP.gguf", "gemma4-assistant", None),
    ("m-eagle3-{tag}.gguf", "eagle3", None), ("m-dflash-{tag}.gguf", "dflash", None),
    ("gemma-4-E2B-it-assistant-{tag}.gguf", "gemma4-assistant", None), ("mmproj-{tag}.gguf", "clip", "mmproj"),
    ("m.mmproj-{tag}.gguf", "clip", None), ("imatrix_unsloth.gguf", None, "imatrix"), ("m.imatrix.gguf", None, "imatrix"),
    ("adapter-F16-LoRA.gguf", "llama", "adapter"), ("m-lora-{tag}.gguf", "llama", "adapter"),
    ("vocoder-m-{tag}.gguf", "wavtokenizer-dec", None),
    # Only the header shows what it is.
    ("extra-{tag}.gguf", "eagle3", None), ("tower-{tag}.gguf", "clip", None), ("steering-{tag}.gguf", "controlvector", None),
]


def header(architecture, kind):
    """A GGUF file with these general keys and a tensor."""
    text = lambda value: struct.pack("<Q", len(value)) + value.encode()
    pairs = [("general.architecture", architecture), ("general.type", kind)]
    pairs = [text(key) + struct.pack("<I", 8) + text(value) for key, value in pairs if value]
    tensor = text("blk.0.x") + struct.pack("<IQIQ", 1, 8, 0, 0)
    start = b"GGUF" + struct.pack("<IQQ", 3, 1, len(pairs)) + b"".join(pairs) + tensor
    return start + bytes(-len(start) % 32) + bytes(4096)


def layout(number):
    """The files of a repository by name, and the name of its language model."""
    tag = draw.choice(TAGS)
    name = draw.choice(MODELS).format(tag=tag)
    files = {name: Path(model)}
    for pattern, architecture, kind in draw.sample(COMPANIONS, draw.randint(1, 5)):
        companion = pattern.format(tag=draw.choice(TAGS))
        path = folder / f"{number}" / companion
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(header(architecture, kind))
        files[companion] = path
    return files, name


repos = {f"org/layout-{number}-GGUF": layout(number) for number in range(40)}
words = [word for repo, (files, _) in repos.items() for word in [repo, *(f"{name}={path}" for name, path in files.items())]]
hub = subprocess.Popen([standin, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
endpoint = hub.stdout.readline().split()[0]
variables = {**os.environ, "HF_ENDPOINT": endpoint, "HF_HUB_CACHE": str(folder / "cache"), "HF_HOME": str(folder / "home")}
variables.pop("HF_TOKEN", None)


def downloaded():
    """Bytes of files since the last call, without those of headers."""
    hub.stdin.write("\n")
    hub.stdin.flush()
    return int(hub.stdout.readline().split("bytes=")[1])


def run(*arguments):
    done = subprocess.run([gristmill, *arguments], env=variables, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


size = os.path.getsize(model)
for repo, (files, name) in repos.items():
    downloaded()
    code, out, err = run("pull", repo)
    assert code == 0 and out.strip().endswith("/" + name), (repo, list(files), name, out, err)
    assert downloaded() in (0, size), (repo, list(files))
    code, out, err = run("fit", repo, "--bandwidth", "30", "--memory", "8")
    assert code == 0 and "tok/s" in out, (repo, list(files), err)
print(f"ok: pull takes the language model of {len(repos)} repositories, and no byte of another file")
print("ok: fit prints a table for each")
code, out, err = run("models", "--json")
assert code == 0 and len(json.loads(out)) == len(repos), (out, err)
print("ok: models lists each")

for number, (files, name) in enumerate(draw.sample(list(repos.values()), 6)):
    place = folder / "served" / str(number)
    place.mkdir(parents=True)
    for file, path in files.items():
        shutil.copy(path, place / file.replace("/", "-"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen([gristmill, "serve", place, "--port", str(port)], stderr=subprocess.DEVNULL, env=variables)
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(200):
            try:
                urllib.request.urlopen(url + "/ready").read()
                break
            except OSError:
                time.sleep(0.1)
        listed = json.load(urllib.request.urlopen(url + "/v1/models"))["data"]
        assert [entry["id"] for entry in listed] == [name.replace("/", "-").removesuffix(".gguf")], (listed, list(files))
        body = json.dumps({"prompt": "Once", "max_tokens": 2}).encode()
        reply = urllib.request.Request(url + "/v1/completions", body, {"Content-Type": "application/json"})
        assert urllib.request.urlopen(reply).status == 200
    finally:
        server.terminate()
        server.wait()
print("ok: serve of a folder with these files has one model, which answers requests without a name")
hub.kill()
