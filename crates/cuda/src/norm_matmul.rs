//! A norm and the product that reads it in one launch, for steps of few tokens: the host side of `kernels/norm_matmul.cu`.

use super::family::Family;
use super::gemv::{int8_text, reads_int8, team_log2};
use super::units::Unit;
use gristmill_gpu::common::norm_act::NormActs;
use gristmill_gpu::common::{RowAlignment, aligned};
use gristmill_gpu::layout::{PlaneRows, parts};
use gristmill_gpu::product::{Bias, bias_arg, word};
use gristmill_gpu::shared_struct;
use gristmill_kernels::act::Act;
use gristmill_kernels::error::Result;
use gristmill_kernels::format::Format;

use super::Cuda;
use gristmill_gpu::{Access, Arg, Kernel, Launch};
use gristmill_kernels::ops::{Fused, NormMatmul, Operation, RmsNorm};

const FILE: &str = "norm_matmul.cu";
/// Threads of a block.
const BLOCK: usize = 256;
/// A weight of more rows than this is large: bytes cost time, and one row of X at a time would read them again.
const SMALL: usize = 1024;
/// Rows of X that a small weight is read for.
const MOST_ROWS: usize = 8;
/// Weight rows of a team, for small weights, which want many blocks, and for large ones.
const TEAM_ROWS: [(usize, &str); 2] = [(1, "1"), (4, "4")];
/// Bytes of shared memory that every device has for a block, less what the kernel has besides.
const SHARED: usize = 44 << 10;

shared_struct! {
    #[derive(Clone, Copy, bytemuck::Zeroable, bytemuck::Pod)]
    #[repr(C)]
    pub(super) struct NormMatmulParams in "norm_matmul.cu" {
        x_stride: u64,
        normed_stride: u64,
        y_stride: u64,
        row_bytes: u64,
        outputs: u32,
        blocks: u32,
        cols: u32,
        threads_log2: u32,
        aligned: u32,
        eps: f32,
    }
}

/// What may be compiled.
pub(super) fn units() -> impl Iterator<Item = Unit> {
    let kinds = Format::ALL.iter().flat_map(|&format| [(format, false), (format, true)]);
    let kinds = kinds.filter(|(format, int8)| !(*int8 && format.is_float()));
    kinds.flat_map(|(format, int8)| {
        TEAM_ROWS.map(|(_, rows)| {
            let defines = defines(format, int8, rows);
            Unit { file: FILE, defines: defines.map(|(name, value)| (name, value.to_owned())).to_vec() }
        })
    })
}

fn defines(format: Format, int8: bool, team_rows: &'static str) -> [(&'static str, &'static str); 3] {
    [("FORMAT", format.name()), ("INT8", int8_text(int8)), ("GROUP_ROWS", team_rows)]
}

/// Bytes of shared memory for the prepared row.
fn shared_bytes(cols: usize, int8: bool) -> usize {
    if int8 { cols.div_ceil(32) * 80 } else { cols.next_multiple_of(4) * size_of::<f32>() }
}

/// Whether the kernel is for this product of so many rows.
fn serves(w: &[PlaneRows], rows: usize, act: &Act) -> bool {
    let few = |part: &PlaneRows| rows == 1 || (rows <= MOST_ROWS && part.rows <= SMALL);
    let fits = |part: &PlaneRows| shared_bytes(part.cols, reads_int8(part, act)) <= SHARED;
    rows > 0 && w.iter().all(|part| few(part) && fits(part) && part.cols > 0)
}

/// [`NormMatmul`] in one launch for each part of the weight, for few rows.
pub(super) fn norm_matmul(cuda: &Cuda, call: &mut NormMatmul) -> Result<Fused> {
    const OP: &str = NormMatmul::NAME;
    let NormMatmul { norm: RmsNorm { x, weight, eps, out }, act, other, weight: w, bias, y } = call;
    let (rows, cols, parts) = (x.rows(), x.cols(), parts(OP, w)?);
    let Some(acts) = NormActs::new(OP, [Some(act), other.as_deref()])? else { return Ok(Fused::No) };
    if !cuda.may(Family::Gemv) || !serves(parts, rows, act) {
        return Ok(Fused::No);
    }
    let mut first = 0;
    for part in parts {
        let y = y.reborrow().columns(first..first + part.rows)?;
        let int8 = reads_int8(part, act);
        let (team_rows, team_text) = TEAM_ROWS[usize::from(part.rows > SMALL)];
        let team_log2 = team_log2(part.spans, part.rows.div_ceil(team_rows), BLOCK);
        let params = NormMatmulParams {
            x_stride: x.layout().stride() as u64,
            normed_stride: out.layout().stride() as u64,
            y_stride: y.layout().stride() as u64,
            row_bytes: part.row_bytes as u64,
            outputs: word(OP, "outputs", part.rows)?,
            blocks: word(OP, "blocks in a row", part.blocks())?,
            cols: word(OP, "columns", cols)?,
            threads_log2: team_log2,
            aligned: aligned(cols, [RowAlignment::of(x), RowAlignment::of_mut(out)]),
            eps: *eps,
        };
        // The first part's first block writes the copies.
        let mut copies = [Arg::Null; 5];
        if first == 0 {
            let [exact, int8, bf16, other] = acts.args();
            copies = [Arg::write(out), exact, int8, bf16, other];
        }
        let [copy, exact, of_int8, bf16, other] = copies;
        let bias = bias_arg(bias.map(|values| Bias { values, first, matrix: w.rows() }));
        let (x, weight) = (Arg::read(x), Arg::buffer(weight, Access::Read));
        let (y, params) = (Arg::write(&y), Arg::params(&params));
        let defines = defines(part.format, int8, team_text);
        let blocks = part.rows.div_ceil(team_rows).div_ceil(BLOCK >> team_log2);
        cuda.device.launch(&Launch {
            kernel: Kernel { file: FILE, entry: "norm_matmul", defines: &defines },
            grid: [word(OP, "blocks of outputs", blocks)?, rows as u32, 1],
            block: BLOCK as u32,
            shared: shared_bytes(cols, int8) as u32,
            overlap: true,
            args: &[part.arg(), x, weight, bias, y, copy, exact, of_int8, bf16, other, params],
        })?;
        first += part.rows;
    }
    Ok(Fused::Yes)
}
