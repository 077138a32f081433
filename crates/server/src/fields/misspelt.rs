//! Names that look like a field which sets the form of a text or a tool: without the field, the request would run, and
//! its reply would have another form.

/// Fields that set a form or a tool, in the interfaces of this server and in others.
const SETTING: [&str; 25] = [
    "ebnf",
    "format",
    "function",
    "functions",
    "grammar",
    "guided_choice",
    "guided_grammar",
    "guided_json",
    "guided_regex",
    "input_schema",
    "json_object",
    "json_schema",
    "output_config",
    "output_format",
    "parameters",
    "parameters_json_schema",
    "params",
    "regex",
    "response_format",
    "response_schema",
    "schema",
    "structured_outputs",
    "text_format",
    "tool_choice",
    "tools",
];

/// Keywords of a schema that is one level too high.
const KEYWORDS: [&str; 10] =
    ["$defs", "$ref", "additionalProperties", "allOf", "anyOf", "definitions", "enum", "items", "oneOf", "properties"];

/// Fields of a request within which a form or a tool is set.
const PLACES: [&str; 9] = [
    "function_call",
    "functions",
    "output_config",
    "output_format",
    "response_format",
    "structured_outputs",
    "text",
    "tool_choice",
    "tools",
];

/// The field that this one looks like, if it sets a form or a tool.
pub(super) fn resembles(path: &str) -> Option<&'static str> {
    let (of, name) = path.rsplit_once('.').unwrap_or(("", path));
    let place = of.split(['.', '[']).next().unwrap_or_default();
    let is_within = PLACES.contains(&place) || of.contains(".tools[");
    if !is_within && !of.is_empty() {
        return None;
    }
    if is_within && let Some(keyword) = KEYWORDS.into_iter().find(|keyword| *keyword == name) {
        return Some(keyword);
    }
    let plain = |name: &str| name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
    let sent = plain(name);
    SETTING.into_iter().find(|known| {
        let known = plain(known);
        let most = match known.len() {
            0..=4 => 0,
            5..=7 => 1,
            _ => 2,
        };
        sent.len().abs_diff(known.len()) <= most && distance(sent.as_bytes(), known.as_bytes()) <= most
    })
}

/// The changes between two words: letters that are added, left out, replaced, or swapped with the next one.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut rows = [vec![0; b.len() + 1], (0..=b.len()).collect::<Vec<usize>>()];
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let mut least = (rows[1][j] + usize::from(x != y)).min(rows[1][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                least = least.min(rows[0][j - 1] + 1);
            }
            row.push(least);
        }
        rows = [std::mem::take(&mut rows[1]), row];
    }
    rows[1][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_look_like_a_form() {
        for (path, known) in [
            ("tools[0].function.paramters", Some("parameters")),
            ("tools[0].function.Parameters", Some("parameters")),
            ("tools[12].input_schema", Some("input_schema")),
            ("tools[0].inputSchema", Some("input_schema")),
            ("tools[0].function.input_schema", Some("input_schema")),
            ("input[3].tools[0].parametres", Some("parameters")),
            ("response_format.jsonSchema", Some("json_schema")),
            ("response_format.json_schema.shcema", Some("schema")),
            ("response_format.json_schema.properties", Some("properties")),
            ("text.format.json_schema", Some("json_schema")),
            ("output_config.formats", Some("format")),
            ("response_fromat", Some("response_format")),
            ("tool", Some("tools")),
            ("tools[0].cache_control", None),
            ("tools[0].function.output_schema", None),
            ("response_format.json_schema.title", None),
            ("properties", None),
            ("messages[0].parameters", None),
            ("messages[0].content[0].format", None),
            ("weird", None),
            ("text.verbosity", None),
        ] {
            assert_eq!(resembles(path), known, "{path}");
        }
        for (a, b, changes) in [("", "ab", 2), ("abc", "acb", 1), ("abcd", "acbd", 1), ("kitten", "sitting", 3)] {
            assert_eq!(distance(a.as_bytes(), b.as_bytes()), changes);
        }
    }
}
