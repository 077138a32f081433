//! Vision towers: from the patches of a picture to rows that take the place of token embeddings.
//!
//! ```text
//! mmproj file ── family ──► TowerSpec ── build ──► Program (the nodes of the text models)
//! Patches ── positions, blocks of patches ──► upload ── program/run ──► rows on the device
//! ```
//!
//! # A tower is a program
//!
//! A tower has no runner of its own nodes: [`build`] emits those of the text models. Three things differ.
//!
//! - Patches are uploaded in the order of the blocks that become one token each, so that joining a block is a view of
//!   adjacent rows. Attention without a mask and the other nodes do not depend on the order.
//! - Positions are computed on the host, once for each picture, and are where the first product adds to.
//! - A query sees the keys of its whole picture: keys are written at their own positions, and all queries are at the
//!   last one (`Node::AttendWhole`). So the kernels of causal attention serve.

mod build;
mod encode;
mod info;
mod keys;
mod loaded;
mod positions;
pub(crate) mod spec;

pub use encode::Encoder;
pub(crate) use encode::walk;
pub use info::TowerInfo;
pub use loaded::Tower;
pub use spec::TowerSpec;
