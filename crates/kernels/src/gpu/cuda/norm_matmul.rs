//! A norm and the product that reads it in one launch, for steps of few tokens: the host side of `kernels/norm_matmul.cu`.

use super::gemv::{int8_text, reads_int8, team_log2};
use super::product::{Bias, bias_arg, word};
use super::texts::Text;
use crate::act::{Act, Precision};
use crate::error::Result;
use crate::format::Format;
use crate::gpu::layout::parts;
use crate::gpu::small::norm_act::{self, fill};
use crate::gpu::small::{Rows, wide};
use crate::gpu::twin::twin;
use crate::gpu::{Access, Arg, Device, Kernel, Launch, layout};
use crate::ops::Norm;
use crate::tensor::{Buffer, ViewMut};
use crate::weight::Weight;

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

twin! {
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
        team_log2: u32,
        wide: u32,
        eps: f32,
    }
}

/// What may be compiled.
pub(super) fn texts() -> impl Iterator<Item = Text> {
    let kinds = Format::ALL.iter().flat_map(|&format| [(format, false), (format, true)]);
    let kinds = kinds.filter(|(format, int8)| !(*int8 && format.is_float()));
    kinds.flat_map(|(format, int8)| {
        TEAM_ROWS.map(|(_, rows)| {
            let defines = defines(format, int8, rows);
            Text { file: FILE, defines: defines.map(|(name, value)| (name, value.to_owned())).to_vec() }
        })
    })
}

fn defines(format: Format, int8: bool, team_rows: &'static str) -> [(&'static str, &'static str); 3] {
    [("FORMAT", format.name()), ("INT8", int8_text(int8)), ("TEAM_ROWS", team_rows)]
}

/// Bytes of shared memory for the prepared row.
fn shared_bytes(cols: usize, int8: bool) -> usize {
    if int8 { cols.div_ceil(32) * 80 } else { cols.next_multiple_of(4) * size_of::<f32>() }
}

/// Whether the kernel is for this product of so many rows.
pub(super) fn serves(w: &[layout::Rows], rows: usize, act: &Act, other: Option<&Act>) -> bool {
    let few = |part: &layout::Rows| rows == 1 || (rows <= MOST_ROWS && part.rows <= SMALL);
    let fits = |part: &layout::Rows| shared_bytes(part.cols, reads_int8(part, act)) <= SHARED;
    let sorts = other.is_none_or(|other| other.precision != act.precision);
    rows > 0 && sorts && w.iter().all(|part| few(part) && fits(part) && part.cols > 0)
}

/// [`crate::ops::Backend::norm_matmul`], checked, if [`serves`].
pub(super) fn norm_matmul(
    device: &Device,
    norm: Norm,
    normed: ViewMut<f32>,
    act: &mut Act,
    other: Option<&mut Act>,
    w: &Weight,
    bias: Option<&Buffer<f32>>,
    mut y: ViewMut<f32>,
) -> Result<()> {
    let op = "norm_matmul";
    let (rows, cols) = (norm.x.rows(), norm.x.cols());
    let precision = act.precision;
    let mut acts: Vec<&mut Act> = [Some(act), other].into_iter().flatten().collect();
    fill(&mut acts, rows, cols);
    let mut first = 0;
    for part in parts(op, w)? {
        let y = y.reborrow().columns(first..first + part.rows)?;
        let int8 = precision == Precision::Fast && !part.format.is_float();
        let (team_rows, team_text) = TEAM_ROWS[usize::from(part.rows > SMALL)];
        let team_log2 = team_log2(part.spans, part.rows.div_ceil(team_rows), BLOCK);
        let params = NormMatmulParams {
            x_stride: norm.x.shape().stride() as u64,
            normed_stride: normed.shape().stride() as u64,
            y_stride: y.shape().stride() as u64,
            row_bytes: part.row_bytes as u64,
            outputs: word(op, "outputs", part.rows)?,
            blocks: word(op, "blocks in a row", part.blocks())?,
            cols: word(op, "columns", cols)?,
            team_log2,
            wide: wide(cols, [Rows::of(&norm.x), Rows::of_mut(&normed)]),
            eps: norm.eps,
        };
        // The first part's first block writes what others read.
        let mut copies = [Arg::Null; 5];
        if first == 0 {
            let [exact, int8, bf16, other] = norm_act::parts(&acts);
            copies = [Arg::write(&normed), exact, int8, bf16, other];
        }
        let [copy, exact, of_int8, bf16, other] = copies;
        let bias = bias_arg(bias.map(|values| Bias { values, first, matrix: w.rows }));
        let (x, weight) = (Arg::read(&norm.x), Arg::buffer(norm.weight, Access::Read));
        let (y, params) = (Arg::write(&y), Arg::params(&params));
        let defines = defines(part.format, int8, team_text);
        let blocks = part.rows.div_ceil(team_rows).div_ceil(BLOCK >> team_log2);
        device.launch(&Launch {
            kernel: Kernel { file: FILE, entry: "norm_matmul", defines: &defines },
            grid: [word(op, "blocks of outputs", blocks)?, rows as u32, 1],
            block: BLOCK as u32,
            shared: shared_bytes(cols, int8) as u32,
            overlap: true,
            args: &[part.arg(), x, weight, bias, y, copy, exact, of_int8, bf16, other, params],
        })?;
        first += part.rows;
    }
    Ok(())
}
