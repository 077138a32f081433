//! Replies that are written from the definition of a form, and read by it: each form that is data.

use super::*;
use crate::reply::Written;
use serde_json::Value as Json;

/// The forms whose readers follow from their definition.
fn forms() -> impl Iterator<Item = &'static Syntax> {
    // In these, a call has other text than the definition: without a mark, in messages, or in nested tags.
    let others = ["Llama", "Llama 4", "Muse", "Harmony", "MiniMax M3", "Gemma 4"];
    Syntax::all().filter(move |syntax| !others.contains(&syntax.name()))
}

/// Values of each type. Texts have marks of other forms, and what ends a value elsewhere.
fn calls() -> Vec<Vec<Written<'static>>> {
    let all = json!({
        "city": "l1\nl2 \"q\" 'r' & <b> ] } )", "days": -3, "tags": ["a'b", "c\\d", "e\"f"], "exact": true,
        "place": {"k": "v", "n": 1.5, "e": [], "z": null},
    });
    let one = |name, arguments| vec![(name, arguments)];
    vec![
        one("get_weather", all.clone()),
        one("get_time", json!({})),
        one("get_weather", json!({"city": ""})),
        vec![("get_weather", all), ("get_time", json!({})), ("get_weather", json!({"city": "Paris"}))],
    ]
}

fn reader(syntax: &'static Syntax) -> ReplyForm {
    ReplyForm::new(syntax, "", "", tools())
}

fn expected(calls: &[Written]) -> Vec<ReplyEvent> {
    calls.iter().map(|(name, arguments)| call(name, &arguments.to_string())).collect()
}

/// Events with the arguments of calls as one program writes JSON.
fn normal(events: Vec<ReplyEvent>) -> Vec<ReplyEvent> {
    let normal = |event| match event {
        ReplyEvent::ToolCall(call) => {
            let arguments: Json = serde_json::from_str(&call.arguments).expect("JSON");
            ReplyEvent::ToolCall(ToolCall { arguments: arguments.to_string(), ..call })
        }
        event => event,
    };
    events.into_iter().map(normal).collect()
}

#[test]
fn what_a_form_writes_is_read() {
    for syntax in forms() {
        for calls in calls() {
            let text = syntax.call.body.written(&calls).expect("a form that is data");
            for n in [1, 2, 3, 7, 50, 1000] {
                let found = normal(events(reader(syntax).parser(), pieces(&text, n)));
                assert_eq!(found, expected(&calls), "{}: {text:?} in pieces of {n}", syntax.name());
            }
            let around = format!("I look.\n\n{text}\nDone.");
            let found = normal(events(reader(syntax).parser(), pieces(&around, 5)));
            let inner: Vec<&ReplyEvent> =
                found.iter().filter(|event| matches!(event, ReplyEvent::ToolCall(_))).collect();
            assert_eq!(inner, expected(&calls).iter().collect::<Vec<_>>(), "{}: {around:?}", syntax.name());
        }
    }
}

#[test]
fn a_truncated_call_is_none() {
    for syntax in forms() {
        for calls in calls() {
            let text = syntax.call.body.written(&calls).expect("a form that is data");
            let all = expected(&calls);
            for cut in (0..text.len()).filter(|&cut| text.is_char_boundary(cut)) {
                let mut reply = reader(syntax).parser();
                let found = normal([reply.push(&text[..cut]), reply.cut()].concat());
                let found: Vec<_> =
                    found.into_iter().filter(|event| matches!(event, ReplyEvent::ToolCall(_))).collect();
                assert!(all.starts_with(&found), "{}: {:?}: {found:?}", syntax.name(), &text[..cut]);
            }
        }
    }
}

/// With any character left out or doubled, there is no call with other arguments. Values between tags have no quotes, so
/// there a damaged tag can be a part of a value.
#[test]
fn a_damaged_mark_gives_no_other_call() {
    for syntax in forms().filter(|syntax| matches!(syntax.call.body, CallBody::Json(_))) {
        let calls = vec![("get_weather", json!({"city": "Paris", "days": 7})), ("get_time", json!({}))];
        let text = syntax.call.body.written(&calls).expect("a form that is data");
        let values = ["get_weather", "get_time", "city", "Paris", "days", "7", "call_", "0", "1"];
        let is_value = |at: usize| {
            values
                .iter()
                .any(|value| text.match_indices(value).any(|(from, _)| (from..from + value.len()).contains(&at)))
        };
        let all = expected(&calls);
        // Twice beside a value, a character is a part of the value.
        let is_mark = |at: usize| !is_value(at) && !is_value(at + 1) && (at == 0 || !is_value(at - 1));
        for (at, c) in text.char_indices().filter(|(at, c)| is_mark(*at) && !c.is_whitespace()) {
            let rest = &text[at + c.len_utf8()..];
            for damaged in [[&text[..at], rest].concat(), [&text[..at], &c.to_string(), &text[at..]].concat()] {
                let found = normal(events(reader(syntax).parser(), [&*damaged]));
                // A damaged name is one that the caller does not know.
                let is_known = |event: &&ReplyEvent| matches!(event, ReplyEvent::ToolCall(call) if ["get_weather", "get_time"].contains(&&*call.name));
                for event in found.iter().filter(is_known) {
                    assert!(all.contains(event), "{}: {damaged:?}: {event:?}", syntax.name());
                }
            }
        }
    }
}
