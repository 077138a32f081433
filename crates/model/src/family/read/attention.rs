//! Attention and its rotary embedding.

use gristmill_kernels::ops::{GateKind, RopeStyle, Temperature, Window};

use super::keys::{KeyReader, MAX_WIDTH};
use crate::error::{Error, Result};
use crate::limits::MAX_CONTEXT;
use crate::spec::{AttentionSpec, GateRows, OutputGate, RopeAxes, RopeScaling, RopeSpec};

/// Multimodal RoPE: whether a head's pairs use several positions of a token, which are equal for text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::family) enum Sections {
    /// One position.
    None,
    /// Three positions; adjacent pairs use the same.
    Runs,
    /// Three positions; pairs take turns.
    Interleaved,
}

impl KeyReader<'_> {
    /// Grouped-query attention without qk-norm.
    pub(in crate::family) fn attention(&self, style: RopeStyle) -> Result<AttentionSpec> {
        self.attention_in(style, Sections::None)
    }

    /// [`Sections::Runs`] if the file has sections: models that read images have them, others of the family do not.
    pub(in crate::family) fn sections_if_set(&self) -> Result<Sections> {
        let sections = self.source.optional::<Vec<i32>>(&self.key("rope.dimension_sections"))?;
        let is_set = sections.is_some_and(|sections| sections.iter().any(|&n| n != 0));
        Ok(if is_set { Sections::Runs } else { Sections::None })
    }

    /// [`Self::attention`] with these RoPE sections.
    pub(in crate::family) fn attention_in(&self, style: RopeStyle, sections: Sections) -> Result<AttentionSpec> {
        let heads = self.count("attention.head_count", MAX_WIDTH)?;
        let kv_heads = self.optional_count("attention.head_count_kv", MAX_WIDTH)?.unwrap_or(heads);
        self.attention_of(style, kv_heads, sections)
    }

    /// [`Self::attention`] with this number of KV heads.
    pub(in crate::family) fn attention_of(
        &self,
        style: RopeStyle,
        kv_heads: usize,
        sections: Sections,
    ) -> Result<AttentionSpec> {
        self.attention_with(style, [self.count("attention.head_count", MAX_WIDTH)?, kv_heads], sections)
    }

    /// [`Self::attention`] with these numbers of query heads and KV heads.
    fn attention_with(
        &self,
        style: RopeStyle,
        [heads, kv_heads]: [usize; 2],
        sections: Sections,
    ) -> Result<AttentionSpec> {
        let hidden = self.hidden()?;
        if heads == 0 || kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
            return self.wrong("attention.head_count", heads, format!("is not a multiple of the {kv_heads} KV heads"));
        }
        let width = |suffix| match self.optional_count(suffix, MAX_WIDTH)? {
            Some(width) => Ok(width),
            None if hidden.is_multiple_of(heads) => Ok(hidden / heads),
            None => {
                let rule =
                    format!("does not divide the embedding length {hidden}, and there is no `{}`", self.key(suffix));
                self.wrong("attention.head_count", heads, rule)
            }
        };
        let key_width = width("attention.key_length")?;
        let value_width = width("attention.value_length")?;
        let scale = self.number_or_zero("attention.scale")?;
        Ok(AttentionSpec {
            heads,
            kv_heads,
            key_width,
            value_width,
            scale: scale.unwrap_or_else(|| (1.0 / (key_width as f64).sqrt()) as f32),
            cap: None,
            temperature: None,
            window: self.optional_count("attention.sliding_window", usize::MAX)?.map(Window::Last),
            both_ways: false,
            sinks: false,
            qk_norm: None,
            norm_after_rope: false,
            value_norm: false,
            values_are_keys: false,
            qkv_bias: self.tensor("blk.0.attn_q.bias") || self.tensor("blk.0.attn_qkv.bias"),
            output_bias: self.tensor("blk.0.attn_output.bias"),
            value_scale: 1.0,
            gate: None,
            kv_from: None,
            rope: Some(self.rope(style, key_width, sections)?),
            halves_alternate: false,
        })
    }

    /// The attention of a layer with a sliding window (`windowed`), which has separate head widths, RoPE width and
    /// base; or with full attention.
    pub(in crate::family) fn attention_of_window(
        &self,
        style: RopeStyle,
        kv_heads: usize,
        windowed: bool,
    ) -> Result<AttentionSpec> {
        let full = self.attention_of(style, kv_heads, Sections::None)?;
        if !windowed {
            return Ok(AttentionSpec { window: None, ..full });
        }
        let width = |suffix| self.optional_count(suffix, MAX_WIDTH);
        let key_width = width("attention.key_length_swa")?.unwrap_or(full.key_width);
        let value_width = width("attention.value_length_swa")?.unwrap_or(full.value_width);
        let rotated = self.windowed_rotation(key_width, key_width)?;
        let rope = self.windowed_rope(full.rope.as_ref())?.map(|rope| RopeSpec { width: rotated, ..rope });
        Ok(AttentionSpec { key_width, value_width, rope, ..full })
    }

    /// The attention of a layer with these numbers of query heads and KV heads. With a sliding window (`windowed`),
    /// RoPE has a separate width and base and no scaling.
    pub(in crate::family) fn attention_of_heads(
        &self,
        style: RopeStyle,
        heads: [usize; 2],
        windowed: bool,
    ) -> Result<AttentionSpec> {
        let full = self.attention_with(style, heads, Sections::None)?;
        if !windowed {
            return Ok(AttentionSpec { window: None, ..full });
        }
        let usual = full.rope.as_ref().map_or(full.key_width, |rope| rope.width);
        let width = self.windowed_rotation(full.key_width, usual)?;
        let rope = self.unscaled_rope(full.rope.as_ref())?.map(|rope| RopeSpec { width, ..rope });
        Ok(AttentionSpec { rope, ..full })
    }

    /// RoPE width of layers with a sliding window; `usual` is the default.
    fn windowed_rotation(&self, key_width: usize, usual: usize) -> Result<usize> {
        let suffix = "rope.dimension_count_swa";
        let rotated = self.optional_count(suffix, MAX_WIDTH)?.unwrap_or(usual);
        if rotated > key_width || !rotated.is_multiple_of(2) {
            let rule = format!("must be even and at most the head width {key_width}");
            return self.wrong(suffix, rotated, rule);
        }
        Ok(rotated)
    }

    /// RoPE of half as many elements of each head.
    pub(in crate::family) fn half_rotated(&self, rope: Option<RopeSpec>) -> Result<Option<RopeSpec>> {
        match rope {
            Some(rope) if !rope.width.is_multiple_of(4) => {
                let rule = "must be a multiple of 4, because some layers rotate half of it";
                self.wrong("rope.dimension_count", rope.width, rule)
            }
            rope => Ok(rope.map(|rope| RopeSpec { width: rope.width / 2, ..rope })),
        }
    }

    /// Query heads per layer: one number for all layers, or an array.
    pub(in crate::family) fn heads(&self) -> Result<Vec<usize>> {
        self.of_each_layer("attention.head_count")
    }

    /// The gate of attention output: a tensor with one row per head or per element.
    pub(in crate::family) fn output_gate(&self, layer: usize, heads: usize, kind: GateKind) -> OutputGate {
        let tensor = self.source.file.tensor(&format!("blk.{layer}.attn_gate.weight"));
        let per_head = tensor.is_some_and(|tensor| tensor.shape.get(1) == Some(&(heads as u64)));
        OutputGate { rows: GateRows::Apart, kind, per_head }
    }

    /// The layer whose KV cache each layer reads, if it is not its own. The file states how many of the last layers
    /// share. They read the cache of the last preceding layer with the same attention type.
    pub(in crate::family) fn shared_caches(&self, windowed: &[bool], kv_heads: &[usize]) -> Result<Vec<Option<usize>>> {
        let (layers, suffix) = (windowed.len(), "attention.shared_kv_layers");
        let shared = self.count_or_zero(suffix)?;
        let Some(own) = layers.checked_sub(shared).filter(|&own| own > 0) else {
            return self.wrong(suffix, shared, format!("leaves none of the {layers} layers with a cache of its own"));
        };
        let mut sources = vec![None; own];
        for layer in own..layers {
            let source = (0..own).rev().find(|&before| windowed[before] == windowed[layer]);
            let Some(source) = source else {
                let rule = format!("leaves layer {layer} without a layer before it that sees as much and has a cache");
                return self.wrong(suffix, shared, rule);
            };
            if kv_heads[source] != kv_heads[layer] {
                let rule = format!("of layer {layer} are not those of layer {source}, whose cache it reads");
                return self.wrong("attention.head_count_kv", kv_heads[layer], rule);
            }
            sources.push(Some(source));
        }
        Ok(sources)
    }

    pub(super) fn rope(&self, style: RopeStyle, head_width: usize, sections: Sections) -> Result<RopeSpec> {
        let width = self.optional_count("rope.dimension_count", MAX_WIDTH)?.unwrap_or(head_width);
        if width > head_width || !width.is_multiple_of(2) {
            let rule = format!("must be even and at most the head width {head_width}");
            return self.wrong("rope.dimension_count", width, rule);
        }
        let multiple = sections;
        let axes = match multiple {
            Sections::None => None,
            Sections::Runs | Sections::Interleaved => {
                let is_interleaved = multiple == Sections::Interleaved;
                Some(RopeAxes { sections: self.three_sections(width)?, is_interleaved })
            }
        };
        let sections = self.source.optional::<Vec<i32>>(&self.key("rope.dimension_sections"))?;
        let sections = sections.filter(|_| multiple == Sections::None);
        if let Some(sections) = sections.filter(|sections| sections.iter().any(|&n| n != 0)) {
            return Err(Error::Unsupported {
                key: self.key("rope.dimension_sections"),
                found: format!("{:?} (multi-dimensional RoPE)", sections.get(..4).unwrap_or(&sections)),
                known: "one position per token",
            });
        }
        let scaling = self.rope_scaling()?;
        let factors = !matches!(scaling, RopeScaling::Long { .. }) && self.tensor("rope_freqs.weight");
        Ok(RopeSpec { style, base: self.rope_base("rope.freq_base")?, width, scaling, factors, axes })
    }

    /// Fails unless each pair of `rotated` elements uses one of three positions, which are equal for text.
    fn three_sections(&self, rotated: usize) -> Result<[usize; 3]> {
        let key = self.key("rope.dimension_sections");
        let sections: Vec<usize> = self.source.required(&key)?;
        let [three, others] = [sections.get(..3), sections.get(3..)].map(Option::unwrap_or_default);
        let pairs = three.iter().fold(0_usize, |sum, &section| sum.saturating_add(section));
        if let (&[time, rows, columns], true) = (three, pairs == rotated / 2 && others.iter().all(|&n| n == 0)) {
            return Ok([time, rows, columns]);
        }
        let found = format!("{:?}", sections.get(..4).unwrap_or(&sections));
        Err(Error::Unsupported { key, found, known: "three sections that have all pairs" })
    }

    /// The query temperature, if the file has its scale. It grows with each multiple of the original context.
    pub(in crate::family) fn temperature(&self, offset: u32) -> Result<Option<Temperature>> {
        let Some(scale) = self.number_or_zero("attention.temperature_scale")? else { return Ok(None) };
        let (length, suffix) = (self.original_context()?, "attention.temperature_length");
        if let Some(found) = self.optional_count(suffix, MAX_CONTEXT)?.filter(|&found| found != length) {
            return self.wrong(suffix, found, format!("is not the original context, {length}"));
        }
        // Contexts are limited to `MAX_CONTEXT`.
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        Ok(Some(Temperature { scale, length, offset }))
    }

    /// The query temperature; this default if the file has none.
    pub(in crate::family) fn temperature_or(&self, usual: Temperature) -> Result<Temperature> {
        let scale = self.optional_number("attention.temperature_scale")?.unwrap_or(usual.scale);
        let length = self.optional_count("attention.temperature_length", MAX_CONTEXT)?;
        let length = length.and_then(|length| u32::try_from(length).ok()).unwrap_or(usual.length);
        Ok(Temperature { scale, length, ..usual })
    }

    /// The attention chunks, of this default length if the file has none.
    pub(in crate::family) fn chunks(&self, usual: usize) -> Result<Window> {
        let suffix = "attention.sliding_window";
        Ok(Window::Chunk(if self.has_key(suffix) { self.count(suffix, MAX_CONTEXT)? } else { usual }))
    }

    /// The original context, before RoPE scaling.
    fn original_context(&self) -> Result<usize> {
        match self.optional_count("rope.scaling.original_context_length", MAX_CONTEXT)? {
            Some(n) => Ok(n),
            None => self.context_length(),
        }
    }

    /// RoPE of layers with a sliding window: a separate base, no scaling.
    pub(in crate::family) fn windowed_rope(&self, rope: Option<&RopeSpec>) -> Result<Option<RopeSpec>> {
        let base = self.rope_base("rope.freq_base_swa")?;
        Ok(rope.map(|rope| RopeSpec { base, scaling: RopeScaling::None, factors: false, ..rope.clone() }))
    }

    /// RoPE of layers with a sliding window: no scaling; the base defaults to the other layers' base.
    pub(in crate::family) fn unscaled_rope(&self, rope: Option<&RopeSpec>) -> Result<Option<RopeSpec>> {
        let base = self.optional_number("rope.freq_base_swa")?;
        let unscaled = |rope: &RopeSpec| RopeSpec {
            base: base.unwrap_or(rope.base),
            scaling: RopeScaling::None,
            factors: false,
            ..rope.clone()
        };
        Ok(rope.map(unscaled))
    }

    fn rope_base(&self, suffix: &str) -> Result<f32> {
        Ok(self.optional_number(suffix)?.unwrap_or(10_000.0))
    }

    fn rope_scaling(&self) -> Result<RopeScaling> {
        let kind = self.source.optional::<&str>(&self.key("rope.scaling.type"))?;
        // The older of the two keys has always meant linear scaling.
        let factor = match self.number_or_zero("rope.scaling.factor")? {
            Some(factor) => Some(factor),
            None => self.number_or_zero("rope.scale_linear")?,
        };
        // Converters write LongRoPE's tensors, but do not always write its name.
        let kind = match kind {
            None if self.tensor("rope_factors_long.weight") => Some("longrope"),
            kind => kind,
        };
        match (kind, factor.unwrap_or(1.0)) {
            (Some("none"), _) | (None | Some("linear"), 1.0) => Ok(RopeScaling::None),
            (None | Some("linear"), factor) => Ok(RopeScaling::Linear { factor }),
            (Some("yarn"), factor) => Ok(RopeScaling::Yarn {
                factor,
                original_context: self.original_context()?,
                beta_fast: self.optional_number("rope.scaling.yarn_beta_fast")?.unwrap_or(32.0),
                beta_slow: self.optional_number("rope.scaling.yarn_beta_slow")?.unwrap_or(1.0),
                truncate: true,
                attention_factor: self.number_or_zero("rope.scaling.attn_factor")?.unwrap_or(1.0),
            }),
            // The tensors hold the factors.
            (Some("longrope"), _) => Ok(RopeScaling::Long {
                original_context: self.original_context()?,
                magnitude: self.factor("rope.scaling.attn_factor")?,
            }),
            (Some(other), _) => Err(Error::Unsupported {
                key: self.key("rope.scaling.type"),
                found: other.to_owned(),
                known: "none, linear, yarn, longrope; Llama 3's as the tensor `rope_freqs.weight`",
            }),
        }
    }
}
