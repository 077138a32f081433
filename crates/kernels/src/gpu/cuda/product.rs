//! What all kernels that multiply are told: which rows of X, which part of a bias.

use crate::error::{Error, Result};
use crate::ops::Groups;
use crate::tensor::{Buffer, View};

/// Which rows of X are multiplied, and where the products go.
#[derive(Clone, Copy)]
pub(crate) enum Which<'a> {
    /// Row i becomes row i of Y.
    All,
    /// Row `ids[i]` becomes row i of Y.
    Ids(View<'a, u32>),
    /// Pair p, with row p / share of X, becomes row p of Y.
    Pairs {
        /// The pairs of each expert.
        groups: &'a Groups,
        /// Pairs that share a row of X: top-k, or 1 if X has a row for each pair.
        share: usize,
    },
}

/// A bias: E × `matrix` elements, of which a product uses those from `first` on.
#[derive(Clone, Copy)]
pub(crate) struct Bias<'a> {
    pub(crate) values: &'a Buffer<f32>,
    pub(crate) first: usize,
    pub(crate) matrix: usize,
}

/// A size as kernels count it.
pub(crate) fn word(op: &'static str, what: &'static str, size: usize) -> Result<u32> {
    let rule = "must be below 2^32 - 1 on a GPU";
    let fits = u32::try_from(size).ok().filter(|&size| size < u32::MAX);
    fits.ok_or_else(|| Error::Range { op, what, found: size.to_string(), rule })
}
