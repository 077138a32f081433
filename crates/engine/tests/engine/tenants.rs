//! Tenants share sequences, the KV cache and time: by the order of pieces, how long each waits for the others. Preemption
//! changes no text.

use std::sync::Arc;
use std::sync::mpsc;

use gristmill_engine::Piece;
use gristmill_engine::{Engine, EngineError, Model, Request};
use gristmill_kernels::kv::KvFormat;

use super::preemption::{LONG, finish, greedy, pool, seen};
use super::tiny::Random;
use super::{model, pieces, random_tokens, request};

/// Tokens that a request generates before it is preempted for a tenant that has no sequence.
const SLICE: usize = 64;

/// The pieces of several requests in the order in which they came, each with the number of its request.
struct Events(Vec<(usize, Piece)>);

impl Events {
    /// Runs the requests of `first`, and those of `later` from the time on at which request 0 has generated `after`
    /// tokens, more than one. The engine waits while they are made.
    fn of(engine: &Engine, first: &[Request], after: usize, later: &[Request]) -> Events {
        let (send, events) = mpsc::channel();
        let (here, is_here) = mpsc::channel();
        let (go, may_go) = mpsc::channel();
        let deliver = |number: usize| {
            let send = send.clone();
            move |event: Result<Piece, EngineError>| send.send((number, event.expect("it runs"))).is_ok()
        };
        let mut pieces = 0;
        let zeroth = deliver(0);
        let zeroth = move |event| {
            pieces += 1;
            let goes_on = zeroth(event);
            if pieces == 1 || pieces == after {
                here.send(()).expect("the test waits");
                may_go.recv().expect("the test goes on");
            }
            goes_on
        };
        engine.deliver(first[0].clone(), zeroth).unwrap();
        is_here.recv().unwrap();
        for (number, request) in first.iter().enumerate().skip(1) {
            engine.deliver(request.clone(), deliver(number)).unwrap();
        }
        go.send(()).unwrap();
        is_here.recv().unwrap();
        for (number, request) in (first.len()..).zip(later) {
            engine.deliver(request.clone(), deliver(number)).unwrap();
        }
        go.send(()).unwrap();
        drop(send);
        Events(events.iter().collect())
    }

    fn of_request(&self, number: usize) -> Vec<Piece> {
        self.0.iter().filter(|event| event.0 == number).map(|event| event.1.clone()).collect()
    }

    fn preemptions(&self, number: usize) -> usize {
        finish(&self.of_request(number)).usage.preemptions
    }

    /// The place of a request's n-th piece among all.
    fn place(&self, number: usize, piece: usize) -> usize {
        let of = self.0.iter().enumerate().filter(|(_, event)| event.0 == number);
        of.map(|(place, _)| place).nth(piece).expect("a piece")
    }

    /// Pieces of others between the `after`-th piece of request 0 and the first one of a request.
    fn wait(&self, number: usize, after: usize) -> usize {
        self.place(number, 0) - self.place(0, after - 1) - 1
    }

    /// Each text is that of the request alone.
    fn check(&self, model: &Arc<Model>, requests: &[Request]) {
        let alone = pool(model, [1, LONG, LONG], KvFormat::F16);
        for (number, request) in requests.iter().enumerate() {
            assert_eq!(seen(&self.of_request(number)), seen(&pieces(&alone, request.clone())), "request {number}");
        }
    }
}

fn of(tenant: u64, prompt: usize, tokens: usize) -> Request {
    Request { tenant, ..request(&random_tokens(&mut Random::fresh(), prompt), tokens, greedy()) }
}

fn sequences(model: &Arc<Model>, sequences: usize) -> Engine {
    pool(model, [sequences, LONG, sequences * LONG], KvFormat::F16)
}

/// One tenant has all sequences and further requests in the queue. Another one gets its share in the next step.
#[test]
fn a_tenant_gets_its_share_of_the_sequences_at_once() {
    let model = model();
    let anna: Vec<Request> = (0..8).map(|_| of(1, 5, 150)).collect();
    for (ben, share) in [(1, 1), (2, 2), (5, 2)] {
        let ben: Vec<Request> = (0..ben).map(|_| of(2, 6, 9)).collect();
        let events = Events::of(&sequences(&model, 4), &anna, 20, &ben);
        events.check(&model, &[&anna[..], &ben].concat());
        for number in 0..share {
            // What the step in flight has generated, then one step.
            let wait = events.wait(8 + number, 20);
            assert!(wait <= 12, "request {number} of {} waited for {wait} tokens", ben.len());
        }
        // The sequences that ben does not use are anna's; the oldest of hers are not preempted.
        let preemptions: Vec<usize> = (0..anna.len()).map(|number| events.preemptions(number)).collect();
        assert_eq!(preemptions.iter().sum::<usize>(), share, "{preemptions:?}");
        assert_eq!(preemptions[..2], [0, 0]);
        assert!((8..events.0.iter().map(|event| event.0).max().unwrap() + 1).all(|ben| events.preemptions(ben) == 0));
    }
}

/// Requests of one tenant do not preempt each other, however many wait.
#[test]
fn one_tenant_loses_nothing() {
    let model = model();
    let count = 12;
    let requests: Vec<Request> = (0..count).map(|_| of(1, 5, 100)).collect();
    let events = Events::of(&sequences(&model, 3), &requests[..6], 20, &requests[6..]);
    assert!((0..count).all(|number| events.preemptions(number) == 0));
    let steps: usize = (0..count).map(|number| finish(&events.of_request(number)).usage.steps).sum();
    assert_eq!(steps, 100 * count);
}

/// More tenants than sequences: they take turns.
#[test]
fn a_tenant_without_a_sequence_waits_for_a_slice() {
    let model = model();
    for (sequences, tenants) in [(1, 2), (1, 4), (2, 3)] {
        let requests: Vec<Request> = (0..tenants).map(|tenant| of(tenant, 5 + tenant as usize, 200)).collect();
        let events = Events::of(&self::sequences(&model, sequences), &requests[..1], 100, &requests[1..]);
        events.check(&model, &requests);
        for number in sequences..tenants as usize {
            let wait = events.wait(number, 100);
            let most = sequences * (SLICE + 2) * number;
            assert!(wait <= most, "tenant {number} of {tenants} waited for {wait} tokens of {sequences} sequences");
        }
        // No more often than once in a slice.
        for number in 0..tenants as usize {
            assert!(events.preemptions(number) <= 200 / SLICE, "{}", events.preemptions(number));
        }
    }
}

/// A tenant sends a short request again and again. The long one that is preempted for it runs in between, and is not
/// preempted each time.
#[test]
fn short_requests_do_not_preempt_a_long_one_each_time() {
    let model = model();
    let engine = Arc::new(sequences(&model, 2));
    let anna = [of(1, 5, 200), of(1, 6, 200)];
    let (send, events) = mpsc::channel();
    let (second, to_engine) = (send.clone(), engine.clone());
    engine.deliver(anna[1].clone(), move |event| second.send((1, event.expect("it runs"))).is_ok()).unwrap();
    let mut pieces = 0;
    let deliver = move |event: Result<Piece, EngineError>| {
        pieces += 1;
        if pieces % 8 == 0 {
            let send = send.clone();
            to_engine.deliver(of(2, 4, 2), move |event| send.send((2, event.expect("it runs"))).is_ok()).unwrap();
        }
        send.send((0, event.expect("it runs"))).is_ok()
    };
    engine.deliver(anna[0].clone(), deliver).unwrap();
    let events = Events(events.iter().collect());
    events.check(&model, &anna);
    assert_eq!(events.of_request(2).len(), 2 * 25);
    for number in 0..2 {
        let preemptions = events.preemptions(number);
        assert!(preemptions <= 1 + 200 / SLICE, "request {number} was preempted {preemptions} times");
    }
}

/// One tenant's requests have filled the KV cache. Another one gets its share of the blocks.
#[test]
fn a_tenant_gets_its_share_of_the_blocks() {
    let model = model();
    // Three of four sequences have nearly all of the blocks of one context.
    let anna: Vec<Request> = (0..3).map(|_| of(1, 40, 60)).collect();
    let ben = [of(2, 60, 10)];
    let events = Events::of(&pool(&model, [4, LONG, LONG], KvFormat::F16), &anna, 20, &ben);
    events.check(&model, &[&anna[..], &ben].concat());
    let wait = events.wait(3, 20);
    assert!(wait <= 12, "ben waited for {wait} tokens");
    assert_eq!((events.preemptions(0), events.preemptions(3)), (0, 0));
}

/// Two texts that need the whole KV cache each: neither waits for the end of the other, and both end.
#[test]
fn texts_that_fill_the_cache_take_turns() {
    let model = model();
    let requests = [of(1, 100, 130), of(2, 110, 120)];
    let events = Events::of(&pool(&model, [4, LONG, LONG], KvFormat::F16), &requests[..1], 5, &requests[1..]);
    events.check(&model, &requests);
    assert!(events.wait(1, 5) <= SLICE + 2, "{}", events.wait(1, 5));
    // What is computed again is generated in the meantime: at most 240 / 8 tokens more in each slice.
    assert!((0..2).all(|number| events.preemptions(number) <= 2));
}

/// A tenant with one long text is not preempted for the growth of another's many.
#[test]
fn the_tenant_with_the_most_blocks_gives_them_up() {
    let model = model();
    let anna: Vec<Request> = (0..5).map(|_| of(1, 10, 120)).collect();
    let ben = [of(2, 10, 90)];
    let events = Events::of(&pool(&model, [6, LONG, LONG], KvFormat::F16), &anna, 3, &ben);
    events.check(&model, &[&anna[..], &ben].concat());
    assert_eq!(events.preemptions(5), 0, "ben has less than half of the blocks");
    let all: usize = (0..5).map(|number| events.preemptions(number)).sum();
    assert!(all > 0 && events.preemptions(0) == 0, "{all}");
}
