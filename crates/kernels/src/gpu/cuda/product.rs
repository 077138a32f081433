//! What all kernels that multiply are told: which rows of X, which part of a bias.

use crate::error::{Error, Result};
use crate::gpu::{Access, Arg};
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

/// The lists of [`crate::ops::Groups`] as arguments: pairs, tiles, number of tiles.
pub(super) fn lists(which: Which) -> [Arg; 3] {
    match which {
        Which::Pairs { groups, .. } => {
            [&groups.pairs, &groups.tiles, &groups.tile_count].map(|list| Arg::buffer(list, Access::Read))
        }
        _ => [Arg::Null; 3],
    }
}

/// The part of a bias that a product uses.
pub(super) fn bias_arg(bias: Option<Bias>) -> Arg {
    let Some(Bias { values, first, .. }) = bias else { return Arg::Null };
    values.region().map_or(Arg::Null, |region| Arg::Buffer {
        region,
        offset: first * size_of::<f32>(),
        bytes: (values.len() - first) * size_of::<f32>(),
        access: Access::Read,
    })
}

/// A size as kernels count it.
pub(crate) fn word(op: &'static str, what: &'static str, size: usize) -> Result<u32> {
    let rule = "must be below 2^32 - 1 on a GPU";
    let fits = u32::try_from(size).ok().filter(|&size| size < u32::MAX);
    fits.ok_or_else(|| Error::Range { op, what, found: size.to_string(), rule })
}
