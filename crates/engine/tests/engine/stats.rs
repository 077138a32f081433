//! Statistics of an engine.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use gristmill_engine::{Batch, EmbeddingRequest, Engine, Limits, Outputs, Prompt, Runner, SamplingOptions};
use gristmill_engine::{Stats, Times};
use gristmill_kernels::reference::Reference;

use super::tiny::{Random, Tiny};
use super::{CONTEXT, engine, model, pieces, random_tokens, request, speaking, speaking_on};

/// The figures once they are so.
fn wait_until(engine: &Engine, ready: impl Fn(&Stats) -> bool) -> Stats {
    let start = Instant::now();
    loop {
        let stats = engine.stats();
        if ready(&stats) {
            return stats;
        }
        assert!(start.elapsed() < Duration::from_secs(30), "{stats:?}");
        thread::yield_now();
    }
}

#[test]
fn steps_sequences_and_the_cache_are_counted() {
    let model = model();
    let mut random = Random::fresh();
    let engine = engine(&model, 2, 16);
    let idle = engine.stats();
    assert_eq!((idle.waiting, idle.running, idle.step_requests.count()), (0, 0, 0));
    // 7 blocks of 16 tokens for each sequence.
    assert_eq!((idle.kv.used, idle.kv.cached, idle.kv.capacity), (0, 0, 2 * 7 * 16));
    assert_eq!(idle.experts, []);

    let prompt = random_tokens(&mut random, 40);
    let ask = |last| request(&[&prompt[..], &[last]].concat(), 50, SamplingOptions::greedy());
    let running: Vec<_> = (0..5).map(|last| engine.generate(ask(last)).unwrap()).collect();
    let busy = wait_until(&engine, |stats| stats.kv.used >= 3 * 16);
    assert!(busy.running <= 2 && busy.running + busy.waiting <= 5 && busy.kv.used <= busy.kv.capacity, "{busy:?}");
    let lengths: Vec<usize> = running.into_iter().map(Iterator::count).collect();
    assert_eq!(lengths, [50; 5]);
    // The last piece comes before the end of its step.
    let after = wait_until(&engine, |stats| (stats.waiting, stats.running, stats.kv.used) == (0, 0, 0));
    assert!(after.kv.cached > 0 && after.kv.cached <= after.kv.capacity, "{after:?}");
    // All tokens of each sequence but the last generated one are computed, or found in the cache.
    let all = 5 * (41 + 49);
    assert!(after.step_tokens.sum <= all && after.step_tokens.sum >= all - 4 * 40, "{after:?}");
    assert_eq!(after.step_requests.count(), after.step_tokens.count());
    let Times { steps, forward, draw, .. } = after.times;
    assert!(!forward.is_zero() && !draw.is_zero() && forward + draw < steps, "{after:?}");
    assert!(after.step_requests.sum >= 5 * 50 && after.step_requests.buckets.len() == 2);
}

#[test]
fn tokens_of_experts_are_those_of_the_runner() {
    let model = speaking_on(Reference::backend(), Tiny::qwen3moe());
    let mut random = Random::fresh();
    let text = random_tokens(&mut random, 50);
    let limits = Limits { context: Some(CONTEXT), batch_tokens: CONTEXT, ..Limits::default() };
    let mut runner = Runner::new(model.clone(), limits).unwrap();
    runner.count_experts(true);
    let id = runner.open_sequence().unwrap();
    runner.forward(Batch::new().push(id, &text, Outputs::None)).unwrap();
    let expected: Vec<Vec<u64>> =
        runner.expert_counts().iter().map(|counts| counts.iter().map(|&n| n.into()).collect()).collect();

    let engine = engine(&model, 2, 16);
    let embed = |text: &[u32]| engine.embed(EmbeddingRequest::new(vec![Prompt::from(text.to_vec())])).unwrap();
    embed(&text);
    let found = engine.stats().experts;
    assert_eq!(found.iter().map(|load| load.layer).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(found.iter().map(|load| load.tokens.clone()).collect::<Vec<_>>(), expected);
    for load in &found {
        assert_eq!(load.tokens.iter().sum::<u64>(), 50 * 3);
        assert!((1.0..=5.0).contains(&load.imbalance().unwrap()));
    }
    engine.count_experts(false);
    embed(&random_tokens(&mut random, 30));
    assert_eq!(engine.stats().experts, found);
}

/// Counting changes no token.
#[test]
fn counting_changes_nothing() {
    let model = speaking(Tiny::qwen3moe());
    let mut random = Random::fresh();
    let request = request(&random_tokens(&mut random, 30), 40, SamplingOptions::greedy());
    let tokens = |on| {
        let engine = engine(&model, 1, 16);
        engine.count_experts(on);
        super::tokens(&pieces(&engine, request.clone()))
    };
    assert_eq!(tokens(true), tokens(false));
}

/// Prompts that wait together are read in one step, up to the tokens of a batch, if nobody decodes.
#[test]
fn prompts_share_a_step() {
    let engine = engine(&model(), 5, 200);
    let mut random = Random::fresh();
    let ((begun, has_begun), (open, gate)) = (mpsc::channel(), mpsc::channel::<()>());
    let hold = move |_| begun.send(()).is_ok() && gate.recv().is_ok();
    engine.deliver(request(&[1], 1, SamplingOptions::greedy()), hold).unwrap();
    // The engine is in the callback, after a step of one token.
    has_begun.recv().unwrap();
    let prompts = (0..4).map(|_| request(&random_tokens(&mut random, 40), 1, SamplingOptions::greedy()));
    let texts: Vec<_> = prompts.map(|request| engine.generate(request).unwrap()).collect();
    open.send(()).unwrap();
    texts.into_iter().for_each(|text| assert_eq!(text.inspect(|piece| assert!(piece.is_ok())).count(), 1));
    let stats = engine.stats();
    assert_eq!((stats.step_requests.count(), stats.step_requests.sum), (2, 1 + 4), "{stats:?}");
    assert_eq!(stats.step_tokens.sum, 1 + 4 * 40, "{stats:?}");
}
