//! Texts that calls or other texts separate, joined.

use super::written::{FORMS, Messages, Part};
use super::*;
use serde_json::Map;

/// A reply with text around a call of `get_time`, in each form that has marks around calls.
fn around_calls() -> impl Iterator<Item = (&'static str, String)> {
    FORMS.iter().filter_map(|form| {
        let mut parts = Vec::new();
        (form.write)(&mut parts, &[("get_time".to_owned(), Map::new())]);
        let call: String = parts.iter().map(Part::text).collect();
        let is_marked = !call.starts_with('{');
        let text = match form.messages() {
            Some(Messages { answer: [open, close], between, .. }) => {
                format!("{open}I look.{close}{between}{call}{between}{open}Done.{close}")
            }
            None => format!("I look.\n\n{call}\nDone."),
        };
        is_marked.then_some((form.template, text))
    })
}

#[test]
fn words_around_a_call_stay_apart() {
    let expected = [content("I look."), call("get_time", "{}"), content("Done.")];
    for (template, text) in around_calls() {
        check_call(template, &text, &expected);
        assert_eq!(form(template, "", tools()).parse(&text).content, "I look.\nDone.", "{text}");
    }
}

#[test]
fn a_dropped_call_separates_too() {
    let (time, one) =
        ("<tool_call>{\"name\": \"get_time\"}</tool_call>", ReplyOptions { parallel_calls: false, ..tools() });
    let text = format!("I look.\n{time}\nHm.\n{time}\nDone.\n{time} {time}\n");
    let expected = [content("I look."), call("get_time", "{}"), content("Hm.\nDone.")];
    check(QWEN, "", &one, &text, &expected);
    assert_eq!(form(QWEN, "", one).parse(&text).content, "I look.\nHm.\nDone.");
}

#[test]
fn messages_of_harmony_are_separate() {
    let said = |channel: &str, text: &str| format!("<|channel|>{channel}<|message|>{text}<|end|><|start|>assistant");
    let time = "<|channel|>commentary to=functions.get_time<|message|>{}<|call|><|start|>assistant";
    let text = [
        said("analysis", "One."),
        said("analysis", "Two."),
        said("analysis", " Three.\n"),
        said("analysis", "Four."),
        time.to_owned(),
        said("analysis", "Five."),
        said("final", "A."),
        said("final", ""),
        said("analysis", "Six."),
        said("final", "B."),
        said("final", "C."),
    ]
    .concat();
    let expected = [
        reasoning("One.\nTwo. Three.\nFour."),
        call("get_time", "{}"),
        reasoning("Five."),
        content("A."),
        reasoning("Six."),
        content("B.\nC."),
    ];
    check_call(HARMONY, &text, &expected);
    let parsed = form(HARMONY, "", tools()).parse(&text);
    assert_eq!(parsed.reasoning, "One.\nTwo. Three.\nFour.\nFive.\nSix.");
    assert_eq!(parsed.content, "A.\nB.\nC.");
}
