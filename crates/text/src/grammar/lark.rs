//! Grammars in Lark: the schemas in them are checked and rewritten as all others.

use serde_json::Value;

use super::GrammarError;
use super::budget::Budget;
use super::schema;

/// Bytes of a grammar without its schemas: the time of a regular expression grows with their square.
const MAX_TEXT: usize = 12 << 10;

/// Before a schema.
const SCHEMA: &str = "%json";

/// The grammar with its schemas rewritten.
///
/// # Errors
/// [`GrammarError::Refused`] names what is refused; [`GrammarError::Schema`] of a schema.
pub(super) fn rewrite(text: &str) -> Result<String, GrammarError> {
    let refuse = |reason: String| Err(GrammarError::Refused(reason));
    // Settings of the whole grammar, such as text that is not UTF-8.
    if text.contains("%llguidance") {
        return refuse("`%llguidance` is not allowed; leave it out".to_owned());
    }
    // How tokens are sampled is a part of the request.
    if text.split("temperature").skip(1).any(|rest| rest.trim_start().starts_with('=')) {
        return refuse("`temperature=` is not supported; set the temperature of the request".to_owned());
    }
    // Also checks strings and comments. There the text is refused although it has no effect, so that none is
    // overlooked.
    let mut parts = text.split(SCHEMA);
    let mut rewritten = parts.next().unwrap_or_default().to_owned();
    let mut budget = Budget::default();
    let mut own = rewritten.len();
    let mut rest = &text[rewritten.len()..];
    while let Some(after) = rest.strip_prefix(SCHEMA) {
        let line = 1 + text[..text.len() - after.len()].matches('\n').count();
        let mut values = serde_json::Deserializer::from_str(after).into_iter::<Value>();
        let found = match values.next() {
            Some(Ok(schema)) => schema,
            Some(Err(error)) => return refuse(format!("`%json` in line {line} is not followed by JSON: {error}")),
            None => return refuse(format!("`%json` in line {line} is not followed by a schema")),
        };
        let end = values.byte_offset();
        let schema = schema::rewrite(&found, &mut budget)?.0.to_string();
        if schema.contains(SCHEMA) {
            return refuse(format!("the schema in line {line} has `%json` in a name or text"));
        }
        let next = after[end..].find(SCHEMA).map_or(after.len(), |at| end + at);
        rewritten.extend([SCHEMA, " ", &schema, &after[end..next]]);
        own += next - end;
        rest = &after[next..];
    }
    match own > MAX_TEXT {
        true => refuse(format!("it has {own} bytes beside its schemas; at most {MAX_TEXT} are taken")),
        false => Ok(rewritten),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_are_rewritten() {
        let text = "start: \"<\" a b \">\"\na: %json {\"type\": \"string\"}\nb: %json{\"title\":\"x\"} | /c/\n";
        let rewritten = rewrite(text).unwrap();
        let (before, after) = rewritten.split_once("%json {\"$ref\"").unwrap();
        assert_eq!(before, "start: \"<\" a b \">\"\na: ");
        assert!(after.contains("}\nb: %json {") && after.ends_with("} | /c/\n"), "{rewritten}");
        assert!(!rewritten.contains("title"));
        assert_eq!(rewrite("start: /a+/").unwrap(), "start: /a+/");
    }

    #[test]
    fn what_is_refused() {
        for (text, word) in [
            ("%llguidance {}\nstart: /a/", "%llguidance"),
            ("start[temperature =0.5]: /a/", "temperature"),
            ("start: %json", "line 1"),
            ("start: a\na: %json {\"type\":", "line 2"),
            ("start: a\na: %json {\"properties\": {\"%json {}\": true}}", "line 2"),
            ("start: a\n# %json later", "line 2"),
        ] {
            let Err(GrammarError::Refused(reason)) = rewrite(text) else { panic!("{text}") };
            assert!(reason.contains(word), "{reason}");
        }
        let text = "start: %json {\"type\": \"array\", \"contains\": {}}";
        let Err(GrammarError::Schema { path, .. }) = rewrite(text) else { panic!() };
        assert_eq!(path, "/contains");
        let settings = "start: %json {\"x-guidance\": {\"lenient\": true}}";
        assert!(matches!(rewrite(settings), Err(GrammarError::Schema { .. })));
    }
}
