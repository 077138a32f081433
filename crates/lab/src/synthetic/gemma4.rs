//! Gemma 4's shapes, which differ by layer.

use gristmill_files::gguf::{GgufWriter, Value, WriteError};

use super::shapes::{Model, Push};

/// The shapes that other models lack. The model's own shapes belong to the layers with full attention.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gemma4 {
    /// Layers whose number is a multiple of this see everything, and the last one; others see a window.
    pub(super) period: u32,
    /// Width of a head where a layer sees a window.
    pub(super) windowed_width: u32,
    /// Likewise heads of keys and values.
    pub(super) windowed_kv_heads: u32,
    /// Where a layer sees everything, its values are its keys.
    pub(super) values_are_keys: bool,
    /// Width of an input that each layer has of its own; 0 for none.
    pub(super) layer_input: u32,
    /// The last layers of the published model, which read the caches of others, and how many layers that model has.
    pub(super) shared: (u32, u32),
}

/// The base of RoPE where a layer sees a window.
const WINDOWED_BASE: f32 = 1e4;
const LOGIT_CAP: f32 = 30.0;

impl Model {
    fn sees_everything(&self, gemma: &Gemma4, layer: u32) -> bool {
        (layer + 1).is_multiple_of(gemma.period) || layer + 1 == self.layers
    }

    /// Layers with a cache of their own: those before the shared ones, and as many as have both kinds.
    fn own_caches(&self, gemma: &Gemma4) -> u32 {
        let (shared, of) = gemma.shared;
        (self.layers - self.layers * shared / of).max(gemma.period.min(self.layers))
    }

    /// Key and value heads of a layer.
    fn kv_heads_of(&self, gemma: &Gemma4, layer: u32) -> u32 {
        if self.sees_everything(gemma, layer) { self.kv_heads } else { gemma.windowed_kv_heads }
    }

    /// Key and value heads of the first layer.
    pub(super) fn first_kv_heads_of(&self, gemma: &Gemma4) -> u32 {
        self.kv_heads_of(gemma, 0)
    }

    /// Writes the keys that other models lack, and the number of key and value heads.
    pub(super) fn describe_gemma4(&self, gemma: &Gemma4, file: &mut GgufWriter) -> Result<(), WriteError> {
        let mut set = |name: &str, value: Value| file.set(&format!("{}.{name}", self.architecture), value).map(drop);
        let windows: Vec<bool> = (0..self.layers).map(|layer| !self.sees_everything(gemma, layer)).collect();
        let kv_heads: Vec<i32> = (0..self.layers).map(|layer| self.kv_heads_of(gemma, layer) as i32).collect();
        set("attention.head_count_kv", kv_heads.into())?;
        set("attention.sliding_window_pattern", windows.into())?;
        set("attention.key_length_swa", gemma.windowed_width.into())?;
        set("attention.value_length_swa", gemma.windowed_width.into())?;
        set("attention.shared_kv_layers", (self.layers - self.own_caches(gemma)).into())?;
        set("rope.dimension_count", self.head_width.into())?;
        set("rope.dimension_count_swa", gemma.windowed_width.into())?;
        set("rope.freq_base_swa", WINDOWED_BASE.into())?;
        set("embedding_length_per_layer_input", gemma.layer_input.into())?;
        set("final_logit_softcapping", LOGIT_CAP.into())
    }

    /// Adds the tensors outside of layers that other models lack. RoPE factors are near 1 here, so all pairs rotate.
    pub(super) fn gemma4_global_shapes(&self, gemma: &Gemma4, add: Push) {
        add("rope_freqs.weight", &[u64::from(self.head_width / 2)]);
        let [hidden, input, layers] = [self.hidden, gemma.layer_input, self.layers].map(u64::from);
        if input > 0 {
            add("per_layer_token_embd.weight", &[input * layers, self.vocabulary.into()]);
            add("per_layer_model_proj.weight", &[hidden, input * layers]);
            add("per_layer_proj_norm.weight", &[input]);
        }
    }

    /// Adds the tensors of a layer.
    pub(super) fn gemma4_layer_shapes(&self, gemma: &Gemma4, layer: u32, add: Push) {
        let [hidden, inner, input] = [self.hidden, self.inner, gemma.layer_input].map(u64::from);
        add("attn_norm.weight", &[hidden]);
        self.gemma4_attention_shapes(gemma, layer, add);
        add("post_attention_norm.weight", &[hidden]);
        add("ffn_norm.weight", &[hidden]);
        add("ffn_gate.weight", &[hidden, inner]);
        add("ffn_up.weight", &[hidden, inner]);
        add("ffn_down.weight", &[inner, hidden]);
        if let Some(experts) = self.experts {
            let [count, inner] = [experts.count, experts.inner].map(u64::from);
            add("ffn_gate_inp.weight", &[hidden, count]);
            add("ffn_gate_inp.scale", &[hidden]);
            add("pre_ffw_norm_2.weight", &[hidden]);
            add("ffn_gate_up_exps.weight", &[hidden, 2 * inner, count]);
            add("ffn_down_exps.weight", &[inner, hidden, count]);
            add("ffn_down_exps.scale", &[count]);
            add("post_ffw_norm_1.weight", &[hidden]);
            add("post_ffw_norm_2.weight", &[hidden]);
        }
        add("post_ffw_norm.weight", &[hidden]);
        if input > 0 {
            add("inp_gate.weight", &[hidden, input]);
            add("proj.weight", &[input, hidden]);
            add("post_norm.weight", &[hidden]);
        }
        add("layer_output_scale.weight", &[1]);
    }

    fn gemma4_attention_shapes(&self, gemma: &Gemma4, layer: u32, add: Push) {
        let full = self.sees_everything(gemma, layer);
        let head = u64::from(if full { self.head_width } else { gemma.windowed_width });
        let hidden = u64::from(self.hidden);
        let queries = u64::from(self.heads) * head;
        let keys = u64::from(self.kv_heads_of(gemma, layer)) * head;
        add("attn_q.weight", &[hidden, queries]);
        add("attn_q_norm.weight", &[head]);
        if layer < self.own_caches(gemma) {
            add("attn_k.weight", &[hidden, keys]);
            add("attn_k_norm.weight", &[head]);
            if !(full && gemma.values_are_keys) {
                add("attn_v.weight", &[hidden, keys]);
            }
        }
        add("attn_output.weight", &[queries, hidden]);
    }
}
