//! The router, and the grouping of (token, expert) pairs by expert.

use super::check::{self, *};
use super::operation::{Check, Operation};
use crate::error::Result;
use crate::groups::Groups;
use crate::tensor::{Buffer, DeviceId, View, ViewMut};

/// How a router's logits become weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gating {
    /// Softmax over all experts, then top k.
    Softmax,
    /// Top k, then softmax over the chosen experts only.
    SoftmaxOfChosen,
    /// Sigmoid of each logit, then top k.
    Sigmoid,
    /// SparseMixer (<https://arxiv.org/abs/2409.12136>, in its inference form; Phi-3.5-MoE). Experts are chosen one
    /// after another: each is the best remaining expert, with logit m. Its weight is its softmax over the remaining
    /// experts with a near logit: (m − logit) ≤ `near` · max(|logit|, m).
    SparseMixer {
        /// Maximum relative distance of a near logit from the best one; at least 0.
        near: f32,
    },
}

/// How a group of experts is scored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupWorth {
    /// The sum of its two highest selection scores (DeepSeek-V3).
    TwoHighest,
    /// Its highest selection score (DeepSeek-V2).
    Highest,
}

/// The router's parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Routing {
    /// Experts per token, 1..=E.
    pub top_k: usize,
    /// How logits become weights.
    pub gating: Gating,
    /// Divide the chosen weights by their sum. The divisor is at least 6.1e-5 (the smallest normal f16), as in the
    /// reference implementations.
    pub normalise: bool,
    /// Multiplies the final weights.
    pub scale: f32,
    /// Experts form this many equal groups (1: no groups). Only the `top_groups` groups with the highest scores take
    /// part.
    pub groups: usize,
    /// Number of groups that take part.
    pub top_groups: usize,
    /// How groups are scored.
    pub worth: GroupWorth,
}

impl Routing {
    /// Top-k softmax routing without groups.
    pub fn softmax(top_k: usize, normalise: bool) -> Self {
        Self {
            top_k,
            gating: Gating::Softmax,
            normalise,
            scale: 1.0,
            groups: 1,
            top_groups: 1,
            worth: GroupWorth::TwoHighest,
        }
    }

    fn check(&self, op: &'static str, experts: usize) -> Result<()> {
        let Self { top_k, groups, top_groups, .. } = *self;
        require((1..=MAX_EXPERTS).contains(&experts), op, "experts", experts, "1 to 1024 are supported")?;
        require((1..=experts).contains(&top_k), op, "top-k", top_k, "from 1 to the number of experts")?;
        let divides = groups > 0 && experts.is_multiple_of(groups);
        require(divides, op, "expert groups", groups, "must divide the number of experts")?;
        require((1..=groups).contains(&top_groups), op, "top groups", top_groups, "from 1 to the number of groups")?;
        let enough = top_groups * (experts / groups) >= top_k;
        require(enough, op, "top-k", top_k, "the chosen groups must hold that many experts")?;
        let Gating::SparseMixer { near } = self.gating else { return Ok(()) };
        require(near.is_finite() && near >= 0.0, op, "near", near, "must be finite and not negative")
    }
}

/// Router: logits to expert ids and weights, by descending score, the smaller index first on a tie. If a logit or
/// selection bias is not finite, the row gets distinct ids and NaN weights, so the model's output is NaN. A padding row
/// gets ids of [`PADDING`] and weights of 0.
#[derive(Debug)]
pub struct Route<'a> {
    /// T × E.
    pub logits: View<'a, f32>,
    /// The parameters.
    pub routing: &'a Routing,
    /// Added to the scores for selection only (DeepSeek-V3), E.
    pub selection_bias: Option<&'a Buffer<f32>>,
    /// Factors of the experts' final weights (Gemma 4), E.
    pub expert_scales: Option<&'a Buffer<f32>>,
    /// The tokens, T × 1: a row whose token is [`PADDING`] is padding. `None`: no row is padding.
    pub tokens: Option<View<'a, u32>>,
    /// T × k.
    pub ids: ViewMut<'a, u32>,
    /// T × k.
    pub weights: ViewMut<'a, f32>,
}

constructor! {
    Route<'a>(logits: View<'a, f32>, routing: &'a Routing, ids: ViewMut<'a, u32>, weights: ViewMut<'a, f32>)
        optional(selection_bias: &'a Buffer<f32>, expert_scales: &'a Buffer<f32>, tokens: View<'a, u32>)
}

impl<'a> Route<'a> {
    /// The call with shorter borrows.
    pub fn reborrow(&mut self) -> Route<'_> {
        Route { ids: self.ids.reborrow(), weights: self.weights.reborrow(), ..*self }
    }
}

impl Check for Route<'_> {
    fn check(&mut self, device: DeviceId) -> Result<()> {
        let Self { logits, routing, selection_bias, expert_scales, tokens, ids, weights } = self;
        on_device(Self::NAME, device, &[logits.device(), ids.device(), weights.device()])?;
        if logits.rows() > 0 {
            routing.check(Self::NAME, logits.cols())?;
        }
        shape(Self::NAME, ["rows of the ids", "columns of the ids"], ids, logits.rows(), routing.top_k)?;
        shape(Self::NAME, ["rows of the weights", "columns of the weights"], weights, logits.rows(), routing.top_k)?;
        if let Some(tokens) = tokens {
            column(Self::NAME, "number of tokens", device, tokens, logits.rows())?;
        }
        if logits.rows() == 0 {
            return Ok(());
        }
        vectors(Self::NAME, "length of the selection bias", device, *selection_bias, logits.cols())?;
        vectors(Self::NAME, "number of the experts' scales", device, *expert_scales, logits.cols())
    }
}

/// Sorts (token, slot) pairs by expert. Pairs of experts that the groups leave out count as pairs without an expert.
#[derive(Debug)]
pub struct GroupByExpert<'a> {
    /// Expert ids, T × k. [`PADDING`] marks a pair without an expert.
    pub ids: View<'a, u32>,
    /// Receives the pairs.
    pub groups: &'a mut Groups,
}

constructor! { GroupByExpert<'a>(ids: View<'a, u32>, groups: &'a mut Groups) }

impl Check for GroupByExpert<'_> {
    fn check(&mut self, device: DeviceId) -> Result<()> {
        let Self { ids, groups } = self;
        on_device(Self::NAME, device, &[ids.device(), groups.device()])?;
        check::ids(Self::NAME, "expert", ids, groups.all(), true)?;
        groups.total_pairs = pairs(Self::NAME, groups, ids.rows(), ids.cols())?;
        Ok(())
    }
}

/// The number of pairs; fails if the groups have too little capacity.
pub(super) fn pairs(op: &'static str, groups: &Groups, tokens: usize, top_k: usize) -> Result<usize> {
    let pairs = elements("pairs", &[tokens, top_k])?;
    require(pairs < PADDING as usize, op, "pairs", pairs, "must be below 2^32 - 1")?;
    at_least(op, "capacity for pairs", groups.pairs.len(), pairs)?;
    Ok(pairs)
}

/// [`Route`], then [`GroupByExpert`] of its ids.
#[derive(Debug)]
pub struct RouteAndGroup<'a> {
    /// The routing.
    pub route: Route<'a>,
    /// Receives the pairs.
    pub groups: &'a mut Groups,
}

constructor! { RouteAndGroup<'a>(route: Route<'a>, groups: &'a mut Groups) }

impl Check for RouteAndGroup<'_> {
    fn check(&mut self, device: DeviceId) -> Result<()> {
        let Self { route, groups } = self;
        route.check(device)?;
        on_device(Self::NAME, device, &[groups.device()])?;
        if route.logits.rows() > 0 {
            expect(Self::NAME, "experts of the groups", groups.all(), route.logits.cols())?;
        }
        groups.total_pairs = pairs(Self::NAME, groups, route.logits.rows(), route.routing.top_k)?;
        Ok(())
    }
}
