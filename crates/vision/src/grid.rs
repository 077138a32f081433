//! Large pictures as a grid of tiles, and an overview of the whole (LFM2-VL, Idefics3 and SmolVLM).

use std::ops::RangeInclusive;

use crate::fit::Size;

/// How a large picture is cut.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tiling {
    /// Pixels of a tile's side.
    pub side: usize,
    /// How many tiles there are.
    pub grid: Grid,
    /// Whether the whole picture follows the tiles.
    pub has_overview: bool,
}

/// The rule for columns and rows of tiles.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Grid {
    /// The grid whose ratio of sides is closest to the picture's (LFM2-VL).
    Closest {
        /// The fewest tiles.
        min: usize,
        /// The most tiles.
        max: usize,
        /// A picture is large if its pixels are more than this.
        large: f64,
    },
    /// Any picture is resized until its longer side has this many pixels, then to whole tiles (Idefics3 and SmolVLM).
    Longest(usize),
}

/// The longest side of a picture before it is resized to whole tiles.
const MOST_LONGEST: usize = 4096;

impl Tiling {
    /// Columns and rows of the grid for a picture, or `None` if it is not cut. `token` is the side of a token's pixels,
    /// and `patch` the side of a patch.
    pub fn grid(&self, from: Size, token: usize, patch: usize) -> Option<(usize, usize)> {
        let (min, max, large) = match self.grid {
            Grid::Closest { min, max, large } => (min, max, large),
            Grid::Longest(longest) => return Some(self.whole(rescaled(from, longest))).filter(|&grid| grid != (1, 1)),
        };
        let rounded = |length: usize| {
            let tokens = (length as f64 / token as f64).round_ties_even() as usize;
            (tokens * token).max(patch)
        };
        let is_large = (rounded(from.width) * rounded(from.height)) as f64 > large;
        is_large.then(|| self.closest(from, min..=max)).filter(|&grid| grid != (1, 1))
    }

    /// The size to which a picture is resized before it is cut or resized once more.
    pub fn first_size(&self, from: Size) -> Option<Size> {
        match self.grid {
            Grid::Closest { .. } => None,
            Grid::Longest(longest) => Some(rescaled(from, longest)),
        }
    }

    /// The most tiles of a grid.
    pub(crate) fn most(&self) -> usize {
        match self.grid {
            Grid::Closest { max, .. } => max,
            Grid::Longest(longest) => longest.min(MOST_LONGEST).div_ceil(self.side.max(1)).pow(2),
        }
    }

    /// Whole tiles for a picture that keeps the ratio of its sides while the longer one becomes a multiple.
    fn whole(&self, from: Size) -> (usize, usize) {
        let ratio = from.width as f64 / from.height as f64;
        let tiles = |length: usize| length.div_ceil(self.side).max(1);
        if from.width >= from.height {
            let columns = tiles(from.width);
            (columns, tiles(((columns * self.side) as f64 / ratio) as usize))
        } else {
            let rows = tiles(from.height);
            (tiles(((rows * self.side) as f64 * ratio) as usize), rows)
        }
    }

    /// The grid whose ratio of sides is closest to the picture's. Of equally close ones the one with the most tiles
    /// counts of which the picture would fill more than half.
    fn closest(&self, from: Size, tiles: RangeInclusive<usize>) -> (usize, usize) {
        let ratio = from.width as f64 / from.height as f64;
        let area = (from.width * from.height) as f64;
        let mut best = (1, 1);
        let mut difference = f64::INFINITY;
        for (columns, rows) in grids(tiles) {
            let own = (ratio - columns as f64 / rows as f64).abs();
            let pixels = (self.side * self.side * columns * rows) as f64;
            if own < difference || (own == difference && area > 0.5 * pixels) {
                (best, difference) = ((columns, rows), own);
            }
        }
        best
    }
}

/// All grids of a number of tiles in the range, in ascending order of it.
fn grids(tiles: RangeInclusive<usize>) -> impl Iterator<Item = (usize, usize)> {
    let sides = move |tiles: usize| (1..=tiles).filter(move |columns| tiles.is_multiple_of(*columns));
    let tiles = (*tiles.start()).max(1)..=*tiles.end();
    tiles.flat_map(move |tiles| sides(tiles).map(move |columns| (columns, tiles / columns)))
}

/// The size whose longer side has `longest` pixels, and whose other side is even; at most [`MOST_LONGEST`].
fn rescaled(from: Size, longest: usize) -> Size {
    let ratio = from.width as f64 / from.height as f64;
    let even = |length: f64| (length as usize).next_multiple_of(2);
    let size = match from.width >= from.height {
        true => Size { width: longest, height: even(longest as f64 / ratio) },
        false => Size { width: even(longest as f64 * ratio), height: longest },
    };
    let size = Size { width: size.width.max(1), height: size.height.max(1) };
    let ratio = size.width as f64 / size.height as f64;
    match (size.width >= size.height, size.width.max(size.height) > MOST_LONGEST) {
        (_, false) => size,
        (true, true) => Size { width: MOST_LONGEST, height: ((MOST_LONGEST as f64 / ratio) as usize).max(1) },
        (false, true) => Size { width: ((MOST_LONGEST as f64 * ratio) as usize).max(1), height: MOST_LONGEST },
    }
}
