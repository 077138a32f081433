//! Prediction heads in a file of their own.

use std::sync::Arc;

use gristmill_kernels::reference::Reference;
use gristmill_model::gguf::{GgufFile, GgufWriter, Value};
use gristmill_model::{
    Batch, DraftOrder, Error, Limits, LoadOptions, Model, Outputs, Runner, is_heads_file, with_heads_of,
};

use crate::latent;
use crate::tiny::{Random, Tiny};

/// The tensors of a file that `keeps` admits, with other values of some keys.
fn part(file: &GgufFile, keeps: impl Fn(&str) -> bool, pairs: &[(&str, u32)]) -> GgufFile {
    let mut plan = GgufWriter::new();
    for (key, value) in file.metadata().iter() {
        let other = pairs.iter().find(|(suffix, _)| key.ends_with(suffix));
        plan.set(key, other.map_or(value.clone(), |(_, n)| Value::U32(*n))).expect("a good key");
    }
    let tensors: Vec<_> = file.tensors().iter().filter(|tensor| keeps(&tensor.name)).collect();
    for tensor in &tensors {
        plan.tensor(&tensor.name, tensor.format, &tensor.shape).expect("a good tensor");
    }
    let mut data = plan.begin(Vec::new()).expect("memory takes all");
    tensors.iter().for_each(|tensor| data.write_tensor(&tensor.name, file.data(tensor)).expect("the size is right"));
    GgufFile::from_bytes(data.finish().expect("all tensors are written")).expect("a good file")
}

/// A file of the model alone, with the keys of heads or without; and a file of its head.
fn apart(file: &GgufFile, with_keys: bool) -> [GgufFile; 2] {
    let pairs = [(".block_count", 2), (".nextn_predict_layers", 0)];
    let pairs = if with_keys { &[][..] } else { &pairs };
    [
        part(file, |name| !name.starts_with("blk.2."), pairs),
        part(file, |name| !(name.starts_with("blk.0.") || name.starts_with("blk.1.")), &[]),
    ]
}

fn models() -> Vec<(&'static str, Tiny)> {
    let all = [
        ("llama", Tiny::llama()),
        ("qwen3moe", Tiny::qwen3moe()),
        ("qwen35", Tiny::qwen35()),
        ("deepseek2", latent::tiny()),
    ];
    let with_head = |(name, mut tiny): (&'static str, Tiny)| {
        tiny.predict();
        (name, tiny)
    };
    all.into_iter().map(with_head).collect()
}

/// The logits after a text, and of the drafts that follow it.
fn logits(file: GgufFile, text: &[u32]) -> (Vec<f32>, Vec<f32>) {
    let options = LoadOptions { prediction_heads: true, ..LoadOptions::default() };
    let model = Arc::new(Model::with_backend(file, Arc::new(Reference::backend()), options).expect("a good model"));
    assert_eq!(model.prediction_heads(), 1);
    let limits = Limits { context: Some(64), batch_tokens: 64, ..Limits::default() };
    let mut runner = Runner::new(model, limits).expect("it fits");
    let sequence = runner.open_sequence().expect("one is free");
    let mut batch = Batch::new();
    batch.push(sequence, &text[..text.len() - 1], Outputs::Last);
    let logits = runner.forward(&batch).expect("it runs").to_vec().expect("finite");
    (logits, runner.draft_logits(DraftOrder { sequence, text, count: 3 }).expect("it runs"))
}

#[test]
fn heads_of_another_file_draft_the_same() {
    let mut random = Random::fresh();
    for (name, tiny) in models() {
        let file = tiny.file(&mut random);
        let text = random.tokens(20);
        let expected = logits(file.clone(), &text);
        assert!(!is_heads_file(&file).expect("keys"), "{name}");
        for with_keys in [true, false] {
            let [trunk, heads] = apart(&file, with_keys);
            assert!(is_heads_file(&heads).expect("keys") && !is_heads_file(&trunk).expect("keys"), "{name}");
            let joined = with_heads_of(&trunk, &heads).expect("heads of this model");
            assert_eq!(joined.fingerprint(), trunk.fingerprint(), "{name}");
            assert!(joined.is_gguf() && joined.file_bytes() == trunk.file_bytes() + heads.file_bytes(), "{name}");
            assert_eq!(logits(joined, &text), expected, "{name}");
        }
    }
}

#[test]
fn heads_of_another_model_are_refused_by_name() {
    let file = |change: &dyn Fn(&mut Tiny)| {
        let mut tiny = Tiny::qwen3moe();
        tiny.predict();
        change(&mut tiny);
        tiny.file(&mut Random(3))
    };
    let own = file(&|_| {});
    let [trunk, heads] = apart(&own, true);
    let refused = |heads: &GgufFile| match with_heads_of(&trunk, heads) {
        Err(Error::Heads(message)) => message,
        other => panic!("{other:?}"),
    };
    let [_, llama] = apart(&models().remove(0).1.file(&mut Random(3)), true);
    assert_eq!(
        refused(&llama),
        "architecture: the model has qwen3moe, the file of prediction heads llama",
        "another architecture"
    );
    let [_, wide] = apart(&file(&|tiny| tiny.set("qwen3moe.embedding_length", 128_u32)), true);
    assert!(refused(&wide).starts_with("hidden size: the model has 64, the file of prediction heads 128"));
    let [_, deep] = apart(&file(&|tiny| tiny.set("qwen3moe.block_count", 4_u32)), true);
    assert!(refused(&deep).starts_with("number of layers: the model has 2, the file of prediction heads 3"));
    let tokens = |names: Vec<String>| move |tiny: &mut Tiny| tiny.set("tokenizer.ggml.tokens", names.clone());
    let [with_tokens, same] = apart(&file(&tokens(vec!["a".into(), "b".into()])), true);
    with_heads_of(&with_tokens, &same).expect("the same vocabulary");
    for (names, expected) in [
        (vec!["a".to_owned()], "size of the vocabulary: the model has 2, the file of prediction heads 1"),
        (vec!["a".to_owned(), "c".to_owned()], "token 1: the model has \"b\", the file of prediction heads \"c\""),
    ] {
        let [_, other] = apart(&file(&tokens(names)), true);
        let message = with_heads_of(&with_tokens, &other).expect_err("another vocabulary").to_string();
        assert!(message.starts_with(expected) && message.ends_with("; use heads that were trained with this model"));
    }
    let message = with_heads_of(&own, &heads).expect_err("it has heads").to_string();
    assert!(message.starts_with("the model has prediction heads in its own file"), "{message}");
    // Other widths are found when the model is read.
    let [_, narrow] = apart(&file(&|tiny| tiny.tensor("blk.2.attn_k.weight", &[64, 32])), true);
    let joined = with_heads_of(&trunk, &narrow).expect("it is not seen yet");
    let message = gristmill_model::ModelInfo::read_with_heads(&joined).expect_err("another width").to_string();
    assert!(message.contains("`blk.2.attn_k.weight`") && message.contains("[64, 32]"), "{message}");
}
