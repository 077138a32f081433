//! The plan of a product: the family that multiplies, and then its tile and split.

use super::card::Card;
use super::gemm::{self, GemmPlan};
use super::gemm_f32::{self, GemmF32Plan};
use super::gemv::{self, GemvPlan};
use super::int8::{self, Int8Plan};
use super::shape::{Problem, Shape};
use super::thresholds::Thresholds;
use super::{int8_few, int8_many, norm_matmul};
use crate::family::Family;
use crate::options::Choice;
use gristmill_gpu::Unit;
use gristmill_gpu::storage::{BF16, EXACT, INT8};
use gristmill_kernels::act::Representations;
use gristmill_kernels::error::{Error, Result};

/// What multiplies, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Plan {
    Gemv(GemvPlan),
    F32(GemmF32Plan),
    Int8(Int8Plan),
    Gemm(GemmPlan),
}

impl Plan {
    /// The plan of a product.
    ///
    /// # Errors
    /// [`Error::Range`] if the requested family cannot multiply it.
    pub(crate) fn new(card: &Card, shape: &Shape) -> Result<Self> {
        Ok(match family(card, &shape.problem)? {
            Family::Gemv => match GemmF32Plan::new(card, shape).filter(|_| card.choice == Choice::Fastest) {
                Some(plan) => Self::F32(plan),
                None => Self::Gemv(GemvPlan::new(card, shape)),
            },
            Family::Int8 => Self::Int8(int8_many::plan(card, shape).unwrap_or_else(|| int8_few::plan(card, shape))),
            Family::Mma | Family::Wgmma => Self::Gemm(GemmPlan::new(card, shape)),
        })
    }
}

/// Every unit of a plan, for any card.
pub(crate) fn units() -> impl Iterator<Item = Unit> {
    let gemm = Thresholds::ALL.into_iter().flat_map(gemm::units);
    let few = gemv::units().chain(norm_matmul::units()).chain(int8_few::units());
    few.chain(gemm_f32::units()).chain(int8_many::units()).chain(gemm)
}

/// The representations of activations that a reader of all their rows reads.
pub(crate) fn representations(card: &Card, problem: &Problem, act_rows: usize) -> Representations {
    if act_rows <= card.thresholds().all_representations {
        return Representations::ALL;
    }
    match family(card, problem) {
        Ok(Family::Mma | Family::Wgmma) => BF16,
        Ok(Family::Gemv) if !problem.reads_int8() => EXACT,
        Ok(Family::Gemv | Family::Int8) => INT8,
        // The product is refused.
        Err(_) => Representations::ALL,
    }
}

/// See [`gristmill_gpu::Vendor::rounds_results`].
pub(crate) fn rounds_results(card: &Card, problem: &Problem) -> Result<bool> {
    family(card, problem).map(|family| matches!(family, Family::Mma | Family::Wgmma))
}

/// The family that multiplies; `Mma` also stands for `Wgmma`, of which [`GemmPlan`] takes the faster.
fn family(card: &Card, problem: &Problem) -> Result<Family> {
    match card.choice {
        Choice::Fastest => Ok(fastest(card, problem)),
        Choice::Deterministic => Ok(deterministic(card, problem)),
        Choice::Family(family) => match cannot(card, problem, family) {
            None => Ok(family),
            Some(rule) => {
                let Problem { op, format, precision, .. } = *problem;
                let found = format!("{family}, for {format} and activations of precision {precision:?}");
                Err(Error::Range { op, what: "the family of kernels that was asked for", found, rule })
            }
        },
    }
}

/// By the number of rows.
fn fastest(card: &Card, problem: &Problem) -> Family {
    let &Problem { rows, experts, .. } = problem;
    if int8::serves(card, rows, experts) && card.runs(Family::Int8) && cannot(card, problem, Family::Int8).is_none() {
        Family::Int8
    } else if gemm::serves(card, rows, experts) && cannot(card, problem, Family::Mma).is_none() {
        Family::Mma
    } else {
        Family::Gemv
    }
}

/// Chosen only by the weight. Among the families whose result for a row depends only on the weight's shape, int8 on
/// tensor cores needs about the time of dot products for one row, and little more for eight ([`Thresholds`]).
fn deterministic(card: &Card, problem: &Problem) -> Family {
    if card.runs(Family::Int8) && problem.reads_int8() { Family::Int8 } else { Family::Gemv }
}

/// Why a family cannot multiply this, if so.
fn cannot(card: &Card, problem: &Problem, family: Family) -> Option<&'static str> {
    match family {
        Family::Int8 if !problem.reads_int8() => {
            Some("it multiplies quantised weights with activations of precision `Fast`")
        }
        Family::Mma | Family::Wgmma => gemm::cannot(card, family, problem.format, problem.precision),
        _ => None,
    }
}
