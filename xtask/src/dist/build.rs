//! Builds the program and the C library for a target: cargo, with zig as the linker.
//!
//! # Two builds have the same bytes
//!
//! The compiler writes paths of sources into a program, for messages of panics. `--remap-path-prefix` replaces the folder of
//! the checkout and the folder of the registry's crates, whose name is of the registry's host.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::product::Release;
use super::targets::{System, Target};
use super::{run_with, sums, tools};
use crate::root;

/// A target that was built, and the folder of its files.
#[derive(Debug)]
pub(super) struct Built {
    pub(super) target: Target,
    pub(super) folder: PathBuf,
}

impl Built {
    pub(super) fn new(target: Target) -> Built {
        let folder = folder(target).join(target.triple).join("release");
        Built { target, folder }
    }

    pub(super) fn program(&self) -> PathBuf {
        self.folder.join(self.target.program())
    }

    /// Whether this machine runs the program.
    pub(super) fn runs_here(&self) -> bool {
        self.target.uname.1 == env::consts::ARCH && self.target.uname.0.eq_ignore_ascii_case(env::consts::OS)
    }
}

/// The folder of cargo. Two compilers would compile in one folder again what the other has compiled.
fn folder(target: Target) -> PathBuf {
    root().join("target/dist").join(if has_library(target) { "build" } else { "build-unpacked" })
}

/// Builds a target.
pub(super) fn build(release: &Release, target: Target) -> Result<Built, String> {
    if !has_library(target) && !unpacked().join("bin/rustc").is_file() {
        super::run("scripts/cross.sh", &["unpack"])?;
    }
    let environment = environment(release, target)?;
    let environment: Vec<(&str, &str)> =
        environment.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let zig = target.zig();
    let common = ["--release", "--locked", "--target", &zig];
    let standard: &[&str] = if is_library_built(target) { &["-Zbuild-std=std,panic_unwind"] } else { &[] };
    let program =
        [&["auditable", "zigbuild"], &common[..], &["-p", "gristmill", "--bin", "gristmill"], standard].concat();
    run_with(&environment, "cargo", &program)?;
    // `rustc` builds both kinds, of which the manifest has one.
    let kinds = ["-p", "gristmill-c", "--lib", "--crate-type", "cdylib,staticlib"];
    run_with(&environment, "cargo-zigbuild", &[&["rustc"], &common[..], &kinds, standard].concat())?;
    Ok(Built::new(target))
}

/// The environment of a build. The same sources give the same bytes with it.
pub(super) fn environment(release: &Release, target: Target) -> Result<Vec<(String, String)>, String> {
    let folder = folder(target);
    let zig = folder.with_file_name("zig").display().to_string();
    let mut environment = vec![
        ("CARGO_ENCODED_RUSTFLAGS".to_owned(), all_flags(target)?.join("\u{1f}")),
        ("CARGO_INCREMENTAL".to_owned(), "0".to_owned()),
        ("CARGO_TARGET_DIR".to_owned(), folder.display().to_string()),
        // The linker is a script there. Cargo compiles everything again if its path is another one.
        ("CARGO_ZIGBUILD_CACHE_DIR".to_owned(), zig.clone()),
        ("PATH".to_owned(), tools::path()),
        ("SOURCE_DATE_EPOCH".to_owned(), release.time.to_string()),
        ("ZIG_GLOBAL_CACHE_DIR".to_owned(), zig.clone()),
        ("ZIG_LOCAL_CACHE_DIR".to_owned(), zig),
    ];
    if !has_library(target) {
        // `scripts/cross.sh unpack` has unpacked a compiler with the library for Arm, and with its source.
        let compiler = unpacked();
        environment.push(("RUSTC".to_owned(), compiler.join("bin/rustc").display().to_string()));
        let libraries = compiler.join("lib/x86_64-linux-gnu");
        environment.push(("LD_LIBRARY_PATH".to_owned(), libraries.display().to_string()));
        if is_library_built(target) {
            environment.push(("RUSTC_BOOTSTRAP".to_owned(), "1".to_owned()));
        }
    }
    Ok(environment)
}

/// The flags of the compiler for a target.
fn all_flags(target: Target) -> Result<Vec<String>, String> {
    let mut flags: Vec<String> = flags(root(), &registry()?).into();
    if target.system == System::Windows && !has_library(target) {
        // Debian's compiler names libraries of MinGW's stack protector, which zig lacks and nothing uses.
        let folder = folder(target).with_file_name("ssp");
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        for name in ["libssp.a", "libssp_nonshared.a"] {
            sums::write(&folder.join(name), "!<arch>\n")?;
        }
        flags.push(format!("-Lnative={}", folder.display()));
    }
    Ok(flags)
}

/// The flags of the compiler for a checkout and the sources of the registry.
fn flags(checkout: &Path, registry: &Path) -> [String; 2] {
    [(checkout, "/gristmill"), (registry, "/crates")]
        .map(|(folder, instead)| format!("--remap-path-prefix={}={instead}", folder.display()))
}

/// The folder of the sources of dependencies.
fn registry() -> Result<PathBuf, String> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| env::home_dir().map(|home| home.join(".cargo"))).ok_or("HOME is not set")?;
    let sources = home.join("registry/src");
    let mut folders: Vec<PathBuf> =
        sources.read_dir().into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    folders.retain(|folder| folder.is_dir());
    match &folders[..] {
        [folder] => Ok(folder.clone()),
        _ => Err(format!(
            "{}: must have one folder, of one registry (found {}); set CARGO_HOME to an empty folder",
            sources.display(),
            folders.len()
        )),
    }
}

/// The folder of the compiler for targets whose standard library the installed compiler lacks.
fn unpacked() -> PathBuf {
    root().join("target/unpacked/root/usr")
}

/// Whether no compiler has the standard library of the target, so that it is compiled from source.
fn is_library_built(target: Target) -> bool {
    !has_library(target) && !unpacked().join("lib/rustlib").join(target.triple).is_dir()
}

/// Whether the installed compiler has the standard library of the target.
fn has_library(target: Target) -> bool {
    let output = Command::new("rustc").args(["--print", "sysroot"]).output();
    let sysroot = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
    Path::new(&sysroot).join("lib/rustlib").join(target.triple).join("lib").is_dir()
}
