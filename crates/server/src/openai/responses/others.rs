//! Items by which a model of another server used that server's tools: calls, and results that are in the same item.

use gristmill_engine::template::Arguments;
use serde_json::{Map, Value};

use super::input::InputItem;
use crate::content::placeholder;
use crate::error::ApiError;
use crate::openai::messages::arguments_of;
use crate::openai::namespaces::qualified;

/// A call of another server's tool.
pub(super) struct OtherCall {
    /// The tool, as the model reads it.
    pub(super) name: String,
    pub(super) arguments: Arguments,
    /// The result, unless it is an item of its own.
    pub(super) result: Option<String>,
}

/// The outputs of other servers' calls, whose results are items of their own.
pub(super) const OUTPUTS: [&str; 6] = [
    "apply_patch_call_output",
    "computer_call_output",
    "custom_tool_call_output",
    "local_shell_call_output",
    "program_output",
    "shell_call_output",
];

/// Items that contain nothing for a model.
pub(super) const NOTES: [&str; 6] = [
    "compaction_trigger",
    "mcp_approval_request",
    "mcp_approval_response",
    "mcp_list_tools",
    "tool_search_call",
    "tool_search_output",
];

/// Summaries of a conversation that only the server can read which wrote them.
pub(super) const COMPACTIONS: [&str; 3] = ["compaction", "compaction_summary", "context_compaction"];

/// The call of an item of this type at the path `at`; `None` if it is none.
pub(super) fn call(kind: &str, item: &mut InputItem, at: &str) -> Result<Option<OtherCall>, ApiError> {
    let one =
        |field: &str, value: &mut Option<Value>| Map::from_iter(value.take().map(|value| (field.to_owned(), value)));
    let all = |value: &mut Option<Value>| match value.take() {
        Some(Value::Object(fields)) => fields,
        other => Map::from_iter(other.map(|value| ("action".to_owned(), value))),
    };
    let unseen = |kind: &str| Some(placeholder(kind, None, None));
    let (name, arguments, result) = match kind {
        "apply_patch_call" => ("apply_patch", all(&mut item.operation), None),
        "computer_call" => ("computer", all(&mut item.action), None),
        "local_shell_call" => ("local_shell", all(&mut item.action), None),
        "shell_call" => ("shell", all(&mut item.action), None),
        "program" => ("program", one("code", &mut item.code), None),
        "code_interpreter_call" => {
            ("code_interpreter", one("code", &mut item.code), words(&item.outputs).or(unseen("outputs")))
        }
        "file_search_call" => {
            ("file_search", one("queries", &mut item.queries), words(&item.results).or(unseen("results")))
        }
        "image_generation_call" => ("image_generation", one("prompt", &mut item.revised_prompt), unseen("image")),
        "web_search_call" => ("web_search", all(&mut item.action), unseen("results")),
        "custom_tool_call" => {
            let name = qualified(item.namespace.as_deref(), item.name.as_deref().unwrap_or("custom"));
            return Ok(Some(OtherCall { name, arguments: one("input", &mut item.input).into(), result: None }));
        }
        "mcp_call" => {
            let name = qualified(item.server_label.as_deref(), item.name.as_deref().unwrap_or("tool"));
            let arguments = arguments_of(item.arguments.take(), &format!("{at}.arguments"))?;
            let failed = || words(&item.error).map(|error| format!("Error: {error}"));
            let result = words(&item.output).or_else(failed).or(unseen("output"));
            return Ok(Some(OtherCall { name, arguments, result }));
        }
        _ => return Ok(None),
    };
    Ok(Some(OtherCall { name: name.to_owned(), arguments: arguments.into(), result }))
}

/// The address of the screenshot that a computer's output is.
pub(super) fn screenshot(item: &InputItem) -> Option<&str> {
    item.output.as_ref()?.as_object()?.get("image_url")?.as_str()
}

/// The text of the output of another server's call.
pub(super) fn output(item: &InputItem) -> String {
    let text = words(&item.output).or_else(|| words(&item.result));
    text.unwrap_or_else(|| placeholder("output", None, None))
}

/// The fields of a result that are words, in the order in which the model reads them.
const WORDS: [&str; 9] = ["filename", "url", "message", "text", "logs", "content", "stdout", "stderr", "outcome"];

/// The words of a result. A line stands for an object of a type without words.
fn words(result: &Option<Value>) -> Option<String> {
    fn read(value: &Value) -> Vec<String> {
        match value {
            Value::String(text) => vec![text.clone()],
            Value::Array(parts) => parts.iter().flat_map(read).collect(),
            Value::Object(part) => {
                let kind = part.get("type").and_then(Value::as_str).unwrap_or_default();
                let mut words: Vec<String> = match (part.get("exit_code"), kind) {
                    (Some(code), _) => vec![format!("exit code {code}")],
                    (None, "timeout") => vec!["timeout".to_owned()],
                    (None, "image" | "computer_screenshot" | "input_image" | "input_file") => Vec::new(),
                    (None, _) => WORDS.iter().filter_map(|field| part.get(*field)).flat_map(read).collect(),
                };
                words.retain(|words| !words.is_empty());
                if words.is_empty() && !kind.is_empty() {
                    words.push(placeholder(kind, None, None));
                }
                words
            }
            _ => Vec::new(),
        }
    }
    result.as_ref().map(|value| read(value).join("\n")).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn words_of_results() {
        for (result, expected) in [
            (json!("a"), Some("a")),
            (json!(null), None),
            (json!([]), None),
            (
                json!([{"type": "logs", "logs": "1"}, {"type": "image", "url": "https://a/b.png"}]),
                Some("1\n[image: not shown, because this model cannot read it]"),
            ),
            (
                json!([{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}},
                    {"stdout": "", "stderr": "b", "outcome": {"type": "timeout"}}]),
                Some("a\nexit code 0\nb\ntimeout"),
            ),
            (
                json!({"type": "computer_screenshot", "image_url": "data:image/png;base64,AA"}),
                Some("[computer_screenshot: not shown, because this model cannot read it]"),
            ),
            (json!([{"file_id": "f", "filename": "a.txt", "score": 0.5, "text": "rye"}]), Some("a.txt\nrye")),
            (json!({"type": "protocol_error", "code": 1, "message": "no such tool"}), Some("no such tool")),
        ] {
            assert_eq!(words(&Some(result)).as_deref(), expected);
        }
    }
}
