//! Large pictures as a grid of tiles, and an overview of the whole (LFM2-VL).

use crate::fit::Size;

/// How a large picture is cut.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tiling {
    /// Pixels of a tile's side.
    pub side: usize,
    /// The fewest tiles.
    pub min: usize,
    /// The most tiles.
    pub max: usize,
    /// A picture is large if its pixels are more than this.
    pub large: f64,
    /// Whether the whole picture follows the tiles.
    pub has_overview: bool,
}

impl Tiling {
    /// Columns and rows of the grid for a picture, or `None` if it is not cut. `token` is the side of a token's pixels,
    /// and `patch` the side of a patch.
    pub fn grid(&self, from: Size, token: usize, patch: usize) -> Option<(usize, usize)> {
        let rounded = |length: usize| {
            let tokens = (length as f64 / token as f64).round_ties_even() as usize;
            (tokens * token).max(patch)
        };
        let is_large = (rounded(from.width) * rounded(from.height)) as f64 > self.large;
        is_large.then(|| self.closest(from)).filter(|&grid| grid != (1, 1))
    }

    /// The grid whose ratio of sides is closest to the picture's. Of equally close ones the one with the most tiles
    /// counts of which the picture would fill more than half.
    fn closest(&self, from: Size) -> (usize, usize) {
        let ratio = from.width as f64 / from.height as f64;
        let area = (from.width * from.height) as f64;
        let mut best = (1, 1);
        let mut difference = f64::INFINITY;
        for (columns, rows) in self.grids() {
            let own = (ratio - columns as f64 / rows as f64).abs();
            let pixels = (self.side * self.side * columns * rows) as f64;
            if own < difference || (own == difference && area > 0.5 * pixels) {
                (best, difference) = ((columns, rows), own);
            }
        }
        best
    }

    /// All grids of a number of tiles in the range, in ascending order of it.
    fn grids(&self) -> impl Iterator<Item = (usize, usize)> {
        let sides = move |tiles: usize| (1..=tiles).filter(move |columns| tiles.is_multiple_of(*columns));
        (self.min.max(1)..=self.max).flat_map(move |tiles| sides(tiles).map(move |columns| (columns, tiles / columns)))
    }
}
