"""One cache, two programs: what gristmill downloads huggingface_hub finds, and the other way round.

both_ways.py GRISTMILL STANDIN MODEL FOLDER: a stand-in of the hub (`crates/hub/examples/standin.rs`)
serves MODEL; prints a line `ok: ...` for each thing that holds.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

gristmill, standin, model, folder = sys.argv[1:5]
REPO = "org/tiny-GGUF"
# A folder of safetensors as publishers lay it out, and files that a model does not need.
FOLDER_REPO = "org/tiny"
GOLDEN = Path(__file__).parents[2] / "crates/conformance/golden/convert/qwen3moe"
NEEDED = sorted(path.name for path in GOLDEN.iterdir())
folder = Path(folder)
shutil.rmtree(folder, ignore_errors=True)
folder.mkdir(parents=True)
names = ["tiny-Q8_0.gguf", "tiny-Q4_K_M.gguf", "README.md"]
for name in names[:2]:
    shutil.copy(model, folder / name)
(folder / "README.md").write_text("# tiny\n")
(folder / "consolidated.safetensors").write_bytes(bytes(1 << 20))


class Hub:
    def __init__(self):
        words = [standin, REPO] + [str(folder / name) for name in names] + [FOLDER_REPO]
        words += [str(GOLDEN.resolve() / name) for name in NEEDED]
        words += [str(folder / name) for name in ("README.md", "consolidated.safetensors")]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.endpoint, self.commit = self.process.stdout.readline().split()

    def asked(self):
        """Requests since the last call, at the hub and at the other host."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return [int(part.split("=")[1]) for part in self.process.stdout.readline().split()[:2]]


hub = Hub()
os.environ["HF_ENDPOINT"] = hub.endpoint
os.environ["HF_HUB_DISABLE_XET"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ.pop("HF_TOKEN", None)
from huggingface_hub import hf_hub_download, scan_cache_dir, snapshot_download  # noqa: E402  (reads the variables)


def run(cache, *words, code=0):
    variables = {**os.environ, "HF_HUB_CACHE": str(cache), "HF_HOME": str(folder / "home")}
    done = subprocess.run([gristmill, *words], env=variables, capture_output=True, text=True)
    assert done.returncode == code, (words, done.stdout, done.stderr)
    return done.stdout


# From gristmill to huggingface_hub.
ours = folder / "ours"
path = run(ours, "pull", "-q", f"{REPO}:Q8_0").strip()
hub.asked()
found = hf_hub_download(REPO, "tiny-Q8_0.gguf", cache_dir=ours, local_files_only=True)
assert found == path and Path(found).read_bytes() == Path(model).read_bytes(), (found, path)
print("ok: hf_hub_download(local_files_only=True) finds what gristmill pulled, at the same path")
by_commit = hf_hub_download(REPO, "tiny-Q8_0.gguf", revision=hub.commit, cache_dir=ours, local_files_only=True)
assert by_commit == path, by_commit
print("ok: by its commit too")
assert hub.asked() == [0, 0]
info = scan_cache_dir(ours)
assert not info.warnings, info.warnings
(repo,) = info.repos
(revision,) = repo.revisions
(file,) = revision.files
assert (repo.repo_id, revision.commit_hash, revision.refs) == (REPO, hub.commit, frozenset({"main"})), repo
assert (file.file_name, file.size_on_disk) == ("tiny-Q8_0.gguf", os.path.getsize(model)), file
print("ok: scan_cache_dir lists it without a warning")
hf_hub_download(REPO, "tiny-Q8_0.gguf", cache_dir=ours)
assert hub.asked()[1] == 0
print("ok: hf_hub_download online asks the hub and downloads nothing")
hf_hub_download(REPO, "README.md", cache_dir=ours)
hub.asked()

# From huggingface_hub to gristmill.
theirs = folder / "theirs"
path = hf_hub_download(REPO, "tiny-Q8_0.gguf", cache_dir=theirs)
hub.asked()
one = run(theirs, "run", "-m", f"hf:{REPO}:Q8_0", "-q", "-n", "8", "--temp", "0", "a")
assert hub.asked() == [0, 0]
assert one == run(theirs, "run", "-m", path, "-q", "-n", "8", "--temp", "0", "a")
print("ok: gristmill run -m hf:... uses what hf_hub_download fetched, and sends nothing")
assert run(theirs, "pull", "-q", f"{REPO}:Q8_0").strip() == path
assert hub.asked() == [1, 0]
print("ok: gristmill pull asks for the listing and downloads nothing")
(listed,) = json.loads(run(theirs, "models", "--json"))
assert (listed["name"], listed["files"]) == (f"{REPO}:Q8_0", [path]), listed
print("ok: gristmill models lists it")
snapshot_download(REPO, cache_dir=theirs)
names_there = {line.split()[0] for line in run(theirs, "models").splitlines()}
assert names_there == {f"{REPO}:Q8_0", f"{REPO}:Q4_K_M"}, names_there
print("ok: and the whole snapshot of snapshot_download")

# A model as a folder, both ways.
path = run(ours, "pull", "-q", FOLDER_REPO).strip()
assert sorted(os.listdir(path)) == NEEDED, os.listdir(path)
hub.asked()
found = snapshot_download(FOLDER_REPO, cache_dir=ours, local_files_only=True)
assert found == path, (found, path)
one = hf_hub_download(FOLDER_REPO, "config.json", cache_dir=ours)
assert one == f"{path}/config.json" and hub.asked()[1] == 0, one
info = scan_cache_dir(ours)
assert not info.warnings, info.warnings
print("ok: snapshot_download(local_files_only=True) finds the folder that gristmill pulled, without the files left out")
words = ["-q", "-n", "8", "--temp", "0", "--raw", "a"]
text = run(ours, "run", path, *words)
assert text == run(ours, "run", f"hf:{FOLDER_REPO}", *words) and hub.asked() == [0, 0]
hf_hub_download(FOLDER_REPO, "config.json", cache_dir=theirs)
hub.asked()
assert text == run(theirs, "run", f"hf:{FOLDER_REPO}", *words)
assert sum(hub.asked()) > 0
print("ok: gristmill run completes a folder of which hf_hub_download fetched one file")
run(theirs, "rm", "-q", FOLDER_REPO)
snapshot_download(FOLDER_REPO, cache_dir=theirs)
hub.asked()
assert text == run(theirs, "run", f"hf:{FOLDER_REPO}", *words) and hub.asked() == [0, 0]
print("ok: and uses the whole folder of snapshot_download, and sends nothing")
for cache in (ours, theirs):
    run(cache, "rm", "-q", FOLDER_REPO)

# Removing.
run(theirs, "rm", "-q", f"{REPO}:Q8_0")
info = scan_cache_dir(theirs)
assert not info.warnings, info.warnings
left = {file.file_name for repo in info.repos for revision in repo.revisions for file in revision.files}
# Both models are one content, which the other one still needs.
assert left == {"tiny-Q4_K_M.gguf", "README.md"}, left
print("ok: after gristmill rm, scan_cache_dir lists the rest without a warning")
for cache in (ours, theirs):
    run(cache, "rm", "-q", REPO)
    info = scan_cache_dir(cache)
    assert not info.repos and not info.warnings, info
print("ok: after gristmill rm of the repositories, nothing is left")
hub.process.kill()
