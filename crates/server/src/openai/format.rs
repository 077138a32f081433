//! What a reply must be: `response_format`, and the fields of other servers for the same.

use gristmill_engine::engine::Grammar;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::error::ApiError;

/// The most choices of `guided_choice`.
const MOST_CHOICES: usize = 1_000;

/// Fields that ask for a text of some form; one of them at most.
#[derive(Debug, Clone, Default, Deserialize, Serialize, ToSchema)]
#[serde(default)]
pub(crate) struct FormatFields {
    /// The text is JSON. A keyword of a schema that is not enforced is refused with its path.
    response_format: Option<ResponseFormat>,
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
    /// The grammar of the text that is asked for.
    pub(crate) fn grammar(self) -> Result<Option<Grammar>, ApiError> {
        let FormatFields { response_format, guided_json, guided_choice, guided_regex, guided_grammar } = self;
        let mut grammars = Vec::new();
        if let Some(format) = response_format {
            grammars.extend(format.grammar()?);
        }
        grammars.extend(guided_json.map(Grammar::JsonSchema));
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
                Ok(Some(schema.map_or(Grammar::Json, Grammar::JsonSchema)))
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

fn one_of(choices: &[String]) -> Result<Grammar, ApiError> {
    if choices.is_empty() || choices.len() > MOST_CHOICES || choices.iter().any(String::is_empty) {
        let message = format!("guided_choice needs between 1 and {MOST_CHOICES} texts, none of them empty");
        return Err(ApiError::param("guided_choice", message));
    }
    let escaped: Vec<String> = choices.iter().map(|choice| regex_syntax::escape(choice)).collect();
    Ok(Grammar::Regex(format!("({})", escaped.join("|"))))
}
