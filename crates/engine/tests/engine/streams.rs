//! The example of an asynchronous stream.

#[allow(dead_code, unreachable_pub)]
#[path = "../../examples/stream.rs"]
mod example;

use futures_util::StreamExt;

use super::*;

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(work)
}

#[test]
fn a_stream_has_the_pieces_of_the_iterator() {
    let engine = engine(&model(), 2, 16);
    let asked = || request(&[1, 2, 3], 8, SamplingOptions::greedy());
    let tokens: Vec<u32> =
        engine.generate(asked()).expect("a good request").map(|p| p.expect("a piece").token).collect();
    let pieces = example::pieces(&engine, asked()).expect("a good request");
    let streamed: Vec<Piece> = block_on(pieces.map(|piece| piece.expect("a piece")).collect());
    assert_eq!(streamed.iter().map(|piece| piece.token).collect::<Vec<_>>(), tokens);
    assert!(streamed.last().is_some_and(|piece| piece.finish.is_some()));
}

#[test]
fn a_dropped_stream_cancels_its_request() {
    let engine = engine(&model(), 1, 16);
    let long = Request { ignore_end: true, ..request(&[1, 2, 3], 90, SamplingOptions::greedy()) };
    let mut pieces = example::pieces(&engine, long).expect("a good request");
    block_on(pieces.next()).expect("one piece").expect("no error");
    drop(pieces);
    // The only sequence is free again.
    let next = engine.generate(request(&[1, 2, 3], 1, SamplingOptions::greedy())).expect("a good request");
    let pieces = next.collect::<Result<Vec<_>, _>>().expect("no error");
    assert_eq!(pieces.len(), 1);
}
