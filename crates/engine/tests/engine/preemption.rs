//! Requests that need more of the KV cache than there is: their results are those of requests alone, and all of them
//! end.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use gristmill_cpu::{Cpu, Level};
use gristmill_engine::{Canceller, DraftSource, Drafts, Finish, Logprob, Piece};
use gristmill_engine::{Dry, Engine, EngineError, Grammar, Limits, Model, Request, SamplingOptions};
use gristmill_kernels::kv::KvFormat;

use super::tiny::{Random, Tiny};
use super::{CONTEXT, model, pieces, random_tokens, request, sampling, speaking, speaking_on};

/// A context in which a request can be preempted more than once.
pub(crate) const LONG: usize = 240;

/// For sequences of a context, with a KV cache of this number of tokens.
pub(crate) fn pool(model: &Arc<Model>, [sequences, context, kv_tokens]: [usize; 3], kv_format: KvFormat) -> Engine {
    let (context, kv_tokens) = (Some(context), Some(kv_tokens));
    let output_rows = Some(4 * sequences);
    let limits =
        Limits { context, sequences, kv_tokens, batch_tokens: 24, output_rows, kv_format, ..Limits::default() };
    Engine::start(model.clone(), limits).expect("it fits")
}

pub(crate) fn finish(pieces: &[Piece]) -> Finish {
    pieces.last().expect("a piece").finish.expect("it has ended")
}

/// The results of a request, but for times and costs.
#[derive(Debug, PartialEq)]
pub(crate) struct Seen {
    pieces: Vec<(u32, String, Option<Logprob>, Vec<Logprob>)>,
    end: String,
}

pub(crate) fn seen(pieces: &[Piece]) -> Seen {
    let Finish { reason, stop, seed, usage, .. } = finish(pieces);
    let of = |piece: &Piece| (piece.token, piece.text.clone(), piece.logprob.clone(), piece.prompt_logprobs.clone());
    let end = format!("{reason:?} {stop:?} {seed} {} {}", usage.prompt_tokens, usage.generated_tokens);
    assert!(pieces[..pieces.len() - 1].iter().all(|piece| piece.finish.is_none()));
    assert_eq!(usage.generated_tokens, pieces.len());
    Seen { pieces: pieces.iter().map(of).collect(), end }
}

pub(crate) fn greedy() -> SamplingOptions {
    SamplingOptions { seed: Some(1), ..SamplingOptions::greedy() }
}

/// Requests of every kind, of several tenants; some start alike, and some are choices of one prompt.
fn requests(random: &mut Random, count: usize) -> Vec<Request> {
    let beginnings: Vec<Vec<u32>> = (0..3).map(|n| random_tokens(random, 15 + 9 * n)).collect();
    let mut requests: Vec<Request> = Vec::new();
    for number in 0..count {
        let own = 1 + random.below(30);
        let own = random_tokens(random, own);
        let prompt = if number % 3 == 0 { [&beginnings[random.below(3)][..], &own].concat() } else { own };
        let sampling = if number % 4 == 0 { greedy() } else { sampling(random) };
        let mut one = request(&prompt, 1 + random.below(LONG - prompt.len()), sampling);
        one.tenant = random.below(3) as u64;
        match random.below(8) {
            0 => one.logprobs = Some(3),
            1 => (one.logprobs, one.prompt_logprobs) = (Some(1), Some(2)),
            2 => one.dry = Dry { multiplier: 0.8, ..Dry::default() },
            3 => one.grammar = Some(Grammar::Regex("([a-z]{1,9}[ .]){8,30}".to_owned())),
            4 => one.stop = vec!["e".to_owned(), "\u{3}".to_owned()],
            5 => (one.ignore_end, one.min_tokens) = (false, one.max_tokens.unwrap_or(0) / 2),
            6 => {
                one.draft = 5;
                one.logit_bias = (0..4).map(|token| (token, 9.0)).collect();
                one.sampling = greedy();
            }
            _ => one.max_tokens = None,
        }
        if number % 5 == 1
            && let Some(last) = requests.last()
        {
            one = Request { sampling: self::sampling(random), ..last.clone() };
        }
        requests.push(one);
    }
    requests
}

fn together(engine: &Engine, requests: &[Request]) -> Vec<Vec<Piece>> {
    let running: Vec<_> = requests.iter().map(|request| engine.generate(request.clone()).unwrap()).collect();
    running.into_iter().map(|generation| generation.collect::<Result<_, _>>().unwrap()).collect()
}

/// Requests with a pool for few of them, against the same alone. Returns how many were preempted, and how often.
pub(crate) fn check(
    model: &Arc<Model>,
    sequences: usize,
    kv_tokens: usize,
    kv_format: KvFormat,
    count: usize,
) -> (usize, usize) {
    let mut random = Random::fresh();
    let requests = requests(&mut random, count);
    let alone = {
        let engine = pool(model, [1, LONG, LONG], kv_format);
        requests.iter().map(|request| pieces(&engine, request.clone())).collect::<Vec<_>>()
    };
    let engine = pool(model, [sequences, LONG, kv_tokens], kv_format);
    let start = Instant::now();
    let found = together(&engine, &requests);
    let time = start.elapsed();
    let (mut preempted, mut preemptions, mut reused) = (0, 0, 0);
    for (number, (found, alone)) in found.iter().zip(&alone).enumerate() {
        assert_eq!(finish(alone).usage.preemptions, 0);
        assert_eq!(seen(found), seen(alone), "request {number}: {:?}", requests[number]);
        let usage = finish(found).usage;
        assert!(usage.reused_tokens < usage.prompt_tokens && usage.queue + usage.prefill + usage.decode <= time);
        preempted += usize::from(usage.preemptions > 0);
        preemptions += usage.preemptions;
        reused += usage.reused_tokens;
    }
    println!("{preempted} of {count} requests were preempted, {preemptions} times; {reused} tokens reused");
    assert!(preempted > count / 10, "{preempted} of {count}, {preemptions} times");
    // All blocks are free: a text of the whole context needs each of a pool for one.
    let whole = request(&random_tokens(&mut random, 50), LONG - 49, greedy());
    for request in [whole.clone(), Request { tenant: 9, ..whole }] {
        assert_eq!(
            (pieces(&engine, request.clone()).len(), finish(&pieces(&engine, request)).usage.preemptions),
            (LONG - 49, 0)
        );
    }
    (preempted, preemptions)
}

#[test]
fn few_blocks_change_no_result() {
    let (preempted, preemptions) = check(&model(), 6, LONG, KvFormat::F16, 200);
    assert!(preemptions > preempted, "none was preempted twice");
}

#[test]
fn few_blocks_change_no_result_with_windows() {
    check(&speaking(Tiny::gpt_oss()), 5, LONG + 40, KvFormat::F16, 60);
}

/// A prompt gives again, to the bit, the state that decode has computed.
#[test]
fn few_blocks_change_no_result_on_a_cpu() {
    let [f16, q8] = [KvFormat::F16, KvFormat::Q8_0];
    for (tiny, kv_format) in [(Tiny::qwen3moe(), f16), (Tiny::gpt_oss(), q8), (Tiny::llama(), q8)] {
        let model = speaking_on(Cpu::backend(Level::best(), 2).unwrap(), tiny);
        check(&model, 6, LONG + 20, kv_format, 60);
    }
}

/// A preempted request leaves its state of fixed size, or reads its text again.
#[test]
fn few_blocks_change_no_result_with_states_of_fixed_size() {
    for tiny in [Tiny::qwen35(), Tiny::lfm2(), Tiny::falcon_h1()] {
        let model = speaking_on(Cpu::backend(Level::best(), 2).unwrap(), tiny);
        check(&model, 6, LONG + 20, KvFormat::F16, 60);
    }
}

/// The state of a draft model has the same number of tokens, which are too few as well.
#[test]
fn a_draft_model_goes_on_with_few_blocks() {
    let model = model();
    let mut random = Random::fresh();
    let (context, output_rows) = (Some(LONG), Some(30));
    let limits =
        Limits { context, sequences: 6, kv_tokens: context, batch_tokens: 40, output_rows, ..Limits::default() };
    let engine =
        Engine::start_with_drafts(model.clone(), Drafts::always(DraftSource::Model(model.clone())), limits).unwrap();
    let requests: Vec<Request> = (0..40)
        .map(|_| {
            let (prompt, n) = (1 + random.below(30), 20 + random.below(120));
            Request { draft: 4, ..request(&random_tokens(&mut random, prompt), n, greedy()) }
        })
        .collect();
    let mut preemptions = 0;
    let mut drafted = Vec::new();
    for (found, request) in together(&engine, &requests).iter().zip(&requests) {
        let alone = pieces(&engine, Request { draft: 0, ..request.clone() });
        assert_eq!(seen(found), seen(&alone));
        let usage = finish(found).usage;
        assert_eq!(usage.accepted_tokens, usage.drafted_tokens, "the model drafts what it samples itself");
        preemptions += usage.preemptions;
        drafted.push(usage.drafted_tokens);
    }
    let drafting = drafted.iter().filter(|&&drafted| drafted > 0).count();
    println!("{preemptions} preemptions, {drafting} of 40 requests had draft tokens");
    assert!(preemptions > 0 && drafting > 30, "{preemptions} preemptions, {drafted:?}");
}

/// All want the whole context, which only one of them has at a time.
#[test]
fn the_worst_load_ends() {
    let model = model();
    let mut random = Random::fresh();
    for tenants in [1, 2] {
        let engine = pool(&model, [16, CONTEXT, CONTEXT], KvFormat::F16);
        let requests: Vec<Request> = (0..16)
            .map(|n| Request { tenant: n % tenants, ..request(&random_tokens(&mut random, 1), CONTEXT, greedy()) })
            .collect();
        let found = together(&engine, &requests);
        let usage = |pieces: &Vec<Piece>| finish(pieces).usage;
        assert!(found.iter().all(|pieces| pieces.len() == CONTEXT));
        let first = usage(&found[0]).preemptions;
        match tenants {
            1 => assert_eq!(first, 0, "the first is never preempted"),
            // A text of this length has one slice.
            _ => assert!(first <= 1, "{first}"),
        }
        // Each end lets a few others start, of which the last is preempted first.
        let (most, all) = (
            found.iter().map(|pieces| usage(pieces).preemptions).max(),
            found.iter().map(|pieces| usage(pieces).preemptions).sum::<usize>(),
        );
        let steps: usize = found.iter().map(|pieces| usage(pieces).steps).sum();
        println!("at most {most:?} preemptions of one, {all} of all; {steps} steps for {} tokens", 16 * CONTEXT);
        assert!(all > 0 && all <= 16 * 4 && steps <= 16 * CONTEXT * 3 / 2, "{all} preemptions, {steps} steps");
    }
}

/// Two requests that need more than a pool for one context, so that the second is preempted. From the 78th piece of the
/// first on, the first has all blocks.
fn two() -> [Request; 2] {
    let mut random = Random::fresh();
    [(20, 81), (10, 61)].map(|(prompt, n)| request(&random_tokens(&mut random, prompt), n, greedy()))
}

/// Runs two requests, and perhaps a third, of which the first starts and the others come before its second token. `at`
/// is called on the engine's thread with each number of the first one's pieces, and what cancels the second. Returns
/// the pieces of all, in their order.
fn scene(
    engine: &Engine,
    [one, two]: [Request; 2],
    third: Option<Request>,
    at: impl Fn(usize, &Canceller) + Send + 'static,
) -> Receiver<(usize, Piece)> {
    let (send, events) = mpsc::channel();
    let deliver = |number: usize| {
        let send = send.clone();
        move |event: Result<Piece, EngineError>| send.send((number, event.expect("it runs"))).is_ok()
    };
    // The first starts, then waits for the others.
    let (ready, is_ready) = mpsc::channel::<Canceller>();
    let mut pieces = 0;
    let mut second = None;
    let first = deliver(0);
    let first = move |event| {
        let goes_on = first(event);
        let second = second.get_or_insert_with(|| is_ready.recv().expect("it begins"));
        pieces += 1;
        at(pieces, second);
        goes_on
    };
    engine.deliver(one, first).unwrap();
    let second = engine.deliver(two, deliver(1)).unwrap();
    third.into_iter().for_each(|third| drop(engine.deliver(third, deliver(2)).unwrap()));
    ready.send(second).unwrap();
    events
}

/// The pieces of one request.
fn of(events: &[(usize, Piece)], number: usize) -> Vec<Piece> {
    events.iter().filter(|event| event.0 == number).map(|event| event.1.clone()).collect()
}

/// Log-probabilities of a prompt that is interrupted, and of one whose completion is.
#[test]
fn log_probabilities_of_a_prompt_are_returned_once() {
    let (context, output_rows) = (Some(CONTEXT), Some(2));
    let limits =
        Limits { context, sequences: 2, kv_tokens: context, batch_tokens: 24, output_rows, ..Limits::default() };
    let engine = Engine::start(model(), limits).unwrap();
    let mut random = Random::fresh();
    for ([first, second], tokens) in [([30, 40], [71, 1]), ([20, 10], [81, 61])] {
        let [one, other] = [(first, tokens[0]), (second, tokens[1])]
            .map(|(prompt, n)| request(&random_tokens(&mut random, prompt), n, greedy()));
        // With two rows of logits a step reads one token of such a prompt.
        let other = Request { prompt_logprobs: Some(2), logprobs: Some(1), ..other };
        let events: Vec<_> = scene(&engine, [one, other.clone()], None, |_, _| ()).iter().collect();
        let found = of(&events, 1);
        assert_eq!(seen(&found), seen(&pieces(&engine, other)));
        assert_eq!((found[0].prompt_logprobs.len(), finish(&found).usage.preemptions), (second - 1, 1));
    }
}

#[test]
fn a_request_is_cancelled_while_it_waits_again() {
    let model = model();
    let mut random = Random::fresh();
    let engine = pool(&model, [3, CONTEXT, CONTEXT], KvFormat::F16);
    let cancel = |pieces, second: &Canceller| {
        if pieces == 78 {
            second.cancel()
        }
    };
    let events: Vec<_> = scene(&engine, two(), None, cancel).iter().collect();
    let [first, second] = [0, 1].map(|number| of(&events, number));
    assert_eq!((first.len(), finish(&first).usage.preemptions), (81, 0));
    assert!((30..61).contains(&second.len()) && second.last().unwrap().finish.is_none(), "{}", second.len());
    let whole = request(&random_tokens(&mut random, 50), 51, greedy());
    assert_eq!(pieces(&engine, whole).len(), 51);
}

#[test]
fn an_engine_ends_while_a_request_waits_again() {
    let engine = pool(&model(), [3, CONTEXT, CONTEXT], KvFormat::F16);
    let (here, waits) = mpsc::channel();
    let (drops, soon) = mpsc::channel();
    let wait = move |pieces, _: &Canceller| {
        if pieces == 78 {
            here.send(()).unwrap();
            soon.recv().unwrap();
            thread::sleep(Duration::from_millis(300));
        }
    };
    let events = scene(&engine, two(), None, wait);
    waits.recv().unwrap();
    drops.send(()).unwrap();
    drop(engine);
    let events: Vec<_> = events.iter().collect();
    assert!(events.iter().all(|(_, piece)| piece.finish.is_none()));
    assert!((30..61).contains(&of(&events, 1).len()));
}

/// A third request waits behind a preempted one of its tenant, even if there were blocks for it, but not behind that of
/// a tenant that was given more.
#[test]
fn a_preempted_request_is_the_next_of_its_tenant() {
    let engine = pool(&model(), [3, CONTEXT, CONTEXT], KvFormat::F16);
    for tenant in [0, 1] {
        let third = Request { tenant, ..request(&[1, 2, 3, 4, 5], 3, greedy()) };
        let events: Vec<_> = scene(&engine, two(), Some(third), |_, _| ()).iter().collect();
        let [first, second, third] = [0, 1, 2].map(|number| of(&events, number));
        assert_eq!([first.len(), second.len(), third.len()], [81, 61, 3]);
        assert_eq!([first, second, third].map(|pieces| finish(&pieces).usage.preemptions), [0, 1, 0]);
        let place = |number, piece: usize| {
            let places = events.iter().enumerate().filter(|(_, event)| event.0 == number);
            places.map(|(place, _)| place).nth(piece).unwrap()
        };
        // The second one's last piece is behind the first one's, because it waits for that.
        assert!(place(1, 60) > place(0, 80));
        assert_eq!(place(2, 0) > place(0, 80), tenant == 0, "tenant {tenant}");
    }
}
