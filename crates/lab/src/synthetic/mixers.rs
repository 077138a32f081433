//! Layers whose state has a fixed size, next to those with attention.

use gristmill_files::gguf::{GgufWriter, Value, WriteError};

use super::channels::Channels;
use super::gemma4::Gemma4;
use super::latent::Latent;
use super::scans::Scans;
use super::shapes::{Model, Push};
use super::windowed::Windowed;

/// Which layers have attention, and what the others have.
#[derive(Debug, Clone, Copy)]
pub(super) enum Mixers {
    /// All have attention.
    Attention,
    /// The last of every `interval` layers has attention with a gate, the others a gated delta rule.
    Delta { interval: u32, delta: Delta },
    /// These layers have attention, the others a short convolution of this number of taps between two gates.
    Convolution { taps: u32, attention: &'static [u32] },
    /// All have attention, of which most see a window.
    Gemma4(Gemma4),
    /// All have attention, of which most see a window, and have other heads.
    Windowed(Windowed),
    /// All have latent attention.
    Latent(Latent),
    /// These layers have latent attention, the others a delta rule in which each element of a key has a gate.
    Channels(Channels),
    /// Some or all have selective scans.
    Scans(Scans),
}

/// The shapes of a gated delta rule.
#[derive(Debug, Clone, Copy)]
pub(super) struct Delta {
    pub(super) keys: u32,
    pub(super) values: u32,
    /// Of a head of keys or values.
    pub(super) width: u32,
    pub(super) taps: u32,
    /// β and α are rows of one matrix.
    pub(super) gates_joined: bool,
}

impl Model {
    /// Whether a layer has attention. A prediction head has.
    pub(super) fn has_attention(&self, layer: u32) -> bool {
        if layer >= self.layers {
            return true;
        }
        match self.special.mixers {
            Mixers::Attention | Mixers::Gemma4(_) | Mixers::Windowed(_) | Mixers::Latent(_) => true,
            Mixers::Scans(scans) => scans.has_attention(layer),
            Mixers::Delta { interval, .. } => (layer + 1).is_multiple_of(interval),
            Mixers::Convolution { attention, .. } | Mixers::Channels(Channels { attention, .. }) => {
                attention.contains(&layer)
            }
        }
    }

    /// The latent attention of a layer.
    pub(super) fn latent(&self, layer: u32) -> Option<&Latent> {
        match &self.special.mixers {
            Mixers::Latent(latent) => Some(latent),
            Mixers::Channels(Channels { latent, .. }) if self.has_attention(layer) => Some(latent),
            _ => None,
        }
    }

    /// Whether attention has a gate.
    pub(super) fn gates_attention(&self) -> bool {
        matches!(self.special.mixers, Mixers::Delta { .. })
    }

    /// Widths of a key and of a value in the KV cache.
    pub(super) fn row_widths(&self) -> [u32; 2] {
        match self.special.mixers {
            Mixers::Latent(Latent { latent, rotated, .. })
            | Mixers::Channels(Channels { latent: Latent { latent, rotated, .. }, .. }) => [latent + rotated, latent],
            Mixers::Windowed(windowed) => [self.head_width, windowed.value_width],
            _ => [self.head_width; 2],
        }
    }

    /// Key and value heads of the first layer.
    pub(super) fn first_kv_heads(&self) -> u32 {
        match self.special.mixers {
            Mixers::Convolution { .. } | Mixers::Channels(_) | Mixers::Scans(_) if !self.has_attention(0) => 0,
            Mixers::Gemma4(gemma) => self.first_kv_heads_of(&gemma),
            Mixers::Windowed(windowed) => self.heads_of(&windowed, 0)[1],
            Mixers::Latent(_) => 1,
            _ => self.kv_heads,
        }
    }

    /// Writes the keys of mixers, and the numbers of heads.
    pub(super) fn describe_mixers(&self, file: &mut GgufWriter) -> Result<(), WriteError> {
        if let Mixers::Windowed(windowed) = &self.special.mixers {
            return self.describe_windowed(windowed, file);
        }
        file.set(&format!("{}.attention.head_count", self.architecture), self.heads)?;
        match &self.special.mixers {
            Mixers::Gemma4(gemma) => return self.describe_gemma4(gemma, file),
            Mixers::Latent(latent) => return self.describe_latent(latent, 1u32.into(), file),
            Mixers::Channels(channels) => return self.describe_channels(channels, file),
            Mixers::Scans(scans) => return self.describe_scans(scans, file),
            _ => {}
        }
        let mut set = |name: &str, value: Value| file.set(&format!("{}.{name}", self.architecture), value).map(drop);
        match self.special.mixers {
            Mixers::Attention
            | Mixers::Gemma4(_)
            | Mixers::Windowed(_)
            | Mixers::Latent(_)
            | Mixers::Channels(_)
            | Mixers::Scans(_) => set("attention.head_count_kv", self.kv_heads.into()),
            Mixers::Delta { interval, delta: Delta { keys, values, width, taps, .. } } => {
                set("attention.head_count_kv", self.kv_heads.into())?;
                set("full_attention_interval", interval.into())?;
                set("ssm.conv_kernel", taps.into())?;
                set("ssm.group_count", keys.into())?;
                set("ssm.time_step_rank", values.into())?;
                set("ssm.state_size", width.into())?;
                set("ssm.inner_size", (values * width).into())
            }
            Mixers::Convolution { taps, .. } => {
                let heads = |layer| if self.has_attention(layer) { self.kv_heads as i32 } else { 0 };
                set("attention.head_count_kv", (0..self.layers).map(heads).collect::<Vec<_>>().into())?;
                set("shortconv.l_cache", taps.into())
            }
        }
    }

    /// Adds the tensors of a mixer without attention.
    pub(super) fn mixer_shapes(&self, add: Push) {
        let hidden = u64::from(self.hidden);
        match self.special.mixers {
            Mixers::Attention | Mixers::Gemma4(_) | Mixers::Windowed(_) | Mixers::Latent(_) | Mixers::Scans(_) => {}
            Mixers::Channels(channels) => self.channel_shapes(&channels, add),
            Mixers::Delta { delta: Delta { keys, values, width, taps, gates_joined }, .. } => {
                let [keys, values, width, taps] = [keys, values, width, taps].map(u64::from);
                let inner = values * width;
                let channels = (2 * keys + values) * width;
                add("attn_qkv.weight", &[hidden, channels]);
                add("attn_gate.weight", &[hidden, inner]);
                add("ssm_conv1d.weight", &[taps, channels]);
                add("ssm_dt.bias", &[values]);
                add("ssm_a", &[values]);
                if gates_joined {
                    add("ssm_ba.weight", &[hidden, 2 * values]);
                } else {
                    add("ssm_beta.weight", &[hidden, values]);
                    add("ssm_alpha.weight", &[hidden, values]);
                }
                add("ssm_norm.weight", &[width]);
                add("ssm_out.weight", &[inner, hidden]);
            }
            Mixers::Convolution { taps, .. } => {
                add("shortconv.conv.weight", &[taps.into(), hidden]);
                add("shortconv.in_proj.weight", &[hidden, 3 * hidden]);
                add("shortconv.out_proj.weight", &[hidden, hidden]);
            }
        }
    }
}
