//! Latent attention (MLA).

use gristmill_kernels::ops::RopeStyle;

use super::attention::Sections;
use super::keys::{KeyReader, MAX_EXPERTS, MAX_WIDTH, supported};
use crate::error::Result;
use crate::spec::{LatentSpec, RopeScaling, RopeSpec};

impl KeyReader<'_> {
    /// Latent attention. The last elements of a query and of the latent row are rotated, in interleaved pairs.
    pub(in crate::family) fn latent_attention(&self) -> Result<LatentSpec> {
        let spec = self.latent_of(0)?;
        if self.has_key("attention.key_length_mla") {
            self.expect_width("attention.value_length", spec.latent)?;
        }
        Ok(spec)
    }

    /// The same of a file in which only the layers with KV heads have latent attention. The file's
    /// `attention.value_length` has no meaning.
    pub(in crate::family) fn latent_of_hybrid(&self) -> Result<LatentSpec> {
        for suffix in ["attention.key_length_mla", "attention.value_length_mla"] {
            self.count(suffix, MAX_WIDTH)?;
        }
        self.latent_of(self.kv_heads()?.iter().position(|&heads| heads > 0).unwrap_or(0))
    }

    /// Latent attention; `layer` is the first layer that has it.
    fn latent_of(&self, layer: usize) -> Result<LatentSpec> {
        let heads = self.count_within("attention.head_count", MAX_EXPERTS, || supported(MAX_EXPERTS))?;
        let latent = self.count("attention.kv_lora_rank", MAX_WIDTH)?;
        // Files with `attn_kv_b` can store head widths under the keys of other families.
        let width = |own: &'static str, other: &'static str| -> Result<(&'static str, usize)> {
            let suffix = if self.has_key(own) { own } else { other };
            Ok((suffix, self.count(suffix, MAX_WIDTH)?))
        };
        let (suffix, query_width) = width("attention.key_length_mla", "attention.key_length")?;
        let (_, value_width) = width("attention.value_length_mla", "attention.value_length")?;
        let rotated = self.count("rope.dimension_count", MAX_WIDTH)?;
        if rotated >= query_width || !rotated.is_multiple_of(2) {
            let rule = format!("must be even and below `{}`, {query_width}", self.key(suffix));
            return self.wrong("rope.dimension_count", rotated, rule);
        }
        if suffix == "attention.key_length_mla" {
            self.expect_width("attention.key_length", latent + rotated)?;
        }
        let has_rank = self.tensor(&format!("blk.{layer}.attn_q_a.weight"));
        let query_rank = if has_rank { Some(self.count("attention.q_lora_rank", MAX_WIDTH)?) } else { None };
        let mut rope = self.rope(RopeStyle::Interleaved, query_width, Sections::None)?;
        let magnitude = self.score_magnitude(&mut rope)?;
        let scale = (magnitude * magnitude / (query_width as f64).sqrt()) as f32;
        let plain = query_width - rotated;
        let (is_gated, temperature) = (false, self.temperature(0)?);
        let rope = Some(rope);
        Ok(LatentSpec { heads, query_rank, latent, plain, rotated, value_width, scale, is_gated, temperature, rope })
    }

    /// Fails if the file has a different width under this key.
    fn expect_width(&self, suffix: &str, expected: usize) -> Result<()> {
        match self.optional_count(suffix, MAX_WIDTH)? {
            Some(found) if found != expected => {
                self.wrong(suffix, found, format!("is not the width of the latent row, {expected}"))
            }
            _ => Ok(()),
        }
    }

    /// YaRN's magnitude for queries and keys, `0.1 · mscale_all_dim`, if the file has its multiplier. Here it scales
    /// logits instead of sines and cosines.
    fn score_magnitude(&self, rope: &mut RopeSpec) -> Result<f64> {
        let multiplier = self.number_or_zero("rope.scaling.yarn_log_multiplier")?;
        let given = self.has_key("rope.scaling.attn_factor");
        match (&mut rope.scaling, multiplier) {
            (RopeScaling::Yarn { factor, attention_factor, .. }, Some(multiplier)) => {
                let log = f64::from(*factor).ln().max(0.0);
                if !given {
                    *attention_factor = (1.0 / (0.1 * log + 1.0)) as f32;
                }
                Ok(1.0 + f64::from(multiplier) * log)
            }
            _ => Ok(1.0),
        }
    }
}
