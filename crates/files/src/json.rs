//! Messages about JSON that is not trusted.

use std::fmt::Display;

/// The start of a text, for a message: text of untrusted files may have any length.
pub fn cut(text: impl Display, chars: usize) -> String {
    let mut text = text.to_string();
    if let Some((end, _)) = text.char_indices().nth(chars) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// The problem of a JSON text, and its place. The message of `serde_json` may quote a value of any length, before the
/// place.
pub fn json_problem(error: &serde_json::Error) -> String {
    const SHOWN: usize = 300;
    let whole = WORDS.iter().fold(error.to_string(), |text, (theirs, ours)| text.replace(theirs, ours));
    let shown = cut(&whole, SHOWN);
    match shown == whole {
        true => whole,
        false => format!("{shown} at line {} column {}", error.line(), error.column()),
    }
}

/// `serde` names what it expected by Rust's types.
const WORDS: &[(&str, &str)] = &[
    ("expected u32", "expected a whole number from 0 to 4294967295"),
    ("expected u64", "expected a whole number of at least 0"),
    ("expected a map", "expected an object"),
    ("expected a sequence", "expected a list"),
    ("invalid type: map", "invalid type: object"),
    ("invalid type: sequence", "invalid type: list"),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::json_problem;

    #[test]
    fn json_is_explained_without_types_of_rust() {
        for (json, says) in [
            (r#"{"a": -1}"#, "integer `-1`, expected a whole number from 0 to 4294967295"),
            (r#"{"a": [1]}"#, "invalid type: list, expected a whole number"),
            ("[1]", "invalid type: list, expected an object"),
        ] {
            let problem = json_problem(&serde_json::from_str::<BTreeMap<String, u32>>(json).expect_err("it is wrong"));
            assert!(problem.contains(says) && problem.contains("line 1"), "{problem}");
        }
    }
}
