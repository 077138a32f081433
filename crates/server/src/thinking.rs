//! Whether and how much the model thinks. Clients have many names for this; every interface accepts all of them.

use std::fmt;

use gristmill_engine::Chat;
use gristmill_engine::template::Message;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::content::shortened;
use crate::error::ApiError;

/// Whether and how hard the model thinks, and the variables of its chat template.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
pub(crate) struct ThinkingFields {
    /// Whether a model that can think does; by default its template decides.
    enable_thinking: Option<bool>,
    /// The same as `enable_thinking`, or an effort.
    think: Option<Think>,
    /// The same as `enable_thinking`, or `{"type": "enabled"}`, `adaptive`, `disabled`, or `auto`.
    thinking: Option<Thinking>,
    pub(crate) reasoning: Option<Reasoning>,
    /// `none` and `minimal` turn thinking off. `low`, `medium` and `high` are for models whose template has them; `xhigh`
    /// and `max` are `high`.
    reasoning_effort: Option<String>,
    /// Only true: reasoning is always returned.
    include_reasoning: Option<bool>,
    /// Variables of the chat template; not those that other fields set, such as `messages`.
    #[serde(alias = "chat_template_args")]
    chat_template_kwargs: Option<Map<String, Value>>,
}

/// Whether the model thinks, or how hard.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(untagged, expecting = "true, false or an effort")]
enum Think {
    On(bool),
    Effort(String),
}

/// Whether the model thinks.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(untagged)]
enum Thinking {
    On(bool),
    Object(ThinkingType),
}

// Serde reports no path of an error within an untagged enum.
impl<'de> Deserialize<'de> for Thinking {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Thinking, D::Error> {
        deserializer.deserialize_any(ThinkingVisitor)
    }
}

struct ThinkingVisitor;

impl<'de> Visitor<'de> for ThinkingVisitor {
    type Value = Thinking;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("true, false or an object")
    }

    fn visit_bool<E>(self, on: bool) -> Result<Thinking, E> {
        Ok(Thinking::On(on))
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Thinking, A::Error> {
        ThinkingType::deserialize(MapAccessDeserializer::new(fields)).map(Thinking::Object)
    }
}

/// Whether the model thinks.
#[derive(Debug, Clone, Deserialize, Serialize, ToSchema)]
pub(crate) struct ThinkingType {
    /// `enabled`, `adaptive`, `disabled`, or `auto`, the default.
    r#type: Option<String>,
    /// The most tokens of thinking, at which it is ended.
    budget_tokens: Option<usize>,
}

/// Whether and how hard the model thinks.
#[derive(Debug, Clone, Default, Deserialize, Serialize, ToSchema)]
pub(crate) struct Reasoning {
    /// The same as `reasoning_effort`.
    effort: Option<String>,
    /// Whether a model that can think does.
    #[serde(skip_serializing_if = "Option::is_none")]
    enabled: Option<bool>,
    /// Only false: reasoning is always returned.
    #[serde(skip_serializing_if = "Option::is_none")]
    exclude: Option<bool>,
    /// The most tokens of thinking, at which it is ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<usize>,
}

/// Variables of a template that a request cannot set next to the field that sets them, and that field. A gateway that
/// filters messages or tools looks at these fields.
const OWN_VARIABLES: [(&str, &str); 10] = [
    ("add_generation_prompt", "use the field add_generation_prompt"),
    ("bos_token", "the model file has it"),
    ("chat_template", "the model's own is used"),
    ("continue_final_message", "use the field continue_final_message"),
    ("documents", "write them into the messages"),
    ("eos_token", "the model file has it"),
    ("messages", "use the field messages"),
    ("raise_exception", "it is a function of templates"),
    ("strftime_now", "it is a function of templates"),
    ("tools", "use the field tools"),
];

/// Names of the variable with which templates turn thinking on and off.
const SWITCHES: [&str; 2] = ["enable_thinking", "thinking"];

/// A request's settings for thinking, and their fields.
#[derive(Debug, Default)]
struct Said {
    on: Option<(bool, String)>,
    effort: Option<(&'static str, String)>,
}

impl ThinkingFields {
    /// The most tokens of thinking.
    pub(crate) fn budget(&self) -> Option<usize> {
        let of_thinking = match &self.thinking {
            Some(Thinking::Object(thinking)) => thinking.budget_tokens,
            _ => None,
        };
        of_thinking.or(self.reasoning.as_ref().and_then(|reasoning| reasoning.max_tokens))
    }

    /// The conversation of these messages, without tools.
    pub(crate) fn chat(self, messages: Vec<Message>) -> Result<Chat, ApiError> {
        self.chat_with(messages, None)
    }

    /// The same, with the effort in a field of the interface's own.
    pub(crate) fn chat_with(self, messages: Vec<Message>, own: Option<(&str, String)>) -> Result<Chat, ApiError> {
        let mut variables = self.chat_template_kwargs.clone().unwrap_or_default();
        if let Some((name, advice)) = OWN_VARIABLES.iter().find(|(name, _)| variables.contains_key(*name)) {
            let message = format!("{name} cannot be set as a variable of the template; {advice}");
            return Err(ApiError::param(format!("chat_template_kwargs.{name}"), message));
        }
        let Said { on, effort } = self.said(&variables, own)?;
        if let Some((effort, _)) = effort {
            variables.entry("reasoning_effort").or_insert(effort.into());
        }
        Ok(Chat { thinking: on.map(|(on, _)| on), variables, ..Chat::new(messages) })
    }

    fn said(self, variables: &Map<String, Value>, own: Option<(&str, String)>) -> Result<Said, ApiError> {
        let mut said = Said::default();
        said.on("enable_thinking", self.enable_thinking)?;
        match self.think {
            Some(Think::On(on)) => said.on("think", Some(on))?,
            Some(Think::Effort(effort)) => said.effort("think", Some(effort))?,
            None => {}
        }
        match self.thinking {
            Some(Thinking::On(on)) => said.on("thinking", Some(on))?,
            Some(Thinking::Object(thinking)) => said.on("thinking.type", thinking.is_on()?)?,
            None => {}
        }
        let Reasoning { effort, enabled, exclude, .. } = self.reasoning.unwrap_or_default();
        for (field, is_left_out) in
            [("reasoning.exclude", exclude == Some(true)), ("include_reasoning", self.include_reasoning == Some(false))]
        {
            if is_left_out {
                let message = format!("{field}: reasoning is always returned; turn it off with enable_thinking: false");
                return Err(ApiError::param(field, message).with_code("unsupported"));
            }
        }
        said.on("reasoning.enabled", enabled)?;
        said.effort("reasoning.effort", effort)?;
        said.effort("reasoning_effort", self.reasoning_effort)?;
        if let Some((field, effort)) = own {
            said.effort(field, Some(effort))?;
        }
        for name in SWITCHES {
            said.on(&format!("chat_template_kwargs.{name}"), variables.get(name).and_then(Value::as_bool))?;
        }
        Ok(said)
    }
}

impl ThinkingType {
    fn is_on(&self) -> Result<Option<bool>, ApiError> {
        match self.r#type.as_deref() {
            Some("enabled" | "adaptive") => Ok(Some(true)),
            Some("disabled") => Ok(Some(false)),
            Some("auto") | None => Ok(None),
            Some(other) => {
                let message = format!("{other:?} is not a type of thinking; use enabled, adaptive, disabled or auto");
                Err(ApiError::param("thinking.type", message))
            }
        }
    }
}

impl Said {
    /// Reads a field, and refuses two fields that contradict each other.
    fn on(&mut self, field: &str, on: Option<bool>) -> Result<(), ApiError> {
        let Some(on) = on else { return Ok(()) };
        match &self.on {
            Some((before, other)) if *before != on => Err(ApiError::param(
                field,
                format!("{field} and {other} contradict each other about thinking; send one"),
            )),
            Some(_) => Ok(()),
            None => {
                self.on = Some((on, field.to_owned()));
                Ok(())
            }
        }
    }

    fn effort(&mut self, field: &str, effort: Option<String>) -> Result<(), ApiError> {
        let Some(effort) = effort else { return Ok(()) };
        let effort = match effort.as_str() {
            // No template has an effort of this name; those that have a lowest effort get it with thinking turned off.
            "none" | "minimal" => return self.on(field, Some(false)),
            "low" => "low",
            "medium" => "medium",
            // Most templates know three.
            "high" | "xhigh" | "max" => "high",
            other => {
                let message = format!(
                    "{:?} is not an effort; use none, minimal, low, medium, high, xhigh or max",
                    shortened(other)
                );
                return Err(ApiError::param(field, message));
            }
        };
        match &self.effort {
            Some((before, other)) if *before != effort => {
                Err(ApiError::param(field, format!("{field} and {other} are different efforts; send one")))
            }
            _ => {
                self.effort = Some((effort, field.to_owned()));
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::Fields;
    use serde_json::json;

    fn chat(fields: Value) -> Result<Chat, ApiError> {
        let Value::Object(fields) = fields else { unreachable!("the tests write objects") };
        Fields::new(fields).read::<ThinkingFields>()?.chat(Vec::new())
    }

    #[test]
    fn thinking_has_many_names() {
        for (fields, on) in [
            (json!({}), None),
            (json!({"enable_thinking": false}), Some(false)),
            (json!({"enable_thinking": true}), Some(true)),
            (json!({"think": false}), Some(false)),
            (json!({"think": "low"}), None),
            (json!({"think": "none"}), Some(false)),
            (json!({"thinking": false}), Some(false)),
            (json!({"thinking": {"type": "disabled"}}), Some(false)),
            (json!({"thinking": {"type": "enabled", "budget_tokens": 2_000}}), Some(true)),
            (json!({"thinking": {"type": "adaptive"}}), Some(true)),
            (json!({"thinking": {"type": "auto"}}), None),
            (json!({"reasoning": {"enabled": false}}), Some(false)),
            (json!({"reasoning": {"effort": "none"}}), Some(false)),
            (json!({"reasoning": {"effort": "high", "exclude": false}}), None),
            (json!({"reasoning_effort": "none"}), Some(false)),
            (json!({"reasoning_effort": "minimal"}), Some(false)),
            (json!({"reasoning_effort": "high", "include_reasoning": true}), None),
            (json!({"chat_template_kwargs": {"enable_thinking": false}}), Some(false)),
            (json!({"chat_template_kwargs": {"thinking": false}}), Some(false)),
            (json!({"chat_template_args": {"thinking": true}}), Some(true)),
            (json!({"think": false, "enable_thinking": false}), Some(false)),
        ] {
            assert_eq!(chat(fields.clone()).expect("good").thinking, on, "{fields}");
        }
    }

    #[test]
    fn efforts_are_variables() {
        for fields in [
            json!({"reasoning_effort": "high"}),
            json!({"reasoning": {"effort": "high"}}),
            json!({"think": "high"}),
            json!({"reasoning_effort": "low", "chat_template_kwargs": {"reasoning_effort": "high"}}),
        ] {
            assert_eq!(chat(fields.clone()).expect("good").variables["reasoning_effort"], "high", "{fields}");
        }
        assert!(chat(json!({"reasoning_effort": "none"})).expect("good").variables.is_empty());
    }

    #[test]
    fn contradictions_and_names_of_our_own_are_refused() {
        for (fields, param) in [
            (json!({"enable_thinking": true, "think": false}), "think"),
            (json!({"thinking": {"type": "enabled"}, "reasoning_effort": "none"}), "reasoning_effort"),
            (
                json!({"enable_thinking": true, "chat_template_kwargs": {"thinking": false}}),
                "chat_template_kwargs.thinking",
            ),
            (json!({"reasoning": {"effort": "low"}, "reasoning_effort": "high"}), "reasoning_effort"),
            (json!({"reasoning": {"exclude": true}}), "reasoning.exclude"),
            (json!({"include_reasoning": false}), "include_reasoning"),
            (json!({"thinking": {"type": "maybe"}}), "thinking.type"),
            (json!({"thinking": {"type": "enabled", "budget_tokens": -1}}), "thinking.budget_tokens"),
            (json!({"thinking": "on"}), "thinking"),
            (json!({"think": 5}), "think"),
        ] {
            assert_eq!(chat(fields.clone()).expect_err("refused").param.as_deref(), Some(param), "{fields}");
        }
        for (name, _) in OWN_VARIABLES {
            let error =
                chat(json!({"chat_template_kwargs": {name: [], "enable_thinking": true}})).expect_err("refused");
            assert_eq!(error.param, Some(format!("chat_template_kwargs.{name}")));
        }
    }
}
