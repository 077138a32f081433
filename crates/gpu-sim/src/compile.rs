//! Compiles a kernel source to a shared library with the system's C++ compiler, through a cache on disk.

use crate::error::{Error, Result};
use crate::msl::{self, Dialect, Translated};
use crate::source::{Language, Mode, Source};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

const COMPILERS: &[&str] = &["c++", "g++", "clang++"];

/// The prelude of every source, with its names in the compiler's messages.
const PRELUDE: [(&str, &str); 3] = [
    ("gpu-sim/sim.h", include_str!("../include/sim.h")),
    ("gpu-sim/check.h", include_str!("../include/check.h")),
    ("gpu-sim/warp.h", include_str!("../include/warp.h")),
];

const CUDA: [(&str, &str); 2] = [
    ("gpu-sim/cuda.h", include_str!("../include/cuda.h")),
    ("gpu-sim/cuda_math.h", include_str!("../include/cuda_math.h")),
];

const METAL: [(&str, &str); 5] = [
    ("gpu-sim/metal_scalars.h", include_str!("../include/metal_scalars.h")),
    ("gpu-sim/metal_types.h", include_str!("../include/metal_types.h")),
    ("gpu-sim/metal_math.h", include_str!("../include/metal_math.h")),
    ("gpu-sim/metal.h", include_str!("../include/metal.h")),
    ("gpu-sim/metal_simd.h", include_str!("../include/metal_simd.h")),
];

/// Floats as on the device: each operation rounds once at any optimisation level. Kernels can read memory through
/// pointers of other types, as in CUDA. Locals are initialised with a pattern that no kernel may rely on.
const FLAGS: &[&str] = &[
    "-std=c++17",
    "-fPIC",
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

/// No vectors of 32 bytes, which nothing here gains from. GCC 13.3, as Ubuntu 24.04 has it, may drop the alignment of
/// the stack to 32 bytes together with that to 16 which the same function needs (seen in `gemv.cu` of Q6_K, where
/// locals start with a pattern: an aligned store to an address that is not).
const FLAGS_GCC: &[&str] = &["-mprefer-vector-width=128", "-mmove-max=128", "-mstore-max=128"];

/// Numbers without a suffix are floats, and each operation on halves rounds.
const METAL_FLAGS: &[&str] = &["-fsingle-precision-constant", "-fexcess-precision=16"];
/// The same for Clang.
const METAL_FLAGS_CLANG: &[&str] = &["-Xclang", "-cl-single-precision-constant", "-ffloat16-excess-precision=none"];

/// Compiling takes more time than running: with GCC, of 20 kernels 8.6 seconds of a core of a Zen 3, 10.9 with the three
/// passes, and 16.9 at -O2, which ran no faster.
const FAST: &[&str] = &["-O1"];
const FAST_GCC: &[&str] = &["-fno-tree-pre", "-fno-ivopts", "-fno-tree-vrp"];

/// The compiler calls a hook before each load and store, which stay where the source has them, and where arithmetic or
/// an address has no meaning. The hooks are our own (`include/check.h`). Debug information tells lines and no
/// variables, whose places took a fifth of the time of compiling.
const CHECKED: &[&str] = &[
    "-O1",
    "-g1",
    "-DGPU_SIM_CHECKED",
    "-fsanitize=thread",
    "-fsanitize=alignment,bounds,shift-exponent,integer-divide-by-zero",
];

/// The compiler's name, and what it says of its version.
pub(crate) fn compiler() -> Result<&'static (&'static str, String)> {
    static FOUND: OnceLock<Option<(&'static str, String)>> = OnceLock::new();
    let found = FOUND.get_or_init(|| first_that_answers(COMPILERS));
    found.as_ref().ok_or(Error::NoCompiler { tried: COMPILERS })
}

/// The first of some compilers that runs, and what it says of its version.
pub(crate) fn first_that_answers(names: &[&'static str]) -> Option<(&'static str, String)> {
    names.iter().find_map(|name| {
        let output = Command::new(name).arg("--version").output().ok().filter(|output| output.status.success())?;
        Some((*name, String::from_utf8_lossy(&output.stdout).into_owned()))
    })
}

/// The cache key of a library: source, compiler, prelude and flags. For Metal also the translator, which then runs
/// only on a miss.
pub(crate) fn key<'a>(source: &Source, with: impl Iterator<Item = &'a str>) -> String {
    let given = format!("{:?} {:?} {:?}", source.language, source.defines, source.constants);
    let own = [given.as_str(), source.name, source.text];
    let mut hash = Sha256::new();
    let mut add = |part: &str| {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    };
    own.into_iter().chain(msl::PASS).for_each(&mut add);
    with.for_each(&mut add);
    hash.finalize().iter().fold(String::new(), |key, byte| key + &format!("{byte:02x}"))
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

/// The library of a source: from the cache, or compiled into it.
pub(crate) fn library(source: &Source, cache: &Path) -> Result<PathBuf> {
    let (compiler, version) = compiler()?;
    let words: &[(&str, &str)] = match source.language {
        Language::Cuda => &CUDA,
        Language::Metal => &METAL,
    };
    let mut prelude = String::new();
    for (name, text) in PRELUDE.iter().chain(words) {
        let _ = writeln!(prelude, "#line 1 \"{name}\"\n{text}");
    }
    let clang = version.contains("clang");
    let mode = match source.mode {
        Mode::Fast if clang => [FAST, &[]],
        Mode::Fast => [FAST, FAST_GCC],
        Mode::Checked => [CHECKED, &[]],
    };
    let mode = mode.into_iter().flatten();
    let mut flags: Vec<String> =
        FLAGS.iter().chain(mode).chain(machine_flags()).map(|flag| (*flag).to_owned()).collect();
    if cfg!(target_arch = "x86_64") && !clang {
        flags.extend(FLAGS_GCC.iter().map(ToString::to_string));
    }
    match source.language {
        Language::Cuda => flags.extend(source.defines.iter().map(|(name, value)| format!("-D{name}={value}"))),
        Language::Metal if clang => flags.extend(METAL_FLAGS_CLANG.iter().map(ToString::to_string)),
        Language::Metal => flags.extend(METAL_FLAGS.iter().map(ToString::to_string)),
    }

    let with = [compiler, version.as_str(), &prelude].into_iter().chain(flags.iter().map(String::as_str));
    let key = key(source, with);
    let cache_error = |source| Error::Cache { path: cache.to_owned(), source };
    let path = std::path::absolute(cache).map_err(cache_error)?.join(format!("{key}.so"));

    // Threads that want the same source wait for the one that compiles it. Other processes may compile it too.
    static COMPILING: Mutex<Option<HashMap<PathBuf, Arc<Mutex<()>>>>> = Mutex::new(None);
    let turn = {
        let mut compiling = COMPILING.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(compiling.get_or_insert_default().entry(path.clone()).or_default())
    };
    let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
    if !path.exists() {
        let own = match source.language {
            Language::Cuda => {
                let text = format!("#line 1 \"{}\"\n{}", source.name, source.text);
                Translated { swizzles: String::new(), text }
            }
            Language::Metal => msl::translate(source, &msl::preprocess(compiler, source)?, Dialect::Cpp)?,
        };
        let text = format!("{}{prelude}{}\n", own.swizzles, own.text);
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
    let [from, object, to] =
        ["cpp", "o", "so"].map(|kind| path.with_extension(format!("{}.{kind}", std::process::id())));
    std::fs::write(&from, text).map_err(failed(&from))?;
    let mut compile = Command::new(compiler);
    compile.args(flags).arg("-c").arg(&from).arg("-o").arg(&object);
    // A step of its own, so that the libraries of the sanitizers stay out.
    let mut link = Command::new(compiler);
    link.arg("-shared").arg(&object).arg("-o").arg(&to);
    let result = [compile, link].into_iter().try_for_each(|mut command| {
        // In the root folder, which debug information puts before source names.
        let output = command.current_dir("/").output().map_err(failed(&to))?;
        if output.status.success() {
            return Ok(());
        }
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(Error::Compile { name: source.name.to_owned(), log })
    });
    let result = result.and_then(|()| std::fs::rename(&to, path).map_err(failed(path)));
    for file in [from, object, to] {
        let _ = std::fs::remove_file(file);
    }
    result
}
