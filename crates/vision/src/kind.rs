//! The kinds of processors, with the values of keys that files leave out.

use crate::fit::{Fit, Size, Small};
use crate::grid::{Grid, Tiling};
use crate::layout::{Marks, TileMarks};
use crate::processor::Processor;
use crate::resize::Filter;

/// A kind of processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// LFM2-VL and LFM2.5-VL.
    Lfm2Vl,
    /// Qwen2-VL, Qwen2.5-VL, Qwen3-VL, Qwen 3.5 and 3.6.
    Qwen,
    /// GLM-4.1V, 4.5V and 4.6V.
    Glm4v,
    /// Gemma 4.
    Gemma4,
    /// Gemma 4 12B, whose patches are whole tokens.
    Gemma4Unified,
    /// Gemma 3.
    Gemma3,
    /// Pixtral, Mistral Small 3.1 and 3.2, Ministral 3.
    Pixtral,
    /// Idefics3, SmolVLM and SmolVLM2.
    Idefics3,
}

/// Each kind, its `image_processor_type` without the endings `Fast` and `Pil`, and its `projector_type`s in a GGUF file.
const KINDS: &[(Kind, &str, &[&str])] = &[
    (Kind::Lfm2Vl, "Lfm2VlImageProcessor", &["lfm2"]),
    (Kind::Qwen, "Qwen2VLImageProcessor", &["qwen3vl_merger", "qwen2.5vl_merger", "qwen2vl_merger"]),
    (Kind::Glm4v, "Glm4vImageProcessor", &["glm4v"]),
    (Kind::Glm4v, "Glm46VImageProcessor", &[]),
    (Kind::Gemma4, "Gemma4ImageProcessor", &["gemma4v"]),
    (Kind::Gemma4Unified, "Gemma4UnifiedImageProcessor", &["gemma4uv"]),
    (Kind::Gemma3, "Gemma3ImageProcessor", &["gemma3"]),
    (Kind::Pixtral, "PixtralImageProcessor", &["pixtral"]),
    (Kind::Idefics3, "Idefics3ImageProcessor", &["idefics3"]),
    (Kind::Idefics3, "SmolVLMImageProcessor", &[]),
];

const HALVES: [f32; 3] = [0.5; 3];
const CLIP_MEAN: [f32; 3] = [0.48145466, 0.4578275, 0.40821073];
const CLIP_STD: [f32; 3] = [0.26862954, 0.261_302_6, 0.275_777_1];

impl Kind {
    /// The kind of a processor's class in transformers.
    pub fn of_class(class: &str) -> Option<Kind> {
        let class = class.strip_suffix("Fast").or(class.strip_suffix("Pil")).unwrap_or(class);
        KINDS.iter().find(|(_, own, _)| *own == class).map(|&(kind, ..)| kind)
    }

    /// The kind of a projector in a GGUF file.
    pub fn of_projector(projector: &str) -> Option<Kind> {
        KINDS.iter().find(|(.., own)| own.contains(&projector)).map(|&(kind, ..)| kind)
    }

    /// The classes in transformers of all kinds.
    pub(crate) fn classes() -> String {
        KINDS.iter().map(|(_, class, _)| *class).collect::<Vec<_>>().join(", ")
    }

    /// The projectors of all kinds.
    pub(crate) fn projectors() -> String {
        KINDS.iter().flat_map(|(.., own)| own.iter().copied()).collect::<Vec<_>>().join(", ")
    }

    /// The processor with the defaults of the kind's class in transformers.
    pub fn processor(self) -> Processor {
        let of = |patch, merge, fit, filter, (mean, std)| Processor {
            patch,
            merge,
            fit,
            tiling: None,
            filter,
            scale: 1.0 / 255.0,
            mean,
            std,
            marks: self.marks(),
        };
        let halves = (HALVES, HALVES);
        let clip = (CLIP_MEAN, CLIP_STD);
        match self {
            Kind::Lfm2Vl => {
                let pixels = 32 * 32;
                let fit = Fit::Area { min: 64 * pixels, max: 256 * pixels, small: Small::Floor };
                let large = (2 * 256 * pixels) as f64;
                let tiling = Tiling { side: 512, grid: Grid::Closest { min: 2, max: 10, large }, has_overview: true };
                Processor { tiling: Some(tiling), ..of(16, 2, fit, Filter::Bilinear, halves) }
            }
            Kind::Qwen => {
                let fit = Fit::Area { min: 56 * 56, max: 28 * 28 * 1280, small: Small::Any };
                of(14, 2, fit, Filter::Bicubic, clip)
            }
            Kind::Glm4v => {
                // The class counts the pixels of two frames, of which a picture has one.
                let fit = Fit::Area { min: 112 * 112 / 2, max: 28 * 28 * 15_000 / 2, small: Small::Enlarged };
                of(14, 2, fit, Filter::Bicubic, clip)
            }
            Kind::Gemma4 => of(16, 3, Fit::Budget { tokens: 280 }, Filter::Bicubic, ([0.0; 3], [1.0; 3])),
            Kind::Gemma4Unified => of(48, 1, Fit::Budget { tokens: 280 }, Filter::Bicubic, ([0.0; 3], [1.0; 3])),
            Kind::Gemma3 => {
                let size = Size { width: 896, height: 896 };
                of(14, 4, Fit::Fixed(size), Filter::Bilinear, halves)
            }
            Kind::Pixtral => {
                let size = Size { width: 1024, height: 1024 };
                of(16, 1, Fit::Within(size), Filter::Bicubic, clip)
            }
            Kind::Idefics3 => {
                let fit = Fit::Fixed(Size { width: 364, height: 364 });
                let tiling = Tiling { side: 364, grid: Grid::Longest(4 * 364), has_overview: true };
                Processor { tiling: Some(tiling), ..of(14, 2, fit, Filter::Lanczos, halves) }
            }
        }
    }

    /// The texts around pictures, as the processors of transformers write them.
    fn marks(self) -> Marks {
        let of = |placeholder: &str, token: &str, before: &str, after: &str| Marks {
            placeholder: placeholder.to_owned(),
            around: Default::default(),
            token: token.to_owned(),
            before: before.to_owned(),
            after: after.to_owned(),
            row_break: String::new(),
            tiles: None,
        };
        match self {
            Kind::Lfm2Vl => {
                let tile = "<|img_row_ROW_col_COLUMN|>".to_owned();
                let tiles = TileMarks { tile, overview: "<|img_thumbnail|>".to_owned(), ..TileMarks::default() };
                Marks { tiles: Some(tiles), ..of("<image>", "<image>", "<|image_start|>", "<|image_end|>") }
            }
            Kind::Qwen => {
                let around = ("<|vision_start|>".to_owned(), "<|vision_end|>".to_owned());
                Marks { around, ..of("<|image_pad|>", "<|image_pad|>", "", "") }
            }
            Kind::Glm4v => {
                let around = ("<|begin_of_image|>".to_owned(), "<|end_of_image|>".to_owned());
                Marks { around, ..of("<|image|>", "<|image|>", "", "") }
            }
            Kind::Gemma4 | Kind::Gemma4Unified => of("<|image|>", "<|image|>", "<|image>", "<image|>"),
            Kind::Gemma3 => of("<start_of_image>", "<image_soft_token>", "\n\n<start_of_image>", "<end_of_image>\n\n"),
            Kind::Idefics3 => {
                let tiles = TileMarks {
                    alone: "<fake_token_around_image><global-img>".to_owned(),
                    tile: "<fake_token_around_image><row_ROW_col_COLUMN>".to_owned(),
                    row_end: "\n".to_owned(),
                    overview: "\n<fake_token_around_image><global-img>".to_owned(),
                };
                Marks { tiles: Some(tiles), ..of("<image>", "<image>", "", "<fake_token_around_image>") }
            }
            Kind::Pixtral => Marks { row_break: "[IMG_BREAK]".to_owned(), ..of("[IMG]", "[IMG]", "", "[IMG_END]") },
        }
    }
}
