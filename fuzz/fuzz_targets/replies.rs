//! Any text as a reply in any form: its events do not depend on how the text is cut, and calls have objects as
//! arguments.
#![no_main]

use gristmill_text::reply::{Reply, ReplyEvent, ReplyForm, ReplyOptions, Syntax};
use gristmill_text::template::Tool;
use libfuzzer_sys::fuzz_target;

fn events<'t>(mut reply: Reply, pieces: impl Iterator<Item = &'t str>) -> Vec<ReplyEvent> {
    let mut events: Vec<ReplyEvent> = Vec::new();
    let mut found: Vec<ReplyEvent> = pieces.flat_map(|piece| reply.push(piece)).collect();
    found.extend(reply.finish());
    for event in found {
        match (events.last_mut(), event) {
            (Some(ReplyEvent::Content(before)), ReplyEvent::Content(text)) => before.push_str(&text),
            (Some(ReplyEvent::Reasoning(before)), ReplyEvent::Reasoning(text)) => before.push_str(&text),
            (_, event) => events.push(event),
        }
    }
    events
}

fuzz_target!(|input: (u8, bool, bool, &str)| {
    let (choice, is_open, parallel_calls, text) = input;
    let forms: Vec<&Syntax> = Syntax::all().collect();
    let syntax = forms[usize::from(choice) % forms.len()];
    let prompt = if is_open { "<|im_start|>assistant\n<think>\n" } else { "" };
    let tools = [Tool { name: "f".to_owned(), ..Tool::default() }];
    let options = ReplyOptions { parallel_calls, ..ReplyOptions::for_tools(&tools) };
    // The text is the template too, because marks around reasoning are those that a template has.
    let reply = || ReplyForm::new(syntax, text, prompt, options.clone()).parser();
    let whole = events(reply(), [text].into_iter());
    let mut bytes = [0; 4];
    let mut pieces = Vec::new();
    for c in text.chars() {
        pieces.push(c.encode_utf8(&mut bytes).to_owned());
    }
    assert_eq!(events(reply(), pieces.iter().map(String::as_str)), whole);
    let calls = whole.iter().filter_map(|event| match event {
        ReplyEvent::ToolCall(call) => Some(call),
        _ => None,
    });
    assert!(parallel_calls || calls.clone().count() <= 1);
    for call in calls {
        assert!(!call.name.is_empty() && call.arguments.trim_start().starts_with('{'));
    }
});
