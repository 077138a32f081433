//! Settings of a wrong type: every one that is read is refused by its name, with the type found and what is expected.

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

use super::folder::Folder;
use super::golden::{folders, folders_folder};

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

/// Gives each of these settings a value of every type but its own, and expects a refusal that names the setting and the
/// type found. `allowed`: settings and types that are something else.
fn wrong_types_are_refused(
    folder: &Folder,
    file: &str,
    at: &[&str],
    keys: &[(String, &'static str)],
    allowed: &dyn Fn(&str, &str) -> bool,
) {
    let accepted = accepted(folder, file, at, keys, allowed);
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
            let outer = ["model_type", TEXT].map(|key| (key.to_owned(), type_of(&config[key])));
            wrong_types_are_refused(&folder, "config.json", &[], &outer, &|_, _| false);
            config = config[TEXT].take();
            // The type of the whole model counts.
            config.as_object_mut().unwrap().remove("model_type");
        }
        let mut keys = keys_of(config.as_object().unwrap());
        keys.retain(|(key, _)| read_by_some.get(key, name).unwrap_or(true));
        // Those that a golden folder has as null or not at all.
        for (key, own) in &mut keys {
            match key.as_str() {
                "attn_logit_softcapping" | "final_logit_softcapping" | "clip_qkv" | "sliding_window" => {
                    *own = "a number"
                }
                "num_experts" | "top_k_experts" | "moe_intermediate_size" | "num_global_key_value_heads"
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
            let others = ["norm_eps", "layer_norm_eps", "layer_norm_epsilon"];
            let other_name = key == "rms_norm_eps" && others.iter().any(|other| config[other].is_number());
            if !other_name && !keys.iter().any(|(known, _)| known == key) {
                keys.push((key.to_owned(), own));
            }
        }
        let allowed = |key: &str, kind: &str| match kind {
            "null" => null_is_none.get(key, name) == Some(true),
            "a list" => key == "eos_token_id",
            "a number" => {
                ["attn_temperature_tuning", "mlp_layer_types", "moe_intermediate_size", "moe_topk", "num_shared_expert"]
                    .contains(&key)
            }
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
    !classes[model_type]["defaults"][key].is_null()
}

/// `null` where transformers takes it for "not set" gives what the missing setting gives, unless its class has a value
/// for that.
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

#[test]
fn every_parameter_of_rope_has_its_type() {
    let plain = |key: &'static str, own: &'static str| (key.to_owned(), own);
    let numbers = |keys: &[&'static str]| keys.iter().map(|key| plain(key, "a number")).collect::<Vec<_>>();
    let base = json!({"rope_theta": 1e4, "factor": 2.0, "original_max_position_embeddings": 64});
    let optional = ["attention_factor", "beta_fast", "beta_slow"];
    for (kind, keys) in [
        ("linear", numbers(&["rope_theta", "factor"])),
        ("yarn", [numbers(&["factor", "original_max_position_embeddings"]), numbers(&optional)].concat()),
        ("llama3", numbers(&["factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"])),
    ] {
        let folder = Folder::copy("llama3", kind);
        let mut rope = base.clone();
        rope["rope_type"] = kind.into();
        if kind == "llama3" {
            (rope["low_freq_factor"], rope["high_freq_factor"]) = (json!(1.0), json!(4.0));
        }
        folder.set("rope_parameters", rope);
        folder.open().unwrap_or_else(|error| panic!("{kind}: {error}"));
        let keys = [keys, vec![plain("rope_type", "a string")]].concat();
        let allowed = |key: &str, found: &str| found == "null" && optional.contains(&key);
        wrong_types_are_refused(&folder, "config.json", &["rope_parameters"], &keys, &allowed);
    }
    let folder = Folder::copy("gpt-oss", "truncate");
    let truncate = [plain("truncate", "a boolean")];
    wrong_types_are_refused(&folder, "config.json", &["rope_parameters"], &truncate, &|_, _| false);
    let folder = Folder::copy("qwen35", "sections");
    let sections = [plain("mrope_section", "a list"), plain("mrope_interleaved", "a boolean")];
    let allowed = |key: &str, found: &str| key == "mrope_section" && found == "null";
    wrong_types_are_refused(&folder, "config.json", &["rope_parameters"], &sections, &allowed);
    let folder = Folder::copy("mistral3", "temperature");
    let both = [plain("mscale", "a number"), plain("mscale_all_dim", "a number")];
    let at = ["text_config", "rope_parameters"];
    wrong_types_are_refused(&folder, "config.json", &at, &both, &|_, found| found == "null");
    let scale = [plain("llama_4_scaling_beta", "a number")];
    wrong_types_are_refused(&folder, "config.json", &at, &scale, &|_, found| found == "null");
    let folder = Folder::copy("gemma3", "kinds");
    let kinds = [plain("full_attention", "an object"), plain("sliding_attention", "an object")];
    let allowed = |_: &str, found: &str| found == "null";
    wrong_types_are_refused(&folder, "config.json", &["rope_parameters"], &kinds, &allowed);
}

#[test]
fn every_setting_beside_config_json_has_its_type() {
    let plain = |key: &'static str, own: &'static str| (key.to_owned(), own);
    let folder = Folder::copy("qwen3moe", "generation");
    folder.write("generation_config.json", "{}");
    let numbers = ["top_k", "top_p", "min_p", "temperature", "repetition_penalty"].map(|key| plain(key, "a number"));
    wrong_types_are_refused(&folder, "generation_config.json", &[], &numbers, &|_, found| found == "null");

    for golden in ["llama-spm", "llama-json", "qwen3moe"] {
        let folder = Folder::copy(golden, "about");
        let roles =
            ["bos", "eos", "unk", "sep", "pad", "cls", "mask"].map(|role| (format!("{role}_token"), "a string"));
        let null = |_: &str, found: &str| found == "null";
        wrong_types_are_refused(&folder, "tokenizer_config.json", &[], &roles, &null);
        let flags = [plain("add_bos_token", "a boolean"), plain("add_eos_token", "a boolean")];
        wrong_types_are_refused(&folder, "tokenizer_config.json", &[], &flags, &null);
        // A token may be an object with its text.
        folder.json("tokenizer_config.json", |about| about["unk_token"] = json!({"content": "<unk>", "lstrip": false}));
        folder.open().unwrap();
    }
    let folder = Folder::copy("llama-spm", "decoder");
    wrong_types_are_refused(
        &folder,
        "tokenizer_config.json",
        &[],
        &[plain("added_tokens_decoder", "an object")],
        &|_, _| false,
    );
    wrong_types_are_refused(
        &folder,
        "tokenizer_config.json",
        &[],
        &[plain("add_prefix_space", "a boolean")],
        &|_, found| found == "null",
    );
    let special = |f: &Folder, value: Value| {
        f.json("tokenizer_config.json", |about| {
            about["added_tokens_decoder"] = json!({"5": {"content": "x", "special": value}});
        });
    };
    special(&folder, json!("yes"));
    folder.refused(&["tokenizer_config.json", "`added_tokens_decoder` is ", "a boolean \"special\""]);
    special(&folder, json!(false));
    folder.open().unwrap();

    // A file may have its template in a file of its own, which comes first.
    let folder = Folder::copy("qwen3moe", "template");
    let _ = std::fs::remove_file(folder.path("chat_template.jinja"));
    wrong_types_are_refused(
        &folder,
        "tokenizer_config.json",
        &[],
        &[plain("chat_template", "a string")],
        &|_, found| {
            // An empty list has no template that is wrong.
            found == "null" || found == "a list"
        },
    );
}

#[test]
fn steps_of_a_tokenizer_have_their_types() {
    let step = |name: &str, change: &dyn Fn(&mut Value), says: &[&str]| {
        let folder = Folder::copy("qwen3moe", name);
        folder.json("tokenizer.json", change);
        folder.refused(says);
    };
    let level = |t: &mut Value| t["pre_tokenizer"]["pretokenizers"][1]["use_regex"] = json!("no");
    step("use-regex", &level, &["pre-tokenizer is not known"]);
    let single = |t: &mut Value| t["post_processor"] = json!({"type": "TemplateProcessing", "single": "A"});
    step("single", &single, &["post_processor: `single` is \"A\"; expected: a list"]);
    let id = |t: &mut Value| {
        let piece = json!({"SpecialToken": {"id": 7}});
        t["post_processor"] = json!({"type": "TemplateProcessing", "single": [piece, {"Sequence": {"id": "A"}}]});
    };
    step("id", &id, &["post_processor: `SpecialToken` is ", "a string `id`"]);
}
