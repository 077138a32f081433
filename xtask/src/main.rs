//! Development tasks of the repository: `cargo xtask` lists them. One file per subcommand.

#[cfg(test)]
mod architecture;
mod check;
mod dist;
mod imports;
mod model;
#[cfg(test)]
mod mutations_of_ci;
mod programs;
mod prove;
mod release;
mod run;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const USAGE: &str = "\
usage: cargo xtask check [--no-simulator]
           run all tests, including tests with a real model; needs a C++ compiler (g++ or clang) unless --no-simulator
           is given
       cargo xtask run PROMPT [OPTIONS]
           build the program and complete a prompt with SmolLM2; accepts the options of `gristmill run`
       cargo xtask model
           download the model unless it is present, and print its path
       cargo xtask imports [CRATE...]
           print how many modules of each crate import each other in a circle; for given crates, which. A circle that is
           larger than the crate may have is a failure
       cargo xtask kernels [CAPABILITY FORMAT... [FILE...]]
           compile the CUDA kernels with NVRTC, for a default selection of architectures and formats or for the given
           ones; an unknown register spill is a failure
       cargo xtask dist [--target TRIPLE]... [--only ARTIFACT]... [--no-build]
           build the artifacts of a release into target/dist/VERSION: for Linux or these targets, all or only these artifacts.
           --no-build: package what was built. Installs its tools into target/tools, and as root on Debian by apt
       cargo xtask dist list
           print the targets and the artifacts
       cargo xtask dist check
           install each Linux artifact on a bare root of Debian, and run README's first command there; needs root and a
           mirror of Debian
       cargo xtask dist reproduce [--no-build [--only ARTIFACT]...]
           build the artifacts of this machine in two folders; different bytes are a failure. --no-build: only package
           what was built, twice: all or only these artifacts
       cargo xtask release VERSION [--write]
           print what a release would change: versions, the changelog and the citation; --write: change it, commit and tag
       cargo xtask prove [NAME [OPTIONS]]
           run one of the proofs below, or all; each writes its report to target/prove/NAME.md. All take hours
       cargo xtask prove kernels [--source NAME...]
           compile the CUDA kernels for all architectures and formats; --source: only the kernels of these sources
       cargo xtask prove barriers [--source NAME...]
           delete each barrier of the GPU kernels in turn, and plant bugs; --source: only in these sources. A bug that
           the simulator's checked mode does not detect is a failure
       cargo xtask prove checked
           run in the simulator's checked mode: all cases of the op suite, all golden models with the kernels of both
           GPUs, and 70,000 tokens
       cargo xtask prove mutations [--only OP] [--file FILE] [--list]
           apply the known mutations of the CPU kernels to a copy of the tree and run the op suite; a mutation that the
           suite does not detect is a failure
       cargo xtask prove seeds [--rounds N]
           run the op suite N times (default 10) with new inputs; a failure in any round is a failure
       cargo xtask prove synthetic
           write every model of `gristmill bench --synthetic` with four layers, and run it with llama.cpp, which is
           built from source once (10 minutes; needs Python and a C++ compiler); a file that llama.cpp rejects is a
           failure
       cargo xtask prove clients
           run client packages (Python and npm), schemathesis and the JSON-Schema-Test-Suite against `gristmill serve`;
           needs python3, Node.js and a network
       cargo xtask prove page [--docs]
           test the page of `gristmill serve` in headless Chromium, with axe; needs Chromium, Node.js and a network.
           --docs: write the screenshots into docs, instead of target/prove/page
       cargo xtask prove guides [--no-install] [--only GUIDE...]
           run every command of README.md and of the guides in docs as written, with small models instead of large
           ones; needs bash, curl, git, pip, port 8080 and PyPI (93 MB once). --no-install: skip `cargo install`,
           which compiles for minutes
       cargo xtask prove hub
           share a cache between huggingface_hub and gristmill, with a mock of the hub; needs python3 and a network
       cargo xtask prove publish
           package all published crates, check the contents, and type-check an application against them; needs tar and
           a package registry
       cargo xtask prove python
           use the Python package by langchain, llama-index, outlines, instructor, haystack and dspy, unchanged, with a
           small published model; needs python3 with venv, and PyPI (300 MB once)
       cargo xtask prove replicas
           run three replicas with the built-in model behind nginx, HAProxy, vllm-router, sglang-router and Dynamo, with
           the configurations of deploy: one gets SIGTERM, one SIGKILL, clients leave, and conversations look for their
           caches; needs python3 with venv, nginx, haproxy and a package registry
       cargo xtask prove settings
           remove, change or add one setting of each golden folder at a time, and run it with transformers and
           gristmill; different losses, and rejections without a known reason, are failures; needs python3 and a network
       cargo xtask prove templates [--quick]
           render published chat templates and random expressions with jinja2 and gristmill; needs python3 and PyPI
           (80 MB once). --quick: only some conversations, in seconds
       cargo xtask prove cross
           run the whole op suite and the kernels' unit tests on emulated Arm CPUs: scripts/cross.sh all
       cargo xtask prove amx
           run the tests of tiles on an emulated CPU that has AMX: scripts/amx.sh run";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["check", options @ ..] => check::check(options),
        ["run", options @ ..] if !options.is_empty() => run::run(options),
        ["model"] => model::fetch().map(|path| println!("{}", path.display())),
        ["imports", words @ ..] => imports::imports(words),
        ["dist", words @ ..] => dist::dist(words),
        ["release", words @ ..] => release::release(words),
        ["kernels"] => prove::compile_few(),
        ["kernels", options @ ..] => prove::compile_only(options),
        ["prove", words @ ..] => prove::prove(words),
        _ => Err(USAGE.to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

/// Runs an example of the conformance crate, so xtask itself compiles quickly.
fn example(name: &str, arguments: &[&str]) -> Result<(), String> {
    sh(&build("example", name)?.display().to_string(), arguments)
}

/// Builds an example or a program (`kind`: `example` or `bin`), and returns its path. It is built with the whole
/// workspace and its examples: for its package alone, and for programs without what examples depend on, cargo would
/// compile libraries again, with fewer features, for two minutes.
fn build(kind: &str, name: &str) -> Result<PathBuf, String> {
    sh("cargo", &["build", "--quiet", "--workspace", "--examples", &format!("--{kind}"), name])?;
    let this = std::env::current_exe().map_err(|error| format!("where this program is: {error}"))?;
    let folder = if kind == "example" { this.with_file_name("examples") } else { this };
    let file = format!("{name}{}", std::env::consts::EXE_SUFFIX);
    Ok(if kind == "example" { folder.join(file) } else { folder.with_file_name(file) })
}

/// The root of the repository.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// Runs a command in the root of the repository, with its output passed on.
fn sh(program: &str, arguments: &[&str]) -> Result<(), String> {
    let line = format!("{program} {}", arguments.join(" "));
    match Command::new(program).args(arguments).current_dir(root()).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{line}: failed, {status}")),
        Err(error) => Err(format!("{line}: cannot be started: {error}")),
    }
}
