//! A copy of the kernels and their op suite, in which mutations are applied and reverted.

use super::cpu_levels;
use super::format_mutations::code;
use super::list::{FORMATS, Feature, Mutation};
use super::rounds::{Sources, failed};
use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Crates that the op suite needs.
const MEMBERS: &[&str] = &["kernels", "cpu", "files", "suite"];

/// Timeout of a run of the suite: a mutated loop can run forever.
const PATIENCE: Duration = Duration::from_secs(240);

/// The outcome of the suite on a mutated tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// A test failed: the mutation was detected.
    Killed,
    /// The suite did not end: the mutation was detected.
    Hung,
    /// All tests passed.
    Survived,
    /// The mutated tree does not compile, so the list is wrong.
    Broken,
    /// The source to be mutated does not occur exactly once, so the list is stale.
    Stale(usize),
    /// The CPU lacks a feature, so nothing runs the source.
    Needs(Feature),
}

impl Outcome {
    pub(super) fn is_noticed(&self) -> bool {
        matches!(self, Outcome::Killed | Outcome::Hung)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Outcome::Killed => "killed",
            Outcome::Hung => "killed (hung)",
            Outcome::Survived => "SURVIVED",
            Outcome::Broken => "DOES NOT COMPILE",
            Outcome::Stale(count) => return f.pad(&format!("STALE (found {count} ×)")),
            Outcome::Needs(feature) => return f.pad(&format!("needs {}", feature.name())),
        };
        f.pad(text)
    }
}

/// The copy.
pub(super) struct ScratchTree {
    tree: PathBuf,
    target: PathBuf,
    /// Output of the last build.
    pub(super) log: PathBuf,
    /// Seed of every run of the suite: a test that passes before a mutation and fails after it fails because of it.
    pub(super) seed: u64,
}

impl ScratchTree {
    /// Copies what the op suite needs: the kernels and the suite.
    pub(super) fn new() -> Result<Self, String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("xtask stands alone")?.to_owned();
        let base = root.join("target/prove");
        let (tree, target, log) = (base.join("tree"), base.join("target"), base.join("build.log"));
        if tree.exists() {
            fs::remove_dir_all(&tree).map_err(|e| format!("cannot clear {}: {e}", tree.display()))?;
        }
        copy(&root.join("Cargo.lock"), &tree.join("Cargo.lock"))?;
        for name in MEMBERS {
            let part = format!("crates/{name}");
            copy(&root.join(&part), &tree.join(part))?;
        }
        let edit = |file: &str, edit: &dyn Fn(&str) -> String| {
            let text = read(&root.join(file))?;
            fs::create_dir_all(tree.join(file).parent().unwrap_or(&tree))
                .map_err(|e| format!("cannot make {file}: {e}"))?;
            write(&tree.join(file), &edit(&text))
        };
        edit("Cargo.toml", &|text| {
            let members = |line: &str| match line.starts_with("members") {
                true => {
                    let members: Vec<String> = MEMBERS.iter().map(|name| format!("\"crates/{name}\"")).collect();
                    format!("members = [{}]\n", members.join(", "))
                }
                false => format!("{line}\n"),
            };
            text.lines().map(members).collect()
        })?;
        let seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_nanos() as u64);
        Ok(Self { tree, target, log, seed })
    }

    /// Why a mutation cannot be tested, if so.
    pub(super) fn obstacle(&self, mutation: &Mutation) -> Result<Option<Outcome>, String> {
        let found = code(&read(&self.file(mutation))?).matches(mutation.find).count();
        let missing = mutation.needs.filter(|feature| !feature.is_here());
        Ok(if found == 1 { missing.map(Outcome::Needs) } else { Some(Outcome::Stale(found)) })
    }

    /// Applies mutations of different files, calls `run`, and reverts the mutations.
    pub(super) fn with<T>(
        &self,
        mutations: &[&Mutation],
        run: impl FnOnce() -> Result<T, String>,
    ) -> Result<T, String> {
        let read_file = |mutation: &&Mutation| Ok((self.file(mutation), read(&self.file(mutation))?));
        let texts = mutations.iter().map(read_file).collect::<Result<Vec<_>, String>>()?;
        for (mutation, (file, text)) in mutations.iter().zip(&texts) {
            write(file, &text.replacen(mutation.find, mutation.replace, 1))?;
        }
        let outcome = run();
        texts.iter().try_for_each(|(file, text)| write(file, text))?;
        outcome
    }

    fn file(&self, mutation: &Mutation) -> PathBuf {
        self.tree.join("crates").join(mutation.file)
    }

    /// The sources of formats.
    pub(super) fn formats(&self) -> Result<Sources, String> {
        format_sources(&self.tree.join("crates"))
    }

    /// The formats, in lower case, whose products fail on at least one level of the CPU. `None` if the tree does not compile, or
    /// if the test does not end in time.
    pub(super) fn failing_formats(&self) -> Result<Option<BTreeSet<String>>, String> {
        let log = self.log.with_file_name("formats.log");
        let output = File::create(&log).map_err(|e| format!("cannot write {}: {e}", log.display()))?;
        let args = ["--ignored", "--nocapture", "--exact", "products_of_each_format"];
        let outcome = self.run_test(["gristmill-cpu", "levels"], &args.map(str::to_owned), output.into())?;
        Ok(if outcome == Outcome::Survived { Some(failed(&read(&log)?)) } else { None })
    }

    /// Builds and runs these parts of the suite, on every CPU level.
    pub(super) fn run(&self, parts: &[&str]) -> Result<Outcome, String> {
        let (formats, parts): (Vec<&str>, Vec<&str>) = parts.iter().copied().partition(|part| *part == FORMATS);
        let of_levels = |part| cpu_levels::names().map(move |level| format!("{level}::{part}"));
        let names = parts.iter().flat_map(of_levels).collect::<Vec<_>>();
        let mut outcome = Outcome::Survived;
        if !formats.is_empty() {
            outcome = self.run_test(["gristmill-kernels", FORMATS], &[], Stdio::null())?;
        }
        if !names.is_empty() && outcome == Outcome::Survived {
            let args: Vec<String> = ["--exact".to_owned()].into_iter().chain(names).collect();
            outcome = self.run_test(["gristmill-cpu", "levels"], &args, Stdio::null())?;
        }
        Ok(outcome)
    }

    /// Builds a test of a package, and runs it with these arguments.
    fn run_test(&self, test: [&str; 2], args: &[String], output: Stdio) -> Result<Outcome, String> {
        let Some(program) = self.build(test)? else { return Ok(Outcome::Broken) };
        let mut command = Command::new(program);
        command.current_dir(&self.tree).args(args).env("SUITE_SEED", self.seed.to_string());
        command.stdout(output).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|e| format!("cannot run the suite: {e}"))?;
        let start = Instant::now();
        loop {
            match child.try_wait().map_err(|e| format!("cannot wait for the suite: {e}"))? {
                Some(status) if status.success() => return Ok(Outcome::Survived),
                Some(_) => return Ok(Outcome::Killed),
                None if start.elapsed() > PATIENCE => {
                    child.kill().and_then(|()| child.wait()).map_err(|e| format!("cannot stop the suite: {e}"))?;
                    return Ok(Outcome::Hung);
                }
                None => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    /// Compiles a test of a package. `None` if the tree does not compile.
    fn build(&self, [package, test]: [&str; 2]) -> Result<Option<PathBuf>, String> {
        let output = Command::new(env!("CARGO"))
            .args(["test", "--quiet", "-p", package, "--test", test, "--no-run"])
            .args(["--message-format", "json", "--config", "profile.dev.package.gristmill-kernels.opt-level=1"])
            .args(["--config", "profile.dev.package.gristmill-cpu.opt-level=1"])
            .args(["--config", "profile.dev.debug=false"])
            .env("CARGO_TARGET_DIR", &self.target)
            // A mutation changes one line: 3 to 20 s instead of 33 to 44 s.
            .env("CARGO_INCREMENTAL", "1")
            .current_dir(&self.tree)
            .output()
            .map_err(|e| format!("cannot run cargo: {e}"))?;
        write(&self.log, &String::from_utf8_lossy(&output.stderr))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let marker = "\"executable\":\"";
        let name = format!("\"name\":\"{test}\"");
        let path = text.lines().filter(|line| line.contains(&name)).find_map(|line| {
            let (_, rest) = line.split_once(marker)?;
            Some(PathBuf::from(rest.split_once('"')?.0))
        });
        Ok(path.filter(|_| output.status.success()))
    }
}

/// The sources of formats in a folder of crates.
pub(super) fn format_sources(crates: &Path) -> Result<Sources, String> {
    let folder = crates.join("kernels/src/format");
    let failed = |error| format!("cannot list {}: {error}", folder.display());
    let mut sources = Sources::new();
    for entry in fs::read_dir(&folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let file = entry.path().join("mod.rs");
        if file.exists() {
            sources.insert(entry.file_name().to_string_lossy().into_owned(), read(&file)?);
        }
    }
    Ok(sources)
}

fn read(file: &Path) -> Result<String, String> {
    fs::read_to_string(file).map_err(|e| format!("cannot read {}: {e}", file.display()))
}

fn write(file: &Path, text: &str) -> Result<(), String> {
    fs::write(file, text).map_err(|e| format!("cannot write {}: {e}", file.display()))
}

/// Copies a file or a folder.
fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("cannot copy {}: {e}", from.display());
    if from.is_dir() {
        fs::create_dir_all(to).map_err(failed)?;
        for entry in fs::read_dir(from).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            copy(&from.join(&name), &to.join(&name))?;
        }
        return Ok(());
    }
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    fs::copy(from, to).map(|_| ()).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::MEMBERS;
    use crate::root;
    use std::collections::BTreeSet;
    use std::fs;

    /// The copy has all crates that its crates need, and no other.
    #[test]
    fn the_copy_is_complete() {
        let manifest = |name: &str| fs::read_to_string(root().join("crates").join(name).join("Cargo.toml"));
        let manifests: String = MEMBERS.iter().map(|name| manifest(name).expect("a manifest")).collect();
        let needed = manifests.lines().filter_map(|line| line.strip_prefix("gristmill-")?.split('.').next());
        let needed: BTreeSet<&str> = needed.chain(["cpu"]).collect();
        assert_eq!(needed, MEMBERS.iter().copied().collect());
    }
}
