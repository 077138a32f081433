//! The choice as a table: each class of formats × rows × card; and what holds for every format, shape, card and choice.

use super::card::Card;
use super::choose::{Plan, representations, rounds_results, units};
use super::norm_matmul::{NormMatmulPlan, Part};
use super::pairs::tile_rows;
use super::shape::{Problem, Shape};
use crate::family::Family;
use crate::options::Choice;
use gristmill_gpu::epilogue::ProductEpilogue;
use gristmill_gpu::storage::{BF16, EXACT, INT8};
use gristmill_gpu::{Properties, Unit};
use gristmill_kernels::act::{Precision, Representations};
use gristmill_kernels::format::Format;
use gristmill_kernels::ops::Activation;
use gristmill_kernels::tensor::DeviceId;
use std::collections::BTreeSet;

/// Compute capability, multiprocessors, and KiB of shared memory of a block.
const T4: [u32; 3] = [75, 40, 64];
const A100: [u32; 3] = [80, 108, 163];
const RTX_4090: [u32; 3] = [89, 128, 99];
const H100: [u32; 3] = [90, 132, 227];
const B200: [u32; 3] = [100, 148, 227];
const CARDS: [[u32; 3]; 5] = [T4, A100, RTX_4090, H100, B200];

fn card([architecture, multiprocessors, kib]: [u32; 3], choice: Choice) -> Card {
    let id = DeviceId::Cuda(0);
    let name = String::new();
    let shared_bytes = kib << 10;
    Card::new(&Properties { id, name, architecture, multiprocessors, shared_bytes, memory: 0 }, choice)
}

fn dense(format: Format, precision: Precision, rows: usize, [outputs, cols]: [usize; 2]) -> Shape {
    Shape {
        problem: Problem { op: "test", format, precision, rows, experts: None },
        outputs,
        cols,
        matrices: 1,
        spans: cols.div_ceil(64),
        is_gated: false,
        has_ids: false,
        pairs_per_row: 1,
        tile_rows: 1,
        epilogue: ProductEpilogue::Store,
        is_rounded: false,
        has_spare: false,
    }
}

/// The kernel, and rows of X of a block.
fn kernel(card: &Card, shape: &Shape) -> (&'static str, usize) {
    match Plan::new(card, shape).expect("a plan") {
        Plan::Gemv(plan) => ("gemv", plan.at_once),
        Plan::F32(plan) => (plan.entry, plan.rows as usize),
        Plan::Int8(plan) => (plan.file, plan.rows),
        Plan::Gemm(plan) => (plan.unit(shape.problem.format).file, plan.cut.tokens),
    }
}

fn unit(plan: &Plan, format: Format) -> Unit {
    match plan {
        Plan::Gemv(plan) => Unit::new(plan.file(), &plan.defines(format)),
        Plan::F32(plan) => Unit::new(plan.file(), &[]),
        Plan::Int8(plan) => Unit::new(plan.file, &plan.defines(format)),
        Plan::Gemm(plan) => plan.unit(format),
    }
}

const ROWS: [usize; 12] = [1, 2, 3, 4, 5, 8, 16, 17, 64, 256, 512, 2048];
/// Kernels with the rows of X of a block.
const V1: (&str, usize) = ("gemv", 1);
const V2: (&str, usize) = ("gemv", 2);
const V4: (&str, usize) = ("gemv", 4);
const V8: (&str, usize) = ("gemv", 8);
const I8: (&str, usize) = ("gemm_int8.cu", 8);
const M32: (&str, usize) = ("gemm.cu", 32);
const M64: (&str, usize) = ("gemm.cu", 64);
const W32: (&str, usize) = ("gemm_wgmma.cu", 32);
const W64: (&str, usize) = ("gemm_wgmma.cu", 64);
const W128: (&str, usize) = ("gemm_wgmma.cu", 128);
const F8: (&str, usize) = ("gemm_f32_few", 8);
const F32: (&str, usize) = ("gemm_f32", 32);
const F64: (&str, usize) = ("gemm_f32_large", 64);

/// Formats, cards, the precision, and the kernel with its rows of a block for each of [`ROWS`].
type Case<'a> = (&'a [Format], &'a [[u32; 3]], Precision, [(&'static str, usize); 12]);

/// 4,096 × 2,048 on the fastest kernels. The columns are [`ROWS`].
#[test]
fn the_kernel_by_format_rows_and_card() {
    let quantised: Vec<Format> = Format::ALL.iter().copied().filter(|format| !format.is_float()).collect();
    let (narrow, brain) = (&[Format::FP8_64][..], &[Format::BF16][..]);
    let (half, single) = (&[Format::F16][..], &[Format::F32][..]);
    let mma = [A100, RTX_4090, B200];
    let cases: [Case; 11] = [
        (&quantised, &[T4], Precision::Fast, [V1, V2, V4, V4, V8, V8, V8, V8, V8, V8, V8, V8]),
        (&quantised, &mma, Precision::Fast, [V1, V2, I8, I8, I8, I8, I8, M32, M64, M64, M64, M64]),
        (&quantised, &[H100], Precision::Fast, [V1, V2, I8, I8, I8, I8, I8, M32, W128, W128, W128, W128]),
        (brain, &[T4], Precision::Fast, [V1, V4, V4, V4, V4, V4, V4, V4, V4, V4, V4, V4]),
        (brain, &mma, Precision::Fast, [V1, V4, V4, V4, M32, M32, M32, M32, M64, M64, M64, M64]),
        (brain, &[H100], Precision::Fast, [V1, V4, V4, V4, M32, M32, M32, M32, W64, W128, W128, W128]),
        (narrow, &mma, Precision::Fast, [V1, V4, V4, V4, M32, M32, M32, M32, M64, M64, M64, M64]),
        (narrow, &[H100], Precision::Fast, [V1, V4, V4, V4, M32, M32, M32, M32, W128, W128, W128, W128]),
        (half, &CARDS, Precision::Fast, [V1, V4, V4, V4, V4, V4, V4, V4, V4, V4, V4, V4]),
        (single, &CARDS, Precision::Exact, [V1, V4, V4, V4, F8, F8, F8, F8, F8, F64, F64, F64]),
        (&quantised, &CARDS, Precision::Exact, [V1, V4, V4, V4, V4, V4, V4, V4, V4, V4, V4, V4]),
    ];
    for (formats, cards, precision, expected) in cases {
        for (format, numbers) in formats.iter().flat_map(|format| cards.iter().map(move |card| (*format, *card))) {
            let card = card(numbers, Choice::Fastest);
            let found = ROWS.map(|rows| kernel(&card, &dense(format, precision, rows, [4096, 2048])));
            assert_eq!(found, expected, "{format} on {numbers:?}, {precision:?}");
        }
    }
}

/// A router of 128 experts takes large tiles where each multiprocessor has one; one of 32 experts never does.
#[test]
fn large_tiles_of_routers_fill_the_card() {
    let card = card(H100, Choice::Fastest);
    let rows = [96, 4223, 4224, 8192];
    let router = |experts| rows.map(|rows| kernel(&card, &dense(Format::F32, Precision::Exact, rows, [experts, 2048])));
    assert_eq!(router(128), [F32, F32, F64, F64]);
    assert_eq!(router(32), [F32; 4]);
}

/// 128 experts of 768 × 2,048 in Q4_K, 8 for each token. The columns are tokens: 1, 4, 8, 16, 32, 64, 96, 256, 768, 1,024.
#[test]
fn the_kernel_of_experts_by_tokens_and_card() {
    const TOKENS: [usize; 10] = [1, 4, 8, 16, 32, 64, 96, 256, 768, 1024];
    const I16: (&str, usize) = ("gemm_int8.cu", 16);
    for (numbers, tiles, expected) in [
        (T4, [32, 32, 8, 8, 8, 8, 32, 32, 64, 64], [V1, V1, V1, V2, V4, V8, V8, V8, V8, V8]),
        (A100, [32, 32, 8, 8, 8, 8, 32, 32, 64, 64], [V1, V1, I8, I8, I8, I8, M32, M32, M64, M64]),
        (H100, [32, 32, 8, 8, 8, 8, 32, 32, 128, 128], [V1, V1, I8, I8, I8, I8, W32, W32, W128, W128]),
    ] {
        let card = card(numbers, Choice::Fastest);
        assert_eq!(TOKENS.map(|tokens| tile_rows(&card, 128, 8 * tokens, false)), tiles, "{numbers:?}");
        let found = TOKENS.map(|tokens| kernel(&card, &experts(&card, Format::Q4_K, Precision::Fast, tokens, true)));
        assert_eq!(found, expected, "{numbers:?}");
    }
    let many = card(H100, Choice::Fastest);
    assert_eq!(kernel(&many, &experts(&many, Format::Q4_K, Precision::Fast, 88, true)), I16);
}

/// Gate and up of 128 experts of 768 × 2,048, or down, 8 for each token, grouped as [`tile_rows`] says.
fn experts(card: &Card, format: Format, precision: Precision, tokens: usize, is_gated: bool) -> Shape {
    let rows = 8 * tokens;
    let [outputs, cols] = if is_gated { [768, 2048] } else { [2048, 768] };
    let dense = dense(format, precision, rows, [outputs, cols]);
    let problem = Problem { experts: Some(128), ..dense.problem };
    let is_rounded = precision == Precision::Fast && rounds_results(card, &problem).unwrap_or(false);
    let epilogue = if is_gated { ProductEpilogue::Gate(Activation::SwiGlu) } else { ProductEpilogue::Store };
    let tile_rows = tile_rows(card, 128, rows, is_rounded);
    let pairs_per_row = if is_gated { 8 } else { 1 };
    Shape { problem, matrices: 128, is_gated, pairs_per_row, tile_rows, epilogue, is_rounded, ..dense }
}

/// For every format, precision, card, choice and number of rows: the unit of a plan is listed, its activations are those
/// that are prepared for it, and the device can run it.
#[test]
fn plans_agree_with_units_and_activations() {
    let known: BTreeSet<Unit> = units().collect();
    let choices = [Choice::Fastest, Choice::Deterministic].into_iter().chain(Family::ALL.map(Choice::Family));
    let cards = CARDS.into_iter().flat_map(|numbers| choices.clone().map(move |choice| (numbers, choice)));
    for (numbers, choice) in cards {
        let card = card(numbers, choice);
        let can_run = |family: &Family| family.runs_on(numbers[0]);
        if let Choice::Family(family) = choice
            && !can_run(&family)
        {
            continue;
        }
        for (&format, precision) in Format::ALL.iter().flat_map(|f| [(f, Precision::Fast), (f, Precision::Exact)]) {
            for tokens in (1..70).chain([88, 96, 127, 128, 256, 300, 768, 1024, 4096]) {
                let plain = dense(format, precision, tokens, [4096, 2048]);
                let short = dense(format, precision, tokens, [64, 1536]);
                let sums = Shape { epilogue: ProductEpilogue::Add(1.0), ..short };
                let gated = Shape { is_gated: true, epilogue: ProductEpilogue::Gate(Activation::GeGlu), ..plain };
                let ids = Shape { has_ids: true, ..plain };
                let [gate_up, down] = [true, false].map(|it| experts(&card, format, precision, tokens, it));
                let without_gate = |shape: Shape| {
                    let is_rounded =
                        precision == Precision::Fast && rounds_results(&card, &shape.problem).unwrap_or(false);
                    let epilogue = ProductEpilogue::Activate(Activation::SquaredRelu);
                    Shape { is_gated: false, epilogue, is_rounded, ..shape }
                };
                let [up, short_up, ups] = [plain, short, gate_up].map(without_gate);
                for shape in [plain, short, sums, gated, ids, gate_up, down, up, short_up, ups] {
                    check(&card, &shape, &known);
                }
            }
        }
    }
}

fn check(card: &Card, shape: &Shape, known: &BTreeSet<Unit>) {
    let format = shape.problem.format;
    let prepared = representations(card, &shape.problem, shape.problem.rows.max(17));
    let Ok(plan) = Plan::new(card, shape) else {
        assert!(matches!(card.choice, Choice::Family(_)), "{card:?}, {shape:?}");
        assert_eq!(prepared, Representations::ALL);
        return;
    };
    let unit = unit(&plan, format);
    assert!(known.contains(&unit), "{unit} is not listed, for {shape:?} on {card:?}");
    let (read, shared) = match plan {
        Plan::Gemv(plan) if plan.int8 => (INT8, 0),
        Plan::Gemv(_) | Plan::F32(_) => (EXACT, 0),
        Plan::Int8(plan) => (INT8, plan.shared),
        Plan::Gemm(plan) => (BF16, plan.cut.shared_bytes(format)),
    };
    assert_eq!(prepared, read, "{unit}: {shape:?} on {card:?}");
    assert!(shared <= card.shared_bytes, "{unit}: {shared} bytes of shared memory on {card:?}");
    let rounds = rounds_results(card, &shape.problem).expect("it can be multiplied");
    assert_eq!(rounds, matches!(plan, Plan::Gemm(_)), "{unit}");
    if let (Plan::Gemm(plan), Some(_)) = (plan, shape.problem.experts) {
        let most = if plan.cut.family == Family::Wgmma { plan.cut.tokens } else { 64 };
        assert!(shape.tile_rows <= most, "{unit}: tiles of {} rows, {card:?}", shape.tile_rows);
    }
}

/// A norm has one launch with its product for one row, and for up to eight rows of a small weight; for no row if the
/// product is deterministic. Its unit is listed, and every device has its shared memory.
#[test]
fn norms_with_their_product() {
    let known: BTreeSet<Unit> = units().collect();
    let formats = Format::ALL.iter().flat_map(|&format| [(format, Precision::Fast), (format, Precision::Exact)]);
    for (numbers, (format, precision)) in CARDS.into_iter().flat_map(|card| formats.clone().map(move |it| (card, it))) {
        let part = |outputs| Part { format, outputs, cols: 2048, spans: 32 };
        let fastest = card(numbers, Choice::Fastest);
        let rows = |card: &Card, outputs| {
            [0, 1, 2, 8, 9].map(|rows| NormMatmulPlan::serves(card, &part(outputs), precision, rows))
        };
        assert_eq!(rows(&fastest, 1024), [false, true, true, true, false], "{format} on {numbers:?}");
        assert_eq!(rows(&fastest, 1025), [false, true, false, false, false], "{format} on {numbers:?}");
        assert_eq!(rows(&card(numbers, Choice::Deterministic), 1024), [false; 5], "{format} on {numbers:?}");
        for outputs in [1, 1024, 1025, 151_936] {
            let plan = NormMatmulPlan::new(&fastest, &part(outputs), precision);
            let unit = Unit::new(plan.file(), &plan.defines(format));
            assert!(known.contains(&unit), "{unit} is not listed");
            assert!(plan.shared <= 44 << 10, "{unit}: {} bytes of shared memory", plan.shared);
        }
    }
}

/// A deterministic backend chooses by the weight alone, so what decides the order of a row's sum is the same for any
/// number of rows.
#[test]
fn the_order_of_sums_does_not_depend_on_rows() {
    for (numbers, &format) in CARDS.into_iter().flat_map(|card| Format::ALL.iter().map(move |format| (card, format))) {
        let card = card(numbers, Choice::Deterministic);
        let order = |rows| match Plan::new(&card, &dense(format, Precision::Fast, rows, [4096, 1536])).expect("a plan")
        {
            Plan::Gemv(plan) => ("gemv", plan.cut as usize),
            Plan::Int8(plan) if plan.file == "gemm_int8.cu" => ("int8", plan.warps),
            Plan::Int8(plan) => ("int8", plan.cut),
            Plan::F32(_) | Plan::Gemm(_) => ("other", rows),
        };
        for rows in [2, 5, 16, 17, 33, 128, 2048] {
            assert_eq!(order(rows), order(1), "{format}, {rows} rows, {numbers:?}");
        }
    }
}
