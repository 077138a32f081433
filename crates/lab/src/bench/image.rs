//! The speed of a vision tower.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use gristmill_model::{Encoder, Result, Tower};
use gristmill_vision::{Detail, Picture, Prepared, Size};
use serde::Serialize;

/// What an image took.
#[derive(Clone, Debug, Serialize)]
pub struct ImageReport {
    /// The device.
    pub device: String,
    /// Pixels in a row of the image, and rows.
    pub pixels: (usize, usize),
    /// Tiles of the image.
    pub tiles: usize,
    /// Patches of all tiles.
    pub patches: usize,
    /// Tokens of all tiles.
    pub tokens: usize,
    /// Seconds to resize the pixels and cut them into patches.
    pub prepare_seconds: f64,
    /// Seconds of the tower, the median of all repetitions.
    pub tower_seconds: f64,
}

/// Measures a tower with an image of this size.
///
/// # Errors
/// Those of the tower.
pub fn measure(tower: Arc<Tower>, device: String, size: Size, repeats: usize) -> Result<Option<ImageReport>> {
    let bytes = (0..size.width * size.height * 3).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let Some(picture) = Picture::new(size, bytes) else { return Ok(None) };
    let start = Instant::now();
    let image = tower.processor().prepare(&picture, Detail::High);
    let prepare_seconds = start.elapsed().as_secs_f64();
    let mut tokens = 0;
    for tile in &image.tiles {
        tokens += tower.tokens(tile)?;
    }
    let mut encoder = Encoder::new(tower);
    let mut seconds = Vec::new();
    // The first pass allocates, and compiles kernels.
    for _ in 0..=repeats {
        let start = Instant::now();
        for tile in 0..image.tiles.len() {
            encoder.encode(&image, tile)?;
        }
        seconds.push(start.elapsed().as_secs_f64());
    }
    seconds.remove(0);
    seconds.sort_by(f64::total_cmp);
    let Prepared { tiles, .. } = &image;
    Ok(Some(ImageReport {
        device,
        pixels: (size.width, size.height),
        tiles: tiles.len(),
        patches: tiles.iter().map(|tile| tile.rows * tile.columns).sum(),
        tokens,
        prepare_seconds,
        tower_seconds: seconds.get(seconds.len() / 2).copied().unwrap_or(0.0),
    }))
}

impl fmt::Display for ImageReport {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self { device, pixels: (width, height), tiles, patches, tokens, prepare_seconds, tower_seconds } = self;
        writeln!(f, "device: {device}")?;
        writeln!(f, "image: {width} × {height} pixels, {tiles} tiles, {patches} patches, {tokens} tokens")?;
        writeln!(f, "preparation: {:.1} ms", 1e3 * prepare_seconds)?;
        write!(f, "tower: {:.1} ms, {:.1} patches/s", 1e3 * tower_seconds, *patches as f64 / tower_seconds)
    }
}
