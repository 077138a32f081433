//! The encoders' search for scales and codes.
//!
//! An encoder works on 16 groups at a time, one in each lane of a vector, so that the search is the same source at
//! every CPU level and no sum crosses lanes. (A *group* is the elements that share a scale.) No operation is fused,
//! hence the bytes are the same on every CPU. The search minimises the squared error, unweighted.

mod grid;
mod groups;
mod line;
mod scale;
mod table;

pub(super) use grid::{on_grid, on_shifted_grid};
pub(super) use groups::{Grid, Signed, put_f16};
pub(super) use line::{SuperAffine, affine, super_affine};
pub(super) use scale::{scaled, super_scaled};
pub(super) use table::{InTable, Levels, Table, in_table};
