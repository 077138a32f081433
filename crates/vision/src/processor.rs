//! A processor: from a picture to patches.
//!
//! # Processors are data
//!
//! The families differ in numbers, in one of four rules of [`Fit`], and in the texts of [`Marks`]. There is one program
//! for all of them. A family that needs a fifth rule adds a variant, and no program of its own.

use std::borrow::Cow;

use sha2::{Digest, Sha256};

use crate::error::Error;
use crate::fit::{Fit, Size, Small, most_multiples};
use crate::grid::Tiling;
use crate::layout::{Layout, Marks};
use crate::patches::{Patches, Prepared};
use crate::picture::{Limits, Picture};
use crate::resize::{Filter, resized};

/// What a model does with a picture before its tower.
#[derive(Debug, Clone, PartialEq)]
pub struct Processor {
    /// Pixels of a patch's side.
    pub patch: usize,
    /// Patches of a token's side.
    pub merge: usize,
    /// The size of a picture that is not cut, and of the overview of one that is.
    pub fit: Fit,
    /// How large pictures are cut.
    pub tiling: Option<Tiling>,
    /// How pixels are weighted in resizing.
    pub filter: Filter,
    /// The factor of a byte.
    pub scale: f64,
    /// The mean of each channel, after the factor.
    pub mean: [f32; 3],
    /// The deviation of each channel, after the factor.
    pub std: [f32; 3],
    /// The texts around pictures.
    pub marks: Marks,
}

/// How much of a picture the model is shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Detail {
    /// As the model's files say.
    #[default]
    High,
    /// No tiles, and at most 512 × 512 pixels.
    Low,
}

/// The most pixels of a resized image, which need 12 bytes each as patches. Published models have at most 16.8 million.
const MOST_PIXELS: u64 = 1 << 26;

/// The side of a picture in low detail, as in OpenAI's interface.
const LOW_SIDE: usize = 512;
const LOW_PIXELS: usize = LOW_SIDE * LOW_SIDE;

impl Processor {
    /// What a picture of this size becomes, from the size alone.
    pub fn layout(&self, from: Size, detail: Detail) -> Layout {
        let token = self.patch * self.merge;
        let cut = self.tiling.filter(|_| detail == Detail::High);
        let cut = cut.and_then(|tiling| Some((tiling, tiling.grid(from, token, self.patch)?)));
        let whole = self.fit_of(detail).size(from, token);
        let (tiles, grid) = match cut {
            Some((tiling, (columns, rows))) => {
                let tile = Size { width: tiling.side, height: tiling.side };
                let mut tiles = vec![tile; columns * rows];
                tiles.extend((tiling.has_overview && columns * rows > 1).then_some(whole));
                (tiles, (columns, rows))
            }
            None => (vec![whole], (1, 1)),
        };
        let tokens = |length: usize| (length / self.patch).div_ceil(self.merge);
        let of_tiles: Vec<_> = tiles.iter().map(|tile| (tokens(tile.width), tokens(tile.height))).collect();
        Layout { pieces: Layout::pieces(&self.marks, &of_tiles, grid), tiles, grid }
    }

    /// The picture in patches, as [`Processor::layout`] says.
    pub fn prepare(&self, picture: &Picture, detail: Detail) -> Prepared {
        let from = picture.size();
        let layout = self.layout(from, detail);
        let (columns, rows) = layout.grid;
        let resize = |pixels: &[u8], from: Size, to: Size| {
            resized(pixels, (from.width, from.height), (to.width, to.height), self.filter)
        };
        // Some processors resize twice, and an overview from the tiles.
        let first = self.tiling.and_then(|tiling| tiling.first_size(from));
        let first = first.map(|size| (resize(picture.pixels(), from, size), size));
        let (mut pixels, mut from) = match &first {
            Some((pixels, size)) => (Cow::Borrowed(&pixels[..]), *size),
            None => (Cow::Borrowed(picture.pixels()), from),
        };
        let mut hash = Sha256::new();
        hash.update(format!("{} {} {:?} {:?}", self.patch, self.scale, self.mean, self.std));
        let table = self.table();
        let mut tiles = Vec::with_capacity(layout.tiles.len());
        let mut add = |pixels: &[u8], width: usize, at: (usize, usize), size: Size| {
            let patches = self.patches(pixels, width, at, size, &table, &mut hash);
            tiles.push(patches);
        };
        let mut rest = layout.tiles.as_slice();
        if columns * rows > 1 {
            let tile = layout.tiles[0];
            let whole = Size { width: tile.width * columns, height: tile.height * rows };
            let cut = resize(&pixels, from, whole);
            for index in 0..columns * rows {
                let at = (index % columns * tile.width, index / columns * tile.height);
                add(&cut, whole.width, at, tile);
            }
            if first.is_some() {
                (pixels, from) = (Cow::Owned(cut), whole);
            }
            rest = &layout.tiles[columns * rows..];
        }
        for &size in rest {
            add(&resize(&pixels, from, size), size.width, (0, 0), size);
        }
        Prepared { tiles, hash: hash.finalize().into() }
    }

    /// The patches of the largest tile.
    pub fn most_patches(&self) -> usize {
        let area = (self.patch * self.patch).max(1);
        let whole = match self.fit {
            Fit::Area { min, max, .. } => min.max(max) / area,
            Fit::Budget { tokens } => tokens.saturating_mul(self.merge * self.merge),
            Fit::Fixed(Size { width, height }) => (width / self.patch) * (height / self.patch),
            Fit::Within(Size { width, height }) => {
                let patches = |length: usize| length.div_ceil(self.patch * self.merge) * self.merge;
                patches(width) * patches(height)
            }
        };
        whole.max(self.tiling.map_or(0, |tiling| (tiling.side / self.patch).pow(2))).max(self.merge * self.merge)
    }

    /// The patches of the largest tile of a picture within these limits.
    pub fn most_patches_of(&self, limits: &Limits) -> usize {
        let side = self.patch * self.merge;
        let multiples = |pixels: u64, by: f64| {
            let tokens = most_multiples(pixels, limits.ratio.into(), side, by);
            tokens.saturating_mul(self.merge * self.merge)
        };
        let whole = match self.fit {
            // A side is rounded to the nearest multiple; of a picture that is enlarged, up to the next one.
            Fit::Area { min, small, .. } => {
                let of_small = match small {
                    // One side has one token, and the other as many as the ratio: at most the pixels, of a side of one.
                    Small::Enlarged => {
                        let tokens = u64::from(limits.ratio).min(limits.pixels);
                        usize::try_from(tokens).unwrap_or(usize::MAX).saturating_mul(self.merge * self.merge)
                    }
                    Small::Any | Small::Floor => 0,
                };
                multiples(limits.pixels, 0.5).max(multiples(min as u64, 1.0)).max(of_small)
            }
            Fit::Within(_) => multiples(limits.pixels, 1.0),
            // Any picture is stretched.
            Fit::Budget { .. } | Fit::Fixed(_) => usize::MAX,
        };
        let of_tile = self.tiling.map_or(0, |tiling| (tiling.side / self.patch).pow(2));
        self.most_patches().min(whole.max(of_tile))
    }

    /// The processor, if no image becomes larger than [`MOST_PIXELS`]: a file's numbers could ask for any size.
    pub(crate) fn bounded(self) -> Result<Processor, Error> {
        let side = (self.patch * self.merge) as u64;
        let pixels = |Size { width, height }: Size| width as u64 * height as u64;
        let whole = match self.fit {
            Fit::Area { min, max, .. } => min.max(max) as u64,
            Fit::Budget { tokens } => (tokens as u64).saturating_mul(side * side),
            Fit::Fixed(size) | Fit::Within(size) => pixels(size),
        };
        let tiles = self.tiling.map_or(0, |tiling| (tiling.side as u64).pow(2).saturating_mul(tiling.most() as u64));
        let found = whole.max(tiles).max(side * side);
        match found > MOST_PIXELS {
            true => Err(Error::Value {
                key: "size of an image".to_owned(),
                found: format!("{found} pixels"),
                expected: "at most 67108864 pixels",
            }),
            false => Ok(self),
        }
    }

    /// The rule of sizes in a detail.
    fn fit_of(&self, detail: Detail) -> Fit {
        match (detail, self.fit) {
            (Detail::High, fit) | (Detail::Low, fit @ Fit::Fixed(_)) => fit,
            (Detail::Low, Fit::Area { min, max, small }) => {
                Fit::Area { min: min.min(LOW_PIXELS), max: max.min(LOW_PIXELS), small }
            }
            (Detail::Low, Fit::Budget { tokens }) => {
                let side = self.patch * self.merge;
                Fit::Budget { tokens: tokens.min(LOW_PIXELS / (side * side)).max(1) }
            }
            (Detail::Low, Fit::Within(Size { width, height })) => {
                Fit::Within(Size { width: width.min(LOW_SIDE), height: height.min(LOW_SIDE) })
            }
        }
    }

    /// The value of each byte of each channel, with the roundings of transformers.
    fn table(&self) -> [[f32; 256]; 3] {
        let value = |byte: usize| (byte as f64 * self.scale) as f32;
        std::array::from_fn(|channel| {
            std::array::from_fn(|byte| (value(byte) - self.mean[channel]) / self.std[channel])
        })
    }

    /// The patches of a rectangle of pixels, whose rows have `width` pixels.
    fn patches(
        &self,
        pixels: &[u8],
        width: usize,
        (left, top): (usize, usize),
        size: Size,
        table: &[[f32; 256]; 3],
        hash: &mut Sha256,
    ) -> Patches {
        let (columns, rows) = (size.width / self.patch, size.height / self.patch);
        hash.update(format!(" {columns} {rows} "));
        let mut values = Vec::with_capacity(columns * rows * 3 * self.patch * self.patch);
        let row_of = |y: usize| &pixels[((top + y) * width + left) * 3..][..size.width * 3];
        (0..rows * self.patch).for_each(|y| hash.update(row_of(y)));
        for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
            for (channel, table) in table.iter().enumerate() {
                for dy in 0..self.patch {
                    let line = &row_of(row * self.patch + dy)[column * self.patch * 3..][..self.patch * 3];
                    values.extend(line.chunks_exact(3).map(|pixel| table[usize::from(pixel[channel])]));
                }
            }
        }
        Patches { rows, columns, values }
    }
}
