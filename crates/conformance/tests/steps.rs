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

fn model(name: &str) -> Arc<Model> {
    let gpu = Simulator::new(Order::Ascending, Mode::Fast);
    let backend = Arc::new(Cuda::backend(gpu, Options { choice: Choice::Deterministic }).unwrap());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(format!("{name}.gguf"));
    let options = LoadOptions { deterministic: true, ..LoadOptions::default() };
    Arc::new(Model::with_backend(GgufFile::open(path).unwrap(), backend, options).unwrap())
}

fn rng(test: &str) -> Rng {
    let seed = Rng::fresh_seed();
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
