//! Settings that must be refused, and the old and new ways of saying one thing.

use std::sync::Arc;

use gristmill_convert::{ConvertOptions, open_folder};
use gristmill_engine::{Limits, LoadOptions, Model, Notice, Runner};
use gristmill_files::gguf::GgufFile;
use serde_json::{Map, Value, json};

use super::folder::{Folder, case};
use gristmill_conformance::golden::folders_folder;

#[test]
fn settings_of_families_that_are_not_supported() {
    let case = |golden: &str, name: &str, change: &dyn Fn(&mut Value), says: &[&str]| {
        let folder = Folder::copy(golden, name);
        folder.json("config.json", change);
        folder.refused(says);
    };
    let rope = |key: &'static str, value: Value| move |c: &mut Value| c["rope_parameters"][key] = value.clone();
    let set = |key: &'static str, value: Value| move |c: &mut Value| c[key] = value.clone();
    case("gpt-oss", "truncates", &rope("truncate", json!(true)), &["`truncate` is true", "expected: false"]);
    let clamp = set("swiglu_limit", json!(8.0));
    case("gpt-oss", "clamp", &clamp, &["`swiglu_limit` is 8.0", "expected: 7"]);
    let types = set("layer_types", json!(["sliding_attention"]));
    case("gpt-oss", "few-types", &types, &["`layer_types`", "each of the 3 layers"]);
    let types = set("layer_types", json!(["sliding_attention", "chunked_attention", "full_attention"]));
    case("gpt-oss", "other-types", &types, &["`layer_types` is \"chunked_attention\""]);
    case("phimoe", "magnitudes", &rope("long_mscale", json!(1.3)), &["long_mscale with one value"]);
    case("phimoe", "factors", &rope("long_factor", json!([1.0])), &["rope_factors_long.weight"]);
    case("phimoe", "no-factors", &rope("long_factor", json!(null)), &["`long_factor`"]);
    case("phimoe", "jitter", &set("router_jitter_noise", json!(0.1)), &["`router_jitter_noise` is 0.1"]);
    case("gemma3", "cap", &set("final_logit_softcapping", json!(30.0)), &["final_logit_softcapping"]);
    let local = |c: &mut Value| c["rope_parameters"]["sliding_attention"]["rope_type"] = json!("linear");
    case("gemma3", "stretched-windows", &local, &["`rope_type` is \"linear\"", "layers with a window"]);
    case("deepseek", "sigmoid", &set("scoring_func", json!("sigmoid")), &["`scoring_func` is \"sigmoid\"", "softmax"]);
    // Of the layers that predict further tokens.
    case(
        "glm4-lite",
        "part",
        &set("partial_rotary_factor", json!(0.25)),
        &["`partial_rotary_factor` is 0.25", "expected: 1"],
    );
    let inner = |key: &'static str, value: Value| move |c: &mut Value| c["text_config"][key] = value.clone();
    case("mistral4", "other-head", &inner("head_dim", json!(8)), &["`head_dim` is 8", "expected: 24"]);
    let linear = |c: &mut Value| c["text_config"]["rope_parameters"]["rope_type"] = json!("linear");
    case("mistral4", "linear-magnitude", &linear, &["`mscale_all_dim` is 1.0", "without YaRN"]);
    let limits = set("swiglu_limits", json!([0.0, 0.3, null, 0.5]));
    case("step35", "limits-of-heads", &limits, &["`swiglu_limits` is 0.5", "0 or null for layers that predict"]);
    let bases = set("rope_theta", json!([5e6, 1e4, 5e6, 500.0]));
    case("step35", "bases-of-heads", &bases, &["`rope_theta` is 500.0", "10000.0 in all layers"]);
    case("granite", "heads", &set("num_attention_heads", json!(3)), &["q_proj.weight", "3 heads of even width"]);
}

/// Old and new ways of saying where the windows are; what is the architecture's habit is not written.
#[test]
fn windows_of_layers() {
    let pattern = |key: &str, value: Value| {
        let folder = Folder::copy("gemma3", &format!("windows-{key}-{}", value.is_array()));
        folder.json("config.json", |config| {
            for key in ["layer_types", "sliding_window_pattern"] {
                config.as_object_mut().unwrap().remove(key);
            }
            config[key] = value;
        });
        folder
            .convert()
            .metadata()
            .optional::<&[bool]>("gemma3.attention.sliding_window_pattern")
            .unwrap()
            .map(<[bool]>::to_vec)
    };
    assert_eq!(pattern("sliding_window_pattern", json!(6)), None);
    assert_eq!(pattern("layer_types", Value::Null), None);
    let every_second = (0..7).map(|layer| layer % 2 == 0).collect::<Vec<_>>();
    assert_eq!(pattern("sliding_window_pattern", json!(2)), Some(every_second.clone()));
    let types = |&windowed: &bool| if windowed { "sliding_attention" } else { "full_attention" };
    assert_eq!(pattern("layer_types", json!(every_second.iter().map(types).collect::<Vec<_>>())), Some(every_second));
}

#[test]
fn settings_that_do_not_fit_the_weights() {
    let set = |key: &'static str, value: Value| move |f: &Folder| f.set(key, value);
    case("layers-more", set("num_hidden_layers", json!(3)), &["`model.layers.2.input_layernorm.weight` is missing"]);
    let huge = set("num_hidden_layers", json!(4_000_000_000u32));
    case("layers-huge", huge, &["`model.layers.2.input_layernorm.weight` is missing"]);
    case("layers-less", set("num_hidden_layers", json!(1)), &["21 tensors are not weights", "model.layers.1."]);
    case("experts-more", set("num_local_experts", json!(5)), &["experts.4.gate_proj.weight` is missing"]);
    case("experts-less", set("num_local_experts", json!(3)), &["6 tensors", "experts.3.down_proj.weight"]);
    case("experts-none", set("num_local_experts", json!(0)), &["num_local_experts", "at least 1"]);
    case("width", set("hidden_size", json!(64)), &["has shape [288, 32], but config.json asks for", "64]"]);
    case(
        "heads",
        set("num_attention_heads", json!(5)),
        &["attention.head_count", "5 is not a multiple of the 2 KV heads"],
    );
    case("heads-none", set("num_attention_heads", json!(0)), &["attention.head_count"]);
    case("used", set("num_experts_per_tok", json!(9)), &["expert_used_count"]);
}

#[test]
fn layers_with_a_state_of_fixed_size_fit_the_weights() {
    let case = |golden: &str, name: &str, key: &str, value: Value, says: &[&str]| {
        let folder = Folder::copy(golden, name);
        folder.set(key, value);
        folder.refused(says);
    };
    for golden in ["qwen3next", "qwen35"] {
        case(golden, "values", "linear_num_value_heads", json!(3), &["`linear_num_value_heads`", "the 2 key heads"]);
        case(golden, "no-keys", "linear_num_key_heads", json!(0), &["`linear_num_value_heads`", "the 0 key heads"]);
        case(golden, "key-width", "linear_key_head_dim", json!(8), &["in_proj_qkv", "rows are not the"]);
        case(golden, "value-width", "linear_value_head_dim", json!(4_000_000_000u32), &["in_proj_qkv", "rows are not"]);
        case(golden, "types", "layer_types", json!(["linear_attention"]), &["`layer_types` is 1", "the 3 layers"]);
        case(golden, "type", "layer_types", json!(["conv", "conv", "conv"]), &["\"conv\"", "\"linear_attention\" or"]);
        // The settings say delta rule, the tensors attention.
        let types = json!(["linear_attention", "linear_attention", "linear_attention"]);
        case(golden, "no-attention", "layer_types", types, &["blk.2.", "is missing"]);
        case(golden, "layers", "num_hidden_layers", json!(4_000_000_000u32), &["layers.3.input_layernorm"]);
    }
    case("qwen3next", "period", "full_attention_interval", json!(0), &["`full_attention_interval`", "at least 1"]);
    case("lfm2", "index", "full_attn_idxs", json!([3]), &["`full_attn_idxs` is 3", "from 0 to 2"]);
    case("lfm2", "bias", "conv_bias", json!(true), &["`conv_bias`", "nothing else"]);
    case("lfm2", "multiple", "block_multiple_of", json!(0), &["`block_ff_dim`", "block_multiple_of"]);
    case("lfm2", "adjusted", "block_ff_dim", json!(80), &["feed_forward.w1.weight", "[48, 32]", "[64, 32]"]);
    case("lfm2", "taps", "conv_L_cache", json!(4), &["conv.conv.weight"]);
    let sections = |name: &str, key: &str, value: Value, says: &[&str]| {
        let folder = Folder::copy("qwen35", name);
        folder.json("config.json", |config| config["rope_parameters"][key] = value);
        folder.refused(says);
    };
    sections("in-turn", "mrope_interleaved", json!(false), &["`mrope_interleaved` is false"]);
    sections("two", "mrope_section", json!([1, 1]), &["`mrope_section`", "three whole numbers"]);
    sections(
        "few",
        "mrope_section",
        json!([1, 0, 0]),
        &["rope.dimension_sections", "three sections that have all pairs"],
    );
    let ratio = |name: &str, change: &dyn Fn(&mut Map<String, Value>), says: &[&str]| {
        let folder = Folder::copy("mistral3", name);
        folder.json("config.json", |config| {
            change(config["text_config"]["rope_parameters"].as_object_mut().unwrap());
        });
        folder.refused(says);
    };
    ratio("kind", &|rope| drop(rope.insert("rope_type".into(), json!("mystery"))), &["`rope_type` is \"mystery\""]);
    let llama4 = |name: &str, key: &str, value: Value, says: &[&str]| {
        let folder = Folder::copy("llama4", name);
        folder.json("config.json", |config| config["text_config"][key] = value);
        folder.refused(says);
    };
    llama4("chunk", "attention_chunk_size", json!(4096), &["`attention_chunk_size` is 4096", "8192"]);
    llama4("norm", "use_qk_norm", json!(false), &["`use_qk_norm` is false", "true, nothing else"]);
    llama4("rotation", "no_rope_layers", json!([1, 0, 1, 0]), &["`no_rope_layers` is [1,0,1,0]"]);
    let folder = Folder::copy("llama4", "no-list");
    folder.json("config.json", |config| config["text_config"]["no_rope_layers"] = json!([]));
    folder.open().unwrap();
    let folder = Folder::copy("qwen35moe", "no-text");
    folder.json("config.json", |config| drop(config.as_object_mut().unwrap().remove("text_config")));
    folder.refused(&["has no `num_hidden_layers`"]);
}

#[test]
fn settings_that_are_not_supported() {
    let set = |key: &'static str, value: Value| move |f: &Folder| f.set(key, value);
    case("family", set("model_type", json!("mamba")), &["`mamba`", "known: afmoe, bailing_moe", "qwen3_moe", "olmoe"]);
    case(
        "no-family",
        |f: &Folder| f.json("config.json", |c| drop(c.as_object_mut().unwrap().remove("model_type"))),
        &["has no `model_type`"],
    );
    case("gelu", set("hidden_act", json!("gelu")), &["`hidden_act`", "\"gelu\"", "\"silu\""]);
    case("window", set("use_sliding_window", json!(true)), &["`use_sliding_window`"]);
    let rope = json!({"rope_type": "mystery", "factor": 2.0, "rope_theta": 10000.0});
    case("mystery", set("rope_parameters", rope), &["`rope_type`", "\"mystery\"", "llama3"]);
    case("no-factor", set("rope_parameters", json!({"rope_type": "linear"})), &["has no `factor`"]);
    case("text", set("hidden_size", json!("32")), &["`hidden_size` is \"32\" (a string)", "expected: a whole number"]);
    case("negative", set("hidden_size", json!(-32)), &["`hidden_size` is -32"]);
    case("list", |f| f.write("config.json", "[]"), &["config.json", "invalid JSON"]);
    case("half-json", |f| f.write("config.json", "{\"a\":"), &["config.json", "invalid JSON"]);
    case("no-config", |f| f.remove("config.json"), &["config.json", "cannot read"]);
}

#[test]
fn numbers_that_no_model_computes_with() {
    let set = |key: &'static str, value: Value| move |f: &Folder| f.set(key, value);
    case("eps-huge", set("rms_norm_eps", json!(1e39)), &["`rms_norm_eps` is 1e+39", "a number that 32 bits hold"]);
    let generation = |f: &Folder| f.write("generation_config.json", r#"{"temperature": -1e300}"#);
    case("temperature", generation, &["generation_config.json", "`temperature` is -1e+300"]);
    let rope = |value: Value| move |f: &Folder| f.set("rope_parameters", value);
    let partial = rope(json!({"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4, "partial_rotary_factor": 0.25}));
    case("partial-rope", partial, &["`partial_rotary_factor` is 0.25"]);
    case("whole", set("rope_theta", json!(0)), &["`rope_theta` is 0", "above 0"]);
    let llama3 = |key: &str, value: Value| {
        let mut rope = json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64, "rope_theta": 1e4});
        rope[key] = value;
        move |f: &Folder| f.set("rope_parameters", rope)
    };
    for (name, key, value) in [
        ("factor-zero", "factor", json!(0.0)),
        ("factor-less", "factor", json!(-8)),
        ("low-zero", "low_freq_factor", json!(0)),
        ("high-less", "high_freq_factor", json!(-4.0)),
        ("factor-tiny", "factor", json!(1e-60)),
    ] {
        case(name, llama3(key, value), &[&format!("`{key}` is "), "above 0"]);
    }
    case("turned", llama3("high_freq_factor", json!(0.5)), &["`high_freq_factor` is ", "at least low_freq_factor, 1"]);
    for (name, wrong) in [("long-zero", json!(0.0)), ("long-less", json!(-1)), ("long-huge", json!(1e200))] {
        let folder = Folder::copy("phimoe", name);
        folder.json("config.json", |config| config["rope_parameters"]["long_factor"][1] = wrong);
        folder.refused(&["`long_factor` is ", "numbers"]);
    }
}

/// The metadata of a folder with changed settings.
fn metadata(golden: &str, name: &str, change: impl FnOnce(&mut Value)) -> GgufFile {
    let folder = Folder::copy(golden, name);
    folder.json("config.json", change);
    folder.convert()
}

fn number(file: &GgufFile, key: &str) -> Option<f32> {
    file.metadata().optional(key).expect("a number")
}

/// The rules that `cargo xtask prove settings` found broken, with what transformers does.
#[test]
fn settings_are_read_as_the_class_of_the_family_declares_them() {
    let remove = |key: &'static str| move |config: &mut Value| drop(config.as_object_mut().unwrap().remove(key));
    let defaults = [
        ("exaone-moe", "routed_scaling_factor", "exaone-moe.expert_weights_scale", 2.5),
        ("gemma2", "attn_logit_softcapping", "gemma2.attn_logit_softcapping", 50.0),
        ("gemma2", "final_logit_softcapping", "gemma2.final_logit_softcapping", 30.0),
        ("olmo3", "rms_norm_eps", "olmo2.attention.layer_norm_rms_epsilon", 1e-5),
    ];
    for (golden, key, ours, value) in defaults {
        assert_eq!(number(&metadata(golden, key, remove(key)), ours), Some(value), "{golden}: {key}");
    }
    let window = |golden: &str, key: &str, change: &dyn Fn(&mut Value)| {
        metadata(golden, "window", change).metadata().optional::<u32>(key).expect("a count")
    };
    assert_eq!(window("llama3", "llama.attention.sliding_window", &|c| c["sliding_window"] = json!(4)), None);
    assert_eq!(window("mistral", "llama.attention.sliding_window", &|c| c["sliding_window"] = json!(4)), None);
    assert_eq!(window("afmoe", "afmoe.attention.sliding_window", &remove("sliding_window")), Some(1024));
    assert_eq!(window("gemma3", "gemma3.attention.sliding_window", &remove("sliding_window")), Some(4096));
    assert_eq!(window("glm4", "glm4.rope.dimension_count", &|c| c["rotary_dim"] = json!(4)), Some(8));
}

/// Files have one number of heads for delta rules and latent attention.
#[test]
fn heads_of_delta_rules_are_those_of_attention() {
    let folder = Folder::copy("kimi-linear", "delta-heads");
    folder.json("config.json", |config| config["linear_attn_config"]["num_heads"] = json!(2));
    folder.refused(&["`num_heads` is 2", "expected: 4"]);
    let folder = Folder::copy("bailingmoe3", "delta-heads");
    folder.set("linear_num_heads", json!(2));
    folder.refused(&["`linear_num_heads` is 2", "expected: 4"]);
}

/// `null` means that no layers predict further tokens, by either name.
#[test]
fn a_number_of_prediction_layers_may_be_null() {
    for golden in ["mellum", "deepseek2", "llama3", "qwen3next", "kimi-linear"] {
        for key in ["num_nextn_predict_layers", "num_mtp_layers"] {
            let folder = Folder::copy(golden, &format!("null-{key}"));
            folder.set(key, Value::Null);
            folder.open().unwrap_or_else(|error| panic!("{golden}: {error}"));
        }
    }
    let folder = Folder::copy("glm4moe", "null-heads");
    folder.set("num_nextn_predict_layers", Value::Null);
    folder.refused(&["not weights", "model.layers.2"]);
}

/// `rope_scaling` comes before `rope_parameters`.
#[test]
fn a_scaling_that_is_added_takes_effect() {
    let yarn = json!({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32});
    let file = metadata("qwen3moe", "added-yarn", |config| config["rope_scaling"] = yarn.clone());
    assert_eq!(number(&file, "qwen3moe.rope.scaling.factor"), Some(4.0));
    // Its base is the class's, because the settings within `rope_parameters` are not read.
    assert_eq!(number(&file, "qwen3moe.rope.freq_base"), Some(10_000.0));
    let file = metadata("olmo3", "added-yarn", |config| config["rope_scaling"] = yarn);
    assert_eq!(number(&file, "olmo2.rope.freq_base"), Some(500_000.0));
    let linear = json!({"rope_type": "linear", "factor": 4.0});
    let file = metadata("cohere2", "added-linear", |config| config["rope_scaling"] = linear);
    assert_eq!(number(&file, "cohere2.rope.scaling.factor"), Some(4.0));
    // Of a head of 16, 8 elements are rotated.
    let llama3 = json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32});
    let file = metadata("glm4", "added-llama3", |config| config["rope_scaling"] = llama3);
    assert_eq!(file.tensor("rope_freqs.weight").map(|tensor| tensor.elements()), Some(4));
}

/// Settings as Hunyuan-A13B, Llama 4 Scout and LFM2 are published.
#[test]
fn published_settings_that_no_code_reads_do_no_harm() {
    let file = metadata("hunyuan-moe", "published", |config| {
        config.as_object_mut().unwrap().remove("rope_parameters");
        config["rope_theta"] = json!(10_000.0);
        config["rope_scaling"] = json!({"type": "dynamic", "alpha": 1000.0, "factor": 1.0, "mscale": 1.0,
            "mscale_all_dim": 1.0, "beta_fast": 32, "beta_slow": 1});
    });
    let base = number(&file, "hunyuan-moe.rope.freq_base").expect("a base");
    assert!((base / 1e4 / 1000f32.powf(16.0 / 14.0) - 1.0).abs() < 1e-4, "{base}");
    metadata("llama4", "published", |config| config["text_config"]["attn_temperature_tuning"] = json!(4));
    let folder = Folder::copy("lfm2moe", "published");
    folder.set("use_expert_bias", json!(false));
    // The weights of such a model have no bias.
    folder.refused(&["not weights", "expert_bias"]);
}

/// A bias that the settings do not require is no weight of the model; one that they require must be there.
#[test]
fn settings_ask_for_biases() {
    let case = |golden: &str, key: &str, value: bool, says: &[&str]| {
        let folder = Folder::copy(golden, &format!("bias-{key}"));
        folder.set(key, json!(value));
        folder.refused(says);
    };
    case("llama-spm", "attention_bias", false, &["not weights", "_proj.bias"]);
    case("seed_oss", "attention_bias", false, &["not weights", "_proj.bias"]);
    case("qwen2moe", "qkv_bias", false, &["not weights", "_proj.bias"]);
    case("glm4moe", "use_qk_norm", false, &["not weights", "_norm.weight"]);
    case("llama3", "attention_bias", true, &["q_proj.bias", "is missing"]);
    case("gemma4-e", "attention_k_eq_v", true, &["not weights", "v_proj"]);
}

/// Short texts get LongRoPE's short factors by default.
#[test]
fn a_context_beyond_the_original_one_of_longrope() {
    let (file, _) = open_folder(&folders_folder().join("phi3"), &ConvertOptions::default(), 1).unwrap();
    let model = Model::from_file(file, LoadOptions { threads: Some(1), ..LoadOptions::default() }).unwrap();
    let model = Arc::new(model);
    let of = |context| {
        let runner = Runner::new(model.clone(), Limits { context, ..Limits::default() }).unwrap();
        (runner.context(), runner.plan().notice())
    };
    assert_eq!(of(None), (64, None));
    let notice = Notice::LongFactors { context: 65, original: 64 };
    assert_eq!(of(Some(65)), (65, Some(notice.clone())));
    assert!(notice.to_string().contains("longer than 64"), "{notice}");
}

#[test]
fn settings_of_scans_that_are_not_supported() {
    for (name, key, value, says) in [
        ("falcon-h1", "mamba_norm_before_gate", json!(true), "`mamba_norm_before_gate` is true"),
        ("falcon-h1", "tie_word_embeddings", json!(true), "`tie_word_embeddings` is true"),
        ("falcon-h1", "ssm_multipliers", json!([1.0, 2.0]), "a factor for each of the 5 inputs"),
        ("falcon-h1", "mlp_multipliers", json!([1.0]), "a factor for each matrix"),
        ("granitehybrid", "layer_types", json!(["mamba", "mystery"]), "`layer_types` is \"mystery\""),
        ("nemotron_h", "hybrid_override_pattern", json!("M-*X"), "`hybrid_override_pattern` is \"X\""),
        ("nemotron_h", "mlp_hidden_act", json!("silu"), "`mlp_hidden_act` is \"silu\""),
        ("nemotron_h_moe", "layers_block_type", json!(["mamba", "moe", "mlp"]), "`layers_block_type` is \"mlp\""),
        ("mamba2", "use_bias", json!(true), "`use_bias` is true"),
        ("mamba2", "time_step_limit", json!([0.0, 0.1]), "`time_step_limit` is [0.0,0.1]; expected: [0, Infinity]"),
        ("granitehybrid", "time_step_limit", json!([0.001, null]), "`time_step_limit` is [0.001,null]"),
    ] {
        let folder = Folder::copy(name, &format!("scan-{key}"));
        folder.json("config.json", |config| config[key] = value);
        folder.refused(&[says]);
    }
}
