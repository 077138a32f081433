//! Tokens that a request names: those that stop a text, those that it may have, sequences that it may not, and the end
//! of reasoning. On an asynchronous device and on a synchronous one.

use gristmill_engine::{Engine, EngineError, Grammar, Request, SamplingOptions};
use gristmill_engine::{FinishReason, Piece, ReasoningLimit, TokenList};
use gristmill_kernels::reference::Reference;

use super::{engine, failing, pieces, random_tokens, request, speaking_on, text, tokens};
use crate::tiny::{Random, Tiny};

/// Engines on both kinds of devices.
fn engines() -> [Engine; 2] {
    [Reference::backend(), failing::behind()].map(|backend| engine(&speaking_on(backend, Tiny::llama()), 2, 64))
}

/// A request for 30 tokens that are no end, and what it gives.
fn free(engine: &Engine, random: &mut Random) -> (Request, Vec<u32>) {
    free_at(1.0, engine, random)
}

fn free_at(temperature: f32, engine: &Engine, random: &mut Random) -> (Request, Vec<u32>) {
    let sampling = SamplingOptions { temperature, seed: Some(random.next()), ..SamplingOptions::NONE };
    let request = request(&random_tokens(random, 9), 30, sampling);
    let found = tokens(&pieces(engine, request.clone()));
    (request, found)
}

fn finish(pieces: &[Piece]) -> (FinishReason, Option<usize>) {
    pieces.last().and_then(|piece| piece.finish).map(|finish| (finish.reason, finish.stop)).expect("an end")
}

#[test]
fn a_stop_token_ends_the_text() {
    let mut random = Random::fresh();
    for engine in engines() {
        for _ in 0..5 {
            let (request, all) = free_at(0.0, &engine, &mut random);
            let stop = all[5 + random.below(20)];
            let at = all.iter().position(|&token| token == stop).expect("it is there");
            let stopped = Request { stop_tokens: vec![stop], ..request.clone() };
            let found = pieces(&engine, stopped.clone());
            assert_eq!((tokens(&found), finish(&found)), (all[..=at].to_vec(), (FinishReason::Stop, None)));
            // A limit ends a character that is not whole, as the stop token does.
            if at > 0 {
                let without = Request { max_tokens: Some(at), ..request.clone() };
                assert_eq!(text(&found), text(&pieces(&engine, without)));
            }
            let kept = pieces(&engine, Request { keeps_stop: true, ..stopped.clone() });
            let with = text(&pieces(&engine, Request { max_tokens: Some(at + 1), ..request.clone() }));
            assert_eq!(text(&kept), with);
            let late = tokens(&pieces(&engine, Request { min_tokens: at + 3, ..stopped }));
            assert!(late.len() >= at + 3 && late[at] != stop, "{late:?} {all:?}");
            // Tokens that end a generation are not sampled before the least number either.
            let tokenizer = engine.model().tokenizer().expect("a tokenizer");
            let ends = all[..at].iter().position(|&token| tokenizer.is_end_of_generation(token)).unwrap_or(at);
            assert_eq!(late[..ends], all[..ends], "{late:?} {all:?}");
        }
    }
}

#[test]
fn a_stop_string_may_be_kept() {
    let engine = &engines()[0];
    let sampling = SamplingOptions::greedy();
    let grammar = Some(Grammar::Regex("abc(de){9}".to_owned()));
    let base = Request { grammar, stop: vec!["ded".to_owned()], ..request(&[1, 2, 3], 30, sampling) };
    assert_eq!(text(&pieces(engine, base.clone())), "abc");
    assert_eq!(text(&pieces(engine, Request { keeps_stop: true, ..base })), "abcded");
}

#[test]
fn only_allowed_tokens_are_sampled() {
    let mut random = Random::fresh();
    for engine in engines() {
        let (request, _) = free(&engine, &mut random);
        let allowed: Vec<u32> = (97..110).collect();
        let found = tokens(&pieces(&engine, Request { allowed_tokens: Some(allowed.clone()), ..request.clone() }));
        assert!(found.len() == 30 && found.iter().all(|token| allowed.contains(token)), "{found:?}");
        assert!(found.iter().any(|&token| token != found[0]));
        // All tokens that a grammar allows, too.
        let grammar = Some(Grammar::Regex("[a-z]{5}z?".to_owned()));
        let both = Request { allowed_tokens: Some(allowed), grammar, ignore_end: false, ..request.clone() };
        let EngineError::GrammarStuck = engine.generate(both.clone()).unwrap().find_map(Result::err).expect("stuck")
        else {
            panic!("no end token is allowed")
        };
        let ended: Vec<u32> = (97..110).chain([super::speech::END]).collect();
        let found = text(&pieces(&engine, Request { allowed_tokens: Some(ended), ..both }));
        assert!(found.len() == 5 && found.bytes().all(|byte| (97..110).contains(&byte)), "{found}");
    }
}

#[test]
fn banned_sequences_are_not_generated() {
    let mut random = Random::fresh();
    for engine in engines() {
        for length in [1, 2, 4] {
            // With a token less, another one is sampled everywhere but by its rank.
            let (request, all) = free_at(0.0, &engine, &mut random);
            let at = random.below(20);
            let banned = all[at..at + length].to_vec();
            let first = all.windows(length).position(|window| window == banned).expect("it is there");
            let found = tokens(&pieces(&engine, Request { banned_sequences: vec![banned.clone()], ..request.clone() }));
            let last = first + length - 1;
            assert!(found.len() == 30 && found[..last] == all[..last], "{found:?} {all:?}");
            assert!(found.windows(length).all(|window| window != banned), "{found:?} {banned:?}");
            // What the prompt ends with is no part of a sequence.
            let mut prompt = random_tokens(&mut random, 5);
            prompt.extend(&banned[..length - 1]);
            let next = Request { prompt: prompt.into(), max_tokens: Some(1), ..request };
            let expected = tokens(&pieces(&engine, next.clone()));
            let banned = [&banned[..length - 1], &expected].concat();
            if length > 1 {
                assert_eq!(tokens(&pieces(&engine, Request { banned_sequences: vec![banned], ..next })), expected);
            }
        }
    }
}

#[test]
fn reasoning_is_ended() {
    let mut random = Random::fresh();
    for engine in engines() {
        for tokens_of_reasoning in [0, 1, 7, 100] {
            let (request, all) = free(&engine, &mut random);
            let ending: Vec<u32> = "\n</think>\n\n".bytes().map(u32::from).collect();
            let open = "<think>".to_owned();
            let close = "</think>".to_owned();
            let limit =
                ReasoningLimit { tokens: tokens_of_reasoning, is_started: true, repeats: false, open, close, ending };
            let found = tokens(&pieces(&engine, Request { reasoning: Some(limit.clone()), ..request.clone() }));
            let free = tokens_of_reasoning.min(30);
            assert_eq!((found.len(), &found[..free]), (30, &all[..free]));
            let forced = &found[free..(free + limit.ending.len()).min(30)];
            assert_eq!(forced, &limit.ending[..forced.len()]);
            // A text that has not started reasoning has no limit.
            let limit = ReasoningLimit { is_started: false, ..limit };
            assert_eq!(tokens(&pieces(&engine, Request { reasoning: Some(limit), ..request })), all);
        }
    }
}

#[test]
fn tokens_that_are_not_there_are_refused() {
    let engine = &engines()[0];
    let base = request(&[1, 2], 3, SamplingOptions::greedy());
    let refused = |request: Request| engine.generate(request).map(drop).expect_err("refused");
    for (request, expected) in [
        (Request { stop_tokens: vec![1, 9_999], ..base.clone() }, TokenList::Stop),
        (Request { allowed_tokens: Some(vec![1, 9_999]), ..base.clone() }, TokenList::Allowed),
        (Request { banned_sequences: vec![vec![1], vec![2, 9_999]], ..base.clone() }, TokenList::Banned),
    ] {
        let EngineError::NamedToken { list, token: 9_999, .. } = refused(request) else { panic!("{expected:?}") };
        assert_eq!(list, expected);
    }
    assert!(matches!(refused(Request { allowed_tokens: Some(vec![]), ..base }), EngineError::NoAllowedTokens));
}
