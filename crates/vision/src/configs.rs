//! Processors of Hugging Face folders.

use serde_json::{Map, Value};

use crate::error::Error;
use crate::fit::{Fit, Size, Small};
use crate::grid::{Grid, Tiling};
use crate::kind::Kind;
use crate::processor::Processor;
use crate::resize::Filter;

/// The files of a folder that say how pictures are prepared.
#[derive(Debug, Clone, Default)]
pub struct Configs {
    /// `preprocessor_config.json`.
    pub preprocessor: Option<Map<String, Value>>,
    /// `processor_config.json`. Newer folders have the settings of the first file in it, as `image_processor`.
    pub processor: Option<Map<String, Value>>,
    /// `config.json`.
    pub model: Map<String, Value>,
}

/// The largest side of a patch, of a merge, of a tile and of a picture in pixels, and numbers of tiles and tokens.
/// Published files have at most a tenth of these; they bound what a damaged file can ask for.
const MAX_PATCH: u64 = 256;
const MAX_MERGE: u64 = 64;
const MAX_SIDE: u64 = 1 << 13;
const MAX_TILES: u64 = 256;
const MAX_TOKENS: u64 = 1 << 16;
const MAX_PIXELS: u64 = 1 << 28;

impl Configs {
    /// The processor of these files.
    ///
    /// # Errors
    /// If a key is missing or is not valid, or the processor is of another kind.
    pub fn read(&self) -> Result<Processor, Error> {
        let nested = self.processor.as_ref().and_then(|own| own.get("image_processor")).and_then(Value::as_object);
        let settings = self.preprocessor.as_ref().or(nested).ok_or(Error::Missing {
            key: "preprocessor_config.json".to_owned(),
            expected: "the settings of the image processor",
        })?;
        let keys = Keys { map: settings, path: "preprocessor_config.json" };
        let kind = keys.kind()?;
        let mut own = kind.processor();
        keys.common(&mut own)?;
        match kind {
            Kind::Lfm2Vl => keys.lfm2(&mut own)?,
            Kind::Qwen => keys.qwen(&mut own, 1)?,
            Kind::Glm4v => keys.qwen(&mut own, 2)?,
            Kind::Gemma4 => keys.gemma4(&mut own)?,
            Kind::Gemma4Unified => {
                let mut merged = Kind::Gemma4.processor();
                keys.gemma4(&mut merged)?;
                (own.patch, own.fit) = (merged.patch * merged.merge, merged.fit);
            }
            Kind::Gemma3 => self.gemma3(&keys, &mut own)?,
            Kind::Pixtral => self.pixtral(&keys, &mut own)?,
            Kind::Idefics3 => self.idefics3(&keys, &mut own)?,
        }
        own.bounded()
    }

    fn gemma3(&self, keys: &Keys, own: &mut Processor) -> Result<(), Error> {
        if let Some(Value::Bool(true)) = keys.map.get("do_pan_and_scan") {
            return Err(keys.unsupported("do_pan_and_scan", "true", "`do_pan_and_scan` false"));
        }
        let size = keys.size()?;
        size.iter().for_each(|&size| own.fit = Fit::Fixed(size));
        let vision = self.vision();
        vision.number("patch_size", MAX_PATCH)?.iter().for_each(|&patch| own.patch = patch);
        let tokens = Keys { map: &self.model, path: "config.json" }.number("mm_tokens_per_image", MAX_TOKENS)?;
        let (Fit::Fixed(size), tokens) = (own.fit, tokens.unwrap_or(256)) else { return Ok(()) };
        let patches = size.width / own.patch;
        let side = tokens.isqrt();
        let is_whole = size.width == size.height && side > 0 && side * side == tokens;
        if !is_whole || patches == 0 || !patches.is_multiple_of(side) || !size.width.is_multiple_of(own.patch) {
            return Err(Error::Value {
                key: "config.json: mm_tokens_per_image".to_owned(),
                found: tokens.to_string(),
                expected: "the square of a divisor of the patches in a row of a square picture",
            });
        }
        own.merge = patches / side;
        Ok(())
    }

    fn pixtral(&self, keys: &Keys, own: &mut Processor) -> Result<(), Error> {
        let edge = keys.at("size").map(|size| size.number("longest_edge", MAX_SIDE)).transpose()?.flatten();
        let size = edge.map(|edge| Size { width: edge, height: edge });
        size.or(keys.size()?).iter().for_each(|&size| own.fit = Fit::Within(size));
        let empty = Map::new();
        let processor = Keys { map: self.processor.as_ref().unwrap_or(&empty), path: "processor_config.json" };
        let model = Keys { map: &self.model, path: "config.json" };
        let patch = match processor.number("patch_size", MAX_PATCH)? {
            None => self.vision().number("patch_size", MAX_PATCH)?,
            patch => patch,
        };
        let merge = match processor.number("spatial_merge_size", MAX_MERGE)? {
            None => model.number("spatial_merge_size", MAX_MERGE)?,
            merge => merge,
        };
        patch.iter().for_each(|&patch| own.patch = patch);
        merge.iter().for_each(|&merge| own.merge = merge);
        Ok(())
    }

    fn idefics3(&self, keys: &Keys, own: &mut Processor) -> Result<(), Error> {
        self.vision().number("patch_size", MAX_PATCH)?.iter().for_each(|&patch| own.patch = patch);
        let model = Keys { map: &self.model, path: "config.json" };
        model.number("scale_factor", MAX_MERGE)?.iter().for_each(|&merge| own.merge = merge);
        let edge = |key| keys.at(key).map_or(Ok(None), |size| size.number("longest_edge", MAX_SIDE));
        let side = edge("max_image_size")?.unwrap_or(364);
        if !side.is_multiple_of(own.patch * own.merge) {
            return Err(Error::Value {
                key: keys.key("max_image_size"),
                found: side.to_string(),
                expected: "a multiple of the side of a token's pixels",
            });
        }
        own.fit = Fit::Fixed(Size { width: side, height: side });
        let longest = edge("size")?.unwrap_or(4 * 364);
        own.tiling = Some(Tiling { side, grid: Grid::Longest(longest), has_overview: true });
        if let Some(Value::Bool(false)) = keys.map.get("do_image_splitting") {
            return Err(keys.unsupported("do_image_splitting", "false", "`do_image_splitting` true"));
        }
        Ok(())
    }

    fn vision(&self) -> Keys<'_> {
        let keys = Keys { map: &self.model, path: "config.json" };
        keys.at("vision_config").unwrap_or(keys)
    }
}

/// The keys of one object in a file.
#[derive(Clone, Copy)]
struct Keys<'a> {
    map: &'a Map<String, Value>,
    path: &'static str,
}

impl<'a> Keys<'a> {
    fn kind(&self) -> Result<Kind, Error> {
        let class = self.map.get("image_processor_type").and_then(Value::as_str).unwrap_or_default();
        Kind::of_class(class).ok_or_else(|| Error::Kind {
            key: "image_processor_type",
            found: class.chars().take(100).collect(),
            expected: Kind::classes(),
        })
    }

    /// The keys of all kinds.
    fn common(&self, own: &mut Processor) -> Result<(), Error> {
        for key in ["do_resize", "do_convert_rgb"] {
            if let Some(Value::Bool(false)) = self.map.get(key) {
                return Err(self.unsupported(key, "false", "a processor that does it"));
            }
        }
        if let Some(Value::Bool(true)) = self.map.get("do_center_crop") {
            return Err(self.unsupported("do_center_crop", "true", "a processor that shows the whole picture"));
        }
        if let Some(number) = self.value("resample") {
            let filter = number.as_u64().and_then(Filter::from_pillow);
            own.filter =
                filter.ok_or_else(|| self.invalid("resample", number, "1 (Lanczos), 2 (bilinear) or 3 (bicubic)"))?;
        }
        if let Some(factor) = self.value("rescale_factor") {
            let positive = factor.as_f64().filter(|factor| factor.is_finite() && *factor > 0.0);
            own.scale = positive.ok_or_else(|| self.invalid("rescale_factor", factor, "a positive number"))?;
        }
        if let Some(Value::Bool(false)) = self.map.get("do_rescale") {
            own.scale = 1.0;
        }
        self.channels("image_mean")?.iter().for_each(|&mean| own.mean = mean);
        self.channels("image_std")?.iter().for_each(|&std| own.std = std);
        if own.std.contains(&0.0) {
            return Err(Error::Value {
                key: self.key("image_std"),
                found: "0".to_owned(),
                expected: "numbers other than 0",
            });
        }
        if let Some(Value::Bool(false)) = self.map.get("do_normalize") {
            (own.mean, own.std) = ([0.0; 3], [1.0; 3]);
        }
        Ok(())
    }

    fn lfm2(&self, own: &mut Processor) -> Result<(), Error> {
        self.number("encoder_patch_size", MAX_PATCH)?.iter().for_each(|&patch| own.patch = patch);
        self.number("downsample_factor", MAX_MERGE)?.iter().for_each(|&merge| own.merge = merge);
        let pixels = (own.patch * own.merge).pow(2);
        let least = self.number("min_image_tokens", MAX_TOKENS)?.unwrap_or(64);
        let most = self.number("max_image_tokens", MAX_TOKENS)?.unwrap_or(256);
        own.fit = Fit::Area { min: least * pixels, max: most * pixels, small: Small::Floor };
        let tolerance = self.value("max_pixels_tolerance").and_then(Value::as_f64).unwrap_or(2.0);
        let side = self.number("tile_size", MAX_SIDE)?.unwrap_or(512);
        if !side.is_multiple_of(own.patch) {
            return Err(Error::Value {
                key: self.key("tile_size"),
                found: side.to_string(),
                expected: "a multiple of encoder_patch_size",
            });
        }
        let min = self.number("min_tiles", MAX_TILES)?.unwrap_or(2);
        let max = self.number("max_tiles", MAX_TILES)?.unwrap_or(10);
        let tiling = Tiling {
            side,
            grid: Grid::Closest { min, max, large: (most * pixels) as f64 * tolerance },
            has_overview: self.map.get("use_thumbnail").and_then(Value::as_bool).unwrap_or(true),
        };
        let is_split = self.map.get("do_image_splitting").and_then(Value::as_bool).unwrap_or(true);
        own.tiling = (is_split && (min, max) != (1, 1)).then_some(tiling);
        Ok(())
    }

    /// The limits are those of so many frames.
    fn qwen(&self, own: &mut Processor, frames: usize) -> Result<(), Error> {
        self.number("patch_size", MAX_PATCH)?.iter().for_each(|&patch| own.patch = patch);
        self.number("merge_size", MAX_MERGE)?.iter().for_each(|&merge| own.merge = merge);
        let limit = |key: &'static str, edge: &'static str, default: usize| {
            let edge = self.at("size").map(|size| size.number(edge, MAX_PIXELS)).transpose()?.flatten();
            Ok::<_, Error>(self.number(key, MAX_PIXELS)?.or(edge).unwrap_or(default))
        };
        let Fit::Area { min, max, small } = own.fit else { return Ok(()) };
        let min = limit("min_pixels", "shortest_edge", min * frames)?.div_ceil(frames);
        let max = limit("max_pixels", "longest_edge", max * frames)? / frames;
        own.fit = Fit::Area { min, max, small };
        Ok(())
    }

    fn gemma4(&self, own: &mut Processor) -> Result<(), Error> {
        self.number("patch_size", MAX_PATCH)?.iter().for_each(|&patch| own.patch = patch);
        self.number("pooling_kernel_size", MAX_MERGE)?.iter().for_each(|&merge| own.merge = merge);
        let tokens = self.number("max_soft_tokens", MAX_TOKENS)?;
        tokens.iter().for_each(|&tokens| own.fit = Fit::Budget { tokens });
        Ok(())
    }

    /// A value that is there and is not null.
    fn value(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    fn at(&self, key: &str) -> Option<Keys<'a>> {
        self.map.get(key)?.as_object().map(|map| Keys { map, path: self.path })
    }

    /// A number from 1 to `max`.
    fn number(&self, key: &str, max: u64) -> Result<Option<usize>, Error> {
        let Some(value) = self.value(key) else { return Ok(None) };
        // Some files have the numbers as floats, and the side of a square as two numbers.
        let square = value.get("height").filter(|height| Some(*height) == value.get("width"));
        let number = square.unwrap_or(value).as_f64().filter(|number| number.fract() == 0.0);
        let number = number.filter(|&number| number >= 1.0 && number <= max as f64).map(|number| number as usize);
        number.map(Some).ok_or_else(|| self.invalid(key, value, "a whole number in a usual range"))
    }

    /// `size`, with height and width.
    fn size(&self) -> Result<Option<Size>, Error> {
        let Some(size) = self.at("size") else { return Ok(None) };
        let sides = (size.number("width", MAX_SIDE)?, size.number("height", MAX_SIDE)?);
        Ok(sides.0.zip(sides.1).map(|(width, height)| Size { width, height }))
    }

    fn channels(&self, key: &str) -> Result<Option<[f32; 3]>, Error> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let list = value.as_array().map_or(&[][..], Vec::as_slice);
        let numbers: Vec<f32> = list.iter().filter_map(Value::as_f64).map(|number| number as f32).collect();
        let numbers = <[f32; 3]>::try_from(numbers).ok().filter(|all| all.iter().all(|number| number.is_finite()));
        numbers.map(Some).ok_or_else(|| self.invalid(key, value, "three numbers"))
    }

    fn key(&self, key: &str) -> String {
        format!("{}: {key}", self.path)
    }

    fn invalid(&self, key: &str, found: &Value, expected: &'static str) -> Error {
        Error::Value { key: self.key(key), found: found.to_string().chars().take(100).collect(), expected }
    }

    fn unsupported(&self, key: &str, found: &str, expected: &'static str) -> Error {
        Error::Unsupported { key: self.key(key), found: found.to_owned(), expected }
    }
}
