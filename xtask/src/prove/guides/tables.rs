//! Replacements for what guides name: models, input files, other machines. A guide must use each row.

/// A repository of the hub with one model.
pub(super) struct Repository {
    pub(super) name: &'static str,
    pub(super) file: &'static str,
    /// The folder of this repository that is converted to the file; without it the file is SmolLM2-135M-Instruct.
    pub(super) folder: Option<&'static str>,
}

pub(super) const REPOSITORIES: [Repository; 2] = [
    Repository {
        name: "Qwen/Qwen3-30B-A3B-GGUF",
        file: "Qwen3-30B-A3B-Q4_K_M.gguf",
        folder: Some("crates/conformance/golden/convert/qwen3moe"),
    },
    Repository { name: "Qwen/Qwen3-0.6B-GGUF", file: "Qwen3-0.6B-Q8_0.gguf", folder: None },
];

pub(super) const STORIES: &str = "crates/cli/model/gristmill-stories.gguf";

/// A file or folder of this repository under the name that the commands of a page use. Two folders with the same name
/// are merged.
pub(super) struct File {
    pub(super) page: &'static str,
    pub(super) name: &'static str,
    pub(super) source: &'static str,
}

const fn file(page: &'static str, name: &'static str, source: &'static str) -> File {
    File { page, name, source }
}

pub(super) const FILES: [File; 14] = [
    file("docs/cli.md", "stories.txt", "training/sample_prompts.txt"),
    file("docs/choose.md", "model-q8_0.gguf", STORIES),
    file("docs/choose.md", "model-q4_k_m.gguf", STORIES),
    file("docs/choose.md", "text.txt", "LICENSE-APACHE"),
    file("docs/cli.md", "model.gguf", STORIES),
    file("docs/convert.md", "path/to/Qwen3-30B-A3B", "crates/conformance/golden/convert/qwen3moe"),
    // The tokenizer, and then the weights.
    file("docs/convert.md", "path/to/Qwen3-30B-A3B-4bit", "crates/conformance/golden/convert/qwen3moe"),
    file("docs/convert.md", "path/to/Qwen3-30B-A3B-4bit", "crates/conformance/golden/mlx/qwen3moe-4bit"),
    file("docs/moving.md", "~/.ollama/models/blobs/sha256-…", STORIES),
    file("docs/quantize.md", "model-f16.gguf", "crates/conformance/golden/qwen3moe-f32.gguf"),
    file("docs/quantize.md", "path/to/Qwen3-30B-A3B", "crates/conformance/golden/convert/qwen3moe"),
    file("docs/serve.md", "model.gguf", STORIES),
    file("docs/serve-api.md", "model.gguf", STORIES),
    file("docs/serve-operations.md", "model.gguf", STORIES),
];

/// A command that does not run here, by its prefix, and the reason.
pub(super) struct Other {
    pub(super) page: &'static str,
    pub(super) start: &'static str,
    pub(super) reason: &'static str,
}

const fn other(page: &'static str, start: &'static str, reason: &'static str) -> Other {
    Other { page, start, reason }
}

const ROOT: &str = "changes users, folders and units of the machine, as root";
const DYNAMO: &str = "takes Dynamo; `prove replicas` runs these programs";
const PACKAGE: &str = "takes the published package; `.ci/run python` tests the package of the sources";
const AGENT: &str = "`prove clients` runs this program with these settings";

pub(super) const OTHERS: [Other; 24] = [
    other("docs/quick-start.md", "gristmill chat --device metal", "takes an Apple GPU"),
    other("docs/install.md", "gristmill kernels", "takes NVRTC; the tests of the command line run it with a stub"),
    other("docs/install.md", "gristmill serve model.gguf --kernels", "takes the folder of the command before"),
    other("docs/python.md", "pip install", PACKAGE),
    other("docs/python.md", "uvx", PACKAGE),
    other("docs/agents.md", "ANTHROPIC_BASE_URL=", AGENT),
    other("docs/agents.md", "GRISTMILL_KEY=none codex", AGENT),
    other("docs/agents.md", "opencode run", AGENT),
    other("docs/agents.md", "cn --config", "takes Continue's program; the guide says with which version it was tried"),
    other("docs/team.md", "useradd", ROOT),
    other("docs/team.md", "install -", ROOT),
    other("docs/team.md", "for person in", ROOT),
    other("docs/team.md", "chgrp", ROOT),
    other("docs/team.md", "runuser", ROOT),
    other("docs/team.md", "system", "takes systemd"),
    other("docs/team.md", "curl --fail http://127.0.0.1:8080/health", "asks the server that systemd started"),
    other("docs/team.md", "caddy", "takes Caddy"),
    other("docs/team.md", "pip install", DYNAMO),
    other("docs/team.md", "python3 scripts/replicas/tokenizer.py", DYNAMO),
    other("docs/team.md", "gristmill serve --name stories", DYNAMO),
    other("docs/team.md", "deploy/dynamo.sh", DYNAMO),
    other("docs/team.md", "curl http://127.0.0.1:8080/v1/completions", DYNAMO),
    other("docs/team.md", "mpirun", "takes two sockets or machines; `cli/tests/cli/ranks.rs` runs two ranks"),
    other("docs/team.md", "promtool", "takes Prometheus"),
];

/// Output lines that depend on the machine, by their prefixes.
pub(super) const OF_THE_MACHINE: [(&str, &str); 1] = [("docs/choose.md", "device: ")];
