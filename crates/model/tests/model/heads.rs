//! Prediction heads: the same drafts however a sequence came to its tokens, and a model that is the same without them.

use std::sync::Arc;

use gristmill_cpu::Cpu;
use gristmill_cpu::Level;
use gristmill_kernels::Backend;
use gristmill_kernels::ops::{Activation, Window};
use gristmill_kernels::reference::Reference;
use gristmill_model::spec::{LayerSpec, MlpSpec, ModelSpec};
use gristmill_model::{Batch, DraftOrder, Error, Limits, LoadOptions, Model, ModelInfo, Outputs, Runner, SequenceId};

use crate::tiny::{Random, Tiny, VOCAB};
use crate::{channels, hybrid_windows, latent};

/// A model with several heads.
fn predict(tiny: &mut Tiny, architecture: &str, heads: u32) {
    tiny.predict();
    tiny.set(&format!("{architecture}.block_count"), 2 + heads);
    tiny.set(&format!("{architecture}.nextn_predict_layers"), heads);
    for (name, _, shape) in tiny.tensors.clone() {
        let Some(part) = name.strip_prefix("blk.2.") else { continue };
        (1..heads).for_each(|head| tiny.tensor(&format!("blk.{}.{part}", 2 + head), &shape));
    }
}

/// `step35` and `mimo2` with three heads, whose layers have a window.
fn windowed_heads() -> [Tiny; 2] {
    let (mut step, mut mimo) = (hybrid_windows::step35(), hybrid_windows::mimo2());
    predict(&mut step, "step35", 3);
    step.set("step35.attention.sliding_window_pattern", vec![false, true, true, true, true]);
    predict(&mut mimo, "mimo2", 3);
    mimo.set("mimo2.attention.sliding_window_pattern", vec![0_i32, 1, 1, 1, 1]);
    [step, mimo]
}

/// Models with states of fixed size.
const FIXED: [&str; 6] = [
    "qwen35",
    "bailingmoe3",
    "llama with two heads",
    "deepseek2 with two heads",
    "step35 with three heads",
    "mimo2 with three heads",
];

/// The most drafts of a model: one of each head if the heads form no chain.
fn most_drafts(name: &str) -> usize {
    match name {
        "mimo2" => 1,
        "mimo2 with three heads" => 3,
        _ => usize::MAX,
    }
}

/// Models of all kinds of layers, each with a prediction head or two.
fn models() -> Vec<(&'static str, Tiny)> {
    let mut own = Tiny::qwen3();
    own.predict();
    own.tensor("blk.2.nextn.shared_head_norm.weight", &[64]);
    own.tensor("blk.2.nextn.shared_head_head.weight", &[64, VOCAB]);
    own.tensor("blk.2.nextn.embed_tokens.weight", &[64, VOCAB]);
    let mut windowed = Tiny::gpt_oss();
    windowed.predict();
    windowed.set("gpt-oss.attention.sliding_window_pattern", vec![true, false, true]);
    let mut hybrid = channels::bailingmoe3();
    hybrid.predict();
    hybrid.set("bailingmoe3.attention.head_count_kv", vec![0_u32, 1, 1]);
    let (mut two, mut two_latent) = (Tiny::llama(), latent::tiny());
    predict(&mut two, "llama", 2);
    predict(&mut two_latent, "deepseek2", 2);
    let [step, mimo] = windowed_heads();
    let mut one = hybrid_windows::mimo2();
    one.predict();
    one.set("mimo2.attention.sliding_window_pattern", vec![0_i32, 1, 1]);
    let all = [
        ("llama", Tiny::llama()),
        ("qwen3moe", Tiny::qwen3moe()),
        ("dots1", Tiny::dots1()),
        ("gpt-oss", Tiny::gpt_oss()),
        ("qwen35", Tiny::qwen35()),
        ("deepseek2", latent::tiny()),
    ];
    let with_head = |(name, mut tiny): (&'static str, Tiny)| {
        tiny.predict();
        (name, tiny)
    };
    let special = [
        ("a head with matrices of its own", own),
        ("a head with a window", windowed),
        ("bailingmoe3", hybrid),
        ("llama with two heads", two),
        ("deepseek2 with two heads", two_latent),
        ("step35 with three heads", step),
        ("mimo2 with three heads", mimo),
        ("mimo2", one),
    ];
    all.into_iter().map(with_head).chain(special).collect()
}

fn load(backend: Backend, bytes: &[u8], prediction_heads: bool) -> Arc<Model> {
    let file = gristmill_model::gguf::GgufFile::from_bytes(bytes.to_vec()).expect("a good file");
    let options = LoadOptions { prediction_heads, ..LoadOptions::default() };
    Arc::new(Model::with_backend(file, Arc::new(backend), options).expect("a good model"))
}

fn with_head(tiny: &Tiny, random: &mut Random) -> Arc<Model> {
    load(Reference::backend(), &tiny.bytes(random), true)
}

const LIMITS: Limits = Limits {
    context: Some(100),
    sequences: 3,
    kv_tokens: None,
    batch_tokens: 100,
    output_rows: Some(100),
    rollback_tokens: 8,
    kv_format: gristmill_model::KvFormat::F16,
    images: gristmill_vision::Limits { bytes: 0, pixels: 0, ratio: 1 },
};

fn runner(model: &Arc<Model>) -> Runner {
    Runner::new(model.clone(), LIMITS).expect("it fits")
}

fn read(runner: &mut Runner, sequence: SequenceId, tokens: &[u32]) {
    let mut batch = Batch::new();
    batch.push(sequence, tokens, Outputs::Last);
    runner.forward(&batch).expect("it runs");
}

/// Draft tokens after `text`, whose last token the sequence lacks.
fn draft(runner: &mut Runner, sequence: SequenceId, text: &[u32], count: usize) -> Vec<u32> {
    runner.draft(&[DraftOrder { sequence, text, count }]).expect("it runs").remove(0)
}

/// Draft tokens after `text` in a sequence that reads it at once.
fn fresh(runner: &mut Runner, text: &[u32], count: usize) -> Vec<u32> {
    let sequence = runner.open_sequence().expect("one is free");
    read(runner, sequence, &text[..text.len() - 1]);
    let drafted = draft(runner, sequence, text, count);
    runner.close_sequence(sequence).expect("it is open");
    drafted
}

#[test]
fn a_head_changes_no_logits() {
    let mut random = Random::fresh();
    for (name, tiny) in models() {
        let bytes = tiny.bytes(&mut random);
        let tokens = random.tokens(40);
        let all = [false, true].map(|heads| {
            let model = load(Cpu::backend(Level::best(), 2).expect("threads"), &bytes, heads);
            let numbers = [("two heads", 2), ("three heads", 3)];
            let count = numbers.iter().find(|(end, _)| name.ends_with(end)).map_or(1, |&(_, count)| count);
            assert_eq!(model.prediction_heads(), if heads { count } else { 0 }, "{name}");
            let mut runner = runner(&model);
            let sequence = runner.open_sequence().expect("one is free");
            let mut logits = Vec::new();
            for (at, part) in [&tokens[..17], &tokens[17..18], &tokens[18..]].into_iter().enumerate() {
                let mut batch = Batch::new();
                batch.push(sequence, part, Outputs::All);
                logits.extend(runner.forward(&batch).expect("it runs").to_vec().expect("finite"));
                if heads {
                    let read = runner.sequence_len(sequence).expect("it is open");
                    let text = &tokens[..(read + 1).min(tokens.len())];
                    let wanted = if at < 2 { most_drafts(name).min(3) } else { 0 };
                    assert_eq!(draft(&mut runner, sequence, text, 3).len(), wanted, "{name}");
                }
            }
            (logits, runner.plan())
        });
        assert_eq!(all[0].0, all[1].0, "{name}");
        assert!(all[0].1.state < all[1].1.state && all[0].1.scratch < all[1].1.scratch, "{name}");
    }
}

#[test]
fn company_and_batch_borders_change_no_draft() {
    let mut random = Random::fresh();
    for (name, tiny) in models() {
        let mut runner = runner(&with_head(&tiny, &mut random));
        let texts: Vec<Vec<u32>> = [38, 18, 33].iter().map(|&len| random.tokens(len)).collect();
        let alone: Vec<_> = texts.iter().map(|text| fresh(&mut runner, text, 5)).collect();
        assert!(alone.iter().all(|drafted| drafted.len() == most_drafts(name).min(5)), "{name}");
        let open: Vec<_> = texts.iter().map(|_| runner.open_sequence().expect("one is free")).collect();
        // All sequences are read side by side, in parts of any length.
        let lacks =
            |runner: &Runner, at: usize| texts[at].len() - 1 - runner.sequence_len(open[at]).expect("it is open");
        while (0..3).any(|at| lacks(&runner, at) > 0) {
            let mut batch = Batch::new();
            for at in 0..3 {
                let tokens = random.below(lacks(&runner, at).min(9) + 1);
                let start = runner.sequence_len(open[at]).expect("it is open");
                batch.push(open[at], &texts[at][start..start + tokens], Outputs::None);
            }
            runner.forward(&batch).expect("it runs");
        }
        let counts = [2, 5, 4];
        let order = |at: usize| DraftOrder { sequence: open[at], text: &texts[at], count: counts[at] };
        let drafted = runner.draft(&[order(0), order(1), order(2)]).expect("it runs");
        for at in 0..3 {
            assert_eq!(drafted[at], alone[at][..counts[at].min(most_drafts(name))], "{name}, text {at}");
        }
    }
}

/// What is done with sequences does not change drafts, as long as there are some: a runner with random operations is
/// compared with one that reads each text at once.
#[test]
fn drafts_depend_on_tokens_alone() {
    let mut random = Random::fresh();
    for (name, tiny) in models() {
        let model = with_head(&tiny, &mut random);
        let mut oracle = runner(&model);
        let mut runner = Runner::new(model, Limits { kv_tokens: Some(200), ..LIMITS }).expect("it fits");
        let mut open: Vec<(SequenceId, Vec<u32>)> = Vec::new();
        // Texts start alike.
        let stems: Vec<Vec<u32>> = (0..2).map(|_| random.tokens(60)).collect();
        let mut ended: Vec<Vec<u32>> = Vec::new();
        let (mut drafted, mut none, mut reused, mut steps) = (0, 0, 0, 0);
        // Sequences that lack a row for long can leave few drafts to check.
        while steps < 150 || (steps < 1500 && (drafted <= 10 || reused == 0)) {
            steps += 1;
            match random.below(9) {
                0 | 1 if open.len() < 3 => {
                    let mut tokens = match ended.pop().filter(|_| random.below(2) == 0) {
                        Some(text) => text,
                        None => stems[random.below(2)][..1 + random.below(60)].to_vec(),
                    };
                    let end = 1 + random.below(3);
                    tokens.extend(random.tokens(end));
                    let (id, len) = runner.open_sequence_with(7, &tokens[..tokens.len() - 1]).expect("one is free");
                    reused += len;
                    let rest = tokens.len() - len;
                    if !runner.fits(&[(id, len + rest)]).expect("it is open") {
                        runner.close_sequence(id).expect("it is open");
                        continue;
                    }
                    let cut = len + random.below(rest + 1);
                    for part in [&tokens[len..cut], &tokens[cut..]].into_iter().filter(|part| !part.is_empty()) {
                        read(&mut runner, id, part);
                        if random.below(2) == 0 {
                            runner.keep_prefix(id, &tokens).expect("it is open");
                        }
                    }
                    open.push((id, tokens));
                }
                2 if !open.is_empty() => {
                    let (id, tokens) = open.swap_remove(random.below(open.len()));
                    runner.retire_sequence(id, &tokens).expect("it is open");
                    ended.extend((tokens.len() < 80).then_some(tokens));
                }
                3 if !open.is_empty() && open.len() < 3 => {
                    let (id, tokens) = open[random.below(open.len())].clone();
                    open.push((runner.fork_sequence(id).expect("one is free"), tokens));
                }
                4 if !open.is_empty() => {
                    let at = random.below(open.len());
                    let (id, tokens) = &mut open[at];
                    let len = tokens.len() - random.below(4.min(tokens.len()));
                    let len = runner.checkpoint(*id, len).expect("it is open");
                    runner.truncate(*id, len).expect("a checkpoint");
                    tokens.truncate(len);
                    if len == 0 {
                        let (id, _) = open.swap_remove(at);
                        runner.close_sequence(id).expect("it is open");
                    }
                }
                5 | 6 if !open.is_empty() => {
                    let at = random.below(open.len());
                    let (id, tokens) = &mut open[at];
                    let more = 1 + random.below(5);
                    let more = random.tokens(more);
                    let len = tokens.len() + more.len();
                    if len < 90 && runner.fits(&[(*id, len)]).expect("it is open") {
                        read(&mut runner, *id, &more);
                        tokens.extend(more);
                    }
                }
                _ => {
                    let texts: Vec<_> =
                        open.iter().map(|(_, tokens)| [&tokens[..], &random.tokens(1)].concat()).collect();
                    let order = |at: usize| DraftOrder { sequence: open[at].0, text: &texts[at], count: 3 };
                    let orders: Vec<_> = (0..open.len()).map(order).collect();
                    for (found, text) in runner.draft(&orders).expect("it runs").iter().zip(&texts) {
                        if found.is_empty() {
                            none += 1;
                        } else {
                            assert_eq!(*found, fresh(&mut oracle, text, 3), "{name}, {text:?}");
                            drafted += 1;
                        }
                    }
                }
            }
        }
        println!("{name}: {drafted} drafts, {none} without, {reused} tokens reused");
        assert!(drafted > 10 && reused > 0, "{name}: {drafted} drafts, {none} without, {reused} tokens reused");
    }
}

/// A verified batch of which only some tokens are accepted.
#[test]
fn rejected_drafts_leave_nothing() {
    let mut random = Random::fresh();
    for (name, tiny) in models() {
        let mut runner = runner(&with_head(&tiny, &mut random));
        let text = random.tokens(40);
        let sequence = runner.open_sequence().expect("one is free");
        read(&mut runner, sequence, &text[..30]);
        for accepted in [31, 32, 34, 35] {
            let len = runner.sequence_len(sequence).expect("it is open");
            let mut tokens = text[len..accepted].to_vec();
            tokens.extend(random.tokens(3));
            read(&mut runner, sequence, &tokens);
            runner.truncate(sequence, accepted).expect("a shorter length");
            let text = &text[..accepted + 1];
            assert_eq!(draft(&mut runner, sequence, text, 4), fresh(&mut runner, text, 4), "{name}, {accepted}");
        }
        if FIXED.contains(&name) {
            // States of fixed size are kept only of the last batch.
            let error = runner.truncate(sequence, 20).expect_err("an earlier batch");
            assert!(matches!(error, Error::NoCheckpoint { len: 20, nearest: 0 }), "{error}");
            continue;
        }
        // Behind the last batch, the hidden state is unknown.
        runner.truncate(sequence, 20).expect("a shorter length");
        assert!(draft(&mut runner, sequence, &text[..21], 4).is_empty(), "{name}");
        read(&mut runner, sequence, &text[20..25]);
        assert!(draft(&mut runner, sequence, &text[..26], 4).is_empty(), "{name}");
        runner.truncate(sequence, 0).expect("nothing");
        read(&mut runner, sequence, &text[..25]);
        assert_eq!(draft(&mut runner, sequence, &text[..26], 4), fresh(&mut runner, &text[..26], 4), "{name}");
    }
}

#[test]
fn orders_that_cannot_be_carried_out_get_nothing() {
    let mut random = Random::fresh();
    let mut tiny = Tiny::qwen3();
    tiny.predict();
    let mut with = runner(&with_head(&tiny, &mut random));
    let text = random.tokens(101);
    let sequence = with.open_sequence().expect("one is free");
    let of = |runner: &mut Runner, text: &[u32], count| draft(runner, sequence, text, count);
    assert!(of(&mut with, &text[..1], 3).is_empty(), "an empty sequence");
    read(&mut with, sequence, &text[..97]);
    assert!(of(&mut with, &text[..97], 3).is_empty(), "no token follows");
    assert!(of(&mut with, &text[..98], 0).is_empty());
    assert_eq!(of(&mut with, &text[..98], 9).len(), 3, "the context ends");
    read(&mut with, sequence, &text[97..100]);
    assert!(of(&mut with, &text, 3).is_empty(), "the context has ended");
    let order = DraftOrder { sequence, text: &text, count: 1 };
    with.close_sequence(sequence).expect("it is open");
    assert!(matches!(with.draft(&[order]), Err(Error::UnknownSequence)));
    let mut without = runner(&load(Reference::backend(), &tiny.bytes(&mut random), false));
    let sequence = without.open_sequence().expect("one is free");
    read(&mut without, sequence, &text[..5]);
    assert!(draft(&mut without, sequence, &text[..6], 3).is_empty());
}

#[test]
fn all_heads_are_loaded() {
    let mut tiny = Tiny::llama();
    predict(&mut tiny, "llama", 2);
    let file = tiny.file(&mut Random(3));
    for (info, heads) in [(ModelInfo::read(&file), 0), (ModelInfo::read_with_heads(&file), 2)] {
        let spec = info.expect("a good model").spec;
        assert_eq!((spec.layers.len(), spec.prediction_layers, spec.heads.len()), (2, 2, heads));
        assert_eq!(spec.leaves_out("blk.3.attn_q.weight"), heads == 0);
    }
}

/// What `step35` and `mimo2` have for heads: a window, limits of their own, and what they read.
#[test]
fn heads_read_what_their_family_says() {
    let [mut step, mimo] = windowed_heads();
    // The model's dense layers have limits, and so has the second head.
    step.set("step35.swiglu_clamp_shexp", vec![1.5_f32, 2.5, 0.0, 3.5, 0.0]);
    let [step, mimo] = [step, mimo].map(|tiny| {
        let file = tiny.file(&mut Random(3));
        ModelInfo::read_with_heads(&file).expect("a good model").spec
    });
    let read = |spec: &ModelSpec| (spec.head_inputs.normed, spec.head_inputs.chained);
    assert_eq!((read(&step), read(&mimo)), ((false, true), (false, false)));
    let windows = |spec: &ModelSpec| -> Vec<_> {
        spec.heads.iter().map(|head| head.attention().expect("attention").window).collect()
    };
    assert!([&step, &mimo].iter().all(|spec| windows(spec) == [Some(Window::Last(9)); 3]));
    assert!(mimo.heads.iter().all(|head| head.attention().expect("attention").sinks));
    let activation = |head: &LayerSpec| match head.mlp {
        Some(MlpSpec::Dense { activation, .. }) => activation,
        _ => panic!("a dense MLP expected"),
    };
    let activations: Vec<_> = step.heads.iter().map(activation).collect();
    let second = Activation::LimitedSwiGlu { limit: 3.5 };
    assert_eq!(activations, [Activation::SwiGlu, second, Activation::SwiGlu]);
    let llama = Tiny::llama().file(&mut Random(3));
    assert_eq!(read(&ModelInfo::read(&llama).expect("a good model").spec), (true, true));
}

#[test]
fn tensors_of_a_head_are_checked_if_it_is_loaded() {
    let mut tiny = Tiny::qwen3moe();
    tiny.predict();
    tiny.without("blk.2.ffn_up_exps.weight");
    let file = tiny.file(&mut Random(3));
    ModelInfo::read(&file).expect("the head is left out");
    let message = ModelInfo::read_with_heads(&file).expect_err("a bad head").to_string();
    assert!(message.contains("`blk.2.ffn_up_exps.weight`") && message.contains("is missing"), "{message}");
    tiny.tensor("blk.2.ffn_up_exps.weight", &[64, 32, 5]);
    tiny.tensor("blk.2.attn_k.bias", &[96]);
    let message = ModelInfo::read_with_heads(&tiny.file(&mut Random(3))).expect_err("a bad head").to_string();
    assert!(message.contains("`blk.2.attn_k.bias` is not a weight"), "{message}");
    // A file of the model alone.
    tiny.tensors.retain(|(name, ..)| !name.starts_with("blk.2."));
    let spec = ModelInfo::read_with_heads(&tiny.file(&mut Random(3))).expect("a good model").spec;
    assert_eq!((spec.layers.len(), spec.prediction_layers, spec.heads.len()), (2, 0, 0));
}
