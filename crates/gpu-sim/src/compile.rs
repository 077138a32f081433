//! From a kernel's text to a shared library, by the system's C++ compiler, through a cache on disk.

use crate::Source;
use crate::error::{Error, Result};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

const COMPILERS: &[&str] = &["c++", "g++", "clang++"];

/// What precedes every text, and its names in the compiler's messages.
const PRELUDE: [(&str, &str); 3] = [
    ("gpu-sim/sim.h", include_str!("../include/sim.h")),
    ("gpu-sim/cuda.h", include_str!("../include/cuda.h")),
    ("gpu-sim/cuda_math.h", include_str!("../include/cuda_math.h")),
];

/// Floats as on the device: each operation rounds once, whatever the optimiser does. Texts read memory through
/// pointers of other types, as CUDA's own compiler lets them. Locals begin with a pattern that no kernel counts on.
const FLAGS: &[&str] = &[
    "-std=c++17",
    "-O2",
    "-fPIC",
    "-shared",
    "-fwrapv",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-strict-aliasing",
    "-ftrivial-auto-var-init=pattern",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-threadsafe-statics",
    "-fno-stack-protector",
    "-fcf-protection=none",
    "-fvisibility=hidden",
    // A fibre's stack has 256 KiB.
    "-Wframe-larger-than=131072",
    "-w",
];

/// The compiler's name, and what it says of its version.
fn compiler() -> Result<&'static (&'static str, String)> {
    static FOUND: OnceLock<Option<(&'static str, String)>> = OnceLock::new();
    let find = || {
        COMPILERS.iter().find_map(|name| {
            let output = Command::new(name).arg("--version").output().ok().filter(|output| output.status.success())?;
            Some((*name, String::from_utf8_lossy(&output.stdout).into_owned()))
        })
    };
    FOUND.get_or_init(find).as_ref().ok_or(Error::NoCompiler { tried: COMPILERS })
}

/// Instructions that this machine has beyond the least of x86-64.
fn machine_flags() -> &'static [&'static str] {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("popcnt")
    {
        return &["-mavx2", "-mfma", "-mf16c", "-mbmi2", "-mpopcnt"];
    }
    &[]
}

/// The library of a text: from the cache, or compiled into it.
pub(crate) fn library(source: &Source, cache: &Path) -> Result<PathBuf> {
    let (compiler, version) = compiler()?;
    let mut text = String::new();
    for (name, prelude) in PRELUDE {
        let _ = writeln!(text, "#line 1 \"{name}\"\n{prelude}");
    }
    let _ = writeln!(text, "#line 1 \"{}\"\n{}", source.name, source.text);
    let mut flags: Vec<String> = FLAGS.iter().chain(machine_flags()).map(|flag| (*flag).to_owned()).collect();
    flags.extend(source.defines.iter().map(|(name, value)| format!("-D{name}={value}")));

    let mut hash = Sha256::new();
    for part in [compiler, version.as_str(), &text].into_iter().chain(flags.iter().map(String::as_str)) {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let key = hash.finalize().iter().fold(String::new(), |key, byte| key + &format!("{byte:02x}"));
    let path = cache.join(format!("{key}.so"));

    // Threads that want the same text wait for the one that compiles it. Other processes may compile it too.
    static COMPILING: Mutex<Option<HashMap<PathBuf, Arc<Mutex<()>>>>> = Mutex::new(None);
    let turn = {
        let mut compiling = COMPILING.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(compiling.get_or_insert_default().entry(path.clone()).or_default())
    };
    let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
    if !path.exists() {
        compile(compiler, &flags, source, &text, &path)?;
    }
    Ok(path)
}

fn compile(compiler: &str, flags: &[String], source: &Source, text: &str, path: &Path) -> Result<()> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| Error::Cache { path, source }
    };
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(failed(folder))?;
    // Files of other processes that do the same have other names; the last rename wins, with the same content.
    let (from, to) = (
        path.with_extension(format!("{}.cpp", std::process::id())),
        path.with_extension(format!("{}", std::process::id())),
    );
    std::fs::write(&from, text).map_err(failed(&from))?;
    let output = Command::new(compiler).args(flags).arg(&from).arg("-o").arg(&to).output().map_err(failed(&to))?;
    let _ = std::fs::remove_file(&from);
    if !output.status.success() {
        let _ = std::fs::remove_file(&to);
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(Error::Compile { name: source.name.to_owned(), log });
    }
    std::fs::rename(&to, path).map_err(failed(path))
}
