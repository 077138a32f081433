//! Experts grouped for matrix operations.

use crate::tensor::{Buffer, DeviceId};

/// How a backend cuts each expert's pairs into tiles.
#[derive(Clone, Copy, Debug)]
pub struct Tiling {
    /// Rows of the smallest full tile that the backend uses.
    pub tile_rows: usize,
    /// Words behind the number of tiles that the backend uses itself, for grids of indirect launches.
    pub grid_words: usize,
}

/// The (token, slot) pairs of a batch sorted by expert, filled by [`crate::ops::GroupByExpert`] alone (readers trust
/// them). Pair `p` is slot `p % k` of token `p / k`.
#[derive(Debug)]
pub struct Groups {
    /// Pairs of each expert, E.
    pub(crate) counts: Buffer<u32>,
    pub(crate) pairs: Buffer<u32>,
    pub(crate) tiles: Buffer<u32>,
    pub(crate) tile_count: Buffer<u32>,
    pub(crate) tile_rows: usize,
    pub(crate) total_pairs: usize,
    /// The first expert that is grouped.
    pub(crate) first: usize,
    /// Experts that ids are of.
    pub(crate) all: usize,
}

/// The lists of [`Groups`] for the backend that fills them.
#[derive(Debug)]
pub struct GroupLists<'a> {
    /// See [`Groups::counts`].
    pub counts: &'a mut Buffer<u32>,
    /// See [`Groups::pairs`]. A GPU puts pairs without an expert behind the others.
    pub pairs: &'a mut Buffer<u32>,
    /// See [`Groups::tiles`].
    pub tiles: &'a mut Buffer<u32>,
    /// See [`Groups::tile_count`].
    pub tile_count: &'a mut Buffer<u32>,
    /// See [`Groups::tile_rows`]; the backend may choose another number for each grouping.
    pub tile_rows: &'a mut usize,
    /// See [`Groups::first`].
    pub first: usize,
    /// See [`Groups::all`].
    pub all: usize,
}

impl Groups {
    /// Experts that pairs are sorted by.
    pub fn experts(&self) -> usize {
        self.counts.len()
    }
    /// The first of these experts. Pairs of other experts are pairs without an expert.
    pub fn first(&self) -> usize {
        self.first
    }
    /// Experts that a router chooses from, of which [`Self::experts`] are grouped.
    pub fn all(&self) -> usize {
        self.all
    }
    /// Whether all experts are grouped.
    pub fn is_whole(&self) -> bool {
        self.experts() == self.all
    }
    /// Pairs of each expert, E.
    pub fn counts(&self) -> &Buffer<u32> {
        &self.counts
    }
    /// Pairs sorted by expert, ascending within an expert; padding pairs are left out. Holds up to T·k.
    pub fn pairs(&self) -> &Buffer<u32> {
        &self.pairs
    }
    /// Tiles of three words: expert, first index into `pairs`, rows. At most ⌊T·k / tile⌋ + min(E, T·k) tiles.
    pub fn tiles(&self) -> &Buffer<u32> {
        &self.tiles
    }
    /// Number of tiles: the first word.
    pub fn tile_count(&self) -> &Buffer<u32> {
        &self.tile_count
    }
    /// Rows of a full tile, of the last grouping.
    pub fn tile_rows(&self) -> usize {
        self.tile_rows
    }
    /// Pairs that the last grouping was given, padding included: T·k.
    pub fn total_pairs(&self) -> usize {
        self.total_pairs
    }
    /// The device that owns it.
    pub fn device(&self) -> DeviceId {
        self.counts.device()
    }
    /// The lists, to be filled.
    pub(crate) fn lists(&mut self) -> GroupLists<'_> {
        let Self { counts, pairs, tiles, tile_count, tile_rows, first, all, .. } = self;
        GroupLists { counts, pairs, tiles, tile_count, tile_rows, first: *first, all: *all }
    }
}

/// Most tiles that a grouping can make: every tile but the last of an expert is full.
pub fn max_tiles(experts: usize, pairs: usize, tile_rows: usize) -> usize {
    pairs / tile_rows + experts.min(pairs)
}
