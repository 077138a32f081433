//! The parts of the proofs, with what each depends on.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::guides::GUIDES;
use super::ledger::Part;
use super::list::{MUTATIONS, Mutation};
use crate::root;

/// Folders of kernel sources.
const KERNELS: [&str; 3] = ["crates/gpu/src/kernels", "crates/cuda/src/kernels", "crates/metal/src/kernels"];
/// Names of sources of the simulator.
const SIMULATED: [&str; 2] = ["ptx.cuh", "hopper.cuh"];

/// Proofs of one part, with what they depend on.
const WHOLE: [(&str, &[&str]); 13] = [
    (
        "checked",
        &[
            "crates/kernels",
            "crates/gpu",
            "crates/cuda",
            "crates/metal",
            "crates/suite",
            "crates/gpu-sim",
            "crates/model/src",
            "crates/conformance/golden",
            "crates/conformance/tests/checked.rs",
            "crates/conformance/tests/company",
            "crates/conformance/tests/large.rs",
            "crates/conformance/tests/models.rs",
            "crates/conformance/tests/smollm2.rs",
            "crates/cpu",
        ],
    ),
    (
        "clients",
        &[
            "crates/server",
            "crates/engine/src/engine",
            "crates/text/src",
            "crates/cli/src/serve.rs",
            "scripts/clients",
            "xtask/src/prove/clients.rs",
        ],
    ),
    (
        "elsewhere",
        &["crates/kernels", "crates/cpu", "crates/suite", "crates/conformance/golden", "scripts/elsewhere.sh"],
    ),
    // And the guides themselves.
    ("guides", &["crates/cli/src", "crates/hub/src", "crates/server/src", "xtask/src/prove/guides"]),
    ("hub", &["crates/hub", "crates/cli/src/hub", "scripts/hub", "xtask/src/prove/hub.rs"]),
    (
        "kernels",
        &["crates/kernels/src/format", "crates/gpu/src", "crates/cuda/src", "crates/conformance/examples/kernels.rs"],
    ),
    (
        "page",
        &[
            "crates/server/page",
            "crates/server/src",
            "crates/cli/src/serve.rs",
            "scripts/page",
            "xtask/src/prove/browser.rs",
        ],
    ),
    (
        "publish",
        &[
            "Cargo.toml",
            "crates/kernels/Cargo.toml",
            "crates/cpu/Cargo.toml",
            "crates/gpu/Cargo.toml",
            "crates/cuda/Cargo.toml",
            "crates/metal/Cargo.toml",
            "crates/files/Cargo.toml",
            "crates/hub/Cargo.toml",
            "crates/text/Cargo.toml",
            "crates/model/Cargo.toml",
            "crates/engine/Cargo.toml",
            "crates/convert/Cargo.toml",
            "crates/server/Cargo.toml",
            "crates/suite/Cargo.toml",
            "crates/cli/Cargo.toml",
            "crates/cli/model",
            "crates/engine/src/lib.rs",
            "xtask/src/prove/publish.rs",
        ],
    ),
    (
        "replicas",
        &[
            "crates/server/src",
            "crates/engine/src/engine",
            "crates/cli/src/serve.rs",
            "crates/cli/src/serve",
            "crates/cli/model",
            "deploy/nginx.conf",
            "deploy/haproxy.cfg",
            "deploy/vllm-router.sh",
            "deploy/sglang-router.sh",
            "deploy/dynamo.sh",
            "deploy/dynamo_worker.py",
            "scripts/replicas",
            "xtask/src/prove/replicas.rs",
        ],
    ),
    (
        "seeds",
        &[
            "crates/kernels",
            "crates/cpu",
            "crates/gpu",
            "crates/cuda",
            "crates/metal",
            "crates/suite",
            "crates/gpu-sim",
            "xtask/src/prove/seeds.rs",
        ],
    ),
    (
        "settings",
        &[
            "crates/convert/src/classes.json",
            "crates/convert/src/config.rs",
            "crates/convert/src/keys.rs",
            "crates/convert/src/rope.rs",
            "crates/model/src",
            "crates/conformance/golden/convert",
            "crates/conformance/examples/settings.rs",
            "scripts/settings",
            "xtask/src/prove/settings.rs",
        ],
    ),
    ("synthetic", &["crates/cli/src/synthetic", "crates/files", "xtask/src/prove/synthetic.rs"]),
    (
        "templates",
        &[
            "crates/text/src/template.rs",
            "crates/text/src/template",
            "crates/text/src/clock.rs",
            "crates/text/examples/render.rs",
            "scripts/templates",
            "xtask/src/prove/templates.rs",
        ],
    ),
];

/// All parts of all proofs.
pub(super) fn all() -> Result<Vec<Part>, String> {
    let sources = |list: &[&str]| list.iter().map(|&source| source.to_owned()).collect();
    let whole = |&(proof, list): &(&'static str, &[&str])| {
        let pages: &[&str] = if proof == "guides" { &GUIDES } else { &[] };
        Part { proof, key: String::new(), sources: sources(&[list, pages].concat()), excerpt: String::new() }
    };
    Ok(mutations().into_iter().chain(barriers()?).chain(WHOLE.iter().map(whole)).collect())
}

/// A part for each operation: whether its mutations are detected depends on the files that they change and on the op
/// suite.
fn mutations() -> Vec<Part> {
    let ops: BTreeSet<&str> = MUTATIONS.iter().map(|mutation| mutation.op).collect();
    let part = |op: &str| {
        let of_op: Vec<&Mutation> = MUTATIONS.iter().filter(|mutation| mutation.op == op).collect();
        let files: BTreeSet<String> = of_op.iter().map(|mutation| format!("crates/{}", mutation.file)).collect();
        let sources = files.into_iter().chain(["crates/suite/src".to_owned()]).collect();
        let excerpt = of_op.iter().map(|m| format!("{:?} {} {}\n", m.parts, m.find, m.replace)).collect();
        Part { proof: "mutations", key: op.to_owned(), sources, excerpt }
    };
    ops.into_iter().map(part).collect()
}

/// A part for each kernel source: its barriers depend on what it includes, on the op suite and on the simulator.
fn barriers() -> Result<Vec<Part>, String> {
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    for folder in KERNELS {
        let failed = |error| format!("cannot list {folder}: {error}");
        for entry in fs::read_dir(root().join(folder)).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
            files.insert(name.clone(), format!("{folder}/{name}"));
        }
    }
    SIMULATED.iter().for_each(|name| drop(files.remove(*name)));
    let mut parts = Vec::new();
    for name in files.keys() {
        let mut sources = with_includes(name, &files)?;
        sources.extend(["crates/suite/src", "crates/gpu-sim/src", "crates/gpu-sim/include"].map(str::to_owned));
        sources.push("crates/conformance/src/broken".to_owned());
        parts.push(Part { proof: "barriers", key: name.clone(), sources, excerpt: String::new() });
    }
    Ok(parts)
}

/// The paths of a kernel source and of all sources that it includes.
fn with_includes(name: &str, files: &BTreeMap<String, String>) -> Result<Vec<String>, String> {
    let (mut found, mut names) = (BTreeSet::new(), vec![name.to_owned()]);
    while let Some(name) = names.pop() {
        let Some(path) = files.get(&name).filter(|path| found.insert((*path).clone())) else { continue };
        let text = fs::read_to_string(root().join(path)).map_err(|error| format!("cannot read {path}: {error}"))?;
        let included = |line: &str| Some(line.trim().strip_prefix("#include \"")?.trim_end_matches('"').to_owned());
        names.extend(text.lines().filter_map(included));
    }
    Ok(found.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_a_part_depends_on_is_there() {
        let parts = all().expect("the folders are there");
        for part in &parts {
            let missing = part.sources.iter().find(|source| !root().join(source).exists());
            assert_eq!(missing, None, "{part:?}");
        }
        let names: BTreeSet<String> = parts.iter().map(Part::name).collect();
        assert_eq!(names.len(), parts.len(), "two parts have one name");
        for name in ["mutations route", "barriers gemm.cu", "checked"] {
            assert!(names.contains(name), "{name}");
        }
    }

    #[test]
    fn a_kernel_depends_on_what_it_includes() {
        let parts = barriers().expect("the folders are there");
        let gemm = parts.iter().find(|part| part.key == "gemm.cu").expect("it is there");
        for path in ["crates/cuda/src/kernels/gemm.cu", "crates/cuda/src/kernels/gemm.cuh"] {
            assert!(gemm.sources.iter().any(|source| source == path), "{gemm:?}");
        }
        assert!(!gemm.sources.iter().any(|source| source.ends_with("sample.h")), "{gemm:?}");
    }
}
