//! Products of weights with many rows of activations: the host side of `kernels/gemm.metal`.

use super::matmul::part_args;
use super::moe::GRIDS;
use crate::act::{Act, Precision};
use crate::error::Result;
use crate::format::Format;
use crate::gpu::finish::Finish;
use crate::gpu::layout::Rows;
use crate::gpu::product::{Bias, ProductParams, Which, bias_arg, lists, word};
use crate::gpu::{Access, Arg, Device, Kernel, Launch, Text};
use crate::ops::Activation;
use crate::tensor::{Buffer, ViewMut};

const FILE: &str = "gemm.metal";
/// Threads of a block.
const BLOCK: u32 = 128;
/// A tile: outputs, of `gate_up` half as many, and rows of X.
const TILE_OUTPUTS: usize = 64;
pub(super) const TILE_ROWS: usize = 32;
/// Rows of X that dot products serve better: they read weights for every four of them, tiles compute eight at once.
/// Not measured.
const FEW: usize = 8;
/// Pairs for each expert that dot products serve better, in the mean. Not measured.
const FEW_PAIRS: usize = 4;

/// Every compilation of the text.
pub(super) fn texts() -> impl Iterator<Item = Text> {
    Format::ALL.iter().map(|format| Text { file: FILE, defines: vec![("FORMAT", format.name().to_owned())] })
}

/// Whether a product is one for these kernels. Sums are taken in another order than in `gemv.metal`, which exact activations
/// may show with float weights in F32 alone (`crate::ops`).
pub(super) fn serves(w: &Rows, x: &Act, which: Which, rows: usize) -> bool {
    let fast = x.precision == Precision::Fast;
    match which {
        Which::Pairs { groups, .. } => fast && rows >= FEW_PAIRS * groups.counts.len(),
        _ => (fast || w.format == Format::F32) && rows > FEW,
    }
}

/// X · Wᵀ + bias, which finishes in Y, for weights that one launch takes (`runs` in [`super::matmul`]).
pub(super) fn matmul(
    device: &Device,
    op: &'static str,
    run: &[Rows],
    x: &Act,
    which: Which,
    bias: Option<Bias>,
    finish: Finish,
    y: &ViewMut<f32>,
) -> Result<()> {
    let stride = y.shape().stride();
    let params = ProductParams::new(op, &run[0], x, which, bias, 0, finish, stride, y.rows())?.joined(op, run)?;
    let [pairs, tiles, tile_count] = lists(which);
    let ids = if let Which::Ids(ids) = &which { Arg::read(ids) } else { Arg::Null };
    let (x, bias, to) = (Arg::buffer(&x.exact, Access::Read), bias_arg(bias), finish.output(y));
    let [weight, second, third] = part_args(run);
    let (flag, params) = (device.flag(), Arg::params(&params));
    let args = [weight, second, third, x, ids, pairs, tiles, tile_count, bias, to, flag, params];
    launch(device, op, "matmul", run, which, TILE_OUTPUTS, y.rows(), &args)
}

/// activation(gate · x + bias, up · x + bias), for two weights of one shape and format.
pub(super) fn gate_up(
    device: &Device,
    op: &'static str,
    [gate, up]: [&Rows; 2],
    x: &Act,
    which: Which,
    bias: Option<[&Buffer<f32>; 2]>,
    activation: Activation,
    h: &ViewMut<f32>,
) -> Result<()> {
    let [gate_bias, up_bias] = Bias::both(bias, gate.rows);
    let finish = Finish::Gate(activation);
    let params = ProductParams::new(op, gate, x, which, gate_bias, 0, finish, h.shape().stride(), h.rows())?;
    let [pairs, tiles, tile_count] = lists(which);
    let (x, to) = (Arg::buffer(&x.exact, Access::Read), Arg::write(h));
    let (gate_bias, up_bias, params) = (bias_arg(gate_bias), bias_arg(up_bias), Arg::params(&params));
    let args = [gate.arg(), up.arg(), x, pairs, tiles, tile_count, gate_bias, up_bias, to, params];
    launch(device, op, "gate_up", std::slice::from_ref(gate), which, TILE_OUTPUTS / 2, h.rows(), &args)
}

/// A block for each tile: of experts as many as grouping has found, by a grid that it has written.
fn launch(
    device: &Device,
    op: &'static str,
    entry: &'static str,
    run: &[Rows],
    which: Which,
    tile_outputs: usize,
    rows: usize,
    args: &[Arg],
) -> Result<()> {
    let defines = [("FORMAT", run[0].format.name())];
    let outputs: usize = run.iter().map(|part| part.rows).sum();
    let all = outputs.div_ceil(tile_outputs);
    let (blocks, grid) = match which {
        // A block takes several tiles where there are more than grids.
        Which::Pairs { groups, .. } => (all.div_ceil(all.div_ceil(GRIDS)), groups.tile_count.region()),
        _ => (all, None),
    };
    let launch = Launch {
        kernel: Kernel { file: FILE, entry, defines: &defines },
        grid: [word(op, "blocks of outputs", blocks)?, which.tasks(run[0].experts, rows, TILE_ROWS), 1],
        block: BLOCK,
        shared: 0,
        overlap: true,
        args,
    };
    match grid {
        Some(grid) => device.launch_indirect(&launch, grid, (1 + 3 * (blocks - 1)) * size_of::<u32>()),
        None => device.launch(&launch),
    }
}
