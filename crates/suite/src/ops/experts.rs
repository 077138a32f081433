//! Expert products and their combination.

use super::common::*;
use crate::guarded::buffer;
use crate::rng::Rng;
use gristmill_kernels::groups::Groups;

use crate::weights::{energy, tensor};
use gristmill_kernels::weight::Role;
use std::fmt;

/// Which experts each token goes to.
pub(super) struct Assignment {
    pub(super) tokens: usize,
    pub(super) experts: usize,
    pub(super) top_k: usize,
    pub(super) ids: Vec<u32>,
}

impl Assignment {
    /// Random experts, different ones for a token. Some slots, and some whole tokens, are padding.
    pub(super) fn new(rng: &mut Rng, tokens: usize, experts: usize, top_k: usize, padding: f64) -> Self {
        let mut ids = Vec::new();
        for _ in 0..tokens {
            let gone = rng.chance(padding);
            let chosen: Vec<u32> = rng.shuffled(experts).into_iter().take(top_k).collect();
            ids.extend(chosen.into_iter().map(|id| if gone || rng.chance(padding) { u32::MAX } else { id }));
        }
        Self { tokens, experts, top_k, ids }
    }

    /// Ragged ones: none, one and many tokens; one expert, five, eight, 128; top-1 to all; with and without padding.
    pub(super) fn several(rng: &mut Rng) -> Vec<Self> {
        let mut all = Vec::new();
        for experts in [1, 5, 8, 128] {
            for tokens in [0, 1, 2, 7, 33, 70] {
                let top_k = rng.between(1, if experts == 128 { 9 } else { experts });
                let padding = rng.pick(&[0.0, 0.0, 0.2]);
                all.push(Self::new(rng, tokens, experts, top_k, padding));
            }
        }
        all.push(Self::new(rng, 3, 8, 8, 0.0));
        all.push(Self::new(rng, 2, 128, 128, 0.0));
        all.push(Self::new(rng, 9, 5, 2, 1.0));
        // All tokens to one expert: more rows than a tile holds.
        all.push(Self { tokens: 150, experts: 5, top_k: 1, ids: vec![3; 150] });
        all
    }

    pub(super) fn pairs(&self) -> usize {
        self.tokens * self.top_k
    }

    pub(super) fn group(&self, b: &Backend) -> Groups {
        let mut groups = b.alloc_groups(self.experts, self.pairs() + 3).expect("alloc_groups");
        let ids = Guarded::of(b, &self.ids, self.tokens, self.top_k, Guard::ODD);
        b.run(GroupByExpert { ids: ids.view(), groups: &mut groups }).expect("group_by_expert");
        groups
    }

    pub(super) fn assert_padding_is_zero(&self, suite: &Suite, case: &str, got: &Output, cols: usize) {
        for (pair, _) in self.ids.iter().enumerate().filter(|&(_, &id)| id == u32::MAX) {
            if got.floats[pair * cols..(pair + 1) * cols].iter().any(|&x| x != 0.0) {
                suite.fail(&case, format_args!("the row of padding pair {pair} is not zero"));
            }
        }
    }
}

impl fmt::Display for Assignment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let padding = self.ids.iter().filter(|&&id| id == u32::MAX).count();
        write!(f, "{} tokens, top {} of {}, {padding} padding pairs", self.tokens, self.top_k, self.experts)
    }
}

/// [`MoeMatmul`], with a row of X per token and per pair.
pub fn matmul(suite: &Suite) {
    let rng = &mut suite.rng("moe_matmul");
    for (i, assignment) in suite.some("assignments", Assignment::several(rng).into_iter().enumerate()) {
        for per_pair in [false, true] {
            check_matmul(suite, rng, &assignment, per_pair, suite.precision(i + usize::from(per_pair)));
        }
    }
}

/// [`MoeMatmul`] with all tokens for one expert: it has more rows than a block of a kernel multiplies at once, so the block
/// multiplies several chunks, one after another.
pub fn one_expert(suite: &Suite) {
    let rng = &mut suite.rng("moe_one_expert");
    for turn in suite.some("moe_one_expert", 0..4) {
        let experts = rng.between(3, 6);
        let tokens = experts * rng.between(17, 31);
        let expert = rng.below(experts) as u32;
        let assignment = Assignment { tokens, experts, top_k: 1, ids: vec![expert; tokens] };
        check_matmul(suite, rng, &assignment, false, suite.precision(turn));
    }
}

/// One [`MoeMatmul`] of random weights, and its last token alone.
fn check_matmul(suite: &Suite, rng: &mut Rng, assignment: &Assignment, per_pair: bool, precision: Precision) {
    let parts = rng.between(1, 2);
    let cols = 256;
    let tensors: Vec<_> = (0..parts)
        .map(|_| {
            let format = rng.pick(suite.formats());
            let rows = rng.between(1, 40);
            tensor(rng, format, assignment.experts, rows, cols)
        })
        .collect();
    let rows: usize = tensors.iter().map(|t| t.rows).sum();
    let x_rows = if per_pair { assignment.pairs() } else { assignment.tokens };
    let mut x = rng.normals(x_rows * cols);
    sometimes_huge(rng, &mut x);
    let bias = rng.chance(0.5).then(|| rng.normals(assignment.experts * rows));
    let run = |b: &Backend, assignment: &Assignment, x: &[f32]| {
        let weight = b.prepare(&tensors, Role::Matrix).expect("prepare");
        let groups = assignment.group(b);
        let bias = bias.as_ref().map(|bias| buffer(b, bias));
        let mut out = Guarded::poisoned(b, assignment.pairs(), rows, Guard::ODD);
        let act = activations(b, precision, x, x.len() / cols, cols);
        b.run(MoeMatmul {
            weight: &weight,
            x: &act,
            groups: &groups,
            top_k: assignment.top_k,
            bias: bias.as_ref(),
            out: out.view_mut(),
        })
        .expect("moe_matmul");
        Output::from(out.read(b))
    };
    let case = format!("{} ({parts} parts), {assignment}, per pair {per_pair}, {precision:?}", tensors[0].name);
    let tolerance = nmse(product_bound(&tensors, precision, &x), energy(&tensors, &x));
    let kind = kind(["moe_matmul exact", "moe_matmul bf16", "moe_matmul int8"], &tensors, precision);
    let got = suite.check(kind, &case, tolerance, &|b| run(b, assignment, &x));
    assignment.assert_padding_is_zero(suite, &case, &got, rows);
    // A token alone, as in decode.
    if let Some(token) = assignment.tokens.checked_sub(1) {
        let k = assignment.top_k;
        let last = token * assignment.top_k;
        let alone = Assignment { tokens: 1, ids: assignment.ids[last..].to_vec(), ..*assignment };
        let x_first = if per_pair { last } else { token };
        let alone = run(suite.backend(), &alone, &x[x_first * cols..]);
        let of_whole = got.floats[last * rows..(last + k) * rows].to_vec();
        as_alone(
            suite,
            precision == Precision::Fast,
            kind,
            &format_args!("{case}, last token alone"),
            tolerance,
            &of_whole.into(),
            &alone,
        );
    }
}

/// [`MoeCombine`].
pub fn combine(suite: &Suite) {
    let rng = &mut suite.rng("moe_combine");
    for &tokens in TOKENS {
        let (top_k, cols) = (rng.between(1, 9), rng.between(1, 300));
        let out = rng.normals(tokens * top_k * cols);
        let weights = rng.normals(tokens * top_k);
        let run = |b: &Backend| {
            let out = Guarded::of(b, &out, tokens * top_k, cols, Guard::ODD);
            let weights = Guarded::of(b, &weights, tokens, top_k, Guard::ODD);
            let mut y = Guarded::poisoned(b, tokens, cols, Guard::ODD);
            b.run(MoeCombine { out: out.view(), weights: weights.view(), epilogue: Epilogue::Store, y: y.view_mut() })
                .expect("moe_combine");
            Output::from(y.read(b))
        };
        let case = format!("{tokens} tokens, top {top_k}, {cols} columns");
        suite.check("moe_combine", &case, nmse(exact(top_k), 1.0), &run);
    }
}
