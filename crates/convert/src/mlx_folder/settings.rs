//! The `config.json` of a folder as MLX quantises it.

use serde_json::{Map, Value, json};

use crate::family::{Family, LAYER_TYPES};
use crate::mlx::Widths;

/// Names that mlx-lm reads, and those in newer files of transformers.
const OLD_NAMES: &[(&str, &str)] = &[("num_experts", "num_local_experts")];

/// The settings of RoPE: as one object in newer files; by themselves, and those of its scaling as an object.
const ROPE: &str = "rope_parameters";
const ROPE_ALONE: [&str; 2] = ["rope_theta", "partial_rotary_factor"];
const ROPE_SCALING: &str = "rope_scaling";

/// The period of layers with a window, or a letter for each layer ([`Family::mlx_letters`]).
const PATTERN: &str = "sliding_window_pattern";
/// More than any model has.
const MOST_LAYERS: u64 = 4096;

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
    let family = settings.get("model_type").and_then(Value::as_str).and_then(Family::find);
    for &key in family.map_or(&[][..], |family| family.mlx_settings) {
        settings.entry(key).or_insert(Value::Null);
    }
    if family.is_some_and(|family| family.mlx_letters) {
        let letters = letters(&settings);
        // transformers, which reads the tokenizer, takes the pattern for a number where there is no list.
        let layers = settings.get("num_hidden_layers").and_then(Value::as_u64).unwrap_or(0).min(MOST_LAYERS);
        let types = of_layers(letters.as_str().unwrap_or("G"), layers as usize);
        if !settings.get(LAYER_TYPES).is_some_and(Value::is_array) {
            settings.insert(LAYER_TYPES.to_owned(), types);
        }
        settings.insert(PATTERN.to_owned(), letters);
    }
    settings
}

/// The types of this number of layers, as letters that are repeated.
fn of_layers(letters: &str, layers: usize) -> Value {
    let kind = |letter| if letter == 'L' { "sliding_attention" } else { "full_attention" };
    letters.chars().cycle().take(layers).map(kind).collect()
}

/// L for each layer with a window, G for the others; nothing for a model without windows.
fn letters(settings: &Map<String, Value>) -> Value {
    let of_period = |period: u64| Some("L".repeat(usize::try_from(period.clamp(1, MOST_LAYERS)).ok()? - 1) + "G");
    let of_types = |types: &Vec<Value>| -> String {
        types.iter().map(|kind| if kind == "sliding_attention" { 'L' } else { 'G' }).collect()
    };
    match (settings.get(LAYER_TYPES), settings.get(PATTERN)) {
        _ if settings.get("sliding_window").is_none_or(Value::is_null) => Value::Null,
        (Some(Value::Array(types)), _) => {
            Some(of_types(types)).filter(|letters| letters.contains('L')).map_or(Value::Null, Value::String)
        }
        (_, Some(Value::String(letters))) => Value::String(letters.clone()),
        (_, period) => of_period(period.and_then(Value::as_u64).unwrap_or(4)).map_or(Value::Null, Value::String),
    }
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

    fn of(settings: Value) -> Value {
        let Value::Object(settings) = settings else { panic!("an object") };
        Value::Object(quantised(settings, Widths { bits: 4, group: 64 }))
    }

    #[test]
    fn what_mlx_lm_needs_is_there() {
        assert!(of(json!({"model_type": "glm4_moe"})).as_object().expect("an object").contains_key("rope_scaling"));
        assert!(of(json!({"model_type": "llama"})).get("rope_scaling").is_none());
        let in_letters = |model: &&str| Family::find(model).is_some_and(|family| family.mlx_letters);
        let model = Family::written_as_mlx().find(in_letters).expect("a model with letters");
        let windows = |mut more: Value| {
            more["model_type"] = json!(model);
            of(more)["sliding_window_pattern"].clone()
        };
        assert_eq!(windows(json!({"sliding_window": 4, "sliding_window_pattern": 4})), "LLLG");
        assert_eq!(windows(json!({"sliding_window": 4, "sliding_window_pattern": "LLG"})), "LLG");
        let listed = of(json!({"model_type": model, "num_hidden_layers": 3, "sliding_window": 4,
            "sliding_window_pattern": 2}));
        assert_eq!(listed[LAYER_TYPES], json!(["sliding_attention", "full_attention", "sliding_attention"]));
        let types = json!(["sliding_attention", "full_attention", "full_attention"]);
        assert_eq!(windows(json!({"sliding_window": 4, "sliding_window_pattern": 4, "layer_types": types})), "LGG");
        assert_eq!(windows(json!({"sliding_window": null, "sliding_window_pattern": 4})), Value::Null);
    }
}
