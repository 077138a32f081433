//! Every CUDA kernel through NVRTC, with what it needs, and no spills but known ones: `cargo xtask kernels` and
//! `cargo xtask prove kernels`.
//!
//! kernels few | report TABLE [FILE…] | only CAPABILITY FORMAT… [FILE…]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::ExitCode;

use gristmill_cuda::units::{self, Unit, Usage};
use gristmill_gpu::precompile::parallel_map;
use gristmill_gpu::source;
use sha2::{Digest, Sha256};

/// Compute capabilities that are promised.
const ALL: &[u32] = &[75, 80, 86, 89, 90, 100, 120];

/// The capabilities of CI, with the formats that each compiles: one of each sort, in one of the two newer. `gemm.cu`,
/// which takes longest, is compiled for the older of these alone: on the other `gemm_wgmma.cu` has most of its work; and
/// for shared columns with the narrowest tile alone. A kernel that an old device does not run must compile for it all
/// the same.
const FEW: &[(u32, &[&str])] = &[(75, &[]), (80, &["Q4_K"]), (90, &["F32", "Q6_K"])];

/// Whether CI compiles a unit for a compute capability.
fn is_of_few(unit: &Unit, capability: u32) -> bool {
    let format = unit.defines.iter().find(|(name, _)| *name == "FORMAT").map(|(_, format)| format.as_str());
    let is_of = |formats: &[&str]| format.is_none_or(|format| formats.contains(&format));
    let has = |name, value| unit.defines.iter().any(|(own, own_value)| *own == name && own_value == value);
    let repeated = has("SHARED_COLUMNS", "1") && !has("TOKENS", "32");
    let elsewhere = unit.file == "gemm.cu" && (capability != 80 || repeated);
    FEW.iter().any(|(few, formats)| *few == capability && is_of(formats)) && !elsewhere
}

/// Whether a unit is of one of these formats, and of one of these files if any is named, as a new format's author wants to
/// see.
fn is_of_formats(unit: &Unit, names: &[&str]) -> bool {
    let is_of_file = names.contains(&unit.file) || !names.iter().any(|name| name.contains('.'));
    is_of_file && unit.define("FORMAT").is_some_and(|format| names.contains(&format))
}

/// Kernels that spill, and why that is so: (source, kernel, reason).
const SPILLS: &[(&str, &str, &str)] = &[
    // Two blocks on a multiprocessor, or two rows of weights more in one, gain more than they cost.
    ("gemm.cu", "gemm", "sums and weights in flight take all registers; some addresses, used once a step, do not fit"),
    (
        "gemm_int8.cu",
        "gemm_int8",
        "of gate and up, on sm_80 to sm_89: up to 64 bytes of Q5_0 and 40 of Q6_K; with two tiles of rows, on sm_80 to \
         sm_90a: up to 24 bytes of Q4_K, Q5_0 and Q8_0",
    ),
    (
        "gemm_int8_tile.cu",
        "gemm_int8_tile",
        "three blocks on a multiprocessor: words of a tile of rows, none of them used in the loop over columns but of \
         Q2_K, Q5_0 and Q8_0, up to 18 a step",
    ),
    (
        "gemm_wgmma.cu",
        "gemm_wgmma",
        "between items, not in the loop over columns: up to 180 bytes of Q6_K with two fragments, up to 48 with 16 warps",
    ),
    // Not mended: with bytes 66 to 109 of a block of IQ3_S as one plane `matmul` spills 40 bytes and `gate_up` none, but a CPU
    // must take a group's bytes out of words then. With `qs` and `qh` of TQ1_0 as one plane `gate_up` spills 12 bytes, but
    // loads of 16 bytes become loads of 4.
    (
        "gemv.cu",
        "matmul",
        "of IQ3_S, with int8 activations and one row of X: 96 bytes on sm_90a, where a thread has 128 registers for nine words \
         of each of four rows of weights and addresses in five planes; with two rows, for which four blocks on a \
         multiprocessor gain more than they cost: 60 bytes of Q6_K, and other formats that were not all compiled",
    ),
    (
        "gemv.cu",
        "gate_up",
        "with int8 activations, on sm_90a: up to 40 bytes of Q6_K with two rows, 4 of IQ2_KL; 28 bytes of IQ3_S with one row of X, as in `matmul`; 20 bytes of TQ1_0 with one row \
         and 8 with two, whose span has digits in all 48 bytes of a block: twelve words of each row of weights",
    ),
    ("experts.cu", "experts_gate_up", "on sm_120a, of Q5_K: three words; no such device has run it"),
    (
        "attention_decode.cu",
        "attention_decode",
        "up to 28 bytes: a thread has the next token's place beside keys, values and sums; 128 sequences take 27 µs \
         instead of 30 on an H200",
    ),
    (
        "attention_neighbours.cu",
        "attention_neighbours",
        "by NVRTC 13.0, not by 13.2: up to ten addresses and counts of a whole group of tokens, read once a token; the keys, \
         values and sums of a block take the other registers",
    ),
    (
        "attention_latent.cu",
        "attention_latent",
        "sums of 512 columns take half the registers: up to 40 bytes without low parts on sm_90a at keys of 576; with low parts, \
         which a model of F32 needs, more",
    ),
    (
        "attention_latent_split.cu",
        "attention_latent_split",
        "a slice of the queries and the sums take half the registers: 136 bytes on sm_90a at keys of 576, most of them addresses",
    ),
    (
        "attention_tile.cu",
        "attention_tile",
        "two loop-invariant words at a width of 256, where the sums take half the registers; without low parts, up to 92 \
         bytes for a third block on a multiprocessor, with which an H200 is 4% faster in prefill of 8,192 tokens",
    ),
];

/// The simulator's tests of `hopper.cuh`, of which no kernel uses everything: (name, source, definitions).
type Test = (&'static str, &'static str, &'static [(&'static str, &'static str)]);
const HOPPER: &[Test] = &[
    (
        "pipelined.cu",
        include_str!("../../gpu-sim/tests/pipelined.cu"),
        &[("SUM", "float"), ("ELEMENT", "u16"), ("MULTIPLY", "wgmma_bf16")],
    ),
    ("shapes.cu", include_str!("../../gpu-sim/tests/shapes.cu"), &[]),
];

/// The sources of the checkout: a change of a kernel needs nothing built. Elsewhere those that this program was built with.
fn checkout() -> Vec<(&'static str, &'static str)> {
    #[cfg(all(target_arch = "x86_64", unix))]
    let sources =
        gristmill_conformance::sources::all().iter().map(|(name, content)| (*name, content.as_str())).collect();
    #[cfg(not(all(target_arch = "x86_64", unix)))]
    let sources = Vec::new();
    sources
}

/// Needs of a unit's kernels on a device of a capability, from the compiler or from an earlier run with the same
/// source, definitions and compiler. All units for all capabilities take an hour on two cores.
fn usages(unit: &Unit, capability: u32, compiler: (i32, i32)) -> Result<Vec<Usage>, String> {
    let source = source::expand(unit, gristmill_cuda::SOURCES, &checkout())
        .ok_or_else(|| format!("there is no source {}", unit.file))?;
    let what = format!("{compiler:?} {capability} {:?}\n{source}", unit.defines);
    let name: String = Sha256::digest(what).iter().map(|byte| format!("{byte:02x}")).collect();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/kernels");
    let file = folder.join(name);
    let read = |line: &str| -> Option<Usage> {
        let [kernel, registers, spilled, shared] = line.split(' ').collect::<Vec<_>>().try_into().ok()?;
        let number = |word: &str| word.parse().ok();
        let (registers, spilled, shared) = (number(registers)?, number(spilled)?, number(shared)?);
        Some(Usage { kernel: kernel.to_owned(), registers, spilled, shared })
    };
    if let Ok(kept) = std::fs::read_to_string(&file)
        && let Some(usages) = kept.lines().map(read).collect::<Option<Vec<_>>>().filter(|usages| !usages.is_empty())
    {
        return Ok(usages);
    }
    let usages = units::compile(unit, &source, capability)?;
    let line = |usage: &Usage| format!("{} {} {} {}\n", usage.kernel, usage.registers, usage.spilled, usage.shared);
    let kept: String = usages.iter().map(line).collect();
    let part = file.with_extension("part");
    let keep = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&part, kept));
    keep.and_then(|()| std::fs::rename(&part, &file)).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(usages)
}

/// Compiles the wanted units for the wanted capabilities, and prints a table. A spill that is not known is a failure.
fn kernels(wanted: impl Fn(&Unit, u32) -> bool, output: Option<&str>) -> Result<(), String> {
    let all = units::all();
    let compiler = units::compiler()?;
    let (mut kernels, mut wrong) = (0, Vec::new());
    let mut needs = Needs::new();
    let work = ALL.iter().flat_map(|&c| all.iter().map(move |unit| (c, unit)));
    let work: Vec<(u32, &Unit)> = work.filter(|(capability, unit)| wanted(unit, *capability)).collect();
    let compiled = parallel_map(&work, |(capability, unit)| usages(unit, *capability, compiler), |_| ());
    for ((capability, unit), usages) in work.iter().zip(compiled) {
        let architecture = units::architecture(*capability);
        for usage in usages.map_err(|error| format!("{unit}, {architecture}: {error}"))? {
            kernels += 1;
            let (kernel, spilled) = (&usage.kernel, usage.spilled);
            let known = SPILLS.iter().any(|(file, known, _)| *file == unit.file && known == kernel);
            if spilled > 0 {
                let spill = format!("{unit}: {kernel} spills {spilled} bytes on {architecture}");
                if known { println!("known: {spill}") } else { wrong.push(spill) }
            }
            needs.entry((unit.to_string(), kernel.clone())).or_default().insert(*capability, usage);
        }
    }
    for (file, content, defines) in HOPPER {
        let defines = defines.iter().map(|&(name, value)| (name, value.to_owned())).collect();
        let usages = units::compile(&Unit { file, defines }, content, 90);
        let usages = usages.map_err(|error| format!("{file}: {error}"))?;
        wrong.extend(usages.iter().filter(|usage| usage.spilled > 0).map(|usage| format!("{file} spills: {usage:?}")));
    }
    let compiled: BTreeSet<&str> = needs.keys().map(|(unit, _)| unit.as_str()).collect();
    println!("{kernels} kernels of {} units compiled", compiled.len());
    if let Some(path) = output {
        let parent = Path::new(path).parent().unwrap_or(Path::new("."));
        let written = std::fs::create_dir_all(parent).and_then(|()| std::fs::write(path, table(needs, compiler)));
        written.map_err(|error| format!("{path}: {error}"))?;
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

/// Needs of each unit and kernel, by compute capability.
type Needs = BTreeMap<(String, String), BTreeMap<u32, Usage>>;

/// What the table shows, and its first lines.
fn head((major, minor): (i32, i32)) -> String {
    let mut head = format!(
        "`cargo xtask prove kernels`, NVRTC {major}.{minor}. Of each source: its units (with their definitions), kernels in \
         all units,\nthe most bytes of static shared memory, and for each architecture the most registers of a \
         thread.\n\n| source | units | kernels | shared |"
    );
    ALL.iter().for_each(|&capability| head += &format!(" {} |", units::architecture(capability)));
    head += "\n| --- |";
    head += &" ---: |".repeat(ALL.len() + 3);
    head + "\n"
}

/// The row of a source: numbers of units and kernels, the most shared memory and registers.
fn row(file: &str, needs: &Needs) -> String {
    let units: BTreeSet<&str> = needs.keys().map(|(unit, _)| unit.as_str()).collect();
    let shared = needs.values().flat_map(BTreeMap::values).map(|usage| usage.shared).max().unwrap_or_default();
    let mut row = format!("| {file} | {} | {} | {shared} |", units.len(), needs.len());
    for capability in ALL {
        let registers = needs.values().filter_map(|usages| Some(usages.get(capability)?.registers)).max();
        row += &registers.map_or(" |".to_owned(), |registers| format!(" {registers} |"));
    }
    row
}

/// A line for each kernel of a source that may spill.
fn spills(file: &str, needs: &Needs) -> Vec<String> {
    let line = |(_, kernel, why): &(&str, &str, &str)| {
        let all = needs.iter().filter(|((_, name), _)| name == kernel);
        let spilled = all.flat_map(|(_, usages)| usages.values()).map(|usage| usage.spilled).filter(|&bytes| bytes > 0);
        let (count, most) = spilled.fold((0, 0), |(count, most), bytes| (count + 1, bytes.max(most)));
        format!("- {file}, {kernel}: {count} compiled kernels, up to {most} bytes; {why}")
    };
    SPILLS.iter().filter(|(spilling, ..)| *spilling == file).map(line).collect()
}

/// The table of all sources in `needs`, and their spills.
fn table(needs: Needs, compiler: (i32, i32)) -> String {
    let mut of_files: BTreeMap<String, Needs> = BTreeMap::new();
    for ((unit, kernel), usages) in needs {
        let file = unit.split(' ').next().unwrap_or_default().to_owned();
        of_files.entry(file).or_default().insert((unit, kernel), usages);
    }
    let rows: Vec<String> = of_files.iter().map(|(file, needs)| row(file, needs)).collect();
    let spills: Vec<String> = of_files.iter().flat_map(|(file, needs)| spills(file, needs)).collect();
    format!("{}{}\n\n## Spills\n\n{}\n", head(compiler), rows.join("\n"), spills.join("\n"))
}

fn is_source(file: &str) -> bool {
    units::all().iter().any(|unit| unit.file == file)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        ["few"] => kernels(is_of_few, None),
        ["report", table, ref files @ ..] => match files.iter().find(|file| !is_source(file)) {
            None => kernels(|unit, _| files.is_empty() || files.contains(&unit.file), Some(table)),
            Some(unknown) => Err(format!("no unit is of a source {unknown}")),
        },
        ["only", capability, ref formats @ ..] if !formats.is_empty() => match capability.parse::<u32>() {
            Ok(wanted) => kernels(|unit, capability| capability == wanted && is_of_formats(unit, formats), None),
            Err(error) => Err(format!("{capability}: {error}; a capability is 80 or 90, for example")),
        },
        _ => Err("usage: kernels few | report TABLE [FILE…] | only CAPABILITY FORMAT… [FILE…]".to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}
