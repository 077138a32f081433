//! Well-formed replies of each form give the calls that they were written from. Damaged in any place, they give these
//! calls or text, but never a call with other arguments.

use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::Value as Json;

use super::cases::{Case, cases, few, many, meant, run, text, trimmed};
use super::written::Part;
use super::*;

/// Each call is one that was written, in order.
fn check_calls(case: &Case, text: &str, is_cut: bool) -> Result<(), TestCaseError> {
    let parsed = case.parse(text, is_cut);
    let mut written = case.calls.iter();
    for call in &parsed.calls {
        let (name, arguments) = meant(call);
        let arguments = trimmed(&arguments.into());
        let is_written =
            written.any(|written| written.0 == name.trim() && trimmed(&written.1.clone().into()) == arguments);
        prop_assert!(is_written, "{:?} is not written in {:?}", call, text);
    }
    Ok(())
}

fn well_formed(config: ProptestConfig) {
    let inputs = (cases(false), prop::collection::vec(any::<Index>(), 0..3), 1usize..9);
    run(config, &inputs, |(case, blanks, cut)| {
        let mut parts = case.parts();
        for at in blanks {
            let at = at.index(parts.len());
            if let Part::Loose(mark) = &parts[at] {
                parts[at] = Part::Mark(format!(" \n{mark}"));
            }
        }
        let [before, after] = case.around();
        let written = before + &text(&parts) + &after;
        let parsed = case.parse(&written, false);
        prop_assert_eq!(parsed.calls.iter().map(meant).collect::<Vec<_>>(), case.calls.clone(), "{}", written);
        prop_assert_eq!(parsed.reasoning, case.reasoning.clone().unwrap_or_default());
        prop_assert_eq!(parsed.content, case.said(), "{}", written);
        let whole = events(case.reply(), [written.as_str()]);
        prop_assert_eq!(events(case.reply(), pieces(&written, cut)), whole);
        Ok(())
    });
}

fn damaged(config: ProptestConfig) {
    let inputs = (cases(true), 0..5usize, any::<[Index; 2]>(), 1usize..9, any::<bool>());
    run(config, &inputs, |(case, damage, [at, to], cut, is_cut)| {
        let mut parts = case.parts();
        let marks: Vec<usize> = (0..parts.len()).filter(|&at| !matches!(parts[at], Part::Text(_))).collect();
        let at = marks[at.index(marks.len())];
        // The start of a value twice is a value that starts so.
        prop_assume!(
            ![1, 4].contains(&damage)
                || ![">", "\">", "<arg_value>", "<arg_value:opensource>"].contains(&parts[at].text())
        );
        // With text moved into it or out of it, a key is another one, which a model may write.
        prop_assume!(![2, 3].contains(&damage) || ![">", "\">"].contains(&parts[at].text()));
        // The end of a value twice is that of a tag in it, if there is one.
        let shows_tag = case.calls.iter().any(|(_, arguments)| {
            let text = Json::from(arguments.clone()).to_string();
            ["<parameter", "<arg_key>", "<atem:parameter", "<｜DSML｜parameter"].iter().any(|tag| text.contains(tag))
        });
        let ends = ["</parameter>", "</arg_value>", "</atem:parameter>", "</｜DSML｜parameter>"];
        prop_assume!(![1, 4].contains(&damage) || !shows_tag || !ends.contains(&parts[at].text()));
        match damage {
            0 => drop(parts.remove(at)),
            1 => parts.insert(at, parts[at].clone()),
            2 if at + 1 < parts.len() => parts.swap(at, at + 1),
            // A mark before another one; within a value it is text.
            4 => {
                let places: Vec<usize> = (0..parts.len()).filter(|&at| matches!(parts[at], Part::Loose(_))).collect();
                parts.insert(places[to.index(places.len())], parts[at].clone());
            }
            _ => parts.swap(at, at.saturating_sub(1)),
        }
        let [before, after] = case.around();
        let written = before + &text(&parts) + &after;
        check_calls(&case, &written, is_cut)?;
        let whole = events(case.reply(), [written.as_str()]);
        prop_assert_eq!(events(case.reply(), pieces(&written, cut)), whole);
        Ok(())
    });
}

fn truncated(config: ProptestConfig) {
    run(config, &(cases(false), any::<Index>(), any::<bool>()), |(case, at, is_cut)| {
        let [before, after] = case.around();
        let written = before + &text(&case.parts()) + &after;
        let at = written.floor_char_boundary(at.index(written.len() + 1));
        // A message without text calls a tool that needs none; tags within a value may end a call, but for its last mark.
        let ends = ["<|message|>", "</function>", "</invoke>", "</atem:invoke>", "</｜DSML｜invoke>"];
        prop_assume!(is_cut || !ends.iter().any(|end| written[..at].trim_end().ends_with(end)));
        check_calls(&case, &written[..at], is_cut)
    });
}

#[test]
fn well_formed_replies_are_exact() {
    well_formed(few());
}

#[test]
fn damaged_replies_give_no_other_call() {
    damaged(few());
}

#[test]
fn truncated_replies_give_no_other_call() {
    truncated(few());
}

#[test]
#[ignore = "a search for faults: takes seconds"]
fn many_well_formed_replies_are_exact() {
    well_formed(many());
}

#[test]
#[ignore = "a search for faults: takes seconds"]
fn many_damaged_replies_give_no_other_call() {
    damaged(many());
}

#[test]
#[ignore = "a search for faults: takes seconds"]
fn many_truncated_replies_give_no_other_call() {
    truncated(many());
}
