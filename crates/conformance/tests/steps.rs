//! Steps on a simulated GPU, whose graphs are captured and replayed: what a step does more or less than another changes
//! no token.
#![cfg(all(target_arch = "x86_64", unix))]

use std::path::Path;
use std::sync::Arc;

use gpu_sim::{Mode, Order};
use gristmill_conformance::simulated::Simulator;
use gristmill_cuda::{Choice, Cuda, Options};
use gristmill_engine::{Batch, Limits, LoadOptions, Model, Outputs, Runner, SequenceId};
use gristmill_files::gguf::GgufFile;
use gristmill_suite::rng::Rng;
use gristmill_suite::testing;

fn model(name: &str) -> Arc<Model> {
    let gpu = Simulator::new(Order::Ascending, Mode::Fast);
    let backend = Arc::new(Cuda::backend(gpu, Options { choice: Choice::Deterministic }).unwrap());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(format!("{name}.gguf"));
    let options = LoadOptions { deterministic: true, ..LoadOptions::default() };
    Arc::new(Model::with_backend(GgufFile::open(path).unwrap(), backend, options).unwrap())
}

fn rng(test: &str) -> Rng {
    let seed = testing::seed();
    println!("{test}: seed {seed}");
    Rng::new(seed)
}

fn limits() -> Limits {
    Limits { context: Some(64), sequences: 10, batch_tokens: 32, ..Limits::default() }
}

fn open(runner: &mut Runner) -> Vec<SequenceId> {
    (0..10).map(|_| runner.open_sequence().unwrap()).collect()
}

/// The pass draws, with more rows than tokens are wanted of where it is padded, or a launch behind it.
#[test]
fn the_likeliest_tokens_of_a_pass_are_those_of_its_logits() {
    let model = model("qwen3moe-q4_k_m");
    let mut rng = rng("likeliest");
    let mut runners = [(); 2].map(|()| Runner::new(model.clone(), limits()).unwrap());
    let sequences = runners.each_mut().map(open);
    let vocab = model.spec().vocab;
    for step in 0..24 {
        // Sizes come again, so that passes are replayed; nine rows are padded to ten.
        let count = [1, 9, 1, 3][step % 4];
        let tokens: Vec<u32> = (0..count).map(|_| rng.below(vocab) as u32).collect();
        let mut found = Vec::new();
        for (which, (runner, sequences)) in runners.iter_mut().zip(&sequences).enumerate() {
            let mut batch = Batch::new();
            for (&token, &sequence) in tokens.iter().zip(sequences) {
                batch.push(sequence, &[token], Outputs::Last);
            }
            if which == 0 {
                batch.take_argmax();
            }
            let mut logits = runner.forward(&batch).unwrap();
            let drawn = logits.argmax().unwrap();
            let all = logits.to_vec().unwrap();
            for (row, &token) in all.chunks(vocab).zip(&drawn) {
                assert!(row.iter().all(|&x| x <= row[token as usize]));
            }
            found.push((drawn, all));
        }
        assert_eq!(found[0], found[1], "step {step}");
    }
    assert!(runners.iter().all(|runner| runner.graphs().captures == 3));
}

/// Draft tokens are rejected in models with a delta rule or a scan: the logits after them are those of a sequence that never had
/// them, also if the replay of the recurrent operations is captured.
#[test]
fn a_rollback_leaves_nothing() {
    for name in ["qwen35-q8_0", "kimi-linear-q8_0", "bailingmoe3-q8_0", "nemotron_h_moe-q8_0", "falcon-h1-q8_0"] {
        roll_back(name);
    }
}

fn roll_back(name: &str) {
    let model = model(name);
    let mut rng = rng("rollback");
    let limits = Limits { rollback_tokens: 9, sequences: 4, ..limits() };
    let mut runner = Runner::new(model.clone(), limits).unwrap();
    let vocab = model.spec().vocab;
    let mut token = || rng.below(vocab) as u32;
    let mut texts: Vec<(SequenceId, Vec<u32>)> = Vec::new();
    for _ in 0..3 {
        texts.push((runner.open_sequence().unwrap(), (0..5).map(|_| token()).collect()));
    }
    let read = |runner: &mut Runner, parts: &[(SequenceId, Vec<u32>)]| {
        let mut batch = Batch::new();
        for (sequence, tokens) in parts {
            batch.push(*sequence, tokens, Outputs::Last);
        }
        runner.forward(&batch).unwrap().to_vec().unwrap()
    };
    read(&mut runner, &texts);
    for step in 0..6 {
        let drafts: Vec<_> = texts.iter().map(|(sequence, _)| (*sequence, vec![token(), token(), token()])).collect();
        read(&mut runner, &drafts);
        for (at, ((sequence, text), (_, draft))) in texts.iter_mut().zip(&drafts).enumerate() {
            text.extend(&draft[..(at + step) % 3]);
            runner.truncate(*sequence, text.len()).unwrap();
        }
        let next: Vec<_> = texts.iter().map(|(sequence, _)| (*sequence, vec![token()])).collect();
        let found = read(&mut runner, &next);
        for (((_, text), (_, next)), found) in texts.iter_mut().zip(&next).zip(found.chunks(vocab)) {
            text.extend(next);
            let fresh = runner.open_sequence().unwrap();
            assert_eq!(found, read(&mut runner, &[(fresh, text.clone())]), "{name}, step {step}");
            runner.close_sequence(fresh).unwrap();
        }
    }
    assert!(runner.graphs().captures > 0);
}
