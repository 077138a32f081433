//! Properties of a model on which the choice of formats depends.

use gristmill_files::gguf::{FromValue, Metadata};

/// Properties of a model on which the choice of formats depends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// `block_count`.
    pub layers: u32,
    /// `attention.head_count`.
    pub heads: u32,
    /// `attention.head_count_kv`.
    pub kv_heads: u32,
    /// `expert_count`; 0 in a dense model.
    pub experts: u32,
    /// Value projections are a small share of the weights, so that they get more bits; see [`Self::of`].
    pub few_values: bool,
}

impl Facts {
    /// Reads the facts. A key that is missing or of another type counts as 0, so that models of unknown architectures
    /// can be quantised. Of a number for each layer, the first counts.
    pub fn read(metadata: &Metadata) -> Facts {
        let architecture = metadata.required::<&str>("general.architecture").unwrap_or_default().to_owned();
        let number = |key: &str| {
            let value = metadata.value(&format!("{architecture}.{key}"));
            let one = value.and_then(|v| u32::from_value(v).ok());
            one.or_else(|| Vec::<u32>::from_value(value?).ok()?.first().copied()).unwrap_or(0)
        };
        let [layers, heads, kv_heads, experts] =
            ["block_count", "attention.head_count", "attention.head_count_kv", "expert_count"].map(number);
        Facts { layers, heads, kv_heads, experts, few_values: false }.of(&architecture)
    }

    /// These facts with [`Self::few_values`] of this architecture.
    pub fn of(self, architecture: &str) -> Facts {
        let few_values = few_values(architecture, self.layers, self.heads, self.kv_heads);
        Facts { few_values, ..self }
    }

    /// At least four query heads share a key and value head. Without a number of those, each query head has its own.
    pub(super) fn shares_keys(&self) -> bool {
        self.kv_heads > 0 && self.heads / self.kv_heads >= 4
    }
}

/// Models whose value projections are a small share of the weights, as llama.cpp's quantiser has them ("70B"):
/// architecture, layers, and whether query heads must share keys and values.
const FEW_VALUES: &[(&str, u32, bool)] = &[("llama", 80, true), ("qwen2", 80, false)];

/// Whether a model is in [`FEW_VALUES`].
fn few_values(architecture: &str, layers: u32, heads: u32, kv_heads: u32) -> bool {
    let same = |&(name, depth, shared): &(&str, u32, bool)| {
        name == architecture && depth == layers && (!shared || heads != kv_heads)
    };
    FEW_VALUES.iter().any(same)
}
