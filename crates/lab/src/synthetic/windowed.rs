//! Shapes of models whose layers with a window have other heads than layers with full attention: Step 3.5 and MiMo V2.

use gristmill_files::gguf::{GgufWriter, Value, WriteError};

use super::shapes::{Model, Push};

/// The shapes that other models lack. The model's own shapes belong to the layers with full attention.
#[derive(Debug, Clone, Copy)]
pub(super) struct Windowed {
    /// Whether a layer has full attention.
    pub(super) is_full: fn(u32) -> bool,
    /// Query heads of a layer with a window.
    pub(super) heads: u32,
    /// Heads of keys and values of a layer with a window.
    pub(super) kv_heads: u32,
    /// Width of a head of values.
    pub(super) value_width: u32,
    /// Layers with a window have sinks.
    pub(super) sinks: bool,
    /// A gate for each head multiplies attention's output.
    pub(super) gated: bool,
    /// Multiplies values.
    pub(super) value_scale: Option<f32>,
    /// The shared expert's width has a key of its own.
    pub(super) shared_width: bool,
    /// The limits of SwiGLU in layers from these on: of routed experts, and of the shared expert.
    pub(super) limits: Option<[(u32, f32); 2]>,
}

/// The base of RoPE where a layer has a window.
const WINDOWED_BASE: f32 = 1e4;

impl Model {
    /// Query heads, and heads of keys and values, of a layer.
    pub(super) fn heads_of(&self, windowed: &Windowed, layer: u32) -> [u32; 2] {
        if (windowed.is_full)(layer) { [self.heads, self.kv_heads] } else { [windowed.heads, windowed.kv_heads] }
    }

    /// Writes the keys that other models lack, and the numbers of heads.
    pub(super) fn describe_windowed(&self, windowed: &Windowed, file: &mut GgufWriter) -> Result<(), WriteError> {
        let mut set = |name: &str, value: Value| file.set(&format!("{}.{name}", self.architecture), value).map(drop);
        let heads = |at: usize| (0..self.layers).map(|layer| self.heads_of(windowed, layer)[at] as i32).collect();
        let [queries, keys]: [Vec<i32>; 2] = [heads(0), heads(1)];
        set("attention.head_count", queries.into())?;
        set("attention.head_count_kv", keys.into())?;
        let windows: Vec<bool> = (0..self.layers).map(|layer| !(windowed.is_full)(layer)).collect();
        set("attention.sliding_window_pattern", windows.into())?;
        set("rope.freq_base_swa", WINDOWED_BASE.into())?;
        if let Some(scale) = windowed.value_scale {
            set("attention.value_scale", scale.into())?;
        }
        let names = ["swiglu_clamp_exp", "swiglu_clamp_shexp"];
        for (name, (first, limit)) in names.into_iter().zip(windowed.limits.into_iter().flatten()) {
            let limits: Vec<f32> = (0..self.layers).map(|layer| if layer < first { 0.0 } else { limit }).collect();
            set(name, limits.into())?;
        }
        Ok(())
    }

    /// Adds the tensors of a layer's attention.
    pub(super) fn windowed_shapes(&self, windowed: &Windowed, layer: u32, add: Push) {
        let [queries, keys] = self.heads_of(windowed, layer).map(u64::from);
        let [hidden, head, value] = [self.hidden, self.head_width, windowed.value_width].map(u64::from);
        add("attn_q.weight", &[hidden, queries * head]);
        add("attn_k.weight", &[hidden, keys * head]);
        if self.qk_norm.is_some() {
            add("attn_q_norm.weight", &[head]);
            add("attn_k_norm.weight", &[head]);
        }
        add("attn_v.weight", &[hidden, keys * value]);
        add("attn_output.weight", &[queries * value, hidden]);
        if windowed.gated {
            add("attn_gate.weight", &[hidden, queries]);
        }
        if windowed.sinks && !(windowed.is_full)(layer) {
            add("attn_sinks.weight", &[queries]);
        }
    }
}
