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
//! - A query sees the keys of its whole tile: keys are written at their own positions, and all queries are at the
//!   last one (`Node::AttendWhole`). So the kernels of causal attention serve.
//! - Tiles of several pictures can be computed in one pass. Each is a sequence of its own, so its rows have the bits that
//!   they have alone (on a CPU). Small tiles are faster so: a product reads its weights once for all.

mod build;
mod encode;
mod info;
mod keys;
mod loaded;
mod positions;
pub(crate) mod spec;
mod tiles;

pub use encode::Encoder;
pub(crate) use encode::{WantedTile, walk};
pub use info::TowerInfo;
pub use loaded::Tower;
pub use spec::TowerSpec;
