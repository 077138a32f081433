//! The tools whose calls follow the schemas of their arguments, where a grammar holds calls at all.

use std::cmp::Reverse;

use gristmill_text::grammar::{Grammar, check_schemas, closed_schema};
use gristmill_text::template::{Chat, Tool};
use serde_json::{Value as Json, json};

use super::options::{ConverseOptions, ToolChoice};
use crate::{Engine, EngineError};

/// A tool whose calls should follow the schema of its arguments and cannot.
#[derive(Debug)]
#[non_exhaustive]
pub struct Unenforced {
    /// The index of the tool in [`Chat::tools`].
    pub tool: usize,
    /// Why. The path of a keyword starts at the schema.
    pub reason: EngineError,
}

/// The tools of a conversation whose calls should follow their schemas and cannot. Takes milliseconds.
/// [`Engine::converse`] lets calls of these tools have any JSON object as arguments.
pub fn check_tools(chat: &Chat, options: &ConverseOptions) -> Vec<Unenforced> {
    let held = held(chat, options);
    let schemas: Vec<Json> = held.iter().map(|(_, tool)| closed_parameters(tool)).collect();
    let results = held.iter().zip(check_schemas(&schemas));
    let refused = |(&(tool, _), result): (&(usize, &Tool), Result<_, _>)| match result {
        Ok(()) => None,
        Err(error) => Some(Unenforced { tool, reason: EngineError::from(error) }),
    };
    results.filter_map(refused).collect()
}

impl Engine {
    /// The tools whose calls cannot follow their schemas, where compiling has refused the grammar of the conversation's
    /// reply: those whose schemas are refused one by one, or the larger half of the schemas if only all of them together
    /// are. None if no call is held, or if the grammar of the answer is refused itself. Blocks as long as compiling does.
    pub fn refused_tools(&self, chat: &Chat, options: &ConverseOptions) -> Vec<Unenforced> {
        let mut held = held(chat, options);
        let answer = options.grammar.as_ref().filter(|_| options.tool_choice == ToolChoice::Auto);
        if answer.is_some_and(|grammar| self.compile(grammar).is_err()) {
            return Vec::new();
        }
        let alone = |&(tool, definition): &(usize, &Tool)| {
            let compiled = self.compile(&Grammar::JsonSchema(closed_parameters(definition)));
            compiled.err().map(|reason| Unenforced { tool, reason })
        };
        let refused: Vec<Unenforced> = held.iter().filter_map(alone).collect();
        if !refused.is_empty() {
            return refused;
        }
        let size = |tool: &Tool| tool.parameters.as_ref().map_or(0, |schema| schema.to_string().len());
        held.sort_by_key(|(_, tool)| Reverse(size(tool)));
        held.truncate(held.len().div_ceil(2));
        let reason = || EngineError::Grammar("the schemas of all tools are too large together".to_owned());
        held.into_iter().map(|(tool, _)| Unenforced { tool, reason: reason() }).collect()
    }
}

/// All tools, with the schemas that their calls follow.
pub(super) fn enforced(chat: &Chat, options: &ConverseOptions) -> Vec<Tool> {
    let refused = check_tools(chat, options);
    let is_free =
        |tool: usize| options.unenforced.contains(&tool) || refused.iter().any(|refused| refused.tool == tool);
    let enforced = |(index, tool): (usize, &Tool)| {
        let parameters = if is_free(index) { any_object() } else { closed_parameters(tool) };
        Tool { parameters: Some(parameters), ..tool.clone() }
    };
    chat.tools.iter().enumerate().map(enforced).collect()
}

/// The tools whose calls a grammar holds to their schemas.
fn held<'a>(chat: &'a Chat, options: &ConverseOptions) -> Vec<(usize, &'a Tool)> {
    let is_held = |(index, tool): &(usize, &Tool)| {
        !options.unenforced.contains(index)
            && match &options.tool_choice {
                ToolChoice::Required => true,
                ToolChoice::Among(names) => names.contains(&tool.name),
                // A call that the model chooses is held to its schema if an answer is held to a grammar.
                ToolChoice::Auto => options.grammar.is_some() && !chat.continues,
                ToolChoice::None => false,
            }
    };
    chat.tools.iter().enumerate().filter(is_held).collect()
}

fn closed_parameters(tool: &Tool) -> Json {
    closed_schema(tool.parameters.clone().unwrap_or_else(any_object))
}

fn any_object() -> Json {
    json!({"type": "object"})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str, schema: Json) -> Tool {
        Tool { name: name.to_owned(), parameters: Some(schema), ..Tool::default() }
    }

    fn chat(tools: Vec<Tool>) -> Chat {
        Chat { tools, ..Chat::default() }
    }

    #[test]
    fn a_schema_that_cannot_be_enforced_is_any_object() {
        let good = json!({"type": "object", "properties": {"a": {"type": "string"}}});
        let bad = json!({"type": "object", "properties": {"a": {"contains": {}}}});
        let chat = chat(vec![tool("good", good.clone()), tool("bad", bad.clone()), tool("free", good.clone())]);
        let required = ConverseOptions { tool_choice: ToolChoice::Required, ..ConverseOptions::default() };
        let refused = check_tools(&chat, &required);
        assert_eq!(refused.iter().map(|refused| refused.tool).collect::<Vec<_>>(), [1]);
        assert!(matches!(&refused[0].reason, EngineError::Schema { path, .. } if path == "/properties/a/contains"));
        let options = ConverseOptions { unenforced: vec![2], ..required.clone() };
        let schemas: Vec<Option<Json>> = enforced(&chat, &options).into_iter().map(|tool| tool.parameters).collect();
        assert_eq!(schemas, [Some(closed_schema(good)), Some(any_object()), Some(any_object())]);
        // What no grammar holds is not asked about.
        for (tool_choice, grammar) in [
            (ToolChoice::Auto, None),
            (ToolChoice::None, Some(Grammar::Json)),
            (ToolChoice::Among(vec!["good".to_owned()]), None),
        ] {
            assert!(check_tools(&chat, &ConverseOptions { tool_choice, grammar, ..required.clone() }).is_empty());
        }
    }

    /// Each schema fits, and all of them exceed the bounds on a grammar.
    #[test]
    fn schemas_share_the_bounds() {
        let large = |name: &str| {
            let properties: serde_json::Map<String, Json> =
                (0..600).map(|index| (format!("{name}{index}"), json!({"type": "string"}))).collect();
            tool(name, json!({"type": "object", "properties": properties}))
        };
        let small = tool("c", json!({"type": "object", "properties": {"x": {"type": "integer"}}}));
        let chat = chat(vec![large("a"), large("b"), large("d"), small]);
        let options = ConverseOptions { tool_choice: ToolChoice::Required, ..ConverseOptions::default() };
        let refused: Vec<usize> = check_tools(&chat, &options).iter().map(|refused| refused.tool).collect();
        assert_eq!(refused, [2]);
    }
}
