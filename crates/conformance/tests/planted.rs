//! Bugs that are put into the project's own kernels: checked mode, or the op suite in it, must notice each.
#![cfg(all(target_arch = "x86_64", unix))]

use gpu_sim::{Kind, Mode};
use gristmill_conformance::ops::ALL;
use gristmill_conformance::rng::Rng;
use gristmill_conformance::simulated::{Simulator, order, texts};
use gristmill_conformance::suite::Suite;
use gristmill_kernels::gpu::cuda::Cuda;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a part of the suite, one in so many cases, with another text in the place of `name`: what was noticed.
fn notice(name: &'static str, text: &str, part: &str, one_in: usize) -> Option<String> {
    let make = |threads| -> gristmill_kernels::Result<Box<dyn gristmill_kernels::ops::Backend>> {
        let simulator = Simulator::with(order(threads), Mode::Checked, vec![(name, text.to_owned())]);
        Ok(Box::new(Cuda::new(simulator)?))
    };
    let suite = Suite::new(&make, Rng::fresh_seed()).expect("a simulator").one_in(one_in);
    let cases = ALL.iter().find(|(known, _)| *known == part).map(|(_, cases)| cases);
    let cases = cases.unwrap_or_else(|| panic!("no part {part}"));
    let panic = catch_unwind(AssertUnwindSafe(|| cases(&suite))).err()?;
    let message = panic.downcast_ref::<String>().cloned();
    let message = message.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned())).unwrap_or_default();
    assert!(!message.contains("does not compile"), "the changed {name}: {message}");
    Some(message)
}

/// Which parts of the suite run the kernels of a text.
fn parts(name: &str) -> &'static [&'static str] {
    match name {
        _ if name.starts_with("attention") => &["attention", "attend"],
        "gemm.cu" => &["matmul", "moe_matmul", "moe_gate_up"],
        "gemm_f32.cu" => &["matmul", "moe_matmul"],
        "gemv.cu" => &["matmul_rows", "moe_matmul", "moe_gate_up"],
        "group.h" => &["group_by_expert", "route_and_group"],
        "route.h" => &["route", "route_and_group"],
        "route_and_group.h" => &["route_and_group"],
        "sample.h" => &["sample", "argmax"],
        "team.h" => &["rms_norm", "add_norm", "qk_norm", "layer_norm", "argmax", "sample"],
        other => panic!("say which parts of the suite run {other}"),
    }
}

/// A call in a line that orders threads or memory, if there is one.
fn order_in(line: &str) -> Option<&str> {
    let code = line.split("//").next()?;
    let calls: &[&str] = if code.starts_with("DEV") {
        &["__syncwarp()", "__syncthreads()"]
    } else {
        &["warp_barrier()", "barrier()", "__syncwarp()", "__syncthreads()"]
    };
    if let Some(wait) = code.find("cp_async_wait<") {
        return code[wait..].find(';').map(|end| &code[wait..wait + end]);
    }
    calls.iter().find(|call| code.contains(**call)).copied()
}

/// Every barrier and every wait, deleted in turn: a failure for each, or it need not be there.
#[test]
#[ignore = "an hour"]
fn every_barrier_is_needed() {
    let mut needless = Vec::new();
    for (name, text) in texts().iter().filter(|(name, _)| !["device.h", "ptx.cuh"].contains(name)) {
        for (number, line) in text.lines().enumerate() {
            let Some(order) = order_in(line) else { continue };
            let changed: Vec<String> = (text.lines().enumerate())
                .map(|(n, line)| if n == number { line.replacen(order, "((void)0)", 1) } else { line.to_owned() })
                .collect();
            // By chance a bug may not show in some cases: at last all are tried.
            let found = [12, 6, 1].iter().find_map(|&one_in| {
                parts(name).iter().find_map(|part| notice(name, &changed.join("\n"), part, one_in))
            });
            let place = format!("{name}:{} {}", number + 1, line.trim());
            match found {
                Some(message) => eprintln!("{place}: {}", message.lines().next().unwrap_or_default()),
                None => {
                    eprintln!("{place}: NOT NOTICED");
                    needless.push(place);
                }
            }
        }
    }
    assert!(needless.is_empty(), "nothing notices that these are gone: {needless:#?}");
}

/// A bug: in which text what becomes what, which part of the suite runs it, and which
/// kinds of fault it may show as: by the order of threads, memory is read too early or not written yet.
type Bug = (&'static str, &'static str, &'static str, &'static str, &'static [Kind]);

#[rustfmt::skip]
const BUGS: &[Bug] = &[
    ("elementwise.h", "Four a = load_four(x + row * p.x_stride + col, left,", "Four a = load_four(x + row * p.x_stride + col, left + 1,", "add", &[Kind::OutOfBounds]),
    ("embed.cu", "span < row.blocks * F::SPANS", "span < (row.blocks + 1) * F::SPANS", "embed", &[Kind::OutOfBounds, Kind::RaceInGrid]),
    ("quantise.cu", "bool live = at < u64(p.rows) * blocks", "bool live = at <= u64(p.rows) * blocks", "matmul_rows", &[Kind::OutOfBounds]),
    ("norm.h", "load_four(weight + at, p.width - at, p.wide);\n        for (u32 i = 0; i < 4; i++) v.at[i] = v.at[i] * factor", "load_four(weight + at, p.width + 4 - at, p.wide);\n        for (u32 i = 0; i < 4; i++) v.at[i] = v.at[i] * factor", "rms_norm", &[Kind::OutOfBounds]),
    ("elementwise.h", "col, left, p.wide), b =", "col, left, 1), b =", "add", &[Kind::Misaligned]),
    ("norm.h", "load_four(x + at, p.width - at, p.wide);\n        for (u32 i = 0; i < 4; i++) squares", "load_four(x + at, p.width - at, 1);\n        for (u32 i = 0; i < 4; i++) squares", "rms_norm", &[Kind::Misaligned]),
    ("quantise.cu", "column, left, p.wide && left > 0);\n    store", "column, left, left > 0);\n    store", "matmul_rows", &[Kind::Misaligned]),
    ("norm.h", "weight, out + norm_at(p, team.stretch, p.out_stride)", "weight, (float*)x + norm_at(p, team.stretch, p.x_stride)", "rms_norm", &[Kind::Undeclared]),
    ("elementwise.h", "b.at[i] = fmaf(p.scale, a.at[i], b.at[i]);\n    store_four(y + row * p.y_stride", "b.at[i] += p.scale * a.at[i];\n    store_four((float*)x + row * p.x_stride", "add", &[Kind::Undeclared]),
    ("norm.h", "factor * w.at[i];\n        store", "factor * w.at[i] + out[at];\n        store", "rms_norm", &[Kind::Undeclared]),
    ("group.h", "        warp_barrier();\n        if (inside", "        if (inside", "group_by_expert", &[Kind::RaceInWarp]),
    ("group.h", "*place += __popc(same);\n        warp_barrier();", "*place += __popc(same);", "group_by_expert", &[Kind::RaceInWarp]),
    ("team.h", "if (lane() == 31) room[warp()] = value;", "room[warp()] = value;", "group_by_expert", &[Kind::RaceInWarp]),
    ("team.h", "if (lane() == 0) room[warp()] = value;\n    barrier();\n    return warp_sum", "if (lane() == 0) room[warp() % 2] = value;\n    barrier();\n    return warp_sum", "rms_norm", &[Kind::RaceInBlock]),
    ("gemm.cu", "            barrier();\n            if (round + STAGES", "            if (round + STAGES", "matmul", &[Kind::RaceInBlock, Kind::RaceInWarp, Kind::Uninitialised]),
    ("sample.h", "    barrier();\n    u64 sum = 0;", "    u64 sum = 0;", "sample", &[Kind::RaceInBlock, Kind::RaceInWarp]),
    ("norm.h", "return {block_x(), thread_x()", "return {block_x() / 2, thread_x()", "rms_norm", &[Kind::RaceInGrid]),
    ("embed.cu", "out += block_x() * p.out_stride", "out += block_x() / 2 * p.out_stride", "embed", &[Kind::RaceInGrid]),
    ("elementwise.h", "u64 row = block_x(), col = first_column(), left = p.cols - col;\n    if (row >= p.rows || col >= p.cols) return;\n    Four b", "u64 row = block_x() / 2, col = first_column(), left = p.cols - col;\n    if (row >= p.rows || col >= p.cols) return;\n    Four b", "scale", &[Kind::RaceInGrid]),
    ("team.h", "    barrier();\n    return warp_sum(lane()", "    if (lane() == 0) barrier();\n    else\n    barrier();\n    return warp_sum(lane()", "rms_norm", &[Kind::Divergence]),
    ("group.h", "    barrier();\n    Stretch mine", "    if (thread_x() < 20) barrier();\n    else\n    barrier();\n    Stretch mine", "group_by_expert", &[Kind::Divergence]),
    ("gemm.cu", "        barrier();\n\n        // Starts to copy", "        if (thread_x() < 32) barrier();\n        else\n        barrier();\n\n        // Starts to copy", "matmul", &[Kind::Divergence]),
    ("gemm.cu", "cp_async_wait<STAGES - 2>()", "cp_async_wait<STAGES - 1>()", "matmul", &[Kind::InFlight]),
    ("gemm.cu", "cp_async_wait<STAGES - 2>();", "", "moe_matmul", &[Kind::InFlight]),
    ("attention_tile.cu", "cp_async_wait<1>();", "cp_async_wait<2>();", "attention", &[Kind::InFlight]),
    ("team.h", "    barrier();\n    return warp_sum(lane()", "    return warp_sum(lane()", "rms_norm", &[Kind::Uninitialised]),
    ("group.h", "i += block_width()) tables[i] = 0;", "i += block_width() + 1) tables[i] = 0;", "group_by_expert", &[Kind::Uninitialised]),
    ("gemm.cu", "    for (u32 i = thread_x(); i < TOKENS; i += THREADS) {", "    for (u32 i = thread_x(); i < TOKENS - 1; i += THREADS) {", "matmul", &[Kind::Uninitialised]),
];

/// Bugs of each class, found by the checks themselves.
#[test]
#[ignore = "minutes"]
fn bugs_of_each_class_are_found() {
    let mut missed = Vec::new();
    for (name, find, replace, part, kinds) in BUGS {
        let text = texts().iter().find(|(known, _)| known == name).map(|(_, text)| text);
        let Some(text) = text.filter(|text| text.contains(find)) else {
            missed.push(format!("{name} has no {find:?} any more: plant another bug"));
            continue;
        };
        let changed = text.replacen(find, replace, 1);
        let found = [12, 6, 1].iter().find_map(|&one_in| notice(name, &changed, part, one_in));
        let first = found.as_deref().unwrap_or("nothing").lines().next().unwrap_or_default().to_owned();
        eprintln!("{name} {kinds:?}: {first}");
        if !kinds.iter().any(|kind| first.contains(&format!("({kind:?})"))) {
            missed.push(format!("{name}: {find:?} → {replace:?} must be {kinds:?}, was: {first}"));
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}
