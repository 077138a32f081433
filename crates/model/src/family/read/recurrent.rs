//! Layers whose state has a fixed size.

use gristmill_kernels::ops::{
    CONV_TAPS, DELTA_WIDTHS, DecayKind, DeltaHeads, HeadMap, SCAN_STATES, SCAN_VALUES, ScanHeads,
};

use super::keys::{KeyReader, MAX_EXPERTS, MAX_WIDTH, supported};
use crate::error::{Error, Result};
use crate::spec::{ChannelGates, DeltaProjections, DeltaSpec, ScanSpec};

/// Default period of the layers with attention: the last layer of each period.
const INTERVAL: usize = 4;

impl KeyReader<'_> {
    /// The number of taps of a convolution.
    pub(in crate::family) fn taps(&self, suffix: &str) -> Result<usize> {
        let taps = self.count(suffix, MAX_WIDTH)?;
        if CONV_TAPS.contains(&taps) {
            return Ok(taps);
        }
        Err(Error::Unsupported { key: self.key(suffix), found: taps.to_string(), known: "2, 3 or 4" })
    }

    /// KV heads per layer: one number for all layers, or an array.
    pub(in crate::family) fn kv_heads(&self) -> Result<Vec<usize>> {
        self.of_each_layer("attention.head_count_kv")
    }

    /// Whether each layer has a state of fixed size: one flag per layer, or all but the last of every
    /// `full_attention_interval` layers.
    pub(in crate::family) fn recurrent(&self) -> Result<Vec<bool>> {
        let (layers, suffix) = (self.layers()?, "attention.recurrent_layers");
        if let Some(flags) = self.source.optional::<&[bool]>(&self.key(suffix))? {
            return Ok(self.of_layers(suffix, flags, "flags")?.to_vec());
        }
        let interval = self.optional_count("full_attention_interval", MAX_WIDTH)?.unwrap_or(INTERVAL);
        Ok((0..layers).map(|layer| !(layer + 1).is_multiple_of(interval)).collect())
    }

    /// The delta rule with this order of value heads; `gates`: the projections of a file with separate ones.
    pub(in crate::family) fn delta(&self, map: HeadMap, gates: DeltaProjections) -> Result<DeltaSpec> {
        let [keys, values] = [self.count("ssm.group_count", MAX_WIDTH)?, self.count("ssm.time_step_rank", MAX_WIDTH)?];
        if !values.is_multiple_of(keys) {
            return self.wrong("ssm.time_step_rank", values, format!("is not a multiple of the {keys} key heads"));
        }
        let width = self.delta_width("ssm.state_size")?;
        let inner = self.count("ssm.inner_size", usize::MAX)?;
        if inner != values * width {
            let rule = format!("is not that of {values} value heads of width {width}");
            return self.wrong("ssm.inner_size", inner, rule);
        }
        let first = self.recurrent()?.iter().position(|&recurrent| recurrent).unwrap_or(0);
        let joined = self.tensor(&format!("blk.{first}.ssm_in.weight"));
        Ok(DeltaSpec {
            heads: DeltaHeads { keys, values, width, map },
            taps: self.taps("ssm.conv_kernel")?,
            projections: if joined { DeltaProjections::Joined } else { gates },
        })
    }

    /// The delta rule in which each element of a key has a gate.
    pub(in crate::family) fn channel_delta(&self, gates: ChannelGates) -> Result<DeltaSpec> {
        let heads = self.count_within("attention.head_count", MAX_EXPERTS, || supported(MAX_EXPERTS))?;
        let width = self.channel_width()?;
        Ok(DeltaSpec {
            heads: DeltaHeads { keys: heads, values: heads, width, map: HeadMap::Grouped },
            taps: self.taps("ssm.conv_kernel")?,
            projections: DeltaProjections::PerChannel(gates),
        })
    }

    /// The width of the heads of [`Self::channel_delta`].
    pub(in crate::family) fn channel_width(&self) -> Result<usize> {
        self.delta_width("kda.head_dim")
    }

    /// How gates become the decay of the state. `is_bounded`: default for whether the decay has a bound.
    pub(in crate::family) fn decay(&self, is_bounded: bool) -> Result<DecayKind> {
        let suffix = "kda.gate_lower_bound";
        if !self.source.optional::<bool>(&self.key("kda.safe_gate"))?.unwrap_or(is_bounded) {
            self.source.optional::<f32>(&self.key(suffix))?;
            return Ok(DecayKind::Softplus);
        }
        let bound = self.source.required::<f32>(&self.key(suffix))?;
        match bound.is_finite() && bound < 0.0 {
            true => Ok(DecayKind::Bounded(bound)),
            false => self.wrong(suffix, bound, "must be finite and below 0"),
        }
    }

    /// The selective scan of Mamba-1 of all layers that have one: each channel is a head.
    pub(in crate::family) fn channel_scan(&self) -> Result<ScanSpec> {
        let [inner, rank] = ["ssm.inner_size", "ssm.time_step_rank"].map(|suffix| self.count(suffix, MAX_WIDTH));
        let (inner, rank, state) = (inner?, rank?, self.count("ssm.state_size", MAX_WIDTH)?);
        if !inner.is_multiple_of(SCAN_VALUES) {
            return self.wrong("ssm.inner_size", inner, format!("is not a multiple of {SCAN_VALUES}"));
        }
        if state != SCAN_STATES[0] {
            let (key, found) = (self.key("ssm.state_size"), state.to_string());
            return Err(Error::Unsupported { key, found, known: "16" });
        }
        Ok(ScanSpec {
            heads: ScanHeads { heads: inner, width: 1, groups: 1, state },
            taps: self.taps("ssm.conv_kernel")?,
            bias: self.scan_tensor("ssm_conv1d.bias")?,
            norm: false,
            rank: Some(rank),
        })
    }

    /// Whether the first layer with a scan has this tensor.
    fn scan_tensor(&self, part: &str) -> Result<bool> {
        let has = |layer: &usize| self.tensor(&format!("blk.{layer}.ssm_in.weight"));
        let first = (0..self.layers()?).find(has).unwrap_or(0);
        Ok(self.tensor(&format!("blk.{first}.{part}")))
    }

    /// The selective scan of all layers that have one.
    pub(in crate::family) fn scan(&self) -> Result<ScanSpec> {
        let [heads, groups, inner] =
            ["ssm.time_step_rank", "ssm.group_count", "ssm.inner_size"].map(|suffix| self.count(suffix, MAX_WIDTH));
        let (heads, groups, inner, state) = (heads?, groups?, inner?, self.count("ssm.state_size", MAX_WIDTH)?);
        if !heads.is_multiple_of(groups) {
            return self.wrong("ssm.time_step_rank", heads, format!("is not a multiple of the {groups} groups"));
        }
        if !inner.is_multiple_of(heads) || !(inner / groups).is_multiple_of(SCAN_VALUES) {
            let rule = format!("is not that of {heads} heads in groups of a multiple of {SCAN_VALUES} elements");
            return self.wrong("ssm.inner_size", inner, rule);
        }
        if !SCAN_STATES.contains(&state) {
            let (key, found) = (self.key("ssm.state_size"), state.to_string());
            return Err(Error::Unsupported { key, found, known: "16, 32, 64, 128, 256" });
        }
        Ok(ScanSpec {
            heads: ScanHeads { heads, width: inner / heads, groups, state },
            taps: self.taps("ssm.conv_kernel")?,
            bias: self.scan_tensor("ssm_conv1d.bias")?,
            norm: self.scan_tensor("ssm_norm.weight")?,
            rank: None,
        })
    }

    /// The width of a delta rule's heads.
    fn delta_width(&self, suffix: &str) -> Result<usize> {
        let width = self.count(suffix, MAX_WIDTH)?;
        if DELTA_WIDTHS.contains(&width) {
            return Ok(width);
        }
        let (key, found) = (self.key(suffix), width.to_string());
        Err(Error::Unsupported { key, found, known: "16, 32, 64, 128, 256" })
    }
}
