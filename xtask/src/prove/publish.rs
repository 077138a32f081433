//! `prove publish`: packages all published crates, and builds an application from the packages.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use super::date::date_and_commit;
use super::report;
use crate::root;

/// Crates that are not published.
const UNPUBLISHED: [&str; 5] = ["gpu-sim", "gristmill-c", "gristmill-conformance", "gristmill-python", "xtask"];
/// Maximum bytes of a package; the registry refuses larger packages.
const MOST_BYTES: u64 = 10_000_000;
/// Files that each package must have.
const FILES: [&str; 4] = ["Cargo.toml", "README.md", "LICENSE-MIT", "LICENSE-APACHE"];
/// Lines of a manifest that each package must have.
const FIELDS: [&str; 5] = ["description", "license", "keywords", "categories", "readme"];
/// Lines of the manifest of each library; docs.rs does not build programs.
const OF_LIBRARIES: [&str; 2] = ["documentation = ", "[package.metadata.docs.rs]"];

/// The application: it names items of each library, and depends on versions of llguidance and minijinja of its own.
const APPLICATION: &str = r#"
use gristmill_engine::kernels::{Error, act::Act, ops, tensor::ViewMut, weight::{TensorView, Weight}};
use gristmill_engine::{Backend, DeviceId, Engine, Limits, LoadOptions, Model, Request};

pub fn answer(prompt: &str) -> Result<String, Box<dyn std::error::Error>> {
    let model = Model::open("model.gguf", LoadOptions::default())?;
    let engine = Engine::start(model.into(), Limits::default())?;
    let pieces = engine.generate(Request::new(prompt))?;
    pieces.map(|piece| Ok(piece?.text)).collect()
}

pub fn kernels(backend: &Backend, tensor: TensorView) -> Result<DeviceId, Error> {
    backend.prepare(&[tensor], gristmill_engine::kernels::weight::Role::Matrix)?;
    let _ = ops::Routing::softmax(8, true);
    Ok(backend.device())
}

pub fn product(backend: &Backend, weight: &Weight, x: &Act, y: ViewMut<f32>) -> Result<(), Error> {
    backend.run(ops::Matmul::new(weight, x, y).epilogue(ops::Epilogue::Add { scale: 1.0 }))
}

pub fn cuda() -> Result<Backend, Error> {
    gristmill_cuda::CudaDevice::open(0)?.backend(gristmill_cuda::Options::default())
}

pub fn chat(json: &str) -> serde_json::Result<gristmill_engine::Chat> {
    serde_json::from_str(json)
}
"#;

/// Packages the crates, builds the application from the packages, and writes the report.
pub(super) fn publish(words: &[&str]) -> Result<(), String> {
    report::no_options("publish", words)?;
    let folder = root().join("target/prove/publish");
    let packages = package(&folder)?;
    let mut rows = String::new();
    for package in &packages {
        let bytes = fs::metadata(package).map_err(|error| failed(package, &error))?.len();
        let unpacked = unpack(package)?;
        check(&unpacked, bytes)?;
        let name = unpacked.file_name().unwrap_or_default().to_string_lossy().into_owned();
        writeln!(rows, "| {name} | {bytes} |").map_err(|error| error.to_string())?;
    }
    let start = Instant::now();
    application(&folder, &packages)?;
    let text = format!(
        "# Packages, {}\n\n`cargo xtask prove publish`: `cargo package` of all published crates, each below {MOST_BYTES} \
         bytes, with README,\nlicences, description, keywords and categories, and libraries with settings of docs.rs. An \
         application that depends on the\nengine, the CUDA backend, minijinja 3 and the newest llguidance type-checks \
         against the unpacked packages ({} s).\n\n| package | bytes |\n| --- | ---: \
         |\n{rows}",
        date_and_commit(),
        start.elapsed().as_secs()
    );
    report::write("publish", &text)
}

fn failed(path: &Path, error: &dyn std::fmt::Display) -> String {
    format!("{}: {error}", path.display())
}

fn run(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|error| format!("{command:?}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?} failed")) }
}

/// The packages, in order of their names.
fn package(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let packages = folder.join("target/package");
    if packages.exists() {
        fs::remove_dir_all(&packages).map_err(|error| failed(&packages, &error))?;
    }
    let mut cargo = Command::new("cargo");
    cargo.current_dir(root()).args(["package", "--quiet", "--workspace", "--no-verify", "--allow-dirty"]);
    for name in UNPUBLISHED {
        cargo.args(["--exclude", name]);
    }
    run(cargo.arg("--target-dir").arg(folder.join("target")))?;
    let entries = fs::read_dir(&packages).map_err(|error| failed(&packages, &error))?;
    let mut found: Vec<PathBuf> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    found.retain(|path| path.extension().is_some_and(|extension| extension == "crate"));
    found.sort();
    if found.is_empty() { Err("cargo package: no packages".to_owned()) } else { Ok(found) }
}

/// Unpacks a package into its folder, and returns the new folder.
fn unpack(package: &Path) -> Result<PathBuf, String> {
    let parent = package.parent().unwrap_or(Path::new("."));
    run(Command::new("tar").arg("xzf").arg(package).arg("-C").arg(parent))?;
    Ok(package.with_extension(""))
}

fn check(unpacked: &Path, bytes: u64) -> Result<(), String> {
    if bytes >= MOST_BYTES {
        return Err(format!("{}: {bytes} bytes; a package has fewer than {MOST_BYTES}", unpacked.display()));
    }
    if let Some(file) = FILES.iter().find(|file| !unpacked.join(file).is_file()) {
        return Err(format!("{}: there is no {file}", unpacked.display()));
    }
    let path = unpacked.join("Cargo.toml");
    let manifest = fs::read_to_string(&path).map_err(|error| failed(&path, &error))?;
    let lines = FIELDS.map(|field| format!("{field} = ")).into_iter();
    let of_library = OF_LIBRARIES.map(str::to_owned).into_iter().filter(|_| unpacked.join("src/lib.rs").is_file());
    let mut missing = lines.chain(of_library).filter(|line| !manifest.lines().any(|found| found.starts_with(line)));
    missing.next().map_or(Ok(()), |line| Err(format!("{}: no {}", path.display(), line.trim_end_matches(" = "))))
}

/// An application in a workspace of its own, whose crates of gristmill are the unpacked packages.
fn application(folder: &Path, packages: &[PathBuf]) -> Result<(), String> {
    let application = folder.join("application");
    let mut manifest = String::new();
    manifest += "[package]\nname = \"application\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
                 [dependencies]\ngristmill-cuda = \"0.1.0\"\ngristmill-engine = \"0.1.0\"\nllguidance = { version = \"1\", \
                 default-features = false }\nminijinja = \"3\"\nserde_json = \"1\"\n\n[patch.crates-io]\n";
    for package in packages {
        let unpacked = package.with_extension("");
        let name = unpacked.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let name = name.rsplit_once('-').map_or(name.as_str(), |(name, _version)| name).to_owned();
        if name != "gristmill" {
            manifest += &format!("{name} = {{ path = \"{}\" }}\n", unpacked.display());
        }
    }
    let source = application.join("src");
    fs::create_dir_all(&source).map_err(|error| failed(&source, &error))?;
    for (path, text) in [(application.join("Cargo.toml"), manifest.as_str()), (source.join("lib.rs"), APPLICATION)] {
        fs::write(&path, text).map_err(|error| failed(&path, &error))?;
    }
    // Without a lock file, so that the newest versions are taken.
    let lock = application.join("Cargo.lock");
    if lock.exists() {
        fs::remove_file(&lock).map_err(|error| failed(&lock, &error))?;
    }
    let mut cargo = Command::new("cargo");
    run(cargo.current_dir(&application).args(["check", "--quiet"]).arg("--target-dir").arg(folder.join("target")))
}
