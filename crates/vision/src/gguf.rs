//! Processors of `mmproj` GGUF files.
//!
//! llama.cpp has some limits in its code, as the files lack them. They are those of the published folders, except where
//! llama.cpp pads a picture that transformers stretches: this crate stretches.

use crate::error::Error;
use crate::fit::{Fit, Size, Small};
use crate::grid::Grid;
use crate::kind::Kind;
use crate::processor::Processor;

/// The keys of an `mmproj` GGUF file. `None` is a key that the file lacks.
#[derive(Debug, Clone, Default)]
pub struct ProjectorKeys {
    /// `clip.projector_type`, or `clip.vision.projector_type`.
    pub projector: String,
    /// `clip.vision.patch_size`.
    pub patch: u32,
    /// `clip.vision.image_size`.
    pub image_size: u32,
    /// `clip.vision.spatial_merge_size` or `clip.vision.projector.scale_factor`.
    pub merge: Option<u32>,
    /// `clip.vision.image_mean`.
    pub mean: Option<[f32; 3]>,
    /// `clip.vision.image_std`.
    pub std: Option<[f32; 3]>,
    /// `clip.vision.image_min_pixels`.
    pub min_pixels: Option<u32>,
    /// `clip.vision.image_max_pixels`.
    pub max_pixels: Option<u32>,
    /// `clip.vision.preproc_min_tiles`.
    pub min_tiles: Option<u32>,
    /// `clip.vision.preproc_max_tiles`.
    pub max_tiles: Option<u32>,
    /// `clip.vision.preproc_image_size`: the side of a tile, or the longest side of a picture before it is cut.
    pub tile: Option<u32>,
}

/// The most pixels of a Qwen picture that the published `preprocessor_config.json` allows.
const QWEN_PIXELS: (usize, usize) = (65_536, 16_777_216);

impl ProjectorKeys {
    /// The processor of these keys.
    ///
    /// # Errors
    /// If the projector is of another kind, or a number is out of range.
    pub fn read(&self) -> Result<Processor, Error> {
        let kind = Kind::of_projector(&self.projector).ok_or_else(|| Error::Kind {
            key: "clip.projector_type",
            found: self.projector.chars().take(100).collect(),
            expected: Kind::projectors(),
        })?;
        let mut own = kind.processor();
        own.patch = number("clip.vision.patch_size", self.patch, 256)?;
        if let Some(merge) = self.merge {
            own.merge = number("clip.vision.spatial_merge_size", merge, 64)?;
        }
        // The keys of Gemma 4 have the factors of its tower (2v − 1), which its processor leaves to the tower.
        if !matches!(kind, Kind::Gemma4 | Kind::Gemma4Unified) {
            self.mean.iter().for_each(|&mean| own.mean = mean);
            self.std.iter().for_each(|&std| own.std = std);
        }
        if own.std.iter().any(|&std| std == 0.0 || !std.is_finite()) {
            let key = "clip.vision.image_std".to_owned();
            return Err(Error::Value { key, found: "0".to_owned(), expected: "finite numbers other than 0" });
        }
        let side = number("clip.vision.image_size", self.image_size, 1 << 13)?;
        let pixels = (own.patch * own.merge).pow(2);
        let range = |(least, most): (usize, usize)| {
            let of = |key: Option<u32>, default| key.map_or(default, |key| (key as usize).clamp(1, 1 << 28));
            (of(self.min_pixels, least), of(self.max_pixels, most))
        };
        match &mut own.fit {
            fit @ Fit::Area { .. } if kind == Kind::Lfm2Vl => {
                let (min, max) = range((64 * pixels, 256 * pixels));
                *fit = Fit::Area { min, max, small: Small::Floor };
            }
            Fit::Area { min, max, .. } if kind == Kind::Qwen => (*min, *max) = range(QWEN_PIXELS),
            Fit::Area { min, max, .. } => (*min, *max) = range((*min, *max)),
            // The key has a size that the models do not use.
            Fit::Budget { tokens } => *tokens = self.max_pixels.map_or(*tokens, |most| most as usize / pixels).max(1),
            fit @ Fit::Fixed(_) => {
                if !side.is_multiple_of(own.patch * own.merge) {
                    let (key, found) = ("clip.vision.image_size".to_owned(), side.to_string());
                    return Err(Error::Value { key, found, expected: "a multiple of the side of a token's pixels" });
                }
                *fit = Fit::Fixed(Size { width: side, height: side });
            }
            fit @ Fit::Within(_) => *fit = Fit::Within(Size { width: side, height: side }),
        }
        if let Some(tiling) = &mut own.tiling {
            let of = |key: Option<u32>, default: usize, max| key.map_or(default, |key| (key as usize).clamp(1, max));
            match (&mut tiling.grid, own.fit) {
                (Grid::Closest { min, max, large }, Fit::Area { max: pixels, .. }) => {
                    *min = of(self.min_tiles, *min, 256);
                    *max = of(self.max_tiles, *max, 256);
                    *large = 2.0 * pixels as f64;
                    tiling.side = of(self.tile, tiling.side, 1 << 13).next_multiple_of(own.patch * own.merge);
                }
                (Grid::Longest(longest), _) => {
                    *longest = of(self.tile, 4 * side, 1 << 13);
                    tiling.side = side;
                }
                _ => {}
            }
        }
        own.bounded()
    }
}

fn number(key: &str, found: u32, max: u32) -> Result<usize, Error> {
    if (1..=max).contains(&found) {
        return Ok(found as usize);
    }
    Err(Error::Value { key: key.to_owned(), found: found.to_string(), expected: "a whole number in a usual range" })
}
