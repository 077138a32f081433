//! Position-dependent parts of attention: the positions that a token sees, and the temperature of queries.

/// The positions that a token sees; the last one is its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// A sliding window of this many positions.
    Last(usize),
    /// The positions of the token's chunk. Chunks have this many positions and start at multiples of it.
    Chunk(usize),
}

impl Window {
    /// The maximum number of positions that a token sees.
    pub fn positions(self) -> usize {
        match self {
            Self::Last(positions) | Self::Chunk(positions) => positions,
        }
    }

    /// The first position that a token sees.
    pub fn first(self, position: usize) -> usize {
        match self {
            Self::Last(positions) => (position + 1).saturating_sub(positions),
            Self::Chunk(positions) => position - position % positions.max(1),
        }
    }
}

/// A factor of queries that grows with the position p: 1 + scale · ln(1 + ⌊(p + offset) / length⌋) (Llama 4).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Temperature {
    /// Multiplies the logarithm.
    pub scale: f32,
    /// Number of consecutive positions with equal factor.
    pub length: u32,
    /// Added to each position.
    pub offset: u32,
}

impl Temperature {
    /// The factor of a position.
    pub fn factor(self, position: u32) -> f64 {
        let steps = (u64::from(position) + u64::from(self.offset)) / u64::from(self.length.max(1));
        1.0 + f64::from(self.scale) * (steps as f64).ln_1p()
    }
}

/// First and last position that a token at `position` sees: the last one is its own, or `end` if that is later. Positions
/// before `first` are visible only to themselves.
pub fn visible(position: u32, end: Option<u32>, window: Option<Window>, first: usize) -> (usize, usize) {
    let own = position as usize;
    let last = end.map_or(own, |end| own.max(end as usize));
    (window.map_or(0, |window| window.first(own)).max(first.min(own)), last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_begin_where_they_should() {
        let seen =
            |window: Window| (0..7).map(|position| visible(position, None, Some(window), 0).0).collect::<Vec<_>>();
        assert_eq!(seen(Window::Last(3)), [0, 0, 0, 1, 2, 3, 4]);
        assert_eq!(seen(Window::Chunk(3)), [0, 0, 0, 3, 3, 3, 6]);
        assert_eq!(visible(6, None, None, 0), (0, 6));
        assert_eq!(visible(6, Some(9), Some(Window::Last(3)), 0), (4, 9));
        assert_eq!(visible(6, Some(5), None, 0), (0, 6));
        let hidden = |window| [0, 1, 2, 6].map(|position| visible(position, None, window, 2).0);
        assert_eq!((hidden(None), hidden(Some(Window::Last(3)))), ([0, 1, 2, 2], [0, 1, 2, 4]));
    }

    #[test]
    fn temperature_grows_by_steps() {
        let llama4 = Temperature { scale: 0.1, length: 8192, offset: 1 };
        let factors = [0, 8190, 8191, 16_382, 16_383].map(|position| llama4.factor(position));
        let expected = [1.0, 1.0, 1.069_314_72, 1.069_314_72, 1.109_861_23];
        assert!(factors.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-6), "{factors:?}");
    }
}
