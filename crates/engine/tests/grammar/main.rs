//! Hostile grammars take little time and memory, and end at most their own request.

#[allow(dead_code)]
#[path = "../../../model/tests/model/tiny.rs"]
mod tiny;

#[path = "../engine/speech.rs"]
mod speech;

mod alloc;
mod hostile;

use std::sync::Arc;
use std::time::{Duration, Instant};

use gristmill_engine::{Engine, Grammar, Limits, LoadOptions, Model, Request, SamplingOptions};
use gristmill_kernels::reference::Reference;
use tiny::{Random, Tiny};

/// The bound is 200 ms; this leaves room for a build without optimisation on a busy machine.
const MOST_TIME: Duration = Duration::from_millis(2_000);
const MOST_BYTES: usize = 256 << 20;
const TOKENS: usize = 60;

fn engine() -> Engine {
    let mut tiny = Tiny::llama();
    speech::teach(&mut tiny);
    let file = tiny.file(&mut Random::fresh());
    let model =
        Model::with_backend(file, Arc::new(Reference::backend()), LoadOptions::default()).expect("a good model");
    Engine::start(Arc::new(model), Limits { context: Some(100), sequences: 1, ..Limits::default() }).expect("it fits")
}

/// Compiles and draws some tokens; the time of both, and how the request ended.
fn run(engine: &Engine, grammar: Grammar, random: &mut Random) -> (Duration, Duration, String) {
    let mut request = Request { grammar: Some(grammar), max_tokens: Some(TOKENS), ..Request::new(vec![1, 2, 3]) };
    request.sampling =
        SamplingOptions { temperature: 9.0, top_k: 0, top_p: 1.0, min_p: 0.0, ..SamplingOptions::default() };
    request.sampling.seed = Some(random.next());
    let start = Instant::now();
    let generation = engine.generate(request);
    let compiling = start.elapsed();
    let start = Instant::now();
    let end = match generation {
        Err(error) => error.to_string(),
        Ok(generation) => match generation.last() {
            Some(Ok(piece)) => piece.finish.expect("it ended").reason.name().to_owned(),
            Some(Err(error)) => format!("compiled, then: {error}"),
            None => "nothing".to_owned(),
        },
    };
    (compiling, start.elapsed() / TOKENS as u32, end)
}

#[test]
fn time_and_memory_are_bounded() {
    let engine = engine();
    let mut random = Random::fresh();
    run(&engine, Grammar::Json, &mut random);
    let schemas = hostile::schemas().into_iter().map(|(name, schema)| (name, Grammar::JsonSchema(schema)));
    for (name, grammar) in schemas.chain(hostile::texts()) {
        let ((compiling, token, end), bytes) = alloc::peak(|| run(&engine, grammar, &mut random));
        let end: String = end.chars().take(150).collect();
        println!("{compiling:>9.1?} {token:>9.1?} {:>6} KiB  {name}: {end}", bytes >> 10);
        assert!(compiling < MOST_TIME, "{name}: {compiling:?} to compile");
        assert!(token < MOST_TIME, "{name}: {token:?} for a token");
        assert!(bytes < MOST_BYTES, "{name}: {bytes} bytes");
    }
    let (_, _, end) = run(&engine, Grammar::Regex("a".to_owned()), &mut random);
    assert_eq!(end, "end", "the engine goes on");
}
