//! Models with selective scans (Mamba-2).

use gristmill_files::gguf::{GgufWriter, Value, WriteError};

use super::shapes::{Model, Push};

/// Taps of the convolutions.
const TAPS: u32 = 4;

/// The scans of a model, and the layers that have them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scans {
    pub(super) layers: ScanLayers,
    pub(super) heads: u32,
    /// Values of a head.
    pub(super) width: u32,
    pub(super) groups: u32,
    /// State elements of a value.
    pub(super) state: u32,
    /// A norm follows the gate.
    pub(super) norm: bool,
}

/// The parts of layers.
#[derive(Debug, Clone, Copy)]
pub(super) enum ScanLayers {
    /// A letter for each layer, which is a scan (M), attention (*), or experts without gates (E).
    Single(&'static str),
    /// These layers have attention, the others scans, and all have MLPs. The model has Granite's factors and no RoPE.
    Granite(&'static [u32]),
    /// All layers have attention, a scan and an MLP.
    Both,
}

/// The parts of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Parts {
    scan: bool,
    attention: bool,
    mlp: bool,
}

impl Scans {
    fn parts(&self, layer: u32) -> Parts {
        match self.layers {
            ScanLayers::Both => Parts { scan: true, attention: true, mlp: true },
            ScanLayers::Granite(attention) => {
                let attention = attention.contains(&layer);
                Parts { scan: !attention, attention, mlp: true }
            }
            ScanLayers::Single(letters) => {
                let letter = letters.as_bytes().get(layer as usize).copied();
                Parts { scan: letter == Some(b'M'), attention: letter == Some(b'*'), mlp: letter == Some(b'E') }
            }
        }
    }

    pub(super) fn has_attention(&self, layer: u32) -> bool {
        self.parts(layer).attention
    }

    /// Whether files can have a prediction head: one layer of attention and experts.
    pub(super) fn can_have_head(&self) -> bool {
        matches!(self.layers, ScanLayers::Single(_))
    }

    /// Whether MLPs and experts have gates.
    pub(super) fn gates_mlps(&self) -> bool {
        !matches!(self.layers, ScanLayers::Single(_))
    }
}

impl Model {
    /// Writes the keys of scans, of KV heads and of factors.
    pub(super) fn describe_scans(&self, scans: &Scans, file: &mut GgufWriter) -> Result<(), WriteError> {
        let Scans { layers, heads, width, groups, state, .. } = *scans;
        let mut set = |name: &str, value: Value| file.set(&format!("{}.{name}", self.architecture), value).map(drop);
        set("ssm.conv_kernel", TAPS.into())?;
        set("ssm.inner_size", (heads * width).into())?;
        set("ssm.state_size", state.into())?;
        set("ssm.time_step_rank", heads.into())?;
        set("ssm.group_count", groups.into())?;
        let of_layers = |number: u32, has: fn(Parts) -> bool| -> Value {
            let number = |layer| if has(self.scan_parts(scans, layer)) { number as i32 } else { 0 };
            (0..self.layers + u32::from(self.special.mtp)).map(number).collect::<Vec<i32>>().into()
        };
        match layers {
            ScanLayers::Both => set("attention.head_count_kv", self.kv_heads.into()),
            ScanLayers::Single(_) => {
                set("attention.head_count_kv", of_layers(self.kv_heads, |parts| parts.attention))?;
                set("feed_forward_length", of_layers(self.inner, |parts| parts.mlp))?;
                set("attention.layer_norm_epsilon", 1e-6f32.into())
            }
            ScanLayers::Granite(_) => {
                set("attention.head_count_kv", of_layers(self.kv_heads, |parts| parts.attention))?;
                set("rope.scaling.finetuned", false.into())?;
                set("attention.scale", (1.0 / self.head_width as f32).into())?;
                set("embedding_scale", 12f32.into())?;
                set("residual_scale", 0.22f32.into())?;
                set("logit_scale", 16f32.into())
            }
        }
    }

    fn scan_parts(&self, scans: &Scans, layer: u32) -> Parts {
        match layer < self.layers {
            true => scans.parts(layer),
            false => Parts { scan: false, attention: true, mlp: true },
        }
    }

    /// Adds the tensors of a layer.
    pub(super) fn scan_layer_shapes(&self, scans: &Scans, layer: u32, push: Push) {
        let hidden = u64::from(self.hidden);
        let Parts { scan, attention, mlp } = self.scan_parts(scans, layer);
        push("attn_norm.weight", &[hidden]);
        if attention {
            self.attention_shapes(push);
        }
        if scan {
            let [heads, width, groups, state] = [scans.heads, scans.width, scans.groups, scans.state].map(u64::from);
            let inner = heads * width;
            let convolved = inner + 2 * groups * state;
            push("ssm_in.weight", &[hidden, inner + convolved + heads]);
            push("ssm_conv1d.weight", &[TAPS.into(), convolved]);
            push("ssm_conv1d.bias", &[convolved]);
            push("ssm_dt.bias", &[heads]);
            push("ssm_a", &[1, heads]);
            push("ssm_d", &[1, heads]);
            if scans.norm {
                push("ssm_norm.weight", &[inner / groups, groups]);
            }
            push("ssm_out.weight", &[inner, hidden]);
        }
        if !mlp {
            return;
        }
        match scans.layers {
            // llama.cpp's converter writes it without a suffix.
            ScanLayers::Both => push("ffn_norm", &[hidden]),
            ScanLayers::Granite(_) => push("ffn_norm.weight", &[hidden]),
            ScanLayers::Single(_) if attention => push("post_attention_norm.weight", &[hidden]),
            ScanLayers::Single(_) => {}
        }
        self.mlp_shapes(layer, push);
    }
}
