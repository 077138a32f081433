//! The size to which a picture is resized.

/// Width and height of a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Pixels in a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

/// How the size is chosen. The sides of each result are multiples of `side`: the side of a token's pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// Sides rounded to multiples, shrunk or enlarged until the pixels are in a range (`smart_resize` of Qwen).
    Area {
        /// The fewest pixels.
        min: usize,
        /// The most pixels.
        max: usize,
        /// Pictures with a side that rounds to 0.
        small: Small,
    },
    /// Shrunk or enlarged to fill a number of tokens (Gemma 4).
    Budget {
        /// The most tokens.
        tokens: usize,
    },
    /// Stretched to one size (Gemma 3).
    Fixed(Size),
    /// Shrunk until it fits into a size, then enlarged to multiples (Pixtral).
    Within(Size),
}

/// What is done before the pixels of a picture are counted, one of whose sides rounds to no multiple.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Small {
    /// Nothing: the picture has no pixels.
    Any,
    /// The side becomes one multiple.
    Floor,
    /// A picture with a side below one multiple is enlarged until that has one.
    Enlarged,
}

impl Fit {
    /// The size that a picture is resized to.
    pub fn size(&self, from: Size, side: usize) -> Size {
        let side = side.max(1);
        match *self {
            Fit::Area { min, max, small } => area(from, side, min, max, small),
            Fit::Budget { tokens } => budget(from, side, tokens),
            Fit::Fixed(size) => size,
            Fit::Within(size) => within(from, side, size),
        }
    }
}

/// The most multiples of `side` in a picture that has at most `pixels`, and sides of a ratio of at most `ratio`, before each
/// side is rounded to a multiple by less than `by` of one.
pub(crate) fn most_multiples(pixels: u64, ratio: u64, side: usize, by: f64) -> usize {
    let (area, ratio, f) = (pixels as f64, ratio as f64, side.max(1) as f64);
    let longest = (area * ratio).sqrt();
    let of_rows = |rows: usize| {
        let (low, high) = (((rows as f64 - by) * f).max(1.0), (rows as f64 + by) * f);
        let width = (area / low).min(ratio * high).min(longest);
        rows * ((width / f + by).floor() as usize).max(1)
    };
    let rows = 1..=(longest / f).ceil() as usize + 1;
    rows.take_while(|&rows| rows == 1 || (rows as f64 - by) * f <= longest).map(of_rows).max().unwrap_or(1)
}

fn area(from: Size, side: usize, min: usize, max: usize, small: Small) -> Size {
    let f = side as f64;
    let (mut height, mut width) = (from.height as f64, from.width as f64);
    if small == Small::Enlarged && height.min(width) < f {
        let scale = (f / height).max(f / width);
        (height, width) = ((height * scale).trunc(), (width * scale).trunc());
    }
    // Python rounds a half to the even neighbour.
    let rounded = |length: f64| (length / f).round_ties_even() as usize * side;
    let floor = |length: usize| if small == Small::Floor { length.max(side) } else { length };
    let (high, wide) = (floor(rounded(height)), floor(rounded(width)));
    if high * wide > max {
        let beta = (height * width / max as f64).sqrt();
        let shrunk = |length: f64| ((length / beta / f).floor() as usize * side).max(side);
        Size { width: shrunk(width), height: shrunk(height) }
    } else if high * wide < min {
        let beta = (min as f64 / (height * width)).sqrt();
        let enlarged = |length: f64| ((length * beta / f).ceil() as usize * side).max(side);
        Size { width: enlarged(width), height: enlarged(height) }
    } else {
        Size { width: wide.max(side), height: high.max(side) }
    }
}

fn budget(from: Size, side: usize, tokens: usize) -> Size {
    let f = side as f64;
    let (height, width) = (from.height as f64, from.width as f64);
    let factor = ((tokens * side * side) as f64 / (height * width)).sqrt();
    let floored = |length: f64| (factor * length / f).floor() as usize * side;
    let longest = tokens.max(1) * side;
    // A side of 0 becomes one multiple, and the other follows the ratio of the sides in whole multiples.
    let other = |ratio: usize| (ratio * side).clamp(side, longest);
    match (floored(width), floored(height)) {
        (0, 0) => Size { width: side, height: side },
        (width, 0) => {
            debug_assert!(width > 0);
            Size { width: other(from.width / from.height.max(1)), height: side }
        }
        (0, _) => Size { width: side, height: other(from.height / from.width.max(1)) },
        (width, height) => Size { width, height },
    }
}

fn within(from: Size, side: usize, limit: Size) -> Size {
    let ratio = (from.height as f64 / limit.height as f64).max(from.width as f64 / limit.width as f64);
    let shrunk = |length: usize| if ratio > 1.0 { (length as f64 / ratio).floor() as usize } else { length };
    let multiple = |length: usize| shrunk(length).max(1).div_ceil(side) * side;
    Size { width: multiple(from.width), height: multiple(from.height) }
}
