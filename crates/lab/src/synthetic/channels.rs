//! Layers with a delta rule in which each element of a key has a gate (KDA), next to latent attention.

use gristmill_files::gguf::{GgufWriter, Value, WriteError};

use super::latent::Latent;
use super::shapes::{Model, Push};

/// The shapes of both kinds of layers. The delta rule has the heads of the attention.
#[derive(Debug, Clone, Copy)]
pub(super) struct Channels {
    /// Of a head of the delta rule, and between the two matrices of a gate.
    pub(super) width: u32,
    /// Taps of the convolutions.
    pub(super) taps: u32,
    pub(super) latent: Latent,
    /// The layers with latent attention.
    pub(super) attention: &'static [u32],
}

impl Model {
    /// Writes the keys of both kinds of layers.
    pub(super) fn describe_channels(&self, channels: &Channels, file: &mut GgufWriter) -> Result<(), WriteError> {
        let heads = |layer| i32::from(self.has_attention(layer));
        let heads: Vec<i32> = (0..self.layers).map(heads).collect();
        self.describe_latent(&channels.latent, heads.into(), file)?;
        let mut set = |name: &str, value: Value| file.set(&format!("{}.{name}", self.architecture), value).map(drop);
        set("kda.head_dim", channels.width.into())?;
        set("ssm.conv_kernel", channels.taps.into())
    }

    /// Adds the tensors of a delta rule.
    pub(super) fn channel_shapes(&self, &Channels { width, taps, .. }: &Channels, add: Push) {
        let [hidden, heads, width, taps] = [self.hidden, self.heads, width, taps].map(u64::from);
        let inner = heads * width;
        for part in ["q", "k", "v"] {
            add(&format!("attn_{part}.weight"), &[hidden, inner]);
            add(&format!("ssm_conv1d_{part}.weight"), &[taps, 1, inner, 1]);
        }
        for part in ["f", "g"] {
            add(&format!("ssm_{part}_a.weight"), &[hidden, width]);
            add(&format!("ssm_{part}_b.weight"), &[width, inner]);
        }
        add("ssm_beta.weight", &[hidden, heads]);
        add("ssm_dt.bias", &[inner]);
        add("ssm_a", &[1, heads]);
        add("ssm_norm.weight", &[width]);
        add("attn_output.weight", &[inner, hidden]);
    }
}
