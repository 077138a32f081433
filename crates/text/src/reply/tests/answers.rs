//! Replies that are an answer in a grammar or a call: marks within the answer are text.

use super::written::{FORMS, Part};
use super::*;
use serde_json::Map;

fn check_either(template: &str, text: &str, expected: &[ReplyEvent]) {
    let form = form(template, "", tools()).answer_or_calls();
    for n in 1..=text.chars().count().max(1) {
        assert_eq!(events(form.parser(), pieces(text, n)), expected, "{text:?} in pieces of {n}");
    }
}

#[test]
fn a_mark_within_an_answer_is_text() {
    for form in &FORMS {
        let mut parts = Vec::new();
        (form.write)(&mut parts, &[("get_time".to_owned(), Map::new())]);
        let written: String = parts.iter().map(Part::text).collect();
        let opening = form.messages().map_or("", |messages| messages.answer[0]);
        for text in [
            json!({"a": written, "b": form.marks.concat()}).to_string(),
            format!("[\'{written}\']"),
            format!("x{written}"),
            format!("<think>{written}</think> a"),
            "  ".to_owned(),
        ] {
            check_either(form.template, &format!("{opening}{text}"), &[content(&text)]);
        }
        let after = if form.messages().is_some() { "" } else { "Then." };
        let expected = [call("get_time", "{}"), content(after)];
        check_either(form.template, &format!("{written}\n{after}"), &expected[..1 + usize::from(!after.is_empty())]);
    }
    // JSON may start with white space.
    let spaced = "\t\n{\"name\": \"get_time\", \"parameters\": {}}";
    check_either(LLAMA, spaced, &[call("get_time", "{}")]);
    check_either(LLAMA, "\n {\"a\": 1}", &[content("\n {\"a\": 1}")]);
    check_either(LLAMA4, "[get_time()]", &[call("get_time", "{}")]);
    check_either(LLAMA4, "[\"<|python_start|>[get_time()]\"]", &[content("[\"<|python_start|>[get_time()]\"]")]);
    check_either(COMMAND, "\"<|END_TEXT|>\"", &[content("\"<|END_TEXT|>\"")]);
}
