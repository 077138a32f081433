//! The text of all kernels: `*.cu` is compiled for CUDA, `*.metal` for Metal, `*.gpu` for both; the rest is included. Every
//! implementer of [`super::Gpu`] compiles what [`expand`] gives, so a compiler for a GPU, and a simulator, see the same lines.

use super::shared_struct;
use std::fmt::Write;

macro_rules! texts {
    ($($name:literal in $path:literal,)*) => {
        /// (name by which it is included, text).
        const TEXTS: &[(&str, &str)] = &[$(($name, include_str!($path)),)*];
        /// (name, path from this file's folder).
        const PATHS: &[(&str, &str)] = &[$(($name, $path),)*];
    };
}

texts! {
    "device.h" in "kernels/device.h",
    "device_cuda.h" in "kernels/device_cuda.h",
    "device_metal.h" in "kernels/device_metal.h",
    "team.h" in "kernels/team.h",
    "norm.h" in "kernels/norm.h",
    "rope.h" in "kernels/rope.h",
    "elementwise.h" in "kernels/elementwise.h",
    "norm_act.h" in "kernels/norm_act.h",
    "order.h" in "kernels/order.h",
    "exponential.h" in "kernels/exponential.h",
    "wide.h" in "kernels/wide.h",
    "route.h" in "kernels/route.h",
    "route_plain.h" in "kernels/route_plain.h",
    "group.h" in "kernels/group.h",
    "route_and_group.h" in "kernels/route_and_group.h",
    "argmax.h" in "kernels/argmax.h",
    "sample.h" in "kernels/sample.h",
    "ptx.cuh" in "cuda/ptx.cuh",
    "hopper.cuh" in "cuda/hopper.cuh",
    "act.h" in "kernels/act.h",
    "quantise.h" in "kernels/quantise.h",
    "activation.h" in "kernels/activation.h",
    "finish.h" in "kernels/finish.h",
    "rows.gpu" in "kernels/rows.gpu",
    "sample.gpu" in "kernels/sample.gpu",
    "group.gpu" in "kernels/group.gpu",
    "route.gpu" in "kernels/route.gpu",
    "weight.h" in "kernels/weight.h",
    "embed.gpu" in "kernels/embed.gpu",
    "gemm.cuh" in "cuda/kernels/gemm.cuh",
    "gemm_wgmma.cu" in "cuda/kernels/gemm_wgmma.cu",
    "gemm.cu" in "cuda/kernels/gemm.cu",
    "gemm_f32.cu" in "cuda/kernels/gemm_f32.cu",
    "gemm_int8.cu" in "cuda/kernels/gemm_int8.cu",
    "gated_out.cuh" in "cuda/kernels/gated_out.cuh",
    "stretch.cuh" in "cuda/kernels/stretch.cuh",
    "gemv.cuh" in "cuda/kernels/gemv.cuh",
    "gemv.cu" in "cuda/kernels/gemv.cu",
    "gated.cuh" in "cuda/kernels/gated.cuh",
    "kept.cuh" in "cuda/kernels/kept.cuh",
    "norm_matmul.cu" in "cuda/kernels/norm_matmul.cu",
    "experts.cu" in "cuda/kernels/experts.cu",
    "activations.gpu" in "kernels/activations.gpu",
    "formats.h" in "kernels/formats.h",
    "format/float32/blocks.h" in "../format/float32/blocks.h",
    "format/float16/blocks.h" in "../format/float16/blocks.h",
    "format/bfloat16/blocks.h" in "../format/bfloat16/blocks.h",
    "format/q4_0/blocks.h" in "../format/q4_0/blocks.h",
    "format/q4_1/blocks.h" in "../format/q4_1/blocks.h",
    "format/q5_0/blocks.h" in "../format/q5_0/blocks.h",
    "format/q5_1/blocks.h" in "../format/q5_1/blocks.h",
    "format/q8_0/blocks.h" in "../format/q8_0/blocks.h",
    "format/q2_k/blocks.h" in "../format/q2_k/blocks.h",
    "format/q3_k/blocks.h" in "../format/q3_k/blocks.h",
    "format/q4_k/blocks.h" in "../format/q4_k/blocks.h",
    "format/q5_k/blocks.h" in "../format/q5_k/blocks.h",
    "format/q6_k/blocks.h" in "../format/q6_k/blocks.h",
    "format/iq4_nl/blocks.h" in "../format/iq4_nl/blocks.h",
    "format/iq4_xs/blocks.h" in "../format/iq4_xs/blocks.h",
    "format/mxfp4/blocks.h" in "../format/mxfp4/blocks.h",
    "product.h" in "kernels/product.h",
    "tasks.h" in "metal/kernels/tasks.h",
    "gemv.h" in "metal/kernels/gemv.h",
    "norm_matmul.h" in "metal/kernels/norm_matmul.h",
    "experts.h" in "metal/kernels/experts.h",
    "gemv.metal" in "metal/kernels/gemv.metal",
    "gemm.metal" in "metal/kernels/gemm.metal",
    "rates.cu" in "cuda/kernels/rates.cu",
    "attention.cuh" in "cuda/kernels/attention.cuh",
    "attention_mma.cuh" in "cuda/kernels/attention_mma.cuh",
    "attention_place.cuh" in "cuda/kernels/attention_place.cuh",
    "attention_combine.cu" in "cuda/kernels/attention_combine.cu",
    "attention_decode.cu" in "cuda/kernels/attention_decode.cu",
    "attention_split.cu" in "cuda/kernels/attention_split.cu",
    "attention_tile.cu" in "cuda/kernels/attention_tile.cu",
    "kv.h" in "kernels/kv.h",
    "kv.gpu" in "kernels/kv.gpu",
    "qkv_write.gpu" in "kernels/qkv_write.gpu",
    "attention.h" in "metal/kernels/attention.h",
    "attention_walk.h" in "metal/kernels/attention_walk.h",
    "attention_plan.metal" in "metal/kernels/attention_plan.metal",
    "attention_split.metal" in "metal/kernels/attention_split.metal",
    "attention_combine.metal" in "metal/kernels/attention_combine.metal",
    "attention_tile.metal" in "metal/kernels/attention_tile.metal",
}

/// Every text's name, and its path from `src/gpu`: for those who read the texts of a checkout, as they are now.
pub fn paths() -> impl Iterator<Item = (&'static str, &'static str)> {
    PATHS.iter().copied()
}

/// A text with its inclusions put in their places, each once, and `#line` directives so that a compiler's complaint
/// names the right file and line, and with assertions on the structs that the host fills. A text in `instead` takes the
/// place of ours of that name. `None` if there is no such text, or one that it includes.
pub fn expand(name: &str, instead: &[(&str, &str)]) -> Option<String> {
    let (mut out, mut seen) = (String::new(), Vec::new());
    include(name, instead, &mut seen, &mut out)?;
    Some(out)
}

fn include<'a>(name: &'a str, instead: &'a [(&str, &str)], seen: &mut Vec<&'a str>, out: &mut String) -> Option<()> {
    if seen.contains(&name) {
        return Some(());
    }
    seen.push(name);
    let text = instead.iter().chain(TEXTS).find(|(known, _)| *known == name)?.1;
    let _ = writeln!(out, "#line 1 \"{name}\"");
    for (number, line) in text.lines().enumerate() {
        match line.strip_prefix("#include \"").and_then(|rest| rest.split_once('"')) {
            Some((inner, _)) => {
                include(inner, instead, seen, out)?;
                let _ = writeln!(out, "#line {} \"{name}\"", number + 2);
            }
            None if line == "#pragma once" => out.push('\n'),
            None => {
                out.push_str(line);
                out.push('\n');
            }
        }
    }
    shared_struct::assertions(name, out);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NVRTC moves other assembly out of conditions, here those that keep a read within its memory.
    #[test]
    fn assembly_that_reads_memory_is_volatile() {
        let mut statements = 0;
        for (name, text) in TEXTS {
            for statement in text.split("asm").skip(1).filter_map(|rest| rest.split(");").next()) {
                statements += 1;
                assert!(!statement.starts_with('(') || !statement.contains("[%"), "{name}: asm{statement}");
            }
        }
        assert!(statements > 10);
    }

    #[test]
    fn every_text_expands() {
        for (name, _) in TEXTS {
            assert!(expand(name, &[]).is_some(), "{name} includes a text that is not in the table");
        }
    }

    #[test]
    fn lines_are_those_of_the_texts() {
        let instead = [("a", "first\n#include \"b\"\nthird\n#include \"b\"\n"), ("b", "#pragma once\nother\n")];
        let expected = "#line 1 \"a\"\nfirst\n#line 1 \"b\"\n\nother\n#line 3 \"a\"\nthird\n#line 5 \"a\"\n";
        assert_eq!(expand("a", &instead).as_deref(), Some(expected));
        assert_eq!(expand("c", &instead), None);
    }
}
