//! Calls within reasoning, and calls of tools that the request lacks.

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::Value as Json;

use super::cases::{Case, cases, few, many, meant, run, text};
use super::written::{Call, plain};
use super::*;

fn with_reasoning() -> impl Strategy<Value = Case> {
    cases(false)
        .prop_map(|case| Case { reasoning: Some(case.reasoning.unwrap_or_else(|| "I think.".to_owned())), ..case })
}

/// If anything but calls follows them, the model thought about calls.
fn thought_about(config: ProptestConfig) {
    let after = select(&["\n", " Or not.\n", ""][..]);
    run(config, &(with_reasoning(), after, 1usize..9), |(case, after, cut)| {
        // Its marks start and end messages wherever they are.
        prop_assume!(!case.has_messages());
        let (open, close) = case.form().think.expect("marks");
        let thought = format!("{}{}{after}", case.reasoning.clone().unwrap_or_default(), text(&case.parts()));
        let written = format!("{open}{thought}{close}\n\nDone.");
        let expected = [reasoning(&thought), content("Done.")];
        prop_assert_eq!(events(case.reply(), [written.as_str()]), &expected, "{}", written);
        prop_assert_eq!(events(case.reply(), pieces(&written, cut)), expected);
        Ok(())
    });
}

/// Calls with which a reply ends are calls, though the end of the reasoning lacks or follows them.
fn forgotten_end(config: ProptestConfig) {
    run(config, &(with_reasoning(), any::<bool>(), 1usize..9), |(case, is_late, cut)| {
        // Nothing announces its calls.
        prop_assume!(!case.is_unmarked());
        let late = case.form().think.map(|(_, close)| format!("\n{close}\n")).filter(|_| is_late).unwrap_or_default();
        let written = case.thought(true) + &text(&case.parts()) + &late;
        let parsed = case.parse(&written, false);
        prop_assert_eq!(parsed.calls.iter().map(meant).collect::<Vec<_>>(), case.calls.clone(), "{}", written);
        prop_assert_eq!(parsed.reasoning, case.reasoning.clone().unwrap_or_default(), "{}", written);
        prop_assert_eq!(parsed.content, "");
        let whole = events(case.reply(), [written.as_str()]);
        prop_assert_eq!(events(case.reply(), pieces(&written, cut)), whole);
        Ok(())
    });
}

/// A marked call of an unknown tool is a call, but within reasoning.
fn unknown_tool(config: ProptestConfig) {
    run(config, &(with_reasoning(), any::<bool>()), |(mut case, in_thought)| {
        let unknown = case.calls[0].0.clone();
        case.tools.retain(|tool| tool.name != unknown);
        let [before, after] = case.around();
        let written = match in_thought {
            true => case.thought(true) + &text(&case.parts()),
            false => before + &text(&case.parts()) + &after,
        };
        let parsed = case.parse(&written, false);
        let typed = |(name, arguments): &Call| {
            let is_text = case.is_tagged() && *name == unknown;
            let value = |value: &Json| match case.form().template {
                M3 if is_text => untyped(value),
                _ if is_text => plain(value).into(),
                _ => value.clone(),
            };
            (name.clone(), arguments.iter().map(|(key, argument)| (key.clone(), value(argument))).collect())
        };
        let is_call = !case.is_unmarked() && (!in_thought || case.has_messages());
        let expected: Vec<Call> = if is_call { case.calls.iter().map(typed).collect() } else { Vec::new() };
        // Calls with which the reply ends may be of known tools.
        let found: Vec<Call> = parsed.calls.iter().map(meant).collect();
        match is_call || case.is_unmarked() {
            true => prop_assert_eq!(found, expected, "{}", written),
            false => prop_assert!(found.iter().all(|(name, _)| *name != unknown), "{}", written),
        }
        Ok(())
    });
}

/// A value in nested tags whose types are not known.
fn untyped(value: &Json) -> Json {
    match value {
        Json::Array(items) if !items.is_empty() => items.iter().map(untyped).collect(),
        Json::Object(items) if !items.is_empty() => {
            items.iter().map(|(key, item)| (key.clone(), untyped(item))).collect()
        }
        Json::Array(_) | Json::Object(_) => json!(""),
        scalar => {
            let text = plain(scalar);
            let json = serde_json::from_str(&text).ok();
            json.filter(|json: &Json| json.is_number() || json.is_boolean() || json.is_null()).unwrap_or(text.into())
        }
    }
}

#[test]
fn calls_that_are_thought_about_are_reasoning() {
    thought_about(few());
}

#[test]
fn calls_may_end_reasoning() {
    forgotten_end(few());
}

#[test]
fn calls_of_unknown_tools_are_calls_outside_reasoning() {
    unknown_tool(few());
}

#[test]
#[ignore = "a search for faults: takes seconds"]
fn many_calls_that_are_thought_about_are_reasoning() {
    thought_about(many());
}

#[test]
#[ignore = "a search for faults: takes seconds"]
fn many_calls_may_end_reasoning() {
    forgotten_end(many());
}

#[test]
#[ignore = "a search for faults: takes seconds"]
fn many_calls_of_unknown_tools_are_calls_outside_reasoning() {
    unknown_tool(many());
}
