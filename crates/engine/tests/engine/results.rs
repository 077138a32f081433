//! Results besides the text: log-probabilities and seeds; and their delivery.

use std::sync::mpsc;

use gristmill_engine::{Batch, Engine, EngineError, Limits, Outputs, Request, Runner, SamplingOptions};
use gristmill_engine::{DraftSource, Drafts, FinishReason, Logprob, Piece, Wanted};

use crate::speech;
use crate::tiny::{Random, Tiny};
use crate::{CONTEXT, built, engine, model, pieces, random_tokens, request, sampling, speaking, tokens};

const TOP: usize = 5;

pub(crate) fn limits(sequences: usize, batch_tokens: usize, output_rows: Option<usize>) -> Limits {
    Limits { context: Some(CONTEXT), sequences, batch_tokens, output_rows, ..Limits::default() }
}

/// Whether these are the log-probabilities of a text's tokens from `start` on, by the logits of one forward pass.
fn check(model: &std::sync::Arc<gristmill_engine::Model>, text: &[u32], start: usize, found: &[&Logprob]) {
    let mut runner = Runner::new(model.clone(), limits(1, text.len(), Some(text.len()))).unwrap();
    let sequence = runner.open_sequence().unwrap();
    let mut batch = Batch::new();
    batch.push(sequence, text, Outputs::All);
    let mut logits = runner.forward(&batch).unwrap();
    let vocab = logits.vocab();
    let rows = logits.to_vec().unwrap();
    assert_eq!(found.len(), text.len() - start);
    for (found, position) in found.iter().zip(start..) {
        let row = &rows[(position - 1) * vocab..][..vocab];
        let total = row.iter().map(|&x| f64::from(x).exp()).sum::<f64>().ln();
        let expected: Vec<f64> = row.iter().map(|&x| f64::from(x) - total).collect();
        let close = |token: u32, logprob: f32| (f64::from(logprob) - expected[token as usize]).abs() < 1e-4;
        assert_eq!(found.token, text[position]);
        assert!(
            close(found.token, found.logprob),
            "position {position}: {found:?}, {}",
            expected[found.token as usize]
        );
        assert!(found.top.len() == TOP && found.top.iter().all(|&(token, logprob)| close(token, logprob)));
        let least = found.top.last().unwrap().1;
        let above = expected.iter().filter(|&&x| x > f64::from(least) + 1e-4).count();
        assert!(above < TOP && found.top.is_sorted_by(|a, b| a.1 >= b.1), "position {position}: {above} are likelier");
    }
}

/// Log-probabilities of prompt and completion, alone and in one batch with others, with whatever numbers of rows, under
/// a bias and penalties.
#[test]
fn log_probabilities_are_those_of_the_model() {
    let model = model();
    let mut random = Random::fresh();
    for (sequences, batch_tokens, output_rows) in [(1, 64, None), (3, 64, Some(8)), (4, 16, Some(64))] {
        let engine = Engine::start(model.clone(), limits(sequences, batch_tokens, output_rows)).unwrap();
        let requests: Vec<Request> = (0..8)
            .map(|n| {
                let (prompt, new) = (1 + random.below(40), 1 + random.below(20));
                let mut request = request(&random_tokens(&mut random, prompt), new, sampling(&mut random));
                request.sampling.presence_penalty = 0.5;
                request.logit_bias = vec![(random.below(256) as u32, 2.0)];
                request.logprobs = (n % 4 != 3).then_some(TOP);
                request.prompt_logprobs = (n % 4 < 2).then_some(TOP);
                request
            })
            .collect();
        let running: Vec<_> = requests.iter().map(|request| engine.generate(request.clone()).unwrap()).collect();
        for (request, generation) in requests.into_iter().zip(running) {
            let pieces: Vec<Piece> = generation.collect::<Result<_, _>>().unwrap();
            let plain = Request { logprobs: None, prompt_logprobs: None, ..request.clone() };
            assert_eq!(tokens(&pieces), tokens(&self::pieces(&engine, plain)));
            let prompt = engine.tokens(&request.prompt).unwrap();
            let text = [&prompt[..], &tokens(&pieces)].concat();
            assert!(pieces[1..].iter().all(|piece| piece.prompt_logprobs.is_empty()));
            let of_prompt: Vec<&Logprob> = pieces[0].prompt_logprobs.iter().collect();
            match request.prompt_logprobs {
                Some(_) => check(&model, &text[..prompt.len()], 1, &of_prompt),
                None => assert!(of_prompt.is_empty()),
            }
            let of_text: Vec<&Logprob> = pieces.iter().filter_map(|piece| piece.logprob.as_ref()).collect();
            match request.logprobs {
                Some(_) => check(&model, &text, prompt.len(), &of_text),
                None => assert!(of_text.is_empty()),
            }
        }
    }
}

/// Alone and in shared batches, with draft tokens and without; and requesting it changes no token.
#[test]
fn routing_is_of_the_pass_that_sampled_the_token() {
    let model = speaking(Tiny::qwen3moe());
    let mut random = Random::fresh();
    let limits = Limits { context: Some(CONTEXT), batch_tokens: CONTEXT, ..Limits::default() };
    let mut runner = Runner::new(model.clone(), limits).unwrap();
    let engine = Engine::start(model, self::limits(3, 16, Some(12))).unwrap();
    engine.count_experts(false);
    let requests: Vec<Request> = (0..6)
        .map(|n| {
            let prompt = random_tokens(&mut random, 5 + 7 * n).repeat(1 + n % 2);
            Request { routing: n % 3 < 2, draft: n % 2 * 3, ..request(&prompt, 20, SamplingOptions::greedy()) }
        })
        .collect();
    let running: Vec<_> = requests.iter().map(|request| engine.generate(request.clone()).unwrap()).collect();
    for (request, generation) in requests.into_iter().zip(running) {
        let pieces: Vec<Piece> = generation.collect::<Result<_, _>>().unwrap();
        let plain = Request { routing: false, ..request.clone() };
        assert_eq!(tokens(&pieces), tokens(&self::pieces(&engine, plain)));
        let prompt = engine.tokens(&request.prompt).unwrap();
        let text = [&prompt[..], &tokens(&pieces)].concat();
        let sequence = runner.open_sequence().unwrap();
        runner.forward(Batch::new().push(sequence, &text, Outputs::None)).unwrap();
        let trace = runner.routing().unwrap();
        runner.close_sequence(sequence).unwrap();
        for (n, piece) in pieces.iter().enumerate() {
            let chosen = trace.of_token(prompt.len() - 1 + n);
            assert_eq!(piece.routing, if request.routing { chosen } else { Vec::new() }, "token {n}");
        }
    }
}

#[test]
fn a_random_seed_is_returned_and_reproduces_the_text() {
    let model = model();
    let mut random = Random::fresh();
    let engine = engine(&model, 1, 64);
    let hot = SamplingOptions { temperature: 5.0, seed: None, ..SamplingOptions::default() };
    let request = request(&random_tokens(&mut random, 9), 30, hot);
    let seed = |pieces: &[Piece]| pieces.last().unwrap().finish.unwrap().seed;
    let first = pieces(&engine, request.clone());
    let second = pieces(&engine, request.clone());
    assert!(seed(&first) != seed(&second) && tokens(&first) != tokens(&second) && seed(&first) < 1 << 53);
    let mut same = request;
    same.sampling.seed = Some(seed(&first));
    let again = pieces(&engine, same);
    assert_eq!((tokens(&again), seed(&again)), (tokens(&first), seed(&first)));
}

/// The receiver ends the text: the piece after it is the last, with all figures.
#[test]
fn a_receiver_wants_one_more_piece() {
    let model = model();
    let mut random = Random::fresh();
    let engine = engine(&model, 2, 64);
    let request = request(&random_tokens(&mut random, 5), 30, SamplingOptions::greedy());
    let expected = tokens(&pieces(&engine, request.clone()));
    let (send, events) = mpsc::channel();
    let mut count = 0;
    let deliver = move |piece: Result<Piece, EngineError>| {
        send.send(piece.unwrap()).unwrap();
        count += 1;
        if count == 7 { Wanted::Last } else { Wanted::More }
    };
    engine.deliver(request, deliver).unwrap();
    let found: Vec<Piece> = events.iter().collect();
    assert_eq!(tokens(&found), expected[..8]);
    let finish = found[7].finish.unwrap();
    assert_eq!((finish.reason, finish.stop, finish.usage.generated_tokens), (FinishReason::Stop, None, 8));
    assert!(found[..7].iter().all(|piece| piece.finish.is_none()));
}

#[test]
fn pieces_are_delivered_to_a_function() {
    let model = model();
    let mut random = Random::fresh();
    let engine = engine(&model, 2, 64);
    let request = request(&random_tokens(&mut random, 5), 30, SamplingOptions::greedy());
    let expected = tokens(&pieces(&engine, request.clone()));
    // One wants all, one has enough after three; both functions are dropped at the end.
    let (all, pieces) = mpsc::channel();
    let (some, few) = mpsc::channel();
    engine.deliver(request.clone(), move |piece| all.send(piece.unwrap().token).is_ok()).unwrap();
    let mut left = 3;
    let enough = move |piece: Result<Piece, EngineError>| {
        some.send(piece.unwrap().token).unwrap();
        left -= 1;
        left > 0
    };
    engine.deliver(request.clone(), enough).unwrap();
    assert_eq!(pieces.iter().collect::<Vec<_>>(), expected);
    assert_eq!(few.iter().collect::<Vec<_>>(), expected[..3]);
}

#[test]
fn choices_share_a_prompt() {
    let model = model();
    let mut random = Random::fresh();
    let engine = engine(&model, 2, 64).with_queue(2);
    let mut request = request(&random_tokens(&mut random, 5), 12, sampling(&mut random));
    request.sampling.seed = Some(u64::MAX);
    let (events, received) = mpsc::channel();
    let deliver = |choice: usize| {
        let events = events.clone();
        move |piece: Result<Piece, EngineError>| events.send((choice, piece.unwrap().token)).is_ok()
    };
    // Places are taken together, or none is.
    assert!(matches!(engine.reserve(0, 5), Err(EngineError::Busy { asked: 5, places: 4 })));
    let mut places = engine.reserve(0, 3).unwrap();
    assert!(matches!(engine.reserve(0, 2), Err(EngineError::Busy { .. })));
    let choices = engine.deliver_choices(request.clone(), &mut places, (0..3).map(deliver)).unwrap();
    assert_eq!((choices.prompt, choices.cancellers.len()), (engine.tokens(&request.prompt).unwrap(), 3));
    assert!(matches!(
        engine.deliver_choices(request.clone(), &mut places, [deliver(3)]),
        Err(EngineError::Busy { .. })
    ));
    drop(events);
    let received: Vec<(usize, u32)> = received.iter().collect();
    for choice in 0..3u64 {
        request.sampling.seed = Some(u64::MAX.wrapping_add(choice));
        let found = received.iter().filter(|(of, _)| *of as u64 == choice).map(|&(_, token)| token);
        assert_eq!(found.collect::<Vec<_>>(), tokens(&pieces(&engine, request.clone())), "choice {choice}");
    }
    drop(places);
    // A tenant that takes all of its places leaves others theirs.
    let all = engine.reserve(0, 4).unwrap();
    assert!(matches!(engine.reserve(0, 1), Err(EngineError::Busy { .. })) && engine.reserve(1, 4).is_ok());
    drop(all);
}

#[test]
fn a_full_queue_refuses() {
    let model = model();
    let mut random = Random::fresh();
    let engine = engine(&model, 1, 64).with_queue(2);
    let request = request(&random_tokens(&mut random, 5), 90, SamplingOptions::greedy());
    let mut running: Vec<_> = (0..3).map(|_| engine.generate(request.clone()).unwrap()).collect();
    let error = engine.generate(request.clone()).err().unwrap();
    assert!(matches!(error, EngineError::Busy { asked: 1, places: 3 }), "{error}");
    // A refused request takes no place, an ended one frees its own before its last piece is given.
    let empty = engine.generate(Request::new(Vec::new())).err().unwrap();
    assert!(matches!(empty, EngineError::Busy { .. }), "{empty}");
    assert_eq!(running.remove(0).count(), 90);
    assert!(matches!(engine.generate(Request::new(Vec::new())), Err(EngineError::EmptyPrompt)));
    running.push(engine.generate(request.clone()).unwrap());
    assert!(matches!(engine.generate(request), Err(EngineError::Busy { .. })));
    for generation in running {
        assert_eq!(generation.count(), 90);
    }
}

/// Requests for texts of few words, which repeat themselves, and of many; drawn and greedy.
pub(crate) fn varied(random: &mut Random) -> Vec<Request> {
    let one = |n: usize| {
        let words = [2, 5, 256][n % 3];
        let prompt: Vec<u32> = (0..10 + random.below(40)).map(|_| random.below(words) as u32).collect();
        let hot = SamplingOptions { temperature: 1.0, seed: Some(random.next()), ..SamplingOptions::default() };
        let sampling = if n.is_multiple_of(2) { SamplingOptions::greedy() } else { hot };
        let mut request = request(&prompt, 1 + random.below(40), sampling);
        request.logprobs = n.is_multiple_of(4).then_some(TOP);
        request.min_tokens = if n.is_multiple_of(5) { 1 } else { 0 };
        request.logit_bias = (0..words.min(5) as u32).map(|token| (token, 8.0)).collect();
        request
    };
    (0..12).map(one).collect()
}

/// Compares texts alone and without draft tokens with those in shared batches and with draft tokens. Returns the
/// numbers of draft tokens, and of those that were right.
pub(crate) fn with_drafts(engine: &Engine, sequences: usize, requests: Vec<Request>) -> (usize, usize) {
    let plain: Vec<Vec<Piece>> = requests.iter().map(|request| pieces(engine, request.clone())).collect();
    let drafted = requests.into_iter().map(|request| Request { draft: 8, ..request });
    let running: Vec<_> = drafted.map(|request| engine.generate(request).unwrap()).collect();
    let (mut drafted, mut accepted) = (0, 0);
    for (plain, running) in plain.iter().zip(running) {
        let found: Vec<Piece> = running.collect::<Result<_, _>>().unwrap();
        let shown = |pieces: &[Piece]| -> Vec<_> {
            pieces.iter().map(|piece| (piece.token, piece.text.clone(), piece.logprob.clone())).collect()
        };
        assert_eq!(shown(&found), shown(plain));
        let of_plain = plain.last().unwrap().finish.unwrap().usage;
        // One pass reads the prompt, if it fits into a batch, and each further pass samples a token.
        assert_eq!((of_plain.mean_batch(), of_plain.drafted_tokens), (Some(1.0), 0));
        assert!(of_plain.steps >= plain.len());
        let usage = found.last().unwrap().finish.unwrap().usage;
        assert!(usage.accepted_tokens <= usage.drafted_tokens && usage.accepted_tokens < usage.generated_tokens);
        assert!(usage.mean_batch().unwrap() <= sequences as f64);
        drafted += usage.drafted_tokens;
        accepted += usage.accepted_tokens;
    }
    (drafted, accepted)
}

/// Where draft tokens are mostly right and where they are mostly wrong; with a window and without, with few rows of
/// logits and with many.
#[test]
fn draft_tokens_change_no_text() {
    let mut random = Random::fresh();
    let windowed = crate::speaking(Tiny::gpt_oss());
    for (model, sequences, output_rows) in [(model(), 1, Some(9)), (model(), 4, Some(12)), (windowed, 3, Some(40))] {
        let lookup = Drafts::always(DraftSource::Lookup);
        let engine = Engine::start_with_drafts(model, lookup, limits(sequences, 32, output_rows)).unwrap();
        let (drafted, accepted) = with_drafts(&engine, sequences, varied(&mut random));
        assert!(accepted > 0 && accepted < drafted, "{accepted} of {drafted} draft tokens");
    }
}

/// A draft model of other weights is mostly wrong; the model itself is always right, at any temperature.
#[test]
fn a_draft_model_changes_no_text() {
    let mut random = Random::fresh();
    let windowed = || crate::speaking(Tiny::gpt_oss());
    let same = model();
    let fixed = crate::speaking(Tiny::qwen35());
    for (model, draft, is_right) in [
        (same.clone(), same, true),
        (model(), model(), false),
        (windowed(), model(), false),
        (model(), windowed(), false),
        (fixed.clone(), fixed.clone(), true),
        (fixed, crate::speaking(Tiny::lfm2()), false),
    ] {
        let engine =
            Engine::start_with_drafts(model, Drafts::always(DraftSource::Model(draft)), limits(3, 32, Some(12)))
                .unwrap();
        let (drafted, accepted) = with_drafts(&engine, 3, varied(&mut random));
        assert!(accepted > 0 && drafted > 0, "{accepted} of {drafted} draft tokens");
        assert_eq!(accepted == drafted, is_right, "{accepted} of {drafted} draft tokens");
    }
}

#[test]
fn a_draft_model_has_the_same_vocabulary() {
    let mut tiny = Tiny::llama();
    speech::teach(&mut tiny);
    let mut tokens = speech::tokens();
    tokens.swap(7, 8);
    tiny.set("tokenizer.ggml.tokens", tokens);
    let error =
        Engine::start_with_drafts(model(), DraftSource::Model(built(&tiny)), limits(2, 32, None)).err().unwrap();
    assert!(matches!(&error, EngineError::DraftModel(reason) if reason.contains("token 7")), "{error}");
}
