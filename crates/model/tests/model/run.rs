//! However tokens are split into batches, the logits are the same.

use gristmill_cpu::Level;
use gristmill_kernels::format::Format;
use gristmill_model::{Batch, Error, Limits, Outputs, Precision, Runner, SequenceId};

use crate::tiny::{Random, Tiny, VOCAB};
use crate::{cpu, reference, runner};

/// The logits of all tokens, given in one batch.
fn run(runner: &mut Runner, sequence: SequenceId, tokens: &[u32]) -> Vec<f32> {
    let mut batch = Batch::new();
    batch.push(sequence, tokens, Outputs::All);
    runner.forward(&batch).expect("it runs").to_vec().expect("host memory")
}

/// The logits of all tokens in a sequence of its own.
fn alone(runner: &mut Runner, tokens: &[u32]) -> Vec<f32> {
    let sequence = runner.open_sequence().expect("one is free");
    let logits = run(runner, sequence, tokens);
    runner.close_sequence(sequence).expect("it is open");
    logits
}

/// Σ (a − b)² / Σ b².
fn nmse(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let square = |x: f64| x * x;
    let error: f64 = a.iter().zip(b).map(|(&a, &b)| square(f64::from(a) - f64::from(b))).sum();
    error / b.iter().map(|&b| square(b.into())).sum::<f64>()
}

#[test]
fn decode_is_prefill_bit_for_bit() {
    let mut random = Random::fresh();
    for (name, tiny) in Tiny::all() {
        let mut runner = runner(&reference(&tiny.file(&mut random)));
        let tokens = random.tokens(40);
        let whole = alone(&mut runner, &tokens);
        assert_eq!(whole.len(), tokens.len() * VOCAB as usize);
        assert!(whole.iter().all(|x| x.is_finite()), "{name}");
        for chunks in [vec![1; 40], vec![17, 1, 1, 15, 6]] {
            let sequence = runner.open_sequence().expect("one is free");
            let (mut logits, mut rest) = (Vec::new(), &tokens[..]);
            for chunk in chunks {
                let (now, later) = rest.split_at(chunk);
                logits.extend(run(&mut runner, sequence, now));
                rest = later;
            }
            assert_eq!(logits, whole, "{name}");
            assert_eq!(runner.sequence_len(sequence).expect("it is open"), 40);
            runner.close_sequence(sequence).expect("it is open");
        }
    }
}

#[test]
fn a_token_changes_what_follows_and_nothing_before() {
    let mut random = Random::fresh();
    for (name, tiny) in Tiny::all() {
        let mut runner = runner(&reference(&tiny.file(&mut random)));
        let mut tokens = random.tokens(12);
        let before = alone(&mut runner, &tokens);
        tokens[7] = (tokens[7] + 1) % VOCAB as u32;
        let after = alone(&mut runner, &tokens);
        let at = 7 * VOCAB as usize;
        assert_eq!(before[..at], after[..at], "{name}");
        for position in 7..12 {
            let row = position * VOCAB as usize..(position + 1) * VOCAB as usize;
            // Later positions may give the token little attention; position 7 is the token itself.
            let least = if position == 7 { 1e-4 } else { 0.0 };
            let change = nmse(&before[row.clone()], &after[row]);
            assert!(change > least, "{name}: position {position} saw a change of {change}");
        }
    }
}

#[test]
fn a_window_hides_what_is_older() {
    let mut random = Random::fresh();
    let mut tiny = Tiny::llama();
    tiny.set("llama.attention.sliding_window", 5_u32);
    let mut runner = runner(&reference(&tiny.file(&mut random)));
    let mut tokens = random.tokens(14);
    let before = alone(&mut runner, &tokens);
    tokens[0] = (tokens[0] + 1) % VOCAB as u32;
    let after = alone(&mut runner, &tokens);
    // Two layers with a window of 5 look back 8 positions.
    let row = |position: usize| position * VOCAB as usize..(position + 1) * VOCAB as usize;
    assert_ne!(before[row(8)], after[row(8)]);
    assert_eq!(before[row(9)], after[row(9)]);
}

/// A window of 5 in every other layer, and batches of at most 7 tokens: its group keeps 2 blocks of 16 tokens for each
/// sequence. Whatever is done, what comes is what a runner gives that discards nothing and reads all at once.
#[test]
fn a_group_that_frees_blocks_changes_nothing() {
    let mut random = Random::fresh();
    let model = reference(&Tiny::gpt_oss().file(&mut random));
    let limits =
        Limits { context: Some(100), sequences: 3, batch_tokens: 100, output_rows: Some(100), ..Limits::default() };
    let mut oracle = Runner::new(model.clone(), limits).expect("it fits");
    let mut runner = Runner::new(model, Limits { batch_tokens: 7, ..limits }).expect("it fits");
    let saved = oracle.plan().state - runner.plan().state;
    // 7 blocks hold 100 tokens. A layer of 2 heads of 8 + 8 numbers in f16.
    assert_eq!(saved, (7 - 2) * 3 * 16 * 2 * 16 * 2);

    let vocab = VOCAB as usize;
    let (mut refused, mut shortened, mut batch) = (0, 0, Batch::new());
    let mut open: Vec<(SequenceId, Vec<u32>)> = Vec::new();
    for _ in 0..600 {
        match random.below(8) {
            0 if open.len() < 3 => {
                open.push(match random.below(2) {
                    0 if !open.is_empty() => {
                        let (id, tokens) = &open[random.below(open.len())];
                        (runner.fork_sequence(*id).expect("one is free"), tokens.clone())
                    }
                    _ => (runner.open_sequence().expect("one is free"), Vec::new()),
                });
            }
            1 if open.len() == 3 => {
                let (id, _) = open.remove(random.below(3));
                runner.close_sequence(id).expect("it is open");
            }
            2 if !open.is_empty() => {
                let (at, back) = (random.below(open.len()), random.below(30));
                let (id, tokens) = &mut open[at];
                let (len, shortest) = (tokens.len().saturating_sub(back), runner.shortest(*id).expect("open"));
                match runner.truncate(*id, len) {
                    Ok(()) => {
                        assert!(len == 0 || len >= shortest);
                        shortened += usize::from(shortest > 0 && len < tokens.len());
                        tokens.truncate(len);
                    }
                    Err(Error::Forgotten { len: asked, shortest: least }) => {
                        assert!(len > 0 && (asked, least) == (len, shortest) && len < shortest);
                        refused += 1;
                    }
                    Err(error) => panic!("{error}"),
                }
                assert_eq!(runner.sequence_len(*id).expect("open"), tokens.len());
            }
            _ => {
                let (mut expected, mut left) = (Vec::new(), 7);
                batch.clear();
                for (id, tokens) in &mut open {
                    let next = random.below(left + 1).min(100 - tokens.len());
                    let next = random.tokens(next);
                    left -= next.len();
                    batch.push(*id, &next, Outputs::All);
                    let start = tokens.len();
                    tokens.extend(next);
                    if start < tokens.len() {
                        expected.extend_from_slice(&alone(&mut oracle, tokens)[start * vocab..]);
                    }
                }
                assert_eq!(runner.forward(&batch).expect("it runs").to_vec().expect("host memory"), expected);
            }
        }
    }
    assert!(refused > 3 && shortened > 3, "{refused} refused, {shortened} shortened");
}

#[test]
fn a_ragged_batch_is_each_sequence_alone() {
    let mut random = Random::fresh();
    for (name, tiny) in Tiny::all() {
        let mut runner = runner(&reference(&tiny.file(&mut random)));
        let texts = [random.tokens(23), random.tokens(1), random.tokens(30)];
        let expected = texts.each_ref().map(|text| alone(&mut runner, text));
        let ids = [(); 3].map(|()| runner.open_sequence().expect("one is free"));
        // First unequal beginnings together, then the rest in another order.
        let split = [20, 0, 13];
        let mut batch = Batch::new();
        for i in [0, 1, 2] {
            batch.push(ids[i], &texts[i][..split[i]], Outputs::Last);
        }
        let first = runner.forward(&batch).expect("it runs").to_vec().expect("host memory");
        batch.clear();
        for i in [2, 0, 1] {
            batch.push(ids[i], &texts[i][split[i]..], Outputs::All);
        }
        let rest = runner.forward(&batch).expect("it runs").to_vec().expect("host memory");

        let vocab = VOCAB as usize;
        let at = |i: usize, from: usize, to: usize| &expected[i][from * vocab..to * vocab];
        assert_eq!(first, [at(0, 19, 20), at(2, 12, 13)].concat(), "{name}");
        assert_eq!(rest, [at(2, 13, 30), at(0, 20, 23), at(1, 0, 1)].concat(), "{name}");
    }
}

#[test]
fn truncate_and_fork_leave_the_rest_as_it_was() {
    let mut random = Random::fresh();
    for (name, tiny) in [("llama", Tiny::llama()), ("qwen3moe", Tiny::qwen3moe())] {
        let mut runner = runner(&reference(&tiny.file(&mut random)));
        let (begin, one, two) = (random.tokens(21), random.tokens(20), random.tokens(13));
        let vocab = VOCAB as usize;
        let tail = |logits: Vec<f32>| logits[begin.len() * vocab..].to_vec();
        let with_one = tail(alone(&mut runner, &[&begin[..], &one].concat()));
        let with_two = tail(alone(&mut runner, &[&begin[..], &two].concat()));

        let a = runner.open_sequence().expect("one is free");
        run(&mut runner, a, &begin);
        let b = runner.fork_sequence(a).expect("one is free");
        assert_eq!(run(&mut runner, a, &one), with_one, "{name}: after a fork");
        assert_eq!(run(&mut runner, b, &two), with_two, "{name}: the fork");
        for len in [begin.len(), begin.len() + 500] {
            runner.truncate(a, len).expect("it is open");
        }
        assert_eq!(run(&mut runner, a, &two), with_two, "{name}: after a rollback");
        // Back into a block that both share.
        runner.truncate(b, 10).expect("it is open");
        run(&mut runner, b, &random.tokens(20));
        runner.truncate(a, begin.len()).expect("it is open");
        assert_eq!(run(&mut runner, a, &one), with_one, "{name}: the fork wrote into a shared block");
    }
}

#[test]
fn a_failed_batch_leaves_all_sequences_as_they_were() {
    let mut random = Random::fresh();
    let mut runner = runner(&reference(&Tiny::llama().file(&mut random)));
    let (a, b) = (runner.open_sequence().expect("free"), runner.open_sequence().expect("free"));
    run(&mut runner, a, &random.tokens(5));
    run(&mut runner, b, &random.tokens(60));
    let mut batch = Batch::new();
    batch.push(a, &random.tokens(7), Outputs::All).push(a, &random.tokens(3), Outputs::None);
    batch.push(b, &random.tokens(5), Outputs::All);
    let error = runner.forward(&batch).expect_err("65 tokens do not fit");
    assert_eq!(
        error.to_string(),
        "the context of 64 tokens is full: the sequence has 60, and 5 more do not fit; \
         use a larger context or a shorter text"
    );
    assert_eq!((runner.sequence_len(a).expect("open"), runner.sequence_len(b).expect("open")), (5, 60));
}

/// Every CPU level computes what the reference computes, in prefill and decode, up to rounding.
#[test]
fn the_cpu_agrees_with_the_reference() {
    let mut random = Random::fresh();
    let mut levels = Vec::new();
    for (name, mut tiny) in Tiny::all() {
        // Which experts are chosen may turn on a rounding, and no tolerance covers that: here all of them are.
        tiny.use_all_experts();
        for format in [Format::F32, Format::Q8_0] {
            tiny.format(format);
            let file = tiny.file(&mut random);
            let tokens = random.tokens(33);
            let expected = alone(&mut runner(&reference(&file)), &tokens);
            for level in Level::NAMES {
                for (precision, tolerance) in [(Precision::Exact, 1e-6), (Precision::Fast, 2e-3)] {
                    let Ok(model) = cpu(&file, level, precision) else { continue };
                    let mut runner = runner(&model);
                    let prefill = alone(&mut runner, &tokens);
                    let sequence = runner.open_sequence().expect("one is free");
                    let decode: Vec<f32> = tokens.iter().flat_map(|&id| run(&mut runner, sequence, &[id])).collect();
                    for (what, logits) in [("prefill", prefill), ("decode", decode)] {
                        let error = nmse(&logits, &expected);
                        assert!(error <= tolerance, "{name} {format} {level} {precision:?} {what}: {error}");
                    }
                    levels.push(*level);
                }
            }
        }
    }
    levels.sort();
    levels.dedup();
    println!("levels executed: {levels:?}");
    assert!(levels.contains(&"portable"));
}

#[test]
fn expert_counts_are_those_of_the_last_pass() {
    let mut random = Random::fresh();
    let model = reference(&Tiny::qwen3moe().file(&mut random));
    let layers = model.spec().layers.len();
    let mut runner = runner(&model);
    alone(&mut runner, &random.tokens(7));
    assert!(runner.expert_counts().is_empty());
    runner.count_experts(true);
    for tokens in [9, 4] {
        alone(&mut runner, &random.tokens(tokens));
        assert_eq!(runner.expert_counts().len(), layers);
        for counts in runner.expert_counts() {
            // 3 of 5 experts for each token, no expert twice.
            assert_eq!((counts.len(), counts.iter().sum::<u32>() as usize), (5, 3 * tokens));
            assert!(counts.iter().all(|&pairs| pairs as usize <= tokens), "{counts:?}");
        }
    }
    runner.forward(&Batch::new()).expect("nothing to do");
    assert!(runner.expert_counts().is_empty());
    alone(&mut runner, &random.tokens(2));
    runner.count_experts(false);
    assert!(runner.expert_counts().is_empty());
}

/// A trace has of each token what the token alone would have, and its counts are those of `expert_counts`.
#[test]
fn a_routing_trace_has_the_choices_of_each_token() {
    let mut random = Random::fresh();
    let model = reference(&Tiny::qwen3moe().file(&mut random));
    let (layers, text) = (model.spec().layers.len(), random.tokens(9));
    let mut runner = runner(&model);
    assert!(runner.routing().expect("nothing ran").counts().is_empty());
    runner.count_experts(true);
    alone(&mut runner, &text);
    let trace = runner.routing().expect("a pass ran");
    assert_eq!((trace.tokens(), trace.counts()), (9, runner.expert_counts().to_vec()));
    assert!(trace.of_token(9).is_empty());
    runner.count_experts(false);
    let sequence = runner.open_sequence().expect("one is free");
    for (token, id) in text.iter().enumerate() {
        run(&mut runner, sequence, &[*id]);
        let (of_token, single) = (trace.of_token(token), runner.routing().expect("a pass ran"));
        assert_eq!((of_token.len(), &of_token), (layers, &single.of_token(0)));
        for chosen in &of_token {
            assert!(
                chosen.len() == 3 && chosen.iter().all(|&(expert, weight)| expert < 5 && weight > 0.0),
                "{chosen:?}"
            );
        }
    }
    assert!((0..layers).any(|layer| (1..9).any(|token| trace.of_token(token)[layer] != trace.of_token(0)[layer])));
    runner.forward(&Batch::new()).expect("nothing to do");
    assert_eq!(runner.routing().expect("nothing ran").tokens(), 0);
}
