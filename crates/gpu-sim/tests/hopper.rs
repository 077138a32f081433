//! The plain C++ of `hopper.cuh`: a pipelined product of matrices (`pipelined.cu`) gives what plain loops give, and
//! bugs that are planted in it are found. NVRTC compiles the same source (`cargo xtask kernels`).
#![cfg(all(target_arch = "x86_64", unix))]

mod common;

use common::*;
use gpu_sim::{Arg, Error, Kind, Launch, Mode, Order, Program, Source, Swizzle, TensorMap};
use std::fmt::Write as _;
use std::path::Path;

/// Bytes of a row of a tile; threads of a block; shared memory of a block.
const ROW: usize = 128;
const THREADS: u32 = 160;
const TILES: u32 = 3 * 128 * 128;
const LINES: u32 = TILES + 64 * 128;

/// The pipelined kernels for elements of two bytes (bfloat16) or one.
fn program(text: &str, wide: bool, mode: Mode) -> Program {
    let defines = match wide {
        true => [("SUM", "float"), ("ELEMENT", "u16"), ("MULTIPLY", "wgmma_bf16")],
        false => [("SUM", "int"), ("ELEMENT", "u8"), ("MULTIPLY", "wgmma_s8")],
    };
    compile_hopper("pipelined.cu", text, &defines, mode)
}

fn compile_hopper(name: &str, text: &str, defines: &[(&str, &str)], mode: Mode) -> Program {
    let text = text.replace("#include \"hopper.cuh\"\n", "\n");
    let text = format!(
        "#line 1 \"ptx.cuh\"\n{}\n{}\n#define KERNEL(name) GPU_SIM_KERNEL(name)\n#define SHARED(T, name, n) \
         GPU_SIM_SHARED(T, name, n)\n#define DYNAMIC_SHARED(T, name) GPU_SIM_DYNAMIC_SHARED(T, name)\n#line 1 \
         \"{name}\"\n{text}",
        gpu_sim::PTX,
        gpu_sim::HOPPER
    );
    let source = Source { name, text: &text, defines, mode, ..Source::default() };
    Program::compile(&source, Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap_or_else(|error| panic!("{error}"))
}

/// Small whole numbers, whose products and sums are exact; as bytes, and as what they are.
struct Matrix {
    bytes: Vec<u8>,
    values: Vec<i32>,
    cols: usize,
}

impl Matrix {
    fn new(random: &mut Random, rows: usize, row_bytes: usize, wide: bool) -> Self {
        let cols = if wide { row_bytes / 2 } else { row_bytes };
        let most = if wide { 8 } else { 127 };
        let values: Vec<i32> =
            (0..rows * cols).map(|_| (random.next() % (2 * most + 1)) as i32 - most as i32).collect();
        let bytes = match wide {
            true => values.iter().flat_map(|&v| ((v as f32).to_bits() >> 16).to_le_bytes()[..2].to_vec()).collect(),
            false => values.iter().map(|&v| v as i8 as u8).collect(),
        };
        Self { bytes, values, cols }
    }

    fn at(&self, row: usize, col: usize) -> i32 {
        self.values.get(row * self.cols + col).copied().unwrap_or(0)
    }
}

/// Bytes that start at a multiple of 16.
fn aligned(bytes: &[u8]) -> Vec<u128> {
    let word = |chunk: &[u8]| chunk.iter().rev().fold(0, |word, &byte| word << 8 | u128::from(byte));
    bytes.chunks(16).map(word).collect()
}

/// c = a · bᵀ by a kernel: sums as floats or integers, in 32 bits. Rows of a beyond its own are zero.
fn multiply(
    program: &Program,
    kernel: &str,
    (a, a_rows): (&[u128], usize),
    b: &[u128],
    [rows, cols, row_bytes]: [usize; 3],
    wide: bool,
    bug: Option<u32>,
    order: Order,
) -> Result<Vec<u32>, Error> {
    let mut c = vec![u32::MAX; rows * cols];
    let map = |matrix: &[u128], rows: usize| {
        let element = if wide { 2 } else { 1 };
        let address = matrix.as_ptr().cast();
        let size = [row_bytes / element, rows];
        let tile = [ROW / element, 64];
        Arg::TensorMap(TensorMap { address, element, size, stride: row_bytes, tile, swizzle: Swizzle::Bytes128 })
    };
    let (a, b, shared) = match kernel {
        "tiles" => (map(a, a_rows), map(b, cols), TILES),
        _ => (read(a), read(b), LINES),
    };
    let sizes = [row_bytes as u32, cols as u32, bug.unwrap_or(0)];
    let mut args = vec![a, b, write(&mut c), value(&sizes[0]), value(&sizes[1])];
    if bug.is_some() {
        args.push(value(&sizes[2]));
    }
    let grid = [rows as u32 / 64, cols as u32 / 64, 1];
    // SAFETY: buffers live until the launch has ended; the kernel is checked, or known to keep to them.
    unsafe {
        program.launch(&Launch { kernel, grid, block: [THREADS, 1, 1], shared, args: &args, order, overlaps: true })
    }?;
    Ok(c)
}

const TEXT: &str = include_str!("pipelined.cu");

#[test]
fn pipelined_products() {
    let mut random = Random(seed());
    for (wide, mode) in [(true, Mode::Fast), (false, Mode::Fast), (true, Mode::Checked)] {
        let program = program(TEXT, wide, mode);
        // Fewer rounds than stages, and more than twice as many; a with fewer rows than its tiles.
        for (row_bytes, a_rows, cols) in [(2 * ROW, 100, 64), (7 * ROW, 128, 128)] {
            let a = Matrix::new(&mut random, a_rows, row_bytes, wide);
            let b = Matrix::new(&mut random, cols, row_bytes, wide);
            for kernel in ["tiles", "lines"] {
                // `lines` knows no edge.
                let rows = if kernel == "tiles" { a_rows.next_multiple_of(64) } else { a_rows / 64 * 64 };
                let expected: Vec<i32> = (0..rows * cols)
                    .map(|i| (0..a.cols).map(|k| a.at(i / cols, k) * b.at(i % cols, k)).sum())
                    .collect();
                for order in ORDERS {
                    let a = (&aligned(&a.bytes)[..], a_rows);
                    let b = aligned(&b.bytes);
                    let sizes = [rows, cols, row_bytes];
                    let c = multiply(&program, kernel, a, &b, sizes, wide, None, order);
                    let c = c.unwrap_or_else(|error| panic!("{kernel}, {mode:?}, {order:?}: {error}"));
                    let same =
                        |(&c, &e): (&u32, &i32)| if wide { f32::from_bits(c) == e as f32 } else { c as i32 == e };
                    let wrong = c.iter().zip(&expected).position(|pair| !same(pair));
                    assert_eq!(wrong, None, "{kernel}, wide {wide}, {mode:?}, {order:?}");
                }
            }
        }
    }
}

/// Every shape, type and layout, with a from shared memory and from registers.
#[test]
fn products_of_each_shape() {
    let program = compile_hopper("shapes.cu", include_str!("shapes.cu"), &[], Mode::Fast);
    let mut random = Random(seed());
    // Numbers from -8 to 8 in 16-bit floats: their values are exact in both types.
    let bits = |value: i32, kind: &str| match (kind, value) {
        ("s8", _) => vec![value as i8 as u8],
        ("bf16", _) => ((value as f32).to_bits() >> 16).to_le_bytes()[..2].to_vec(),
        (_, 0) => vec![0, 0],
        _ => {
            let exponent = value.unsigned_abs().ilog2();
            let fraction = (value.unsigned_abs() << (10 - exponent)) & 0x3ff;
            let word = u32::from(value < 0) << 15 | (exponent + 15) << 10 | fraction;
            word.to_le_bytes()[..2].to_vec()
        }
    };
    for kind in ["bf16", "f16", "s8", "f16_by_columns"] {
        let k = if kind == "s8" { 32 } else { 16 };
        for columns in [8_usize, 16, 32, 64, 128, 256] {
            let [a, b] =
                [64, columns].map(|rows| (0..rows * k).map(|_| (random.next() % 17) as i32 - 8).collect::<Vec<i32>>());
            let by_columns = kind == "f16_by_columns";
            let transposed: Vec<i32> = (0..b.len()).map(|i| b[i % columns * k + i / columns]).collect();
            let lies = if by_columns { &transposed } else { &b };
            let [left, right] =
                [&a, lies].map(|m| aligned(&m.iter().flat_map(|&v| bits(v, kind)).collect::<Vec<u8>>()));
            for (width, from_registers) in [(0, 0), (32, 1), (64, 0), (128, 1), (128, 0)] {
                // Matrices by columns are of whole lines of the swizzle.
                if by_columns && 2 * columns < width as usize {
                    continue;
                }
                let mut c = vec![0_u32; 64 * columns];
                let args = [read(&left), read(&right), write(&mut c), value(&width), value(&from_registers)];
                let kernel = format!("{kind}_{columns}");
                run(&program, &kernel, 1, 128, (64 + 256) * 128, Order::Shuffled(5), &args).unwrap();
                for (i, &c) in c.iter().enumerate() {
                    let dot = |i: usize| -> i32 {
                        (0..k).map(|k_at| a[i / columns * k + k_at] * b[i % columns * k + k_at]).sum()
                    };
                    let got = if kind == "s8" { c as i32 } else { f32::from_bits(c) as i32 };
                    assert_eq!(got, 2 * dot(i), "{kernel}, width {width}, registers {from_registers}, sum {i}");
                }
            }
        }
    }
}

/// A bug: in which kernel which statements, the last that are so, become what, and which kinds of fault it may show as.
type Bug = (&'static str, &'static [(&'static str, &'static str)], &'static [Kind]);

const EARLY: &[Kind] = &[Kind::InFlight, Kind::Uninitialised, Kind::RaceInBlock];

#[rustfmt::skip]
const BUGS: &[Bug] = &[
    // Barriers in shared memory.
    ("tiles", &[("mbarrier_init(full + i, 1);", "mbarrier_init(full + i, 2);")], &[Kind::Deadlock]),
    ("tiles", &[("mbarrier_wait(empty + at, parity ^ 1);", "mbarrier_wait(empty + at, parity);")], &[Kind::Deadlock]),
    ("tiles", &[("mbarrier_arrive(empty + at);", ";")], &[Kind::Deadlock]),
    ("tiles", &[("mbarrier_arrive(empty + at);", "{ mbarrier_arrive(empty + at); mbarrier_arrive(empty + at); }")], &[Kind::Phase, Kind::InFlight, Kind::Deadlock]),
    ("tiles", &[("mbarrier_arrive_expect_tx(full + at, sizeof(Stage));", "mbarrier_arrive_expect_tx(full + at, sizeof(Stage) + 16);")], &[Kind::Deadlock]),
    ("tiles", &[("__syncthreads();", ";")], &[Kind::RaceInBlock, Kind::RaceInWarp, Kind::Phase]),
    ("lines", &[("mbarrier_inval(full + threadIdx.x);", ";")], &[Kind::Phase]),
    ("lines", &[("mbarrier_inval(empty + threadIdx.x);", "{ mbarrier_inval(empty + threadIdx.x); mbarrier_arrive(empty + threadIdx.x); }")], &[Kind::Phase]),
    ("lines", &[("named_barrier_sync(3, THREADS);", ";")], &[Kind::RaceInBlock, Kind::RaceInWarp, Kind::Phase]),
    // Copies that the device continues with.
    ("tiles", &[("mbarrier_wait(full + at, parity);", ";")], EARLY),
    ("tiles", &[("mbarrier_wait(full + at, parity);", "mbarrier_wait(full + at, parity ^ 1);")], &[Kind::InFlight, Kind::Uninitialised, Kind::RaceInBlock, Kind::Deadlock]),
    ("tiles", &[("mbarrier_wait(full + at, parity);", "{ if (threadIdx.x < 96) mbarrier_wait(full + at, parity); }")], EARLY),
    ("tiles", &[("mbarrier_wait(empty + at, parity ^ 1);", ";")], &[Kind::InFlight, Kind::RaceInBlock, Kind::Phase]),
    ("tiles", &[("wgmma_wait<0>();", "{ mbarrier_arrive(empty + at); wgmma_wait<0>(); }"), ("mbarrier_arrive(empty + at);", ";")], &[Kind::InFlight]),
    ("tiles", &[("copy_tile(stages[at].b,", "copy_tile(stages[at + 1].b + 64 * ROW,")], &[Kind::OutOfBounds, Kind::InFlight, Kind::RaceInBlock]),
    ("tiles", &[("copy_tile(stages[at].b,", "copy_tile(stages[at].b + 16,")], &[Kind::Misaligned]),
    ("tiles", &[("fence_async();", ";")], &[Kind::Unfenced]),
    ("lines", &[("copy_bulk(stages[at].a + row * ROW, a + (blockIdx.x * M + row) * (u64)bytes", "copy_bulk(stages[at].a + row * ROW, a + (blockIdx.x * M + row + 1) * (u64)bytes")], &[Kind::OutOfBounds]),
    ("lines", &[("__syncwarp();", ";")], EARLY),
    // Products.
    ("tiles", &[("wgmma_fence();", ";")], &[Kind::Unfenced]),
    ("tiles", &[("wgmma_fence();", "{ wgmma_fence(); d[1] += 1; }")], &[Kind::Unfenced]),
    ("tiles", &[("wgmma_wait<0>();", ";")], &[Kind::InFlight]),
    ("tiles", &[("wgmma_wait<0>();", "wgmma_wait<1>();")], &[Kind::InFlight]),
    ("tiles", &[("wgmma_commit();", ";")], &[Kind::InFlight]),
    ("tiles", &[("wgmma_commit();", "{ wgmma_commit(); if (d[0] == 5) c[0] = 0; }")], &[Kind::InFlight]),
    ("tiles", &[("wgmma_commit();", "{ wgmma_commit(); if (threadIdx.x == 5) ((u8*)stage->b)[7] = 1; }")], &[Kind::InFlight]),
    ("tiles", &[("MULTIPLY(d, left, right, true);", "MULTIPLY(d, left + (200 * 1024 >> 4), right, true);")], &[Kind::OutOfBounds]),
    ("tiles", &[("MULTIPLY(d, left, right, true);", "MULTIPLY(d, left, right + ((u64)8000 << 32), true);")], &[Kind::OutOfBounds]),
    ("tiles", &[("MULTIPLY(d, left, right, true);", "MULTIPLY(d, left + (512 >> 4), right, true);")], &[Kind::Misaligned]),
    ("tiles", &[("MULTIPLY(d, left, right, true);", "MULTIPLY(d, left + (lane() == 3 ? 2 : 0), right, true);")], &[Kind::Collective]),
    ("tiles", &[("MULTIPLY(d, left, right, true);", "MULTIPLY(d, left, right ^ (threadIdx.x < 32 ? 0 : 2), true);")], &[Kind::Divergence]),
    ("lines", &[("fence_async();", ";")], &[Kind::Unfenced]),
    ("lines", &[("wgmma_commit();", "{ wgmma_commit(); registers[0][1] = 0; }")], &[Kind::InFlight]),
    // Barriers of some warps.
    ("lines", &[("named_barrier_sync(1, CONSUMERS);", ";")], EARLY),
    ("lines", &[("named_barrier_sync(2, CONSUMERS);", ";")], EARLY),
    ("lines", &[("named_barrier_sync(3, THREADS);", "named_barrier_sync(3, warp == 2 ? 64 : THREADS);")], &[Kind::Divergence]),
    ("lines", &[("named_barrier_sync(3, THREADS);", "named_barrier_sync(warp == 2 ? 4 : 3, THREADS);")], &[Kind::Deadlock]),
    ("lines", &[("named_barrier_sync(3, THREADS);", "{ if (lane() < 16) named_barrier_sync(3, THREADS);\nelse named_barrier_sync(3, THREADS); }")], &[Kind::Divergence]),
    ("lines", &[("named_barrier_sync(3, THREADS);", "{ if (lane() < 16) named_barrier_sync(3, THREADS); }")], &[Kind::Divergence]),
    ("lines", &[("named_barrier_sync(3, THREADS);", "named_barrier_sync(16, THREADS);")], &[Kind::Limit]),
    ("lines", &[("named_barrier_arrive(3, THREADS);", "{ named_barrier_arrive(3, THREADS); named_barrier_arrive(3, THREADS); }")], &[Kind::Divergence]),
];

/// All bugs in one source, whose kernels take as a further argument which of them they have: compiling is what takes
/// time.
fn with_bugs() -> String {
    let mut text = TEXT.replace("SUM* c, u32 bytes, u32 columns) {", "SUM* c, u32 bytes, u32 columns, u32 bug) {");
    let mut statements: Vec<(&str, &str)> =
        BUGS.iter().flat_map(|bug| bug.1.iter().map(|change| (bug.0, change.0))).collect();
    statements.sort_unstable();
    statements.dedup();
    for (kernel, find) in statements {
        let begin = text.find(&format!("KERNEL({kernel})")).unwrap();
        let end = text[begin + 1..].find("KERNEL(").map_or(text.len(), |next| begin + 1 + next);
        let found = text[begin..end].rfind(find);
        let at = begin + found.unwrap_or_else(|| panic!("{kernel} has no {find:?} any more: plant another bug"));
        let length = text[at..].find(";\n").unwrap() + 1;
        let whole = text[at..at + length].to_owned();
        let mut chosen = String::new();
        for (number, (of, changes, _)) in (1..).zip(BUGS).filter(|(_, bug)| bug.0 == kernel) {
            if let Some((_, replace)) = changes.iter().find(|change| (*of, change.0) == (kernel, find)) {
                let _ = write!(chosen, "if (bug == {number}) {{ {} }} else ", whole.replacen(find, replace, 1));
            }
        }
        text.replace_range(at..at + length, &format!("{chosen}{{ {whole} }}"));
    }
    text
}

#[test]
fn planted_bugs_are_found() {
    let program = program(&with_bugs(), true, Mode::Checked);
    let mut random = Random(seed());
    let row_bytes = 7 * ROW;
    let [a, b] = [(); 2].map(|()| aligned(&Matrix::new(&mut random, 64, row_bytes, true).bytes));
    let run = |kernel, bug: usize, order| {
        multiply(&program, kernel, (&a, 64), &b, [64, 64, row_bytes], true, Some(bug as u32), order)
    };
    for kernel in ["tiles", "lines"] {
        ORDERS.into_iter().for_each(|order| assert!(run(kernel, 0, order).is_ok(), "{kernel}, {order:?}"));
    }
    let mut missed = Vec::new();
    for (number, (kernel, changes, kinds)) in BUGS.iter().enumerate() {
        for order in ORDERS {
            let what = format!("{kernel}, {changes:?}, {order:?}");
            match run(kernel, number + 1, order) {
                Err(Error::Fault(fault)) => {
                    println!("{what}: {fault}");
                    let known = fault.place.lines.first().is_some_and(|(file, _)| file == "pipelined.cu");
                    if !kinds.contains(&fault.kind) || !known {
                        missed.push(format!("{what}: must be {kinds:?}, was {fault}"));
                    }
                }
                Err(error) => missed.push(format!("{what}: {error}")),
                Ok(_) => missed.push(format!("{what}: not found")),
            }
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}
