//! Replies as an iterator of events: their end is there, and their request is sampled as the model recommends.

use std::sync::Arc;

use gristmill_engine::Script;
use gristmill_engine::reply::{ParsedReply, ReplyEvent};
use gristmill_engine::template::{Message, Role};
use gristmill_engine::{
    Chat, ConverseOptions, Engine, EngineError, FinishReason, GenerationOptions, Grammar, Request, SamplingOptions,
    StreamEvent, ToolChoice,
};
use serde_json::{Value, json};

use super::converse::{FORMS, HEAD, chat, running, tools};
use super::tiny::Tiny;
use super::{engine, speaking};

/// Always the same completion.
#[derive(Debug)]
struct Always(&'static str);

impl Script for Always {
    fn completion(&self, _: &str) -> Option<String> {
        Some(self.0.to_owned())
    }
}

/// An engine whose model writes this form, and says this.
fn saying(form: &str, text: &'static str) -> Engine {
    running(&format!("{HEAD}{form}")).with_script(Arc::new(Always(text)))
}

fn at_most(max_tokens: usize) -> GenerationOptions {
    GenerationOptions { max_tokens: Some(max_tokens), ..GenerationOptions::default() }
}

/// The whole reply, whose last item is how it ended.
fn whole(
    engine: &Engine,
    chat: Chat,
    options: ConverseOptions,
    generation: GenerationOptions,
) -> (ParsedReply, FinishReason) {
    let items: Vec<StreamEvent> =
        engine.reply(chat, options, generation).expect("good").collect::<Result<_, _>>().expect("it runs");
    let Some((StreamEvent::Finish(finish), items)) = items.split_last() else { panic!("{items:?}") };
    let event = |item: &StreamEvent| match item {
        StreamEvent::Reply(event) => event.clone(),
        other => panic!("{other:?} is not the last item"),
    };
    (ParsedReply::joined(items.iter().map(event)), finish.reason)
}

/// A call that only the end of the text completes arrives, in each form.
#[test]
fn a_required_call_arrives() {
    for (name, end, ..) in FORMS {
        let engine = running(&format!("{HEAD}{end}"));
        for seed in 0..10 {
            let options = ConverseOptions { tool_choice: ToolChoice::Required, ..ConverseOptions::default() };
            let sampling = SamplingOptions { temperature: 10.0, seed: Some(seed), ..SamplingOptions::default() };
            let generation = GenerationOptions { sampling: Some(sampling), ..GenerationOptions::default() };
            let (ParsedReply { calls, content, reasoning }, reason) =
                whole(&engine, chat(tools()), options, generation);
            assert!(calls.len() == 1 && content.is_empty() && reasoning.is_empty(), "{name}: {calls:?} {content}");
            assert_eq!(reason, FinishReason::End, "{name}");
            let arguments: Value = serde_json::from_str(&calls[0].arguments).expect("an object");
            match calls[0].name.as_str() {
                "pick" => assert!(["red", "green"].map(Value::from).contains(&arguments["kind"]), "{arguments}"),
                name => assert_eq!((name, arguments), ("stop", json!({}))),
            }
        }
    }
}

/// The text of a call that a limit cuts is no content.
#[test]
fn a_required_call_that_is_cut_is_left_out() {
    for (name, end, ..) in FORMS {
        let engine = running(&format!("{HEAD}{end}"));
        // The shortest call, `stop[ARGS]{}`, has seven tokens.
        for most in 1..7 {
            let options = ConverseOptions { tool_choice: ToolChoice::Required, ..ConverseOptions::default() };
            let found = whole(&engine, chat(tools()), options, at_most(most));
            assert_eq!(found, (ParsedReply::default(), FinishReason::Length), "{name}");
        }
    }
}

/// Text that could have been the start of a mark is content, once the reply has ended or was cut.
#[test]
fn the_last_characters_arrive() {
    for (form, text) in [
        ("{# <tool_call> #}A:", "I think 3 <"),
        ("{# <tool_call> #}A:", "a <tool_cal"),
        ("{# <|python_tag|> #}A:", "{\"name\": 1"),
        ("{# [TOOL_CALLS] [ #}A:", "See [TOOL_"),
    ] {
        let engine = saying(form, text);
        for (generation, reason) in
            [(GenerationOptions::default(), FinishReason::End), (at_most(text.len()), FinishReason::Length)]
        {
            let found = whole(&engine, chat(tools()), ConverseOptions::default(), generation.clone());
            assert_eq!(found, (ParsedReply { content: text.into(), ..ParsedReply::default() }, reason), "{form}");
            let reply = engine.reply(chat(tools()), ConverseOptions::default(), generation).expect("good");
            let (reply, finish) = reply.wait().expect("it runs");
            assert_eq!((&*reply.content, finish.map(|finish| finish.reason)), (text, Some(reason)), "{form}");
        }
    }
}

/// A cancelled reply has the text so far, and no end.
#[test]
fn a_cancelled_reply_keeps_its_text() {
    let engine = saying("{# <tool_call> #}A:", "ab <");
    let mut reply =
        engine.reply(chat(tools()), ConverseOptions::default(), GenerationOptions::default()).expect("good");
    let canceller = reply.canceller();
    let first = reply.next().expect("an event").expect("it runs");
    let StreamEvent::Reply(ReplyEvent::Content(mut text)) = first else { panic!("{first:?}") };
    canceller.cancel();
    let mut has_ended = false;
    for event in reply {
        match event.expect("it runs") {
            StreamEvent::Reply(ReplyEvent::Content(more)) if !has_ended => text.push_str(&more),
            StreamEvent::Finish(_) if !has_ended => has_ended = true,
            other => panic!("{other:?}"),
        }
    }
    // The text may be complete before it is cancelled.
    assert!("ab <".starts_with(&text) && (!has_ended || text == "ab <"), "{text}");
}

/// An error is the last item, after the text so far.
#[test]
fn an_error_follows_the_text() {
    // The script writes what the grammar forbids.
    let engine = saying("{# <tool_call> #}A:", "abcd <");
    let grammar = Some(Grammar::Regex("abc[a-z]*".to_owned()));
    let options = ConverseOptions { grammar, ..ConverseOptions::default() };
    let items: Vec<Result<StreamEvent, EngineError>> =
        engine.reply(chat(vec![]), options, GenerationOptions::default()).expect("good").collect();
    let Some((Err(EngineError::Script { .. }), items)) = items.split_last() else { panic!("{items:?}") };
    let text: String = items
        .iter()
        .map(|item| match item {
            Ok(StreamEvent::Reply(ReplyEvent::Content(text))) => text.as_str(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert!("abcd".starts_with(&text) && !text.is_empty(), "{text}");
}

/// Without sampling of its own, a request is sampled as the model recommends.
#[test]
fn recommended_sampling_is_the_models() {
    let mut tiny = Tiny::llama();
    tiny.set("general.sampling.temp", 0.25_f32);
    tiny.set("general.sampling.top_k", -1_i32);
    let engine = engine(&speaking(tiny), 1, 64);
    let recommended = SamplingOptions { temperature: 0.25, top_k: 0, ..SamplingOptions::default() };
    assert_eq!(engine.sampling(), recommended);
    let conversation =
        engine.converse(Chat::new(vec![Message::new(Role::User, "x")]), ConverseOptions::default()).expect("good");
    let own = SamplingOptions::greedy();
    for (sampling, expected) in [(None, recommended), (Some(own), own)] {
        let options = || GenerationOptions { sampling, ..at_most(3) };
        let request = conversation.request(options());
        assert_eq!((request.sampling, request.max_tokens, &request.prompt), (expected, Some(3), conversation.prompt()));
        let request = engine.request("x", options());
        let expected = Request { sampling: expected, max_tokens: Some(3), ..Request::new("x") };
        assert_eq!(request, expected);
    }
    assert_eq!(Request::new("x").sampling, SamplingOptions::default());
}
