//! Settings of a wrong type: every one that is read is refused by its name, with the type found and what is expected.

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

use super::folder::Folder;
use gristmill_conformance::golden::{folders, folders_folder};

/// Settings, each with golden folders: lines `KEY: FOLDER FOLDER`, where `*` stands for all folders.
struct Settings(BTreeMap<&'static str, Vec<&'static str>>);

impl Settings {
    /// Those that only some folders' families read.
    fn read_by_some() -> Settings {
        Settings::parse(include_str!("types/read.txt"))
    }

    /// Those whose `null` means that they are not set.
    fn null_is_none() -> Settings {
        Settings::parse(include_str!("types/null.txt"))
    }

    fn parse(text: &'static str) -> Settings {
        let line = |line: &'static str| {
            let (key, folders) = line.split_once(':').expect("a key");
            (key, folders.split_whitespace().collect())
        };
        Settings(text.lines().filter(|line| !line.starts_with('#')).map(line).collect())
    }

    /// Whether a setting is listed with a folder; `None` if it is not listed.
    fn get(&self, key: &str, folder: &str) -> Option<bool> {
        self.0.get(key).map(|folders| folders.iter().any(|&listed| listed == "*" || listed == folder))
    }
}

/// A value of each type of JSON, which are named in messages.
fn types() -> [(&'static str, Value); 6] {
    [
        ("null", Value::Null),
        ("a boolean", json!(true)),
        ("a number", json!(7)),
        ("a string", json!("x")),
        ("a list", json!([])),
        ("an object", json!({})),
    ]
}

fn type_of(value: &Value) -> &'static str {
    let same = |(_, other): &(&str, Value)| std::mem::discriminant(other) == std::mem::discriminant(value);
    types().iter().find(|known| same(known)).expect("all types are listed").0
}

/// A setting, its type, and the other types that it may have.
type Typed = (&'static str, &'static str, &'static [&'static str]);

/// No other type.
const NO: &[&str] = &[];
/// `null` for a setting that is not set.
const NULL: &[&str] = &["null"];

/// Settings of one object in a file of a golden folder.
struct Place {
    folder: &'static str,
    file: &'static str,
    /// The keys that lead to the object.
    at: &'static [&'static str],
    /// Changes the folder first.
    change: fn(&Folder),
    settings: &'static [Typed],
}

impl Place {
    const fn new(folder: &'static str, file: &'static str, settings: &'static [Typed]) -> Place {
        Place { folder, file, at: &[], change: |_| (), settings }
    }

    fn check(&self) {
        let folder = Folder::copy(self.folder, "place");
        (self.change)(&folder);
        wrong_types_are_refused(&folder, self.file, self.at, self.settings);
    }
}

/// Gives each of these settings a value of every type that it may not have, and expects a refusal that names the setting
/// and the type found.
fn wrong_types_are_refused(folder: &Folder, file: &str, at: &[&str], settings: &[Typed]) {
    let keys: Vec<_> = settings.iter().map(|(key, own, _)| ((*key).to_owned(), *own)).collect();
    let allowed =
        |key: &str, found: &str| settings.iter().any(|(known, _, others)| *known == key && others.contains(&found));
    let accepted = accepted(folder, file, at, &keys, &allowed);
    assert!(accepted.is_empty(), "{}: {}", folder.0.display(), accepted.join("\n"));
}

/// The settings and types that are not refused so.
fn accepted(
    folder: &Folder,
    file: &str,
    at: &[&str],
    keys: &[(String, &'static str)],
    allowed: &dyn Fn(&str, &str) -> bool,
) -> Vec<String> {
    let mut accepted = Vec::new();
    let before = std::fs::read(folder.path(file)).unwrap();
    for (key, own) in keys {
        for (name, value) in types().into_iter().filter(|(name, _)| name != own && !allowed(key, name)) {
            folder.json(file, |settings| {
                let object = at.iter().fold(settings, |object, key| &mut object[*key]);
                object[key.as_str()] = value;
            });
            let error = folder.open().err().map_or("it is not refused".to_owned(), |error| error.to_string());
            folder.write(file, &before);
            let said = if name == "null" { "is null;".to_owned() } else { format!("({name})") };
            // What may only have one value is told by that value.
            let says_type = error.contains(&said) || error.contains("nothing else") || error.contains("not supported");
            if !(says_type && error.contains(&format!("`{key}` is ")) && error.contains("expected: ")) {
                accepted.push(format!("{key} may be {name}: {error}"));
            }
        }
    }
    accepted
}

fn keys_of(object: &Map<String, Value>) -> Vec<(String, &'static str)> {
    object.iter().map(|(key, value)| (key.clone(), type_of(value))).collect()
}

#[test]
fn every_setting_that_is_read_has_its_type() {
    let (read_by_some, null_is_none) = (Settings::read_by_some(), Settings::null_is_none());
    let mut all = Vec::new();
    for name in folders() {
        let folder = Folder::copy(name, "types");
        let mut config: Value = serde_json::from_slice(&std::fs::read(folder.path("config.json")).unwrap()).unwrap();
        // The settings of a text model within a larger one come before those around them.
        const TEXT: &str = "text_config";
        let at: &[&str] = if config[TEXT].is_object() { &[TEXT] } else { &[] };
        if !at.is_empty() {
            let outer = ["model_type", TEXT].map(|key| (key, type_of(&config[key]), NO));
            wrong_types_are_refused(&folder, "config.json", &[], &outer);
            config = config[TEXT].take();
            // The type of the whole model counts.
            config.as_object_mut().unwrap().remove("model_type");
        }
        let mut keys = keys_of(config.as_object().unwrap());
        keys.retain(|(key, _)| read_by_some.get(key, name).unwrap_or(true));
        // Those that a golden folder has as null or not at all.
        for (key, own) in &mut keys {
            match key.as_str() {
                "attn_logit_softcapping"
                | "final_logit_softcapping"
                | "clip_qkv"
                | "sliding_window"
                | "q_lora_rank" => *own = "a number",
                "position_embedding_type" => *own = "a string",
                "num_experts"
                | "routed_scaling_factor"
                | "top_k_experts"
                | "moe_intermediate_size"
                | "num_global_key_value_heads"
                    if *own == "null" =>
                {
                    *own = "a number"
                }
                _ => {}
            }
        }
        for (key, own) in
            [("tie_word_embeddings", "a boolean"), ("rms_norm_eps", "a number"), ("rope_theta", "a number")]
        {
            let others = ["norm_eps", "layer_norm_eps", "layer_norm_epsilon", "layernorm_epsilon"];
            let other_name = key == "rms_norm_eps" && others.iter().any(|other| config[other].is_number());
            if !other_name && !keys.iter().any(|(known, _)| known == key) {
                keys.push((key.to_owned(), own));
            }
        }
        let allowed = |key: &str, kind: &str| match kind {
            "null" => null_is_none.get(key, name) == Some(true),
            "a list" => ["eos_token_id", "moe_layers_enum"].contains(&key),
            "a number" => [
                "attn_temperature_tuning",
                "mlp_layer_types",
                "moe_intermediate_size",
                "moe_topk",
                "num_shared_expert",
                "rope_theta",
            ]
            .contains(&key),
            _ => false,
        };
        let accepted = accepted(&folder, "config.json", at, &keys, &allowed);
        all.extend(accepted.into_iter().map(|one| format!("{name}: {one}")));
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

/// Whether the configuration class of a folder's family has a value for a missing setting.
fn has_default(config: &Value, key: &str) -> bool {
    let classes: Value = serde_json::from_str(include_str!("../../../convert/src/classes.json")).unwrap();
    let inner = &config["text_config"]["model_type"];
    let model_type = inner.as_str().or(config["model_type"].as_str()).unwrap();
    let key = classes[model_type]["aliases"][key].as_str().unwrap_or(key);
    !classes[model_type]["defaults"][key].is_null()
}

/// If transformers reads `null` as "not set", the result is the same as without the setting, unless its class has a
/// default.
#[test]
fn null_is_what_transformers_takes_it_for() {
    let null_is_none = Settings::null_is_none();
    let mut all = Vec::new();
    for name in folders() {
        let config: Value =
            serde_json::from_slice(&std::fs::read(folders_folder().join(name).join("config.json")).unwrap()).unwrap();
        let keys = null_is_none.0.keys().filter(|key| null_is_none.get(key, name) == Some(true));
        for key in keys.filter(|key| !has_default(&config, key)) {
            let [null, none] = [Some(Value::Null), None].map(|value| {
                let folder = Folder::copy(name, &format!("null-{key}"));
                folder.json("config.json", |config| match value {
                    Some(value) => config[*key] = value,
                    None => drop(config.as_object_mut().unwrap().remove(*key)),
                });
                match folder.open() {
                    Ok(converter) => Ok(converter.file_bytes()),
                    Err(error) => Err(error.to_string().rsplit('/').next().unwrap_or_default().to_owned()),
                }
            });
            if null != none {
                all.push(format!("{name}: {key}: {null:?}, {none:?}"));
            }
        }
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

/// Parameters of each type of RoPE.
const ROPE: [(&str, &[Typed]); 3] = [
    ("linear", &[("rope_type", "a string", NO), ("rope_theta", "a number", NO), ("factor", "a number", NO)]),
    (
        "yarn",
        &[
            ("rope_type", "a string", NO),
            ("factor", "a number", NO),
            ("original_max_position_embeddings", "a number", NO),
            ("attention_factor", "a number", NULL),
            ("beta_fast", "a number", NULL),
            ("beta_slow", "a number", NULL),
        ],
    ),
    (
        "llama3",
        &[
            ("rope_type", "a string", NO),
            ("factor", "a number", NO),
            ("low_freq_factor", "a number", NO),
            ("high_freq_factor", "a number", NO),
            ("original_max_position_embeddings", "a number", NO),
        ],
    ),
];

/// Parameters of RoPE that some families have.
const ROPE_OF_SOME: [Place; 4] = [
    rope("gpt-oss", &["rope_parameters"], &[("truncate", "a boolean", NO)]),
    rope("qwen35", &["rope_parameters"], &[("mrope_section", "a list", NULL), ("mrope_interleaved", "a boolean", NO)]),
    rope(
        "mistral3",
        &["text_config", "rope_parameters"],
        &[
            ("mscale", "a number", NULL),
            ("mscale_all_dim", "a number", NULL),
            ("llama_4_scaling_beta", "a number", NULL),
        ],
    ),
    rope(
        "gemma3",
        &["rope_parameters"],
        &[("full_attention", "an object", NULL), ("sliding_attention", "an object", NULL)],
    ),
];

const fn rope(folder: &'static str, at: &'static [&'static str], settings: &'static [Typed]) -> Place {
    Place { at, ..Place::new(folder, "config.json", settings) }
}

#[test]
fn every_parameter_of_rope_has_its_type() {
    for (kind, settings) in ROPE {
        let folder = Folder::copy("llama3", kind);
        let mut rope = json!({"rope_theta": 1e4, "factor": 2.0, "original_max_position_embeddings": 64});
        rope["rope_type"] = kind.into();
        if kind == "llama3" {
            (rope["low_freq_factor"], rope["high_freq_factor"]) = (json!(1.0), json!(4.0));
        }
        folder.set("rope_parameters", rope);
        folder.open().unwrap_or_else(|error| panic!("{kind}: {error}"));
        wrong_types_are_refused(&folder, "config.json", &["rope_parameters"], settings);
    }
    ROPE_OF_SOME.iter().for_each(Place::check);
}

const GENERATION: &str = "generation_config.json";
const TOKENIZER: &str = "tokenizer_config.json";

/// Settings in the files beside `config.json`.
const BESIDE: [Place; 6] = [
    Place {
        change: |folder| folder.write(GENERATION, "{}"),
        ..Place::new(
            "qwen3moe",
            GENERATION,
            &[
                ("top_k", "a number", NULL),
                ("top_p", "a number", NULL),
                ("min_p", "a number", NULL),
                ("temperature", "a number", NULL),
                ("repetition_penalty", "a number", NULL),
            ],
        )
    },
    Place::new("llama-spm", TOKENIZER, ROLES),
    Place::new("llama-json", TOKENIZER, ROLES),
    Place::new("qwen3moe", TOKENIZER, ROLES),
    Place::new(
        "llama-spm",
        TOKENIZER,
        &[("added_tokens_decoder", "an object", NO), ("add_prefix_space", "a boolean", NULL)],
    ),
    // A folder may have its template in a file of its own, which comes first. An empty list has no template that is wrong.
    Place {
        change: |folder| drop(std::fs::remove_file(folder.path("chat_template.jinja"))),
        ..Place::new("qwen3moe", TOKENIZER, &[("chat_template", "a string", &["null", "a list"])])
    },
];

/// Tokens by their roles, and which of them a prompt starts and ends with.
const ROLES: &[Typed] = &[
    ("bos_token", "a string", NULL),
    ("eos_token", "a string", NULL),
    ("unk_token", "a string", NULL),
    ("sep_token", "a string", NULL),
    ("pad_token", "a string", NULL),
    ("cls_token", "a string", NULL),
    ("mask_token", "a string", NULL),
    ("add_bos_token", "a boolean", NULL),
    ("add_eos_token", "a boolean", NULL),
];

#[test]
fn every_setting_beside_config_json_has_its_type() {
    BESIDE.iter().for_each(Place::check);
}

#[test]
fn a_token_may_be_an_object_with_its_text() {
    for golden in ["llama-spm", "llama-json", "qwen3moe"] {
        let folder = Folder::copy(golden, "about");
        folder.json(TOKENIZER, |about| about["unk_token"] = json!({"content": "<unk>", "lstrip": false}));
        folder.open().unwrap();
    }
}

#[test]
fn whether_an_added_token_is_special_is_a_boolean() {
    let folder = Folder::copy("llama-spm", "decoder");
    let special = |value: Value| {
        let token = json!({"5": {"content": "x", "special": value}});
        folder.json(TOKENIZER, |about| about["added_tokens_decoder"] = token);
    };
    special(json!("yes"));
    folder.refused(&[TOKENIZER, "`added_tokens_decoder` is ", "a boolean \"special\""]);
    special(json!(false));
    folder.open().unwrap();
}

#[test]
fn steps_of_a_tokenizer_have_their_types() {
    let step = |name: &str, change: &dyn Fn(&mut Value), says: &[&str]| {
        let folder = Folder::copy("qwen3moe", name);
        folder.json("tokenizer.json", change);
        folder.refused(says);
    };
    let level = |t: &mut Value| t["pre_tokenizer"]["pretokenizers"][1]["use_regex"] = json!("no");
    step("use-regex", &level, &["pre-tokenizer is unknown"]);
    let single = |t: &mut Value| t["post_processor"] = json!({"type": "TemplateProcessing", "single": "A"});
    step("single", &single, &["post_processor: `single` is \"A\"; expected: a list"]);
    let id = |t: &mut Value| {
        let piece = json!({"SpecialToken": {"id": 7}});
        t["post_processor"] = json!({"type": "TemplateProcessing", "single": [piece, {"Sequence": {"id": "A"}}]});
    };
    step("id", &id, &["post_processor: `SpecialToken` is ", "a string `id`"]);
}
