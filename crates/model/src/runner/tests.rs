use std::sync::Arc;
use std::time::{Duration, Instant};

use gristmill_collective::Error as Lost;
use gristmill_cpu::{Cpu, Level};

use super::*;
use crate::batch::Outputs;
use crate::error::Error;
use crate::load::LoadOptions;
use crate::tiny::{Random, Tiny};

fn on_ranks(ranks: usize) -> Runner {
    let backends = (0..ranks).map(|_| Arc::new(Cpu::backend(Level::best(), 1).expect("a CPU"))).collect();
    let file = Tiny::qwen3moe().file(&mut Random::fresh());
    let model = Model::with_backends(file, backends, LoadOptions::default()).expect("a good model");
    Runner::new(Arc::new(model), Limits { context: Some(32), ..Limits::default() }).expect("it fits")
}

/// A rank with another state ends the group: an error of this step and of later ones, and no wait.
#[test]
fn a_rank_that_differs_is_an_error_at_once() {
    let mut runner = on_ranks(3);
    let sequence = runner.open_sequence().expect("room");
    let mut batch = Batch::new();
    batch.push(sequence, &[1, 2, 3], Outputs::Last);
    runner.forward(&batch).expect("all ranks are there");
    runner.lead(|| Call::Truncate { sequence, len: 1 }).expect("all ranks are there");
    let start = Instant::now();
    for _ in 0..2 {
        let error = runner.forward(&batch).expect_err("two ranks have fewer tokens");
        assert!(matches!(error, Error::Ranks(Lost::Lost { rank: 1 | 2, .. })), "{error}");
    }
    drop(runner);
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

/// A rank whose step fails alone ends the group, although others wait for it in a sum.
#[test]
fn a_rank_that_fails_is_an_error_at_once() {
    let mut runner = on_ranks(2);
    let sequence = runner.open_sequence().expect("room");
    let ranks = runner.scratch.ranks.clone().expect("two ranks");
    ranks.abort("a test");
    let start = Instant::now();
    let error = runner.forward(Batch::new().push(sequence, &[1], Outputs::Last)).expect_err("the group has ended");
    assert!(error.to_string().contains("a test"), "{error}");
    drop(runner);
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}
