//! Response formats: OpenAI's, and the fields of other servers for the same.

use gristmill_engine::{Grammar, closed_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::error::{ApiError, GrammarPath, Paths};

/// The most texts of `guided_choice`.
const MOST_TEXTS: usize = 1_000;

/// Other servers' fields that request a text of some form; one of them at most, and none next to OpenAI's own.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
pub(crate) struct FormatFields {
    /// The text is JSON of this schema.
    guided_json: Option<Value>,
    /// The text is one of these.
    guided_choice: Option<Vec<String>>,
    /// The text matches this regular expression as a whole.
    guided_regex: Option<String>,
    /// The text follows this grammar, in GBNF (`root ::= …`) or in llguidance's dialect of Lark (`start: …`).
    guided_grammar: Option<String>,
    /// The same as `guided_grammar`; an empty text is none.
    grammar: Option<String>,
    /// The same as `guided_grammar`.
    ebnf: Option<String>,
    /// The same as `guided_regex`.
    regex: Option<String>,
    /// The same as `guided_json`.
    json_schema: Option<Value>,
    /// The same under vLLM's present names.
    structured_outputs: Option<StructuredOutputs>,
}

/// The format of the text: one of the fields.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct StructuredOutputs {
    /// The text is JSON of this schema, or of the schema in this text.
    json: Option<Value>,
    /// The text is one of these.
    choice: Option<Vec<String>>,
    /// The text matches this regular expression as a whole.
    regex: Option<String>,
    /// The text follows this grammar, in GBNF or in llguidance's dialect of Lark.
    grammar: Option<String>,
    /// The text is a JSON object.
    json_object: Option<bool>,
}

/// The form of a chat's text.
#[derive(Debug, Clone, Deserialize, ToSchema)]
pub(crate) struct ResponseFormat {
    /// `text`, `json_object`, or `json_schema`.
    r#type: String,
    /// For `json_schema`.
    json_schema: Option<JsonSchema>,
    /// For `json_object`, and for `json_schema` in place of the field of that name: the text is JSON of this schema.
    schema: Option<Value>,
}

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[expect(dead_code, reason = "some fields change nothing, and are known")]
struct JsonSchema {
    /// Without it, any JSON object. A keyword that is not enforced is refused with its path.
    schema: Option<Value>,
    /// Changes nothing.
    name: Option<String>,
    /// Changes nothing.
    description: Option<String>,
    /// Changes nothing: a schema is always enforced.
    strict: Option<bool>,
}

/// The form of a response's text: the fields of a schema stand next to the type.
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
    /// For `json_schema` and `json_object`. A keyword that is not enforced is refused with its path.
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

/// A grammar, and the path of the field that requests it.
pub(crate) type Asked = (Grammar, String);

impl FormatFields {
    /// The grammar that is requested, by these fields or by OpenAI's own. Sets its path.
    pub(crate) fn grammar(self, own: Option<Asked>, paths: &mut Paths) -> Result<Option<Grammar>, ApiError> {
        let structured = self.structured_outputs.unwrap_or_default();
        let mut asked: Vec<Asked> = own.into_iter().collect();
        for (at, schema) in [
            ("guided_json", self.guided_json),
            ("json_schema", self.json_schema),
            ("structured_outputs.json", structured.json),
        ] {
            let grammar = schema.map(|schema| of_schema(schema, at)).transpose()?;
            asked.extend(grammar.map(|grammar| (grammar, at.to_owned())));
        }
        for (at, texts) in [("guided_choice", self.guided_choice), ("structured_outputs.choice", structured.choice)] {
            let grammar = texts.map(|texts| one_of(&texts, at)).transpose()?;
            asked.extend(grammar.map(|grammar| (grammar, at.to_owned())));
        }
        for (at, regex) in
            [("guided_regex", self.guided_regex), ("regex", self.regex), ("structured_outputs.regex", structured.regex)]
        {
            asked.extend(regex.map(|regex| (Grammar::Regex(regex), at.to_owned())));
        }
        for (at, text) in [
            ("guided_grammar", self.guided_grammar),
            ("grammar", self.grammar.filter(|text| !text.is_empty())),
            ("ebnf", self.ebnf),
            ("structured_outputs.grammar", structured.grammar),
        ] {
            asked.extend(text.map(|text| (Grammar::of_text(text), at.to_owned())));
        }
        if structured.json_object == Some(true) {
            asked.push((Grammar::Json, "structured_outputs.json_object".to_owned()));
        }
        if let [(_, first), (_, second), ..] = asked.as_slice() {
            let message = format!("{first} and {second} both constrain the text; send one");
            return Err(ApiError::param(first, message));
        }
        let Some((grammar, path)) = asked.pop() else { return Ok(None) };
        paths.grammar = GrammarPath::Field(path);
        Ok(Some(grammar))
    }
}

impl ResponseFormat {
    /// The grammar of a chat's or completion's `response_format`.
    pub(crate) fn asked(self) -> Result<Option<Asked>, ApiError> {
        let at = "response_format";
        match (&*self.r#type, self.json_schema, self.schema) {
            ("json_schema", None, None) => {
                let message = "the type json_schema needs the field json_schema";
                Err(ApiError::param("response_format.json_schema", message))
            }
            ("json_schema", Some(JsonSchema { schema: Some(_), .. }), Some(_)) => {
                let message = "response_format.json_schema.schema constrains the text too; send one";
                Err(ApiError::param("response_format.schema", message))
            }
            (_, Some(JsonSchema { schema: schema @ Some(_), .. }), None) => {
                of_type(&self.r#type, schema, at, "json_schema.schema")
            }
            (_, _, schema) => of_type(&self.r#type, schema, at, "schema"),
        }
    }
}

impl TextFormat {
    /// The grammar of a response's `text.format`.
    pub(crate) fn asked(&self) -> Result<Option<Asked>, ApiError> {
        if self.r#type == "json_schema" && self.schema.is_none() {
            let message = "the type json_schema needs the field schema in the same object";
            return Err(ApiError::param("text.format.schema", message));
        }
        of_type(&self.r#type, self.schema.clone(), "text.format", "schema")
    }
}

/// The grammar of a format of this type, in the field `at` with the schema in the field `schema_at`.
fn of_type(kind: &str, schema: Option<Value>, at: &str, schema_at: &str) -> Result<Option<Asked>, ApiError> {
    match (kind, schema) {
        ("text", _) => Ok(None),
        ("json_object" | "json_schema", None) => Ok(Some((Grammar::Json, at.to_owned()))),
        ("json_object" | "json_schema", Some(schema)) => {
            Ok(Some((Grammar::JsonSchema(closed_schema(schema)), format!("{at}.{schema_at}"))))
        }
        (other, _) => {
            let message = format!("{other:?} is not a type of format; use text, json_object or json_schema");
            Err(ApiError::param(format!("{at}.type"), message))
        }
    }
}

/// The grammar of a schema, which may be written as text.
fn of_schema(schema: Value, at: &str) -> Result<Grammar, ApiError> {
    let schema = match schema {
        Value::String(text) => serde_json::from_str(&text)
            .map_err(|error| ApiError::param(at, format!("the text is not a JSON schema: {error}")))?,
        schema => schema,
    };
    Ok(Grammar::JsonSchema(closed_schema(schema)))
}

fn one_of(texts: &[String], at: &str) -> Result<Grammar, ApiError> {
    if texts.is_empty() || texts.len() > MOST_TEXTS || texts.iter().any(String::is_empty) {
        let message = format!("{at} needs between 1 and {MOST_TEXTS} texts, none of them empty");
        return Err(ApiError::param(at, message));
    }
    let escaped: Vec<String> = texts.iter().map(|text| regex_syntax::escape(text)).collect();
    Ok(Grammar::Regex(format!("({})", escaped.join("|"))))
}
