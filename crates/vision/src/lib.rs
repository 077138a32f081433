//! Pictures for vision models.
//!
//! ```text
//! bytes ── picture ──► Picture ── processor (fit, resize, patches) ──► Prepared: tiles of patches
//! size ─── layout ──► pieces: text, and the tokens of each tile
//! ```
//!
//! [`Picture::decode`] reads a file within [`Limits`]. A [`Processor`] is data: it is read from a published
//! `preprocessor_config.json`, or from the keys of an `mmproj` GGUF file. It cuts a picture into [`Patches`], and from
//! the size alone it returns the [`Layout`] of the picture's tokens in a prompt.
#![forbid(unsafe_code)]

mod configs;
mod error;
mod fit;
mod gguf;
mod grid;
mod kind;
mod layout;
mod patches;
mod picture;
mod processor;
mod resize;

pub use configs::Configs;
pub use error::{Error, PictureError};
pub use fit::{Fit, Size, Small};
pub use gguf::ProjectorKeys;
pub use grid::{Grid, Tiling};
pub use kind::Kind;
pub use layout::{Layout, Marks, Piece, TileMarks};
pub use patches::{ImageSpan, Patches, Prepared};
pub use picture::{Limits, Picture};
pub use processor::{Detail, Processor};
pub use resize::{Filter, resized};
