//! Any text as a schema, a grammar in GBNF or Lark, or a regular expression: a typed error, or a text that it allows.
#![no_main]

#[path = "../speaking.rs"]
mod speaking;

use std::sync::LazyLock;

use gristmill_engine::{Engine, FinishReason, Grammar, Request};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

/// The grammar of an input, whose first letter says of what kind.
fn grammar(input: &str) -> Option<Grammar> {
    let (kind, text) = input.split_at_checked(1)?;
    match kind {
        "j" => Some(Grammar::JsonSchema(serde_json::from_str(text).ok()?)),
        "g" => Some(Grammar::Gbnf(text.to_owned())),
        "l" => Some(Grammar::Lark(text.to_owned())),
        "r" => Some(Grammar::Regex(text.to_owned())),
        _ => None,
    }
}

/// The engine of all inputs.
static ENGINE: LazyLock<Engine> = LazyLock::new(speaking::start);

fuzz_target!(init: speaking::allow_caught_panics(), |input: &str| {
    let Some(grammar) = grammar(input) else { return };
    let is_json = matches!(grammar, Grammar::JsonSchema(_));
    let request = Request { grammar: Some(grammar), max_tokens: Some(8), ..Request::new("a") };
    let pieces = match ENGINE.generate(request) {
        Ok(pieces) => pieces,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let mut text = String::new();
    for piece in pieces {
        match piece {
            Ok(piece) => {
                text += &piece.text;
                if is_json && piece.finish.is_some_and(|finish| finish.reason == FinishReason::End) {
                    serde_json::from_str::<Value>(&text).expect("a whole text is JSON");
                }
            }
            Err(error) => return assert!(!error.to_string().is_empty()),
        }
    }
});
