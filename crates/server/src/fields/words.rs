//! Messages of serde in the words of people who send JSON.

/// The most characters of a wrong value that a message repeats.
const LONGEST: usize = 40;

/// The problem of a field, from serde's message about it.
pub(super) fn in_words(message: &str) -> String {
    let wrong = message.strip_prefix("invalid type: ").or(message.strip_prefix("invalid value: "));
    if let Some((found, expected)) = wrong.and_then(|wrong| wrong.rsplit_once(", expected ")) {
        return format!("{} was sent where {} is needed", value(found), kind(expected));
    }
    match name(message) {
        Some(field) if message.starts_with("missing field") => format!("the field {field} is missing; send it"),
        Some(field) if message.starts_with("duplicate field") => {
            format!("{field} is sent twice, or by two of its names; send it once")
        }
        Some(field) if message.starts_with("unknown field") => {
            let known = message.split_once("expected ").map_or("nothing", |(_, known)| known).replace('`', "");
            format!("{field} is not supported here, but {known}")
        }
        _ => message.to_owned(),
    }
}

/// The field that a message names, as in "missing field `messages`".
pub(super) fn name(message: &str) -> Option<&str> {
    message.split('`').nth(1)
}

/// A value that was sent.
fn value(found: &str) -> String {
    let found = match found.split_once(' ') {
        Some(("string", text)) => format!("the text {text}"),
        Some(("integer" | "floating", number)) => format!("the number {}", name(number).unwrap_or(number)),
        Some(("boolean", value)) => name(value).unwrap_or(value).to_owned(),
        _ => match found {
            "sequence" => "a list".to_owned(),
            "map" => "an object".to_owned(),
            other => other.to_owned(),
        },
    };
    match found.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &found[..end]),
        None => found,
    }
}

/// A kind of values, which serde names as Rust does unless a visitor names it.
fn kind(expected: &str) -> &str {
    match expected {
        "f32" | "f64" => "a number",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number that is not negative",
        "i32" | "i64" => "a whole number",
        "a boolean" => "true or false",
        "a string" => "a text",
        "a sequence" => "a list",
        "a map" => "an object",
        other if other.starts_with("struct ") => "an object",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_in_words() {
        for (message, words) in [
            ("invalid type: string \"hot\", expected f32", "the text \"hot\" was sent where a number is needed"),
            (
                "invalid value: integer `-1`, expected u32",
                "the number -1 was sent where a whole number from 0 to 4294967295 is needed",
            ),
            (
                "invalid type: floating point `1.5`, expected usize",
                "the number 1.5 was sent where a whole number that is not negative is needed",
            ),
            ("invalid type: boolean `true`, expected a string", "true was sent where a text is needed"),
            ("invalid type: null, expected a sequence", "null was sent where a list is needed"),
            ("invalid type: sequence, expected struct ChatMessage", "a list was sent where an object is needed"),
            ("invalid type: map, expected a text or a list", "an object was sent where a text or a list is needed"),
            ("missing field `messages`", "the field messages is missing; send it"),
            ("duplicate field `max_tokens`", "max_tokens is sent twice, or by two of its names; send it once"),
            ("unknown field `x`, expected one of `a`, `b`", "x is not supported here, but one of a, b"),
            ("something else", "something else"),
        ] {
            assert_eq!(in_words(message), words);
        }
        let long = in_words(&format!("invalid type: string \"{}\", expected f32", "é, expected ".repeat(500)));
        assert!(long.chars().count() < 100 && long.ends_with("a number is needed"), "{long}");
    }
}
