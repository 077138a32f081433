//! `check`: all tests, or the tests that need no C++ compiler.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::{imports, model, programs, root, sh};

/// The compilers that the GPU simulator tries, in this order (`crates/gpu-sim/src/compile.rs`).
const COMPILERS: &[&str] = &["c++", "g++", "clang++"];

const NEEDED: &str = "the tests of GPU kernels need a C++ compiler";

/// Package managers, each with its command to install a C++ compiler.
const INSTALLERS: [(&str, &str); 5] = [
    ("apt-get", "sudo apt-get install -y g++"),
    ("dnf", "sudo dnf install -y gcc-c++"),
    ("pacman", "sudo pacman -S --noconfirm gcc"),
    ("apk", "sudo apk add g++"),
    ("xcode-select", "xcode-select --install"),
];

/// Tests that run kernels in the simulator, which compiles them as C++.
struct Simulated {
    package: &'static str,
    /// Test targets of the conformance crate.
    targets: &'static [&'static str],
    /// A part of the names of tests in its other targets, and in packages with tests on simulated and real devices.
    tests: &'static str,
}

const SIMULATED: Simulated = Simulated {
    package: "gpu-sim",
    targets: &["address_spaces", "checked", "device_memory", "large", "planted"],
    tests: "simulated",
};

const CONFORMANCE: &str = "gristmill-conformance";

/// Packages with some tests on simulated devices: the op suites of GPUs, which also run on real ones, and folders.
const MIXED: [&str; 3] = ["gristmill-cuda", "gristmill-metal", "gristmill-convert"];

/// Downloads the model, so that no test is skipped without it, and runs the workspace's tests. `--no-simulator` skips the tests
/// that need a C++ compiler.
pub(crate) fn check(words: &[&str]) -> Result<(), String> {
    let simulator = match words {
        [] => true,
        ["--no-simulator"] => false,
        [other, ..] => return Err(format!("check: unknown option {other}; see cargo xtask")),
    };
    imports::imports(&[])?;
    let found = COMPILERS.iter().find(|name| answers(name));
    println!("{NEEDED}: {}", found.map_or("none is found".to_owned(), |name| format!("{name} is found")));
    if simulator && found.is_none() {
        install()?;
    }
    model::fetch()
        .map_err(|error| format!("{error}\n`cargo test --workspace` runs the tests that need no real model"))?;
    if simulator {
        return programs::run();
    }
    let outcomes = without_simulator(&targets()?).map(|arguments| {
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        sh("cargo", &words)
    });
    println!("{}", skipped());
    let failed: Vec<String> = outcomes.into_iter().filter_map(Result::err).collect();
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}

/// Installs a C++ compiler if possible: as root on Debian and its derivatives.
fn install() -> Result<(), String> {
    let is_root = Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout.trim_ascii() == b"0");
    if !is_root || !answers("apt-get") {
        let line = INSTALLERS.iter().find(|(manager, _)| answers(manager)).map(|(_, line)| *line);
        let line = line.map_or("install g++ or clang".to_owned(), |line| format!("install one with `{line}`"));
        return Err(format!("{NEEDED}: {line}, or run all other tests: `cargo xtask check --no-simulator`"));
    }
    println!("installing g++: apt-get update, apt-get install g++");
    sh("apt-get", &["update", "-qq"])?;
    sh("apt-get", &["install", "-y", "-qq", "--no-install-recommends", "g++"])
}

fn answers(compiler: &str) -> bool {
    Command::new(compiler).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// The test targets of the conformance crate: files, and folders with a `main.rs`.
fn targets() -> Result<Vec<String>, String> {
    let folder = root().join("crates/conformance/tests");
    let failed = |error| format!("cannot list {}: {error}", folder.display());
    let mut targets = Vec::new();
    for entry in fs::read_dir(&folder).map_err(failed)? {
        targets.extend(target(&entry.map_err(failed)?.path()));
    }
    targets.sort();
    Ok(targets)
}

fn target(path: &Path) -> Option<String> {
    let is_target = path.extension().is_some_and(|end| end == "rs") || path.join("main.rs").is_file();
    is_target.then(|| path.file_stem().map(|name| name.to_string_lossy().into_owned())).flatten()
}

/// The arguments of cargo for all tests that need no simulator: of the packages with some that do, of the conformance crate, and of
/// the other packages.
fn without_simulator(targets: &[String]) -> [Vec<String>; 3] {
    let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let mut others = owned(&["test", "--workspace", "--no-fail-fast"]);
    for package in MIXED.into_iter().chain([SIMULATED.package, CONFORMANCE]) {
        others.extend(["--exclude".to_owned(), package.to_owned()]);
    }
    let [cuda, metal, convert] = MIXED;
    let mixed = ["test", "--no-fail-fast", "-p", cuda, "-p", metal, "-p", convert, "--", "--skip", SIMULATED.tests];
    let mut conformance = owned(&["test", "--package", CONFORMANCE, "--no-fail-fast", "--lib"]);
    for target in targets.iter().filter(|target| !SIMULATED.targets.contains(&target.as_str())) {
        conformance.extend(["--test".to_owned(), target.clone()]);
    }
    conformance.extend(["--", "--skip", SIMULATED.tests].map(str::to_owned));
    [owned(&mixed), conformance, others]
}

/// Describes the tests that `--no-simulator` skips, in one sentence.
fn skipped() -> String {
    let Simulated { package, targets, tests } = SIMULATED;
    format!(
        "SKIPPED, because they need a C++ compiler: all tests of {package}; of {CONFORMANCE} the targets {}, and the \
         tests whose names contain {tests}, also of {}",
        targets.join(", "),
        MIXED.join(" and ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(target: &str) -> String {
        let folder = root().join("crates/conformance/tests");
        let files = [folder.join(format!("{target}.rs")), folder.join(target).join("main.rs")];
        files.iter().find_map(|file| fs::read_to_string(file).ok()).expect("a target")
    }

    /// The list is complete: it contains every test that names the simulator, and no other test.
    #[test]
    fn what_needs_the_simulator_is_listed() {
        let targets = targets().expect("the folder is there");
        for listed in SIMULATED.targets {
            assert!(targets.iter().any(|target| target == listed), "there is no target {listed}");
        }
        let others = || targets.iter().filter(|target| !SIMULATED.targets.contains(&target.as_str()));
        assert!(others().any(|target| text(target).contains(SIMULATED.tests)), "no test is called {}", SIMULATED.tests);
        for target in others() {
            let text = text(target);
            let listed = text.contains(SIMULATED.tests);
            assert!(listed || !text.contains("Simulator::"), "{target} uses the simulator");
        }
    }

    #[test]
    fn all_other_tests_run() {
        let targets = ["steps", "checked", "models"].map(String::from);
        let [mixed, conformance, others] = without_simulator(&targets).map(|words| words.join(" "));
        assert!(
            others.ends_with("--exclude gristmill-convert --exclude gpu-sim --exclude gristmill-conformance"),
            "{others}"
        );
        assert!(mixed.ends_with("-p gristmill-metal -p gristmill-convert -- --skip simulated"), "{mixed}");
        assert!(conformance.ends_with(" --test steps --test models -- --skip simulated"), "{conformance}");
        assert!(!conformance.contains("checked"));
        assert!(skipped().contains("gpu-sim") && skipped().contains("checked"), "{}", skipped());
    }

    #[test]
    fn options_are_checked() {
        assert!(check(&["--no-simulators"]).is_err_and(|error| error.contains("--no-simulators")));
        assert!(
            INSTALLERS.iter().any(|(manager, line)| *manager == "apt-get" && line.ends_with("apt-get install -y g++"))
        );
        assert!(!answers("no-such-compiler"));
    }
}
