//! Files that are refused, each with the name of what is wrong, and what is read from those that are not.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use gristmill_kernels::ops::{Temperature, Window};
use gristmill_kernels::reference::Reference;
use gristmill_model::gguf::{Array, Value};
use gristmill_model::spec::{MlpSpec, MoeSpec, RopeScaling};
use gristmill_model::{Error, LoadOptions, Model, ModelInfo, Progress};

use crate::tiny::{Random, Tiny, VOCAB};

fn read(tiny: &Tiny) -> Result<ModelInfo, Error> {
    ModelInfo::read(&tiny.file(&mut Random(3)))
}

/// Changes a model and returns what is said about it.
fn refusal(mut tiny: Tiny, change: impl FnOnce(&mut Tiny)) -> String {
    change(&mut tiny);
    read(&tiny).expect_err("a bad model").to_string()
}

/// An architecture that is unknown is refused with the part that its layers need, where that is known.
#[test]
fn the_part_that_an_architecture_needs_is_named() {
    for (architecture, needs) in [
        ("mamba", ", because it needs a selective state space (Mamba)"),
        ("plamo2", ", because it needs a selective state space (Mamba)"),
        ("kimi-k3", ", because it needs latent attention (MLA)"),
        ("gemma3n", ", because it needs several residual streams (AltUp)"),
        ("gptneox", ", because it needs an MLP without a gate"),
        ("clip", ", because it needs images: it is the tower of a vision model"),
        // Nothing but its keys is unknown; and nothing at all is known.
        ("smallthinker", ""),
        ("unheard-of", ""),
    ] {
        let message = refusal(Tiny::qwen3moe(), |tiny| tiny.set("general.architecture", architecture));
        let says = format!("architecture `{architecture}` is not supported{needs}; known architectures: afmoe,");
        assert!(message.contains(&says), "{message}");
    }
}

#[test]
fn unknown_parts_are_named() {
    for (key, value, says) in [
        (
            "general.architecture",
            "mamba",
            "architecture `mamba` is not supported, because it needs a selective state space (Mamba); known \
             architectures: afmoe, bailingmoe2, bailingmoe3, cohere2, cohere2moe, deepseek",
        ),
        ("qwen3moe.rope.scaling.type", "dynamic", "`dynamic` is not supported; known: none, linear, yarn, longrope"),
        (
            "qwen3moe.hidden_activation",
            "gelu",
            "key `qwen3moe.hidden_activation`: `gelu` is not supported; known: silu",
        ),
    ] {
        let message = refusal(Tiny::qwen3moe(), |tiny| tiny.set(key, value));
        assert!(message.contains(says), "{message}");
    }
    let message = refusal(Tiny::qwen3moe(), |tiny| {
        tiny.set("general.architecture", "olmoe");
        tiny.set("olmoe.attention.clamp_kqv", 8.0_f32);
    });
    assert!(message.contains("key `olmoe.attention.clamp_kqv`: `8` is not supported"), "{message}");
    let message = refusal(Tiny::qwen3moe(), |tiny| tiny.set("qwen3moe.expert_gating_func", 4_u32));
    assert!(
        message.contains("key `qwen3moe.expert_gating_func`: `4` is not supported; known: 1 (softmax), 2 (sigmoid), 3"),
        "{message}"
    );
    let sections = Value::Array(Array::I32(vec![16, 24, 24, 0]));
    let message = refusal(Tiny::qwen3(), |tiny| tiny.set("qwen3.rope.dimension_sections", sections));
    assert!(message.contains("multi-dimensional RoPE"), "{message}");
    let message = refusal(Tiny::llama(), |tiny| tiny.tensor("blk.1.attn_sinks.weight", &[6]));
    assert!(message.contains("tensor `blk.1.attn_sinks.weight` is not a weight of this llama model"), "{message}");
    // A tensor that another architecture has.
    let message = refusal(Tiny::llama(), |tiny| tiny.tensor("blk.0.attn_q_norm.weight", &[8]));
    assert!(message.contains("`blk.0.attn_q_norm.weight`"), "{message}");
}

#[test]
fn numbers_that_make_no_sense_are_named() {
    let int = |n: u64| Value::U64(n);
    for (key, value, says) in [
        ("block_count", int(0), "must be at least 1"),
        (
            "block_count",
            int(u64::MAX),
            "18446744073709551615 layers need at least as many tensors, but the file has 20;",
        ),
        ("block_count", Value::String("2".into()), "has the type string; expected: an integer of at least 0"),
        ("block_count", int(3), "tensor `blk.2.attn_norm.weight` of shape [48] is missing"),
        ("block_count", int(1), "tensor `blk.1.attn_norm.weight` is not a weight"),
        ("context_length", int(0), "must be at least 1"),
        ("context_length", int(1 << 40), "that gristmill supports"),
        ("embedding_length", int(0), "must be at least 1"),
        ("embedding_length", int(1 << 40), "that gristmill supports"),
        ("embedding_length", int(64), "tensor `token_embd.weight`"),
        ("feed_forward_length", int(0), "must be at least 1"),
        ("feed_forward_length", int(81), "tensor `blk.0.ffn_gate.weight`"),
        ("feed_forward_length", Value::I32(-1), "-1 is out of range; expected: an integer of at least 0"),
        ("attention.head_count", int(0), "must be at least 1"),
        ("attention.head_count", int(7), "7 is not a multiple of the 2 KV heads"),
        ("attention.head_count", int(8), "tensor `blk.0.attn_q.weight`"),
        ("attention.head_count_kv", int(4), "6 is not a multiple of the 4 KV heads"),
        ("attention.key_length", int(1 << 60), "is more than the 16777216 that gristmill supports"),
        ("attention.key_length", int(16), "tensor `blk.0.attn_q.weight`"),
        ("attention.value_length", int(9), "tensor `blk.0.attn_v.weight`"),
        ("attention.layer_norm_rms_epsilon", Value::F32(f32::NAN), "must be finite and not negative"),
        ("attention.layer_norm_rms_epsilon", Value::F32(-1.0), "must be finite and not negative"),
        (
            "attention.layer_norm_rms_epsilon",
            Value::String("0".into()),
            "has the type string; expected: a float that 32 bits hold",
        ),
        ("attention.scale", Value::F32(f32::INFINITY), "must be finite and above 0"),
        ("rope.freq_base", Value::F32(0.0), "must be finite and above 0"),
        ("rope.freq_base", Value::F32(f32::NAN), "must be finite and above 0"),
        ("rope.dimension_count", int(10), "must be even and at most the head width 8"),
        ("rope.dimension_count", int(7), "must be even and at most the head width 8"),
        ("rope.scaling.factor", Value::F32(-2.0), "must be finite and above 0"),
        ("vocab_size", int(VOCAB + 1), "tensor `token_embd.weight`"),
        ("expert_count", int(4), "key `llama.expert_used_count` is missing"),
    ] {
        let key = format!("llama.{key}");
        let message = refusal(Tiny::llama(), |tiny| tiny.set(&key, value.clone()));
        assert!(message.contains(says), "{key} = {value:?}: {message}");
        assert!(message.contains("`llama.") || message.contains("tensor `"), "{message}");
    }
    for (key, value, says) in [
        ("expert_count", 0, "must be at least 1"),
        ("expert_count", 1025, "is more than the 1024 that gristmill supports"),
        ("expert_count", 4, "tensor `blk.0.ffn_gate_inp.weight`"),
        ("expert_used_count", 0, "must be at least 1"),
        ("expert_used_count", 6, "is more than the 5 experts that the model has"),
        ("expert_feed_forward_length", 64, "tensor `blk.0.ffn_gate_exps.weight`"),
    ] {
        let key = format!("qwen3moe.{key}");
        let message = refusal(Tiny::qwen3moe(), |tiny| tiny.set(&key, value));
        assert!(message.contains(says), "{key} = {value}: {message}");
    }
}

#[test]
fn every_missing_key_and_tensor_is_named() {
    let optional = [".attention.head_count_kv", ".attention.key_length", ".attention.value_length"];
    for tiny in [Tiny::llama(), Tiny::qwen3(), Tiny::qwen3moe(), Tiny::gpt_oss()] {
        for (key, _) in &tiny.pairs {
            let fallback = optional.iter().any(|end| key.ends_with(end)) || key.contains("expert_feed_forward");
            let unread = ["qwen3moe.feed_forward_length", "gpt-oss.feed_forward_length"].contains(&key.as_str());
            if !(fallback || unread) {
                let message = refusal(tiny.clone(), |tiny| tiny.unset(key));
                assert!(message.contains(&format!("`{key}` is missing")), "{message}");
            }
        }
        for (name, _, shape) in &tiny.tensors {
            if name != "output.weight" {
                let message = refusal(tiny.clone(), |tiny| tiny.without(name));
                assert!(message.contains(&format!("tensor `{name}`")) && message.contains("is missing"), "{message}");
            }
            let wrong: Vec<u64> = shape.iter().map(|n| n + 1).collect();
            let message = refusal(tiny.clone(), |tiny| tiny.tensor(name, &wrong));
            assert!(message.contains(&format!("tensor `{name}`")) && message.contains("has shape"), "{message}");
        }
    }
}

#[test]
fn keys_become_the_spec() {
    let mut tiny = Tiny::llama();
    for key in ["llama.attention.key_length", "llama.attention.value_length", "llama.attention.head_count_kv"] {
        tiny.unset(key);
    }
    tiny.set("llama.attention.head_count", 6_u32);
    for layer in 0..2 {
        for part in ["k", "v"] {
            tiny.tensor(&format!("blk.{layer}.attn_{part}.weight"), &[48, 48]);
        }
    }
    tiny.set("llama.rope.freq_base", 5e5_f64);
    tiny.set("llama.rope.scale_linear", 2.0_f32);
    tiny.set("llama.surprise", 7_u8);
    tiny.set("general.license", "mit");
    tiny.set("general.name", "Tiny");
    tiny.set("tokenizer.chat_template", "{{ messages }}");
    let info = read(&tiny).expect("a good model");
    assert_eq!(info.unused_keys, ["llama.surprise"]);
    assert_eq!(info.template.as_deref(), Some("{{ messages }}"));
    let spec = info.spec;
    assert_eq!((spec.name.as_deref(), spec.vocab, spec.hidden), (Some("Tiny"), 61, 48));
    assert!(spec.tied_embeddings);
    let attention = spec.layers[1].attention().expect("attention");
    assert_eq!((attention.heads, attention.kv_heads, attention.key_width, attention.value_width), (6, 6, 8, 8));
    let rope = attention.rope.as_ref().expect("rotated");
    assert_eq!((rope.base, rope.scaling), (5e5, RopeScaling::Linear { factor: 2.0 }));
    let Some(MlpSpec::Moe(MoeSpec { routing, .. })) = read(&Tiny::qwen3moe()).expect("good").spec.layers[0].mlp.clone()
    else {
        panic!("experts expected");
    };
    assert!(routing.normalise && routing.top_k == 3);
}

#[test]
fn windows_alternate() {
    let windows = |pattern: Option<Value>| {
        let mut tiny = Tiny::gpt_oss();
        pattern.into_iter().for_each(|pattern| tiny.set("gpt-oss.attention.sliding_window_pattern", pattern));
        let spec = read(&tiny).expect("a good model").spec;
        [0, 1].map(|layer| spec.layers[layer].attention().and_then(|attention| attention.window))
    };
    let five = Some(Window::Last(5));
    assert_eq!(windows(None), [five, None]);
    assert_eq!(windows(Some(Value::U32(1))), [None, None]);
    assert_eq!(windows(Some(Value::U32(3))), [five, five]);
    assert_eq!(windows(Some(vec![false, true].into())), [None, five]);
    for (value, says) in [
        (vec![true; 3].into(), "3 flags are not the 2 layers"),
        (Value::String("every other".into()), "has the type string"),
        (Value::I32(-2), "-2 is out of range"),
    ] {
        let message = refusal(Tiny::gpt_oss(), |tiny| tiny.set("gpt-oss.attention.sliding_window_pattern", value));
        assert!(message.contains("sliding_window_pattern") && message.contains(says), "{message}");
    }
}

#[test]
fn a_vocabulary_must_fit_the_embedding_table() {
    let mut tiny = Tiny::llama();
    tiny.set("tokenizer.ggml.model", "gpt2");
    tiny.set("tokenizer.ggml.tokens", Value::Array(Array::String(vec!["a".into(), "b".into(), "ab".into()])));
    tiny.set("tokenizer.ggml.merges", Value::Array(Array::String(vec!["a b".into()])));
    let message = read(&tiny).expect_err("3 tokens").to_string();
    assert!(message.contains("the tokenizer has 3 tokens, but `token_embd.weight` has 61 rows"), "{message}");
    tiny.set("tokenizer.ggml.pre", "unheard-of");
    let message = read(&tiny).expect_err("a bad pre-tokenizer").to_string();
    assert!(message.contains("unheard-of"), "{message}");
    let model = Model::from_file(Tiny::llama().file(&mut Random(1)), LoadOptions::default()).expect("a good model");
    assert!(matches!(model.tokenizer(), Err(Error::NoTokenizer)));
}

#[test]
fn progress_goes_from_nothing_to_all() {
    let seen = Arc::new(Mutex::new(Vec::<Progress>::new()));
    let report = seen.clone();
    let progress = move |progress| {
        report.lock().expect("not poisoned").push(progress);
        ControlFlow::Continue(())
    };
    let options = LoadOptions { progress: Some(Box::new(progress)), ..LoadOptions::default() };
    Model::with_backend(Tiny::qwen3().file(&mut Random(1)), Arc::new(Reference::backend()), options)
        .expect("a good model");
    let seen = seen.lock().expect("not poisoned");
    assert!(seen.len() > 10 && seen[0].done == 0 && seen[0].total > 0);
    assert!(seen.is_sorted_by(|a, b| a.done < b.done && a.total == b.total));
    assert_eq!(seen[seen.len() - 1].done, seen[0].total);
}

#[test]
fn loading_is_cancelled_before_and_between_tensors() {
    for calls in [1, 2, 7] {
        let seen = Arc::new(Mutex::new(0));
        let count = seen.clone();
        let progress = move |_| {
            let mut count = count.lock().expect("not poisoned");
            *count += 1;
            if *count == calls { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let options = LoadOptions { progress: Some(Box::new(progress)), ..LoadOptions::default() };
        let backend = Arc::new(Reference::backend());
        let loaded = Model::with_backend(Tiny::qwen3().file(&mut Random(1)), backend.clone(), options);
        assert!(matches!(loaded, Err(Error::Cancelled)), "{loaded:?}");
        assert_eq!(*seen.lock().expect("not poisoned"), calls, "no tensor is loaded afterwards");
        assert_eq!(Arc::strong_count(&backend), 1);
    }
}

#[test]
fn models_are_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    fn sent<T: Send>() {}
    shared::<Model>();
    sent::<gristmill_model::Runner>();
}

/// Queries, keys and values may be one tensor, gate and up another; one of another shape, or next to a tensor that it
/// replaces, is refused by name.
#[test]
fn fused_tensors_are_checked() {
    let fuse = |tiny: &mut Tiny, rows| {
        for layer in 0..2 {
            for part in ["attn_q", "attn_k", "attn_v", "ffn_gate", "ffn_up"] {
                tiny.without(&format!("blk.{layer}.{part}.weight"));
            }
            tiny.tensor(&format!("blk.{layer}.attn_qkv.weight"), &[48, rows]);
            tiny.tensor(&format!("blk.{layer}.ffn_up.weight"), &[48, 160]);
        }
    };
    let mut fused = Tiny::llama();
    fuse(&mut fused, 80);
    read(&fused).expect("48 rows of queries, 16 of keys, 16 of values");
    let message = refusal(Tiny::llama(), |tiny| fuse(tiny, 81));
    assert!(message.contains("tensor `blk.0.attn_qkv.weight`"), "{message}");
    let message = refusal(fused.clone(), |tiny| tiny.tensor("blk.1.attn_k.weight", &[48, 16]));
    assert!(message.contains("tensor `blk.1.attn_k.weight` is not a weight of this llama model"), "{message}");
    let message = refusal(fused, |tiny| tiny.tensor("blk.1.ffn_gate.weight", &[48, 80]));
    assert!(message.contains("tensor `blk.1.ffn_up.weight`"), "{message}");
}

/// A model with the keys of another architecture.
fn renamed(mut tiny: Tiny, architecture: &str) -> Tiny {
    for (key, value) in tiny.pairs.clone() {
        if let Some((_, suffix)) = key.split_once('.').filter(|(start, _)| !["general", "tokenizer"].contains(start)) {
            tiny.set(&format!("{architecture}.{suffix}"), value);
        }
    }
    tiny.set("general.architecture", architecture);
    tiny
}

#[test]
fn llama4_chooses_one_expert_and_sees_chunks() {
    for (key, value, says) in [
        ("expert_used_count", 2_u32, "`2` is not supported; known: 1, whose weight multiplies its input"),
        ("expert_gating_func", 1, "`Softmax` is not supported; known: 2 (sigmoid)"),
        ("attention.sliding_window", 0, "0 must be at least 1"),
        ("interleave_moe_layer_step", 2, "tensor `blk.0.ffn_gate.weight`"),
    ] {
        let message = refusal(renamed(Tiny::qwen3moe(), "llama4"), |tiny| {
            for (key, value) in [("expert_used_count", 1), ("feed_forward_length", 32), (key, value)] {
                tiny.set(&format!("llama4.{key}"), value);
            }
        });
        assert!(message.contains(says), "{key}: {message}");
    }
}

#[test]
fn laguna_has_heads_of_each_layer() {
    let heads = |heads: Vec<u32>| Value::Array(Array::U32(heads));
    for (key, value, says) in [
        ("attention.head_count", heads(vec![6, 5]), "5 is not a multiple of the"),
        ("attention.head_count", heads(vec![6]), "1 numbers are not the 2 layers"),
        ("attention.layer_types", heads(vec![0, 1]), "key `laguna.attention.layer_types`: `the key` is not supported"),
        ("rope.dimension_count_swa", Value::U32(3), "key `laguna.rope.dimension_count_swa`: 3 must be even"),
    ] {
        let message = refusal(renamed(Tiny::qwen3moe(), "laguna"), |tiny| {
            tiny.set("laguna.attention.sliding_window", 5_u32);
            tiny.set("laguna.feed_forward_length", 32_u32);
            tiny.set(&format!("laguna.{key}"), value);
        });
        assert!(message.contains(says), "{key}: {message}");
    }
}

/// The temperature of attention grows with each original context, whose length two keys may say.
#[test]
fn mistral3_has_a_temperature() {
    let mut tiny = renamed(Tiny::llama(), "mistral3");
    tiny.set("mistral3.rope.scaling.type", "yarn");
    tiny.set("mistral3.rope.scaling.factor", 4.0_f32);
    tiny.set("mistral3.rope.scaling.original_context_length", 40_u32);
    let temperature = |tiny: &Tiny| {
        let spec = read(tiny).expect("good").spec;
        spec.layers[0].attention().and_then(|attention| attention.temperature)
    };
    assert_eq!(temperature(&tiny), None);
    tiny.set("mistral3.attention.temperature_scale", 0.1_f32);
    let expected = Temperature { scale: 0.1, length: 40, offset: 0 };
    assert_eq!(temperature(&tiny), Some(expected));
    tiny.set("mistral3.attention.temperature_length", 40_u32);
    assert_eq!(temperature(&tiny), Some(expected));
    let message = refusal(tiny, |tiny| tiny.set("mistral3.attention.temperature_length", 41_u32));
    assert!(message.contains("`mistral3.attention.temperature_length`") && message.contains("41"), "{message}");
}

/// Parts of Cohere 2 with experts that are not implemented are refused by key.
#[test]
fn cohere2moe_has_no_experts_for_every_token() {
    let message = refusal(Tiny::qwen3moe(), |tiny| {
        tiny.set("general.architecture", "cohere2moe");
        tiny.set("cohere2moe.expert_shared_count", 1_u32);
    });
    assert!(message.contains("key `cohere2moe.expert_shared_count`: `1` is not supported; known: 0"), "{message}");
}

/// llama.cpp reads the numbers of heads and the width of an MLP as a number for all layers or as one for each.
#[test]
fn a_number_may_be_written_for_each_layer() {
    let spec = |info: ModelInfo| format!("{:?}", info.spec);
    let usual = spec(read(&Tiny::llama()).expect("a model"));
    for (key, number) in [("attention.head_count", 6), ("attention.head_count_kv", 2), ("feed_forward_length", 80)] {
        let key = format!("llama.{key}");
        let with = |numbers: Vec<u32>| {
            let mut tiny = Tiny::llama();
            tiny.set(&key, numbers);
            read(&tiny)
        };
        assert_eq!(spec(with(vec![number; 2]).expect("a model")), usual, "{key}");
        for (numbers, says) in [
            (vec![number, 2 * number], "this architecture is supported with one number for all layers"),
            (vec![number; 3], "3 numbers are not the 2 layers"),
            (vec![], "0 numbers are not the 2 layers"),
        ] {
            let message = with(numbers).expect_err("a bad model").to_string();
            assert!(message.contains(&key) && message.contains(says), "{message}");
        }
    }
    let blocks = refusal(Tiny::llama(), |tiny| tiny.set("llama.block_count", vec![2_u32, 2]));
    assert!(blocks.contains("`llama.block_count`") && blocks.contains("array"), "{blocks}");
}

/// Converters write an empty template, and an empty name of the pre-tokenizer, for what a model does not have.
#[test]
fn an_empty_template_is_none() {
    let template = |source: &str| {
        let mut tiny = Tiny::llama();
        tiny.set("tokenizer.chat_template", source);
        read(&tiny).expect("a model").template
    };
    assert_eq!((template(""), template(" \n")), (None, None));
    assert_eq!(template("{{ x }}").as_deref(), Some("{{ x }}"));
}
