//! Logit bias and DRY: tokens are sampled from the logits with both added.

use std::collections::BTreeMap;
use std::sync::Arc;

use gristmill_engine::{Batch, Dry, Limits, Model, Outputs, Request, Runner, SamplingOptions};

use super::{CONTEXT, engine, model, pieces, random_tokens, request, tokens};
use crate::tiny::Random;

/// The penalties of DRY as its formula says them, with breakers looked for in the text of all tokens.
fn penalties(dry: &Dry, text: &[u32], model: &Model) -> BTreeMap<u32, f64> {
    let tokenizer = model.tokenizer().unwrap();
    let (mut bytes, mut breaks) = (Vec::new(), Vec::new());
    for &token in text {
        let start = bytes.len();
        bytes.extend(tokenizer.token_bytes(token).unwrap());
        let ends = |breaker: &String| (start + 1..=bytes.len()).any(|end| bytes[..end].ends_with(breaker.as_bytes()));
        breaks.push(dry.sequence_breakers.iter().any(ends));
    }
    let from = text.len().saturating_sub(dry.penalty_last_n.unwrap_or(usize::MAX));
    let (text, breaks) = (&text[from..], &breaks[from..]);
    let mut longest: BTreeMap<u32, usize> = BTreeMap::new();
    for next in 1..text.len() {
        let equal = |back: usize| {
            let a = next - 1 - back;
            let b = text.len() - 1 - back;
            text[a] == text[b] && !breaks[a] && !breaks[b]
        };
        let length = (0..next).take_while(|&back| equal(back)).count();
        if length >= dry.allowed_length && !breaks[next] {
            let known = longest.entry(text[next]).or_insert(length);
            *known = length.max(*known);
        }
    }
    let penalty = |n: usize| f64::from(dry.multiplier) * f64::from(dry.base).powi((n - dry.allowed_length) as i32);
    longest.into_iter().map(|(token, n)| (token, penalty(n))).collect()
}

/// The most likely tokens, one after another, of the model's logits with bias and penalties.
fn expected(model: &Arc<Model>, prompt: &[u32], bias: &[(u32, f32)], dry: &Dry, count: usize) -> (Vec<u32>, usize) {
    let limits = Limits { context: Some(CONTEXT), sequences: 1, batch_tokens: CONTEXT, ..Limits::default() };
    let mut runner = Runner::new(model.clone(), limits).unwrap();
    let id = runner.open_sequence().unwrap();
    let mut text = prompt.to_vec();
    let mut penalised = 0;
    let mut batch = Batch::new();
    let mut next = prompt.to_vec();
    for _ in 0..count {
        batch.clear();
        batch.push(id, &next, Outputs::Last);
        let mut logits: Vec<f64> =
            runner.forward(&batch).unwrap().to_vec().unwrap().into_iter().map(f64::from).collect();
        bias.iter().for_each(|&(token, bias)| logits[token as usize] += f64::from(bias));
        for (token, penalty) in penalties(dry, &text, model) {
            logits[token as usize] -= penalty;
            penalised += 1;
        }
        let best = (0..logits.len()).rev().max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap() as u32;
        next = vec![best];
        text.push(best);
    }
    (text[prompt.len()..].to_vec(), penalised)
}

#[test]
fn logits_are_lowered_and_raised() {
    let model = model();
    let mut random = Random::fresh();
    let engine = engine(&model, 2, 16);
    for round in 0..12 {
        // A prompt that repeats itself, of few different letters and a breaker.
        let part: Vec<u32> = (0..6).map(|_| u32::from(b"abc:*"[random.below(5)])).collect();
        let prompt = [part.clone(), random_tokens(&mut random, 3), part.clone(), part].concat();
        let mut dry = Dry {
            multiplier: [0.0, 0.5, 8.0][round % 3],
            base: 1.0 + random.below(3) as f32 * 0.4,
            allowed_length: 1 + random.below(3),
            penalty_last_n: [None, Some(12)][random.below(2)],
            sequence_breakers: [":", "ca", "*"][..random.below(4)].iter().map(|text| text.to_string()).collect(),
        };
        // The last six tokens, at least, have occurred before others.
        let sure = round % 3 > 0 && round < 6;
        if sure {
            (dry.sequence_breakers, dry.penalty_last_n) = (vec![], None);
        }
        let count = random.below(4);
        let mut bias: Vec<(u32, f32)> = (0..count).map(|i| (40 * i as u32, 4.0 * random.signed())).collect();
        bias.reverse();
        let mut asked = request(&prompt, 30, SamplingOptions::greedy());
        (asked.logit_bias, asked.dry) = (bias.clone(), dry.clone());
        let found = tokens(&pieces(&engine, asked));
        let (expected, penalised) = match dry.multiplier > 0.0 {
            true => expected(&model, &prompt, &bias, &dry, 30),
            false => expected(&model, &prompt, &bias, &Dry { allowed_length: usize::MAX, ..dry.clone() }, 30),
        };
        assert_eq!(found, expected, "{dry:?}, bias {bias:?}");
        assert!(penalised > 0 || !sure, "{dry:?}");
    }
}

/// A bias repeats one token for ever; the penalty of the growing repetition ends that.
#[test]
fn dry_ends_a_loop() {
    let engine = engine(&model(), 1, 64);
    let looping = Request { logit_bias: vec![(9, 1000.0)], ..request(&[1, 2, 3], 40, SamplingOptions::greedy()) };
    assert_eq!(tokens(&pieces(&engine, looping.clone())), [9; 40]);
    let dry = Dry { multiplier: 1.0, ..Dry::default() };
    let ended = tokens(&pieces(&engine, Request { dry, ..looping }));
    // 1.75 to the power of 13 is 1443, more than the bias and any difference of logits here.
    assert!(ended[..10] == [9; 10] && ended[..17].iter().any(|&token| token != 9), "{ended:?}");
}

#[test]
fn a_bias_forces_and_forbids() {
    let model = model();
    let mut random = Random::fresh();
    let engine = engine(&model, 1, 64);
    let ask = |token: u32, bias: f32| Request {
        logit_bias: vec![(token, bias)],
        ..request(&random_tokens(&mut Random(7), 8), 10, SamplingOptions::default())
    };
    assert_eq!(tokens(&pieces(&engine, ask(9, 1e4))), [9; 10]);
    let forbidden = random.below(256) as u32;
    assert!(!tokens(&pieces(&engine, ask(forbidden, -1e4))).contains(&forbidden));
    // The largest numbers, from which DRY subtracts more.
    let mut request = ask(9, -f32::MAX);
    request.dry = Dry { multiplier: f32::MAX, allowed_length: 1, ..Dry::default() };
    assert!(!tokens(&pieces(&engine, request)).contains(&9));
}

#[test]
fn tokens_are_found_by_their_bytes() {
    let model = model();
    let tokenizer = model.tokenizer().unwrap();
    for (text, ids) in [("ab", &[256][..]), (" ", &[32]), ("a", &[97]), ("<|im_end|>", &[259]), ("abc", &[]), ("", &[])]
    {
        assert_eq!(tokenizer.tokens_of_bytes(text.as_bytes()).collect::<Vec<_>>(), ids, "{text:?}");
    }
}
