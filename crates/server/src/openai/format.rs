//! What a reply must be: `response_format`, and the fields of other servers for the same.

use gristmill_engine::engine::{Grammar, closed_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::error::ApiError;

/// The most choices of `guided_choice`.
const MOST_CHOICES: usize = 1_000;

/// Other servers' fields that ask for a text of some form; one of them at most, and none beside OpenAI's own.
#[derive(Debug, Clone, Default, Deserialize, Serialize, ToSchema)]
#[serde(default)]
pub(crate) struct FormatFields {
    /// The text is JSON of this schema.
    guided_json: Option<Value>,
    /// The text is one of these.
    guided_choice: Option<Vec<String>>,
    /// The text matches this regular expression as a whole.
    guided_regex: Option<String>,
    /// The text follows this grammar, in llguidance's dialect of Lark.
    guided_grammar: Option<String>,
}

#[derive(Debug, Clone, Deserialize, Serialize, ToSchema)]
pub(crate) struct ResponseFormat {
    /// `text`, `json_object`, or `json_schema`.
    r#type: String,
    /// For `json_schema`.
    json_schema: Option<JsonSchema>,
}

#[derive(Debug, Clone, Deserialize, Serialize, ToSchema)]
pub(crate) struct JsonSchema {
    /// Changes nothing.
    name: Option<String>,
    /// Without it, any JSON object.
    schema: Option<Value>,
    /// Changes nothing: a schema is always enforced.
    strict: Option<bool>,
}

impl FormatFields {
    /// The grammar of the text that is asked for, by these fields or by `response_format`.
    pub(crate) fn grammar(self, response_format: Option<ResponseFormat>) -> Result<Option<Grammar>, ApiError> {
        let FormatFields { guided_json, guided_choice, guided_regex, guided_grammar } = self;
        let mut grammars = Vec::new();
        if let Some(format) = response_format {
            grammars.extend(format.grammar()?);
        }
        grammars.extend(guided_json.map(|schema| Grammar::JsonSchema(closed_schema(schema))));
        if let Some(choices) = guided_choice {
            grammars.push(one_of(&choices)?);
        }
        grammars.extend(guided_regex.map(Grammar::Regex));
        grammars.extend(guided_grammar.map(Grammar::Lark));
        if grammars.len() > 1 {
            return Err(ApiError::param("response_format", "several fields say what the text must be; give one"));
        }
        Ok(grammars.pop())
    }
}

impl ResponseFormat {
    fn grammar(self) -> Result<Option<Grammar>, ApiError> {
        match (self.r#type.as_str(), self.json_schema) {
            ("text", _) => Ok(None),
            ("json_object", _) => Ok(Some(Grammar::Json)),
            ("json_schema", Some(JsonSchema { schema, .. })) => {
                Ok(Some(schema.map_or(Grammar::Json, |schema| Grammar::JsonSchema(closed_schema(schema)))))
            }
            ("json_schema", None) => {
                let message = "the type json_schema needs the field json_schema";
                Err(ApiError::param("response_format.json_schema", message))
            }
            (other, _) => {
                let message = format!("{other:?} is not a type of response; use text, json_object or json_schema");
                Err(ApiError::param("response_format.type", message))
            }
        }
    }
}

/// A format as responses write it: the fields of a schema stand beside the type.
#[derive(Debug, Clone, Deserialize, Serialize, ToSchema)]
pub(crate) struct TextFormat {
    /// `text`, `json_object`, or `json_schema`.
    r#type: String,
    /// Changes nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Changes nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    /// For `json_schema`. A keyword that is not enforced is refused with its path.
    #[serde(skip_serializing_if = "Option::is_none")]
    schema: Option<Value>,
    /// Changes nothing: a schema is always enforced.
    #[serde(skip_serializing_if = "Option::is_none")]
    strict: Option<bool>,
}

impl Default for TextFormat {
    fn default() -> TextFormat {
        TextFormat { r#type: "text".to_owned(), name: None, description: None, schema: None, strict: None }
    }
}

impl TextFormat {
    /// In the form of chats.
    pub(crate) fn nested(self) -> Result<ResponseFormat, ApiError> {
        let TextFormat { r#type, name, schema, strict, .. } = self;
        if r#type == "json_schema" && schema.is_none() {
            let message = "the type json_schema needs the field schema, which stands beside type";
            return Err(ApiError::param("text.format.schema", message));
        }
        Ok(ResponseFormat { r#type, json_schema: Some(JsonSchema { name, schema, strict }) })
    }
}

fn one_of(choices: &[String]) -> Result<Grammar, ApiError> {
    if choices.is_empty() || choices.len() > MOST_CHOICES || choices.iter().any(String::is_empty) {
        let message = format!("guided_choice needs between 1 and {MOST_CHOICES} texts, none of them empty");
        return Err(ApiError::param("guided_choice", message));
    }
    let escaped: Vec<String> = choices.iter().map(|choice| regex_syntax::escape(choice)).collect();
    Ok(Grammar::Regex(format!("({})", escaped.join("|"))))
}
