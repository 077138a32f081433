//! The forward pass as data.
//!
//! A [`Program`] lists the weights, the values and the nodes of a forward pass. [`build`] builds it from a
//! [`ModelSpec`](crate::spec::ModelSpec) and the names of a file's tensors, and is the only place that walks the
//! structure of a layer. Everything else follows from the program:
//!
//! - [`Tensors`] lists the weights to check ([`crate::weights`]) and to load.
//! - [`forced`] replaces the choices of routers.
//! - [`fuse`] rewrites adjacent nodes as the compositions of [`gristmill_kernels::ops`].
//! - [`reorder`] gathers the inputs of matrices whose columns are in another order.
//! - [`place`] chooses the memory of weights.
//! - [`readers`] finds the products that read each activation, so that a kernel prepares no other representation.
//! - [`replay`] finds what computes states of fixed size, and its inputs.
//! - [`split`] leaves a rank's part of the program.
//! - [`scratch`] finds the nodes between which a value lives, and assigns buffers.
//! - [`uses`] counts what a pass reads of each tensor.
//! - [`run`] runs the nodes.
//!
//! # The forward pass is data
//!
//! From a spec, `model/src/program/build` builds a `Program`: the tensors of all weights, values with their shapes, and
//! nodes. A node is an operation of `kernels` with the values that it reads and writes. Only the builder walks the
//! structure of a layer, and it emits the simplest operations. Everything else is derived from the program, each in one
//! file:
//!
//! | file of `model/src/program` | what is derived |
//! | --- | --- |
//! | `tensors.rs` | which tensors are checked, counted and loaded |
//! | `fuse.rs` | rewrites of adjacent nodes as compositions: one launch if a backend fuses them |
//! | `split.rs` | which part of the weights a rank has, and which values are summed over ranks |
//! | `reorder.rs` | which inputs are gathered, because the columns of a matrix are in another order |
//! | `place.rs` | which memory the experts are in |
//! | `readers.rs` | which products read an activation |
//! | `replay.rs` | what computes states of fixed size, and which of its inputs a pass keeps |
//! | `scratch.rs` | which values are live at the same time, hence the buffers and the exact bytes of a pass |
//! | `uses.rs` | what a pass reads of each tensor: the costs in `bench`, `fit` and `inspect` |
//! | `run.rs` | the loop over nodes |
//!
//! *Invariant: a value is written before it is read, and never written after its last reader. The reason: the builder
//! emits nodes in order and gives each result a value of its own. The one exception is the residual stream, a value to
//! which nodes add. So two values can share a buffer if their live ranges (from the first to the last node of a value)
//! do not overlap. No rewrite crosses the end of a layer, so the residual stream can be inspected there.*
//!
//! Planned capabilities add nodes or passes, and change no others:
//!
//! | capability | what it adds to the program |
//! | --- | --- |
//! | indexers (sparse attention) | a node that scores and one that chooses positions, a second cache of the layer |
//! | a persistent kernel | a pass that makes tile tasks with counters from nodes and values |
//! | AMX | nothing: a level of the CPU |

pub(crate) mod axes;
pub(crate) mod build;
pub(crate) mod forced;
mod fuse;
pub(crate) mod node;
mod pass;
mod place;
mod readers;
mod reorder;
pub(crate) mod replay;
pub(crate) mod run;
pub(crate) mod scratch;
mod split;
pub(crate) mod tensors;
pub(crate) mod uses;
mod values;

#[cfg(test)]
mod tests;

pub(crate) use pass::{Part, PredictionHead, Program};
pub(crate) use values::{
    ActId, ActShape, Columns, Factor, GroupedExperts, GroupsId, GroupsShape, MatrixId, OrderId, RowsId, RowsShape,
    ScalarId, Unit, VectorId,
};
