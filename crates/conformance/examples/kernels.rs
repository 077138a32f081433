//! Every CUDA kernel through NVRTC, with what it needs, and no spills but known ones: `cargo xtask kernels` and
//! `cargo xtask prove kernels`.
//!
//! kernels few | all [TABLE DATE]

use std::fmt::Write as _;
use std::process::ExitCode;

use gristmill_kernels::gpu::ahead::side_by_side;
use gristmill_kernels::gpu::cuda::texts::{self, Text};

/// Compute capabilities: those of CI, and all that are promised.
const FEW: &[u32] = &[80, 90];
const ALL: &[u32] = &[75, 80, 86, 89, 90, 100, 120];

/// Formats whose kernels CI compiles: one of each sort.
const FORMATS: &[&str] = &["F32", "Q4_K", "Q6_K"];

/// Kernels that spill, and why that is so: (text, kernel, reason).
const SPILLS: &[(&str, &str, &str)] = &[
    // Two blocks on a multiprocessor, or two rows of weights more in one, gain more than they cost.
    ("gemm.cu", "gemm", "sums and weights in flight take all registers; some addresses, used once a step, do not fit"),
    (
        "attention_decode.cu",
        "attention_decode",
        "on sm_120, two words at a width of 128: keys and values under way and sums take all registers",
    ),
    (
        "attention_tile.cu",
        "attention_tile",
        "two loop-invariant words at a width of 256, where the sums take half the registers",
    ),
];

/// The simulator's tests of `hopper.cuh`, which no kernel includes yet: (name, text, definitions).
type Test = (&'static str, &'static str, &'static [(&'static str, &'static str)]);
const HOPPER: &[Test] = &[
    (
        "pipelined.cu",
        include_str!("../../gpu-sim/tests/pipelined.cu"),
        &[("SUM", "float"), ("ELEMENT", "u16"), ("MULTIPLY", "wgmma_bf16")],
    ),
    ("shapes.cu", include_str!("../../gpu-sim/tests/shapes.cu"), &[]),
];

/// Compiles some texts, or all for all capabilities, and prints a table. A spill that is not known is a failure.
fn kernels(all: bool, output: Option<(&str, &str)>) -> Result<(), String> {
    let wanted = |text: &Text| {
        let format = text.defines.iter().find(|(name, _)| *name == "FORMAT");
        all || format.is_none_or(|(_, format)| FORMATS.contains(&format.as_str()))
    };
    let texts: Vec<Text> = texts::all().into_iter().filter(wanted).collect();
    let mut table = "Compiled by NVRTC; spilled bytes are stores and loads of a thread together.\n\n".to_owned();
    table +=
        "| text | kernel | architecture | registers | shared | spilled |\n| --- | --- | --- | ---: | ---: | ---: |\n";
    let (mut kernels, mut wrong) = (0, Vec::new());
    let capabilities = if all { ALL } else { FEW };
    let work: Vec<(u32, &Text)> = capabilities.iter().flat_map(|&c| texts.iter().map(move |text| (c, text))).collect();
    let compiled = side_by_side(&work, |(capability, text)| texts::compile(text, *capability), |_| ());
    for ((capability, text), usages) in work.iter().zip(compiled) {
        let architecture = texts::architecture(*capability);
        for usage in usages.map_err(|error| format!("{text}, {architecture}: {error}"))? {
            kernels += 1;
            let (kernel, spilled) = (&usage.kernel, usage.spilled);
            let known = SPILLS.iter().any(|(file, known, _)| *file == text.file && known == kernel);
            if spilled > 0 && !known {
                wrong.push(format!("{text}: {kernel} spills {spilled} bytes on {architecture}"));
            }
            let _ = writeln!(
                table,
                "| {text} | {kernel} | {architecture} | {} | {} | {spilled} |",
                usage.registers, usage.shared
            );
        }
    }
    for (file, content, defines) in HOPPER {
        let defines = defines.iter().map(|&(name, value)| (name, value.to_owned())).collect();
        let usages = texts::compile_other(&Text { file, defines }, content, 90);
        let usages = usages.map_err(|error| format!("{file}: {error}"))?;
        wrong.extend(usages.iter().filter(|usage| usage.spilled > 0).map(|usage| format!("{file} spills: {usage:?}")));
    }
    if let Some((path, date)) = output {
        let page = format!("# CUDA kernels, {date}\n\n{table}");
        std::fs::write(path, page).map_err(|error| format!("{path}: {error}"))?;
    }
    println!("{kernels} kernels of {} texts compiled", texts.len());
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        ["few"] => kernels(false, None),
        ["all"] => kernels(true, None),
        ["all", table, date] => kernels(true, Some((table, date))),
        _ => Err("usage: kernels few | all [TABLE DATE]".to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}
