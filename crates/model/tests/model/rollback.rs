//! Sequences that are truncated to a length within their last batch, in models with states of fixed size.

use std::sync::Arc;

use gristmill_model::{Batch, Limits, Model, Outputs, Precision, Runner, SequenceId};

use crate::tiny::{Random, Tiny};
use crate::{channels, cpu, reference};

/// Tokens of the largest batch that keeps its inputs.
const KEPT: usize = 9;

fn limits(rollback_tokens: usize) -> Limits {
    Limits { context: Some(120), sequences: 4, batch_tokens: 128, rollback_tokens, ..Limits::default() }
}

fn runner(model: &Arc<Model>) -> Runner {
    Runner::new(model.clone(), limits(KEPT)).expect("it fits")
}

/// Reads tokens of several sequences. Returns the logits of the last token of each.
fn read(runner: &mut Runner, parts: &[(SequenceId, &[u32])]) -> Vec<f32> {
    let mut batch = Batch::new();
    for (id, tokens) in parts {
        batch.push(*id, tokens, Outputs::Last);
    }
    runner.forward(&batch).expect("it runs").to_vec().expect("finite")
}

/// The logits after a text in a sequence that reads it at once.
fn fresh(runner: &mut Runner, text: &[u32]) -> Vec<f32> {
    let id = runner.open_sequence().expect("one is free");
    let logits = read(runner, &[(id, text)]);
    runner.close_sequence(id).expect("it is open");
    logits
}

fn models() -> Vec<(&'static str, Tiny)> {
    vec![
        ("lfm2", Tiny::lfm2()),
        ("qwen35", Tiny::qwen35()),
        ("falcon-h1", Tiny::falcon_h1()),
        ("mamba2", Tiny::mamba2()),
        ("jamba", Tiny::jamba()),
        ("kimi-linear", channels::kimi_linear()),
        ("bailingmoe3", channels::bailingmoe3()),
    ]
}

/// Whatever is read, rejected, forked and cached: the logits are those of a sequence that reads its text at once.
#[test]
fn a_rollback_leaves_nothing() {
    let mut random = Random::fresh();
    for (name, tiny) in models() {
        let file = tiny.file(&mut random);
        let level = gristmill_cpu::Level::best().name();
        let models = [reference(&file), cpu(&file, level, Precision::Fast).expect("a level of this CPU")];
        for model in models {
            let (mut runner, mut oracle) = (runner(&model), runner(&model));
            let mut open: Vec<(SequenceId, Vec<u32>)> = Vec::new();
            let (mut rolled_back, mut reused) = (0, 0);
            let stem = random.tokens(40);
            for _ in 0..120 {
                match random.below(8) {
                    0 | 1 if open.len() < 3 => {
                        let mut tokens = stem[..1 + random.below(40)].to_vec();
                        tokens.extend(random.tokens(2));
                        let (id, len) = runner.open_sequence_with(3, &tokens[..tokens.len() - 1]).expect("one is free");
                        reused += len;
                        read(&mut runner, &[(id, &tokens[len..])]);
                        open.push((id, tokens));
                    }
                    2 if !open.is_empty() => {
                        let (id, mut tokens) = open.swap_remove(random.below(open.len()));
                        // The text can be shorter than its sequence, by draft tokens that nobody wants.
                        let len = tokens.len() - random.below(3.min(tokens.len()));
                        tokens.truncate(len);
                        runner.retire_sequence(id, &tokens).expect("it is open");
                    }
                    3 if !open.is_empty() && open.len() < 3 => {
                        let (id, tokens) = open[random.below(open.len())].clone();
                        open.push((runner.fork_sequence(id).expect("one is free"), tokens));
                    }
                    _ => {
                        // Draft tokens of all sequences, which are verified in one batch.
                        open.retain(|(id, tokens)| {
                            let fits = tokens.len() < 100;
                            (!fits).then(|| runner.close_sequence(*id).expect("it is open"));
                            fits
                        });
                        let drafts: Vec<Vec<u32>> = open
                            .iter()
                            .map(|_| {
                                let count = 1 + random.below(3);
                                random.tokens(count)
                            })
                            .collect();
                        if open.is_empty() {
                            continue;
                        }
                        let parts: Vec<_> = open.iter().zip(&drafts).map(|((id, _), new)| (*id, &new[..])).collect();
                        read(&mut runner, &parts);
                        for ((id, tokens), new) in open.iter_mut().zip(&drafts) {
                            let accepted = random.below(new.len() + 1);
                            tokens.extend(&new[..accepted]);
                            runner.truncate(*id, tokens.len()).expect("its inputs are kept");
                            rolled_back += usize::from((1..new.len()).contains(&accepted));
                            runner.keep_prefix(*id, tokens).expect("it is open");
                        }
                        let next = random.tokens(1)[0];
                        let parts: Vec<_> = open.iter().map(|(id, _)| (*id, std::slice::from_ref(&next))).collect();
                        let logits = read(&mut runner, &parts);
                        for ((_, tokens), found) in open.iter_mut().zip(logits.chunks(model.spec().vocab)) {
                            tokens.push(next);
                            assert_eq!(found, fresh(&mut oracle, tokens), "{name}, {tokens:?}");
                        }
                    }
                }
            }
            println!("{name}: {rolled_back} rollbacks, {reused} tokens reused");
            assert!(rolled_back > 10, "{name}: {rolled_back} rollbacks");
        }
    }
}

#[test]
fn kept_inputs_are_counted() {
    for (name, tiny) in models().into_iter().chain([("llama", Tiny::llama())]) {
        let model = reference(&tiny.file(&mut Random(5)));
        let scratch = [0, KEPT].map(|kept| Runner::new(model.clone(), limits(kept)).expect("it fits").plan().scratch);
        // Of a layer of lfm2: the product of gate and input. Of a layer of qwen35: queries, keys, values, and all gates.
        assert_eq!(scratch[1] > scratch[0], name != "llama", "{name}");
        assert_eq!((scratch[1] - scratch[0]) % (4 * KEPT as u64), 0, "{name}");
    }
}

#[test]
fn a_large_batch_has_no_length_within_it() {
    for (name, tiny) in models() {
        let mut random = Random::fresh();
        let mut runner = runner(&reference(&tiny.file(&mut random)));
        let text = random.tokens(40);
        let id = runner.open_sequence().expect("one is free");
        read(&mut runner, &[(id, &text[..20])]);
        read(&mut runner, &[(id, &text[20..20 + KEPT + 1])]);
        assert_eq!(runner.checkpoint(id, 25).expect("it is open"), 20, "{name}");
        read(&mut runner, &[(id, &text[30..30 + KEPT])]);
        assert_eq!(runner.checkpoint(id, 35).expect("it is open"), 35, "{name}");
    }
}

/// A sequence and its fork have the same rows of the last batch.
#[test]
fn a_fork_is_truncated_within_the_last_batch_too() {
    for (name, tiny) in models() {
        let mut random = Random::fresh();
        let mut runner = runner(&reference(&tiny.file(&mut random)));
        let text = random.tokens(30);
        let id = runner.open_sequence().expect("one is free");
        read(&mut runner, &[(id, &text[..20])]);
        read(&mut runner, &[(id, &text[20..28])]);
        let fork = runner.fork_sequence(id).expect("one is free");
        runner.truncate(id, 23).expect("within the batch");
        runner.truncate(fork, 26).expect("within the batch");
        let found = read(&mut runner, &[(id, &text[23..24]), (fork, &text[26..27])]);
        assert_eq!(found, [fresh(&mut runner, &text[..24]), fresh(&mut runner, &text[..27])].concat(), "{name}");
    }
}
