//! A prepared picture, and its place in a prompt.

use std::sync::Arc;

/// One tile of a picture, cut into patches, row by row. A patch is (channel, dy, dx), normalised.
#[derive(Debug, Clone, PartialEq)]
pub struct Patches {
    /// Rows of patches.
    pub rows: usize,
    /// Patches in a row.
    pub columns: usize,
    /// `[rows × columns][3 × p × p]` for patches of `p` × `p` pixels.
    pub values: Vec<f32>,
}

/// A picture as the tower of a model reads it.
#[derive(Debug, Clone, PartialEq)]
pub struct Prepared {
    /// The tiles, in the order of their tokens.
    pub tiles: Vec<Patches>,
    /// The SHA-256 of the resized pixels and of how they are normalised. Pictures with equal hashes have equal tiles.
    pub hash: [u8; 32],
}

/// The tokens of a prompt that stand for a part of a tile. Each of them has the id of the model's image token.
#[derive(Debug, Clone)]
pub struct ImageSpan {
    /// The first of them in the prompt.
    pub start: usize,
    /// Their number.
    pub tokens: usize,
    /// The picture.
    pub image: Arc<Prepared>,
    /// The index of the tile in [`Prepared::tiles`].
    pub tile: usize,
    /// The first of the tile's tokens that the span contains. It is 0 unless the tokens of a tile are in several spans,
    /// as where a text token follows each row.
    pub first: usize,
}
