//! Norms whose output is prepared as activations: `kernels/norm_act.h`.

use super::grid::{MOST_BLOCKS, count};
use super::row_alignment::{RowAlignment, aligned};
use gristmill_kernels::act::{Act, Precision};
use gristmill_kernels::error::Result;

use crate::storage::ActOutput;
use crate::{Access, Arg, Device, Kernel, Launch};
use gristmill_kernels::ops::{Fused, NormAct, Operation, RmsNorm};

/// Outputs besides the representations of fast activations: exact ones, and the rows themselves. `ActPart` in the
/// source.
const OTHER: u32 = 8;
const NORMED: u32 = 16;
/// Elements of a row that one thread keeps: `KEPT` groups of four.
const THREAD_ELEMENTS: usize = 8;

/// Threads of a block that keeps a row of this number of elements in registers, if it can.
pub(super) fn threads(width: usize) -> Option<u32> {
    let fits = (1..=1024 * THREAD_ELEMENTS).contains(&width);
    fits.then(|| width.div_ceil(THREAD_ELEMENTS).next_multiple_of(32) as u32)
}

shared_struct! {
    pub(super) struct NormActParams {
        // Elements of a row, and from one row to the next.
        width: u64,
        x_stride: u64,
        normed_stride: u64,
        eps: f32,
        aligned: u32,
        // The parts that are written, of ActPart; the other pointers say nothing.
        parts: u32,
        padding: u32,
    }
}

/// Activations that a norm fills, at most one of each precision.
pub struct NormActs<'a> {
    fast: Option<ActOutput<'a>>,
    exact: Option<ActOutput<'a>>,
}

impl<'a> NormActs<'a> {
    /// `None` if there are two of one precision.
    pub fn new(op: &'static str, acts: [Option<&'a Act>; 2]) -> Result<Option<Self>> {
        let mut of_both = Self { fast: None, exact: None };
        for act in acts.into_iter().flatten() {
            let kept = if act.precision() == Precision::Exact { &mut of_both.exact } else { &mut of_both.fast };
            if kept.replace(ActOutput::new(op, act)?).is_some() {
                return Ok(None);
            }
        }
        Ok(Some(of_both))
    }

    /// Exact, int8 and bf16 copies of fast activations, then the copy of exact ones.
    pub fn args(&self) -> [Arg<'a>; 4] {
        let [exact, int8, bf16] = self.fast.map_or([Arg::Null; 3], |act| act.storage.outputs());
        [exact, int8, bf16, self.exact.map_or(Arg::Null, |act| act.storage.exact(Access::Write))]
    }

    /// Which of [`NormActs::args`] are to be written, and whether the rows are.
    fn parts(&self) -> u32 {
        let fast = self.fast.map_or(0, |act| act.parts());
        let other = if self.exact.is_some() { OTHER } else { 0 };
        let mut acts = self.fast.iter().chain(&self.exact).peekable();
        let named = acts.peek().is_some() && acts.all(|act| act.wanted.is_some());
        fast | other | if named { 0 } else { NORMED }
    }
}

/// [`NormAct`] in one launch, if rows fit the registers of a block and there is at most one of each precision.
pub fn norm_act(device: &Device, call: &NormAct) -> Result<Fused> {
    let NormAct { norm: RmsNorm { x, weight, eps, out }, acts } = call;
    let (rows, width) = (x.rows(), x.cols());
    let acts = NormActs::new(NormAct::NAME, acts.each_ref().map(|act| act.as_deref()))?;
    let (Some(acts), Some(block)) = (acts, threads(width)) else { return Ok(Fused::No) };
    if rows == 0 {
        return Ok(Fused::Yes);
    }
    let params = NormActParams {
        width: width as u64,
        x_stride: x.layout().stride() as u64,
        normed_stride: out.layout().stride() as u64,
        eps: *eps,
        aligned: aligned(width, [RowAlignment::of(x), RowAlignment::of_mut(out)]),
        parts: acts.parts(),
        padding: 0,
    };
    let [exact, int8, bf16, other] = acts.args();
    let weight = Arg::buffer(weight, Access::Read);
    let args = [Arg::read(x), weight, Arg::write(out), exact, int8, bf16, other, Arg::params(&params)];
    let blocks = count(NormAct::NAME, "rows", rows, MOST_BLOCKS)?;
    device.launch(&Launch::new(Kernel::plain("rows.gpu", "norm_act"), [blocks, 1, 1], block, &args))?;
    Ok(Fused::Yes)
}
