//! Layers with latent attention.

use gristmill_files::gguf::{GgufWriter, Value, WriteError};

use super::shapes::{Model, Push};

/// The widths of latent attention. A head of the model has `head_width - rotated` elements without a position.
#[derive(Debug, Clone, Copy)]
pub(super) struct Latent {
    /// Width of the row from which all queries are computed; 0 if they are computed from the hidden state.
    pub(super) query_rank: u32,
    /// Latent elements of a row in the KV cache.
    pub(super) latent: u32,
    /// Rotated elements of the row, and of each query head.
    pub(super) rotated: u32,
    /// Width of a value head.
    pub(super) value_width: u32,
}

impl Model {
    /// Writes the keys of latent attention. A query rank of 0 is written too, because llama.cpp requires the key, except
    /// in files with the published depth of such a model.
    pub(super) fn describe_latent(
        &self,
        latent: &Latent,
        kv_heads: Value,
        file: &mut GgufWriter,
    ) -> Result<(), WriteError> {
        let mut set = |name: &str, value: Value| file.set(&format!("{}.{name}", self.architecture), value).map(drop);
        set("attention.head_count_kv", kv_heads)?;
        set("attention.q_lora_rank", latent.query_rank.into())?;
        set("attention.kv_lora_rank", latent.latent.into())?;
        set("attention.key_length_mla", self.head_width.into())?;
        set("attention.value_length_mla", latent.value_width.into())?;
        set("rope.dimension_count", latent.rotated.into())
    }

    /// Adds the tensors of latent attention. The matrices of single heads have a form for the absorbed product: keys
    /// are transposed.
    pub(super) fn latent_shapes(&self, latent: &Latent, add: Push) {
        let [hidden, heads, width] = [self.hidden, self.heads, self.head_width].map(u64::from);
        let [rank, row, rotated, values] =
            [latent.query_rank, latent.latent, latent.rotated, latent.value_width].map(u64::from);
        if rank > 0 {
            add("attn_q_a.weight", &[hidden, rank]);
            add("attn_q_a_norm.weight", &[rank]);
            add("attn_q_b.weight", &[rank, heads * width]);
        } else {
            add("attn_q.weight", &[hidden, heads * width]);
        }
        add("attn_kv_a_mqa.weight", &[hidden, row + rotated]);
        add("attn_kv_a_norm.weight", &[row]);
        add("attn_k_b.weight", &[width - rotated, row, heads]);
        add("attn_v_b.weight", &[row, values, heads]);
        add("attn_output.weight", &[heads * values, hidden]);
    }
}
