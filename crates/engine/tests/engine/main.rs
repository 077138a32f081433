//! The engine: requests alone and together, stop strings, cancelling, reuse of state, what is refused.
//!
//! On the reference backend a row's result does not depend on its batch, so texts are compared token by token.

#[allow(dead_code)]
#[path = "../../../model/tests/model/tiny.rs"]
mod tiny;

mod bias;
mod broken;
mod cache;
mod callbacks;
mod converse;
mod damaged;
mod drafts;
mod drain;
mod embeddings;
mod failing;
mod grammar;
mod guide;
mod named_tokens;
mod not_finite;
mod overlap;
mod preemption;
mod ranks;
mod receipt;
mod refuse;
mod reply;
mod results;
mod speech;
mod stats;
mod streams;
mod tenants;

use std::sync::Arc;

use gristmill_engine::template::{Message, Role};
use gristmill_engine::{
    Batch, Chat, ConverseOptions, Engine, EngineError, GenerationOptions, Limits, LoadOptions, Model, Notice, Outputs,
    Request, Runner, SamplingOptions,
};
use gristmill_engine::{FinishReason, Piece};
use gristmill_kernels::Backend;
use gristmill_kernels::reference::Reference;
use tiny::{Random, Tiny};

const CONTEXT: usize = 100;

/// A model that can speak, of fresh random weights.
fn model() -> Arc<Model> {
    speaking(Tiny::llama())
}

fn speaking(tiny: Tiny) -> Arc<Model> {
    speaking_on(backend(), tiny)
}

/// The reference, at random asynchronous or not: no text depends on that.
fn backend() -> Backend {
    if Random::fresh().below(2) == 0 { Reference::backend() } else { failing::behind() }
}

fn speaking_on(backend: Backend, mut tiny: Tiny) -> Arc<Model> {
    speech::teach(&mut tiny);
    built_on(backend, &tiny)
}

fn built(tiny: &Tiny) -> Arc<Model> {
    built_on(backend(), tiny)
}

fn built_on(backend: Backend, tiny: &Tiny) -> Arc<Model> {
    let file = tiny.file(&mut Random::fresh());
    Arc::new(Model::with_backend(file, Arc::new(backend), LoadOptions::default()).expect("a good model"))
}

fn engine(model: &Arc<Model>, sequences: usize, batch_tokens: usize) -> Engine {
    let limits = Limits { context: Some(CONTEXT), sequences, batch_tokens, ..Limits::default() };
    Engine::start(model.clone(), limits).expect("it fits")
}

/// A request for `n` tokens, whatever they are.
fn request(prompt: &[u32], n: usize, sampling: SamplingOptions) -> Request {
    let mut request = Request::new(prompt.to_vec());
    request.sampling = sampling;
    request.max_tokens = Some(n);
    request.ignore_end = true;
    request
}

fn pieces(engine: &Engine, request: Request) -> Vec<Piece> {
    engine.generate(request).expect("a good request").collect::<Result<_, _>>().expect("it runs")
}

fn tokens(pieces: &[Piece]) -> Vec<u32> {
    pieces.iter().map(|piece| piece.token).collect()
}

fn text(pieces: &[Piece]) -> String {
    pieces.iter().map(|piece| piece.text.as_str()).collect()
}

fn random_tokens(random: &mut Random, n: usize) -> Vec<u32> {
    (0..n).map(|_| random.below(256) as u32).collect()
}

/// Sampling that uses many options.
#[expect(clippy::needless_update, reason = "a setting that is added later changes nothing here")]
fn sampling(random: &mut Random) -> SamplingOptions {
    SamplingOptions {
        temperature: 1.5,
        top_k: 100,
        top_p: 0.9,
        min_p: 0.01,
        repeat_penalty: 1.1,
        presence_penalty: 0.2,
        frequency_penalty: 0.3,
        seed: Some(random.next()),
        ..SamplingOptions::default()
    }
}

#[test]
fn notices_are_data() {
    let mut tiny = Tiny::llama();
    speech::teach(&mut tiny);
    tiny.unset("tokenizer.ggml.pre");
    let file = tiny.file(&mut Random::fresh());
    assert_eq!(gristmill_engine::ModelInfo::read(&file).unwrap().notices(), [Notice::NoPreTokenizer]);
    let model = Arc::new(Model::with_backend(file, Arc::new(Reference::backend()), LoadOptions::default()).unwrap());
    let limits = Limits { context: Some(CONTEXT + 1), ..Limits::default() };
    let long = Notice::LongContext { context: CONTEXT + 1, trained: CONTEXT };
    assert_eq!(Engine::start(model, limits).unwrap().notices(), [Notice::NoPreTokenizer, long]);
    assert!(Notice::NoPreTokenizer.to_string().contains("`tokenizer.ggml.pre` is missing"));
    assert_eq!(engine(&self::model(), 1, 64).notices(), []);
}

#[test]
fn greedy_is_argmax_of_forward() {
    let model = model();
    let mut random = Random::fresh();
    let prompt = random_tokens(&mut random, 23);
    // The engine reads the prompt in chunks of 7.
    let found = tokens(&pieces(&engine(&model, 1, 7), request(&prompt, 12, SamplingOptions::greedy())));

    let limits = Limits { context: Some(CONTEXT), sequences: 1, batch_tokens: CONTEXT, ..Limits::default() };
    let mut runner = Runner::new(model, limits).unwrap();
    let sequence = runner.open_sequence().unwrap();
    let mut next = prompt;
    let mut expected = Vec::<u32>::new();
    let mut batch = Batch::new();
    for _ in 0..12 {
        batch.clear();
        batch.push(sequence, &next, Outputs::Last);
        next = runner.forward(&batch).unwrap().argmax().unwrap();
        expected.extend(&next);
    }
    assert_eq!(found, expected);
}

#[test]
fn requests_together_give_the_same_as_alone() {
    let model = model();
    let mut random = Random::fresh();
    let requests: Vec<Request> = (0..9)
        .map(|_| {
            let (prompt, n) = (1 + random.below(40), 1 + random.below(30));
            request(&random_tokens(&mut random, prompt), n, sampling(&mut random))
        })
        .collect();
    let alone: Vec<Vec<u32>> = requests.iter().map(|r| tokens(&pieces(&engine(&model, 1, 64), r.clone()))).collect();
    // Fewer slots than requests: some wait, and all slots serve more than one.
    let engine = engine(&model, 4, 16);
    let running: Vec<_> = requests.iter().map(|r| engine.generate(r.clone()).unwrap()).collect();
    for (i, (generation, alone)) in running.into_iter().zip(alone).enumerate() {
        let together: Vec<Piece> = generation.collect::<Result<_, _>>().unwrap();
        assert_eq!(tokens(&together), alone, "request {i}");
        let finish = together.last().unwrap().finish.unwrap();
        assert_eq!(finish.reason, FinishReason::Length);
        assert_eq!(
            (finish.usage.prompt_tokens, finish.usage.generated_tokens),
            (
                match &requests[i].prompt {
                    gristmill_engine::Prompt::Tokens(prompt) => prompt.len(),
                    _ => unreachable!(),
                },
                alone.len()
            )
        );
        assert!(together[..alone.len() - 1].iter().all(|piece| piece.finish.is_none()));
    }
}

#[test]
fn pieces_are_the_decoded_text_in_whole_characters() {
    let model = model();
    let mut random = Random::fresh();
    let engine = engine(&model, 1, 64);
    for _ in 0..5 {
        // Hot: bytes at random, most of them not UTF-8.
        let hot = SamplingOptions { temperature: 50.0, top_k: 0, top_p: 1.0, min_p: 0.0, ..sampling(&mut random) };
        let pieces = pieces(&engine, request(&random_tokens(&mut random, 3), 60, hot));
        assert_eq!(text(&pieces), model.tokenizer().unwrap().decode(&tokens(&pieces), true).unwrap());
    }
}

#[test]
fn stop_strings_end_the_text_wherever_tokens_end() {
    let model = model();
    let mut random = Random::fresh();
    let engine = engine(&model, 1, 64);
    let mut stopped = 0;
    for _ in 0..20 {
        let request = request(&random_tokens(&mut random, 5), 40, sampling(&mut random));
        let whole = text(&pieces(&engine, request.clone()));
        let chars: Vec<char> = whole.chars().collect();
        let from = random.below(chars.len() - 4);
        let stop: String = chars[from..from + 4].iter().collect();
        let found = pieces(&engine, Request { stop: vec!["not there".into(), stop.clone()], ..request.clone() });
        let before = &whole[..whole.find(&stop).unwrap()];
        assert_eq!(text(&found), before, "stop {stop:?} in {whole:?}");
        // The stop string may be in what the last token left incomplete.
        let reason = found.last().unwrap().finish.unwrap().reason;
        stopped += usize::from(reason == FinishReason::Stop);
        // A stop string that is started and not completed is text.
        let never = format!("{}\u{1}\u{2}", whole.chars().last().unwrap());
        let found = pieces(&engine, Request { stop: vec![never], ..request });
        assert_eq!(text(&found), whole);
    }
    assert!(stopped > 10, "{stopped} of 20");
}

#[test]
fn end_of_generation_ends() {
    let model = model();
    let engine = engine(&model, 1, 64);
    let mut ended = 0;
    for seed in 0..40 {
        let mut request = Request::new(vec![65, 66]);
        request.sampling = SamplingOptions {
            temperature: 20.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            seed: Some(seed),
            ..Default::default()
        };
        let pieces = pieces(&engine, request);
        let (last, others) = pieces.split_last().unwrap();
        assert!(others.iter().all(|piece| piece.token != speech::END && piece.finish.is_none()));
        match last.finish.unwrap().reason {
            FinishReason::End => {
                assert_eq!(last.token, speech::END);
                ended += 1;
            }
            FinishReason::Length => assert_eq!(2 + pieces.len(), CONTEXT + 1, "the context is full"),
            other => panic!("{other:?}"),
        }
        assert!(!text(&pieces).contains("<|im_end|>"));
    }
    assert!(ended > 0, "of 40 random texts none has ended");
}

#[test]
fn a_text_has_the_least_tokens_that_are_asked_for() {
    let model = model();
    let mut random = Random::fresh();
    let tokenizer = model.tokenizer().unwrap();
    let engine = engine(&model, 2, 64);
    let end = tokenizer.end_of_generation()[0];
    // The most likely token ends the text, and so does any character.
    let stops: Vec<String> = (0..128u8).map(|byte| char::from(byte).to_string()).collect();
    let mut likely = request(&random_tokens(&mut random, 5), 20, SamplingOptions::greedy());
    (likely.ignore_end, likely.logit_bias) = (false, vec![(end, 1e6)]);
    for min_tokens in [0, 1, 7, 20] {
        let found = pieces(&engine, Request { min_tokens, ..likely.clone() });
        let reason = if min_tokens == 20 { FinishReason::Length } else { FinishReason::End };
        assert_eq!((found.len(), found.last().unwrap().finish.unwrap().reason), ((min_tokens + 1).min(20), reason));
        assert!(found[..min_tokens].iter().all(|piece| !tokenizer.is_end_of_generation(piece.token)));
        let stopped = Request { min_tokens, stop: stops.clone(), logit_bias: vec![], ..likely.clone() };
        assert!(pieces(&engine, stopped).len() >= min_tokens);
    }
    let error = engine.generate(Request { min_tokens: 21, ..likely }).err().unwrap();
    assert!(matches!(error, EngineError::MinTokens { min: 21, max: 20 }), "{error}");
}

#[test]
fn control_tokens_are_text_where_asked() {
    let model = model();
    let mut random = Random::fresh();
    let engine = engine(&model, 1, 64);
    let mut control = 0;
    let tokenizer = model.tokenizer().unwrap();
    for _ in 0..10 {
        let hot = SamplingOptions { temperature: 50.0, top_k: 0, top_p: 1.0, min_p: 0.0, ..sampling(&mut random) };
        let request = request(&random_tokens(&mut random, 3), 60, hot);
        let [without, with] =
            [false, true].map(|control_tokens| pieces(&engine, Request { control_tokens, ..request.clone() }));
        assert_eq!(tokens(&without), tokens(&with));
        assert_eq!(text(&without), tokenizer.decode(&tokens(&with), true).unwrap());
        assert_eq!(text(&with), tokenizer.decode(&tokens(&with), false).unwrap());
        control += tokens(&with).iter().filter(|&&id| tokenizer.is_special(id)).count();
    }
    assert!(control > 0, "600 random tokens of 260, and none of 3 control tokens");
}

#[test]
fn a_conversation_is_read_from_where_it_is_new() {
    let model = model();
    let mut random = Random::fresh();
    let kept = engine(&model, 2, 64);
    let mut prompt = random_tokens(&mut random, 20);
    for turn in 0..3 {
        let request = request(&prompt, 9, sampling(&mut random));
        let answer = pieces(&kept, request.clone());
        assert_eq!(tokens(&answer), tokens(&pieces(&engine(&model, 1, 64), request)), "turn {turn}");
        // All was known but what came since, and the last token, whose state was not needed then.
        let usage = answer.last().unwrap().finish.unwrap().usage;
        assert_eq!(usage.reused_tokens, if turn == 0 { 0 } else { prompt.len() - 5 });
        prompt.extend(tokens(&answer));
        prompt.extend(random_tokens(&mut random, 4));
        // Another text in between takes the other slot.
        pieces(&kept, self::request(&[1, 2, 3], 2, SamplingOptions::greedy()));
    }
}

/// With a window of 5 and batches of 8 tokens, a layer keeps two blocks of 16.
#[test]
fn blocks_that_a_window_freed_are_computed_again() {
    let model = speaking(Tiny::gpt_oss());
    let mut random = Random::fresh();
    let kept = engine(&model, 1, 8);
    let mut ask = |prompt: &[u32]| {
        let request = request(prompt, 9, sampling(&mut random));
        let answer = pieces(&kept, request.clone());
        assert_eq!(tokens(&answer), tokens(&pieces(&engine(&model, 1, 100), request)));
        (answer.last().unwrap().finish.unwrap().usage.reused_tokens, [prompt, &tokens(&answer)].concat())
    };
    let other = |text: &[u32], same: usize| [&text[..same], &[(text[same] + 1) % 256], &text[same + 1..]].concat();
    let begin = random_tokens(&mut Random::fresh(), 60);
    let (reused, text) = ask(&begin);
    assert_eq!((reused, text.len()), (0, 69));
    // All that is in the state, then all but a little, then less than what the window needs.
    let (reused, text) = ask(&text);
    assert_eq!((reused, text.len()), (68, 78));
    // After 77 tokens, blocks 3 and 4 are there: the token after 52 sees 48 to 52.
    let (reused, _) = ask(&other(&text[..70], 52));
    assert_eq!(reused, 52);
    let (reused, text) = ask(&text[..70]);
    assert_eq!(reused, 52);
    let (reused, _) = ask(&other(&text[..70], 51));
    assert_eq!(reused, 0);
}

#[test]
fn dropping_and_cancelling_make_room() {
    let model = model();
    let mut random = Random::fresh();
    let engine = engine(&model, 1, 8);
    let long = request(&random_tokens(&mut random, 10), 80, SamplingOptions::greedy());
    let expected = tokens(&pieces(&engine, long.clone()));

    let mut dropped = engine.generate(long.clone()).unwrap();
    assert_eq!(dropped.next().unwrap().unwrap().token, expected[0]);
    drop(dropped);
    let waiting = engine.generate(long.clone()).unwrap();
    drop(engine.generate(long.clone()).unwrap());
    let mut cancelled = engine.generate(long.clone()).unwrap();
    cancelled.canceller().cancel();
    assert!(cancelled.by_ref().count() < 80 && cancelled.next().is_none());
    assert_eq!(tokens(&waiting.collect::<Result<Vec<_>, _>>().unwrap()), expected);
}

#[test]
fn two_engines_and_an_engine_that_ends() {
    let model = model();
    let mut random = Random::fresh();
    let one = engine(&model, 1, 64);
    let other = engine(&self::model(), 1, 64);
    let long = request(&random_tokens(&mut random, 10), 80, SamplingOptions::greedy());
    let (a, b) = (one.generate(long.clone()).unwrap(), other.generate(long.clone()).unwrap());
    let waiting = one.generate(long.clone()).unwrap();
    drop(one);
    let ends = |generation: gristmill_engine::Generation| generation.last().unwrap();
    assert!(matches!(ends(waiting), Err(EngineError::Stopped)));
    // Whatever was generated before comes, then the end.
    assert!(matches!(ends(a), Ok(Piece { finish: Some(_), .. }) | Err(EngineError::Stopped)));
    assert!(matches!(ends(b), Ok(Piece { finish: Some(_), .. })));
}

#[test]
fn conversations_go_through_the_template() {
    let model = model();
    let engine = engine(&model, 1, 64);
    let mut chat = Chat::new(vec![Message::new(Role::User, "ab <|im_end|>")]);
    let prompt = "<|im_start|>user\nab <|im_end|><|im_end|>\n<|im_start|>assistant\n";
    assert_eq!(engine.render(&chat).unwrap(), prompt);
    let conversation = engine.converse(chat.clone(), ConverseOptions::default()).unwrap();
    let ids = engine.tokens(conversation.prompt()).unwrap();
    assert_eq!(ids[0], 258, "no BOS, which the template did not write");
    chat.thinking = Some(false);
    assert_eq!(engine.render(&chat).unwrap(), format!("{prompt}<think></think>"));
    // A raw text has BOS before it, and its control tokens are control tokens.
    let ids = engine.tokens(&"ab<|im_end|>".into()).unwrap();
    assert_eq!((ids[0], ids[1], ids.len()), (257, 256, 3));
    let options = GenerationOptions { max_tokens: Some(3), ..GenerationOptions::default() };
    let request = engine.converse(chat, ConverseOptions::default()).unwrap().request(options);
    assert!(!pieces(&engine, request).is_empty());
}
