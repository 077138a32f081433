//! The speed of a vision tower.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use gristmill_cpu::Profile;
use gristmill_model::{Encoder, Result, Tower};
use gristmill_vision::{Detail, Picture, Prepared, Size};
use serde::Serialize;

use super::machine::Machine;
use super::profile::Phase;

/// Images to measure a tower with.
#[derive(Clone, Copy, Debug)]
pub struct Images {
    /// Pixels of each.
    pub size: Size,
    /// Images that are computed together.
    pub count: usize,
    /// Repetitions.
    pub repeats: usize,
}

/// What images took.
#[derive(Debug, Serialize)]
pub struct ImageReport {
    /// The device.
    pub device: String,
    /// Pixels in a row of the image, and rows.
    pub pixels: (usize, usize),
    /// Images that were computed together.
    pub images: usize,
    /// Tiles of all images.
    pub tiles: usize,
    /// Patches of all tiles.
    pub patches: usize,
    /// Tokens of all tiles.
    pub tokens: usize,
    /// Seconds to resize the pixels of an image and cut them into patches.
    pub prepare_seconds: f64,
    /// Seconds of the tower, the median of all repetitions.
    pub tower_seconds: f64,
    /// The operations of all repetitions, if the CPU measures them.
    pub profile: Option<Phase>,
}

/// Measures a tower with images of one size.
///
/// # Errors
/// Those of the tower.
pub fn measure(
    tower: Arc<Tower>,
    device: String,
    images: Images,
    profile: Option<(Arc<Profile>, Machine)>,
) -> Result<Option<ImageReport>> {
    let Images { size, count, repeats } = images;
    let picture = |seed: usize| {
        let byte = |at: usize| ((at + seed).wrapping_mul(2_654_435_761) >> 24) as u8;
        Picture::new(size, (0..size.width * size.height * 3).map(byte).collect())
    };
    let Some(pictures) = (0..count).map(picture).collect::<Option<Vec<Picture>>>() else { return Ok(None) };
    let start = Instant::now();
    let prepared: Vec<Prepared> =
        pictures.iter().map(|picture| tower.processor().prepare(picture, Detail::High)).collect();
    let prepare_seconds = start.elapsed().as_secs_f64() / count as f64;
    let tiles: Vec<(&Prepared, usize)> =
        prepared.iter().flat_map(|image| (0..image.tiles.len()).map(move |tile| (image, tile))).collect();
    let mut tokens = 0;
    for tile in prepared.iter().flat_map(|image| &image.tiles) {
        tokens += tower.tokens(tile)?;
    }
    let mut encoder = Encoder::new(tower);
    let mut seconds = Vec::new();
    // The first pass allocates, and compiles kernels.
    encoder.encode(&tiles)?;
    profile.iter().for_each(|(profile, _)| drop(profile.take()));
    for _ in 0..repeats {
        let start = Instant::now();
        encoder.encode(&tiles)?;
        seconds.push(start.elapsed().as_secs_f64());
    }
    let phase = profile.map(|(profile, machine)| Phase::of(seconds.iter().sum(), profile.take().iter(), &machine));
    seconds.sort_by(f64::total_cmp);
    Ok(Some(ImageReport {
        device,
        pixels: (size.width, size.height),
        images: count,
        tiles: tiles.len(),
        patches: prepared.iter().flat_map(|image| &image.tiles).map(|tile| tile.rows * tile.columns).sum(),
        tokens,
        prepare_seconds,
        tower_seconds: seconds.get(seconds.len() / 2).copied().unwrap_or(0.0),
        profile: phase,
    }))
}

impl fmt::Display for ImageReport {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self { device, pixels: (width, height), images, tiles, patches, tokens, prepare_seconds, .. } = self;
        writeln!(f, "device: {device}")?;
        writeln!(
            f,
            "images: {images} of {width} × {height} pixels, {tiles} tiles, {patches} patches, {tokens} tokens"
        )?;
        writeln!(f, "preparation: {:.1} ms for each image", 1e3 * prepare_seconds)?;
        let rate = *patches as f64 / self.tower_seconds;
        write!(f, "tower: {:.1} ms, {rate:.1} patches/s", 1e3 * self.tower_seconds)?;
        self.profile.iter().try_for_each(|profile| write!(f, "\n{profile}"))
    }
}
