//! The `config.json` of a folder as MLX quantises it.

use serde_json::{Map, Value, json};

use crate::mlx::Widths;

/// Names that mlx-lm reads, and those in newer files of transformers.
const OLD_NAMES: &[(&str, &str)] = &[("num_experts", "num_local_experts")];

/// The settings of RoPE: as one object in newer files; by themselves, and those of its scaling as an object.
const ROPE: &str = "rope_parameters";
const ROPE_ALONE: [&str; 2] = ["rope_theta", "partial_rotary_factor"];
const ROPE_SCALING: &str = "rope_scaling";

/// The settings of the published folder with the widths, by both names that mlx-lm writes, and by the names that it
/// reads.
pub(super) fn quantised(mut settings: Map<String, Value>, widths: Widths) -> Map<String, Value> {
    let widths = json!({"group_size": widths.group, "bits": widths.bits, "mode": "affine"});
    for key in ["quantization", "quantization_config"] {
        settings.insert(key.to_owned(), widths.clone());
    }
    for &(old, new) in OLD_NAMES {
        if let Some(value) = settings.get(new).cloned() {
            settings.entry(old).or_insert(value);
        }
    }
    if let Some(Value::Object(mut rope)) = settings.get(ROPE).cloned() {
        for key in ROPE_ALONE {
            if let Some(value) = rope.remove(key) {
                settings.entry(key).or_insert(value);
            }
        }
        if rope.get("rope_type").is_some_and(|kind| kind != "default") {
            settings.entry(ROPE_SCALING).or_insert(Value::Object(rope));
        }
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_mlx_lm_reads_are_added() {
        let settings = json!({
            "num_local_experts": 4, "rope_theta": 1,
            "rope_parameters": {"rope_theta": 5e5, "rope_type": "llama3", "factor": 8.0}
        });
        let Value::Object(settings) = settings else { panic!("an object") };
        let found = Value::Object(quantised(settings, Widths { bits: 4, group: 64 }));
        let widths = json!({"group_size": 64, "bits": 4, "mode": "affine"});
        assert_eq!((&found["quantization"], &found["quantization_config"]), (&widths, &widths));
        assert_eq!((&found["num_experts"], &found["rope_theta"]), (&json!(4), &json!(1)));
        assert_eq!(found["rope_scaling"], json!({"rope_type": "llama3", "factor": 8.0}));
    }
}
