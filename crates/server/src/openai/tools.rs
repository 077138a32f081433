//! Tools, and the choice among them.

use gristmill_engine::ToolChoice;
use gristmill_engine::template::Tool;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::namespaces::{Namespaces, qualified};
use crate::error::{ApiError, Paths};
use crate::fields::read_at;
use crate::policy;
use crate::tools::{SchemaField, Tools};

/// A tool of a chat.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ChatTool {
    /// `function`; others are left out, and named in the header `x-gristmill-ignored`.
    r#type: String,
    function: Option<Function>,
}

/// A function that the model may call.
#[derive(Debug, Clone, Default, Deserialize, Serialize, ToSchema)]
pub(crate) struct Function {
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    /// A JSON schema.
    parameters: Option<Value>,
    /// Whether arguments follow the schema; they do in required calls.
    strict: Option<bool>,
}

/// A tool of a response: the fields of its function stand next to the type.
#[derive(Debug, Clone, Deserialize, Serialize, ToSchema)]
pub(crate) struct ResponseTool {
    /// `function`, or `namespace`; others are left out, and named in the header `x-gristmill-ignored`.
    pub(super) r#type: String,
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    /// A JSON schema.
    parameters: Option<Value>,
    /// Whether arguments follow the schema; they do in required calls.
    strict: Option<bool>,
    /// Changes nothing, because no tool is searched for: the model sees the function from the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    defer_loading: Option<bool>,
    /// The functions of a namespace. The model sees them as `NAMESPACE__NAME`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(no_recursion)]
    tools: Option<Vec<ResponseTool>>,
}

/// The tools of a request, and the paths of what is ignored of them.
#[derive(Debug, Default)]
pub(crate) struct ToolsRead {
    pub(crate) tools: Tools,
    /// Tools that are not functions, and fields that defer one.
    pub(crate) others: Vec<String>,
    /// Fields `strict` that request arguments of the schema.
    pub(crate) strict: Vec<String>,
    /// The functions that have a namespace.
    namespaces: Namespaces,
}

/// The tools that may be called, and the choice among them.
#[derive(Debug)]
pub(crate) struct ToolsChosen {
    pub(crate) tools: Vec<Tool>,
    /// Their schemas in the request.
    pub(crate) schemas: Vec<SchemaField>,
    pub(crate) choice: ToolChoice,
    pub(crate) namespaces: Namespaces,
}

impl ToolsRead {
    /// The tools of a chat.
    pub(crate) fn of_chat(tools: Vec<ChatTool>) -> Result<ToolsRead, ApiError> {
        let mut read = ToolsRead::default();
        for (index, ChatTool { r#type, function }) in tools.into_iter().enumerate() {
            match r#type.as_str() {
                "function" => {
                    let at = format!("tools[{index}].function");
                    let Some(function) = function else {
                        let message =
                            "the fields of a function are in this object; only /v1/responses has them next to type";
                        return Err(ApiError::param(at, message));
                    };
                    read.function(function, &at)?;
                }
                _ => read.others.push(format!("tools[{index}]")),
            }
        }
        Ok(read)
    }

    /// The tools of a response, which are at this path.
    pub(crate) fn of_response(tools: Vec<ResponseTool>, at: &str) -> Result<ToolsRead, ApiError> {
        let mut read = ToolsRead::default();
        for (index, tool) in tools.into_iter().enumerate() {
            let at = format!("{at}[{index}]");
            match tool.r#type.as_str() {
                "function" => {
                    read.deferred(&tool, &at);
                    read.function(tool.function(), &at)?;
                }
                "namespace" => read.namespace(tool, &at)?,
                other => read.others.push(format!("{at}.{other}")),
            }
        }
        Ok(read)
    }

    /// Adds tools. A tool replaces an earlier one of the same name.
    pub(crate) fn extend(&mut self, more: ToolsRead) {
        let ToolsRead { tools, others, strict, namespaces } = more;
        self.tools.replace(tools);
        self.others.extend(others);
        self.strict.extend(strict);
        self.namespaces.extend(namespaces);
    }

    /// The functions of a namespace. Its description is before that of the first.
    fn namespace(&mut self, namespace: ResponseTool, at: &str) -> Result<(), ApiError> {
        let Some(prefix) = namespace.name.filter(|name| !name.is_empty()) else {
            return Err(ApiError::param(format!("{at}.name"), "a namespace needs a name"));
        };
        let mut about = namespace.description.map(|text| format!("(Namespace {prefix}: {text})\n"));
        for (index, tool) in namespace.tools.into_iter().flatten().enumerate() {
            let at = format!("{at}.tools[{index}]");
            if tool.r#type != "function" {
                self.others.push(format!("{at}.{}", tool.r#type));
                continue;
            }
            self.deferred(&tool, &at);
            let mut function = tool.function();
            // A function without a name is refused as such.
            let named = function.name.filter(|name| !name.is_empty());
            function.name = named.map(|name| self.namespaces.add(&prefix, &name));
            if let Some(about) = about.take() {
                function.description = Some(about + &function.description.unwrap_or_default());
            }
            self.function(function, &at)?;
        }
        Ok(())
    }

    /// The tools that may be called, and the choice among them. `has_grammar`: an answer follows a grammar, so calls
    /// follow their schemas. Sets the path of a required call's grammar, and adds what changes nothing to `ignored`.
    pub(crate) fn chosen(
        self,
        choice: Option<&Value>,
        place: NamePlace,
        has_grammar: bool,
        paths: &mut Paths,
        ignored: &mut Vec<String>,
    ) -> Result<ToolsChosen, ApiError> {
        let ToolsRead { mut tools, others, strict, namespaces } = self;
        let names = Names { place, namespaces: &namespaces };
        place.judge(choice, ignored)?;
        let choice = tool_choice(choice, names, &mut tools)?;
        ignored.extend(others);
        if choice == ToolChoice::Auto && !has_grammar {
            // A call that the model chooses is checked to be JSON, and may differ from the schema.
            ignored.extend(strict);
        }
        let (tools, schemas) = tools.chosen(&choice, paths);
        Ok(ToolsChosen { tools, schemas, choice, namespaces })
    }

    fn deferred(&mut self, tool: &ResponseTool, at: &str) {
        self.others.extend((tool.defer_loading == Some(true)).then(|| format!("{at}.defer_loading")));
    }

    fn function(&mut self, function: Function, at: &str) -> Result<(), ApiError> {
        let Function { name, description, parameters, strict } = function;
        if strict == Some(true) {
            self.strict.push(format!("{at}.strict"));
        }
        let tool = Tool { name: name.unwrap_or_default(), description, parameters, ..Tool::default() };
        let schema = SchemaField { path: format!("{at}.parameters"), is_strict: strict == Some(true) };
        self.tools.push(tool, format!("{at}.name"), schema)
    }
}

impl ResponseTool {
    fn function(self) -> Function {
        let ResponseTool { name, description, parameters, strict, .. } = self;
        Function { name, description, parameters, strict }
    }
}

/// Where an interface writes the name of a function.
#[derive(Debug, Clone, Copy)]
pub(crate) enum NamePlace {
    /// In the field `function`, as chats do.
    Nested,
    /// Next to `type`, as responses do.
    Flat,
}

impl NamePlace {
    /// The name in a choice of a function, and its namespace.
    fn name(self, tool: &Value) -> Option<(Option<&str>, &str)> {
        let function = match self {
            NamePlace::Nested => &tool["function"],
            NamePlace::Flat => tool,
        };
        (tool["type"] == "function").then(|| Some((function["namespace"].as_str(), function["name"].as_str()?)))?
    }

    /// The object with `mode` and `tools` of a choice of the type `allowed_tools`, and its path.
    fn allowed(self, choice: &Value) -> (&Value, &'static str) {
        match self {
            NamePlace::Nested => (&choice["allowed_tools"], "tool_choice.allowed_tools"),
            NamePlace::Flat => (choice, "tool_choice"),
        }
    }

    /// Adds the paths of fields that change nothing. A choice of a wrong form is refused when it is read.
    fn judge(self, choice: Option<&Value>, ignored: &mut Vec<String>) -> Result<(), ApiError> {
        let Some(choice) = choice.filter(|choice| choice.is_object()).cloned() else { return Ok(()) };
        let mut found = Vec::new();
        let read = match self {
            NamePlace::Nested => read_at::<NestedChoice>(choice, "tool_choice", policy::CHATS, &mut found).map(drop),
            NamePlace::Flat => read_at::<FlatChoice>(choice, "tool_choice", policy::RESPONSES, &mut found).map(drop),
        };
        ignored.extend(found);
        read
    }

    fn example(self) -> Value {
        match self {
            NamePlace::Nested => json!({"type": "function", "function": {"name": "…"}}),
            NamePlace::Flat => json!({"type": "function", "name": "…"}),
        }
    }
}

/// The fields of a choice in a chat.
#[derive(Deserialize)]
#[expect(dead_code, reason = "only their names count")]
struct NestedChoice {
    r#type: Option<Value>,
    function: Option<NamedTool>,
    allowed_tools: Option<NestedAllowed>,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "only their names count")]
struct NestedAllowed {
    mode: Option<Value>,
    tools: Option<Vec<NestedTool>>,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "only their names count")]
struct NestedTool {
    r#type: Option<Value>,
    function: Option<NamedTool>,
}

/// The fields of a choice in a response.
#[derive(Deserialize)]
#[expect(dead_code, reason = "only their names count")]
struct FlatChoice {
    r#type: Option<Value>,
    name: Option<Value>,
    namespace: Option<Value>,
    mode: Option<Value>,
    tools: Option<Vec<NamedTool>>,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "only their names count")]
struct NamedTool {
    r#type: Option<Value>,
    name: Option<Value>,
    namespace: Option<Value>,
}

/// The way from a choice to the name that the model sees.
#[derive(Debug, Clone, Copy)]
struct Names<'a> {
    place: NamePlace,
    namespaces: &'a Namespaces,
}

impl Names<'_> {
    /// The name in a choice. That of a function in a namespace may do without it where no other has that name.
    fn name(self, tool: &Value, tools: &Tools) -> Option<String> {
        let (namespace, name) = self.place.name(tool)?;
        let seen = qualified(namespace, name);
        if tools.contains(&seen) {
            return Some(seen);
        }
        Some(self.namespaces.only(name).map_or(seen, str::to_owned))
    }
}

/// The choice that a request makes. Tools that it does not allow are removed.
fn tool_choice(choice: Option<&Value>, names: Names, tools: &mut Tools) -> Result<ToolChoice, ApiError> {
    let Some(choice) = choice else { return Ok(ToolChoice::Auto) };
    match (choice.as_str(), choice["type"].as_str(), names.name(choice, tools)) {
        (Some("auto"), ..) => Ok(ToolChoice::Auto),
        (Some("none"), ..) => Ok(ToolChoice::None),
        // The second is Mistral's name.
        (Some("required" | "any"), ..) => Ok(ToolChoice::Required),
        (_, _, Some(name)) => Ok(ToolChoice::Among(vec![name])),
        (_, Some("allowed_tools"), _) => allowed_tools(choice, names, tools),
        _ => {
            let message = format!("tool_choice is auto, none, required, or {}", names.place.example());
            Err(ApiError::param("tool_choice", message))
        }
    }
}

fn allowed_tools(choice: &Value, names: Names, tools: &mut Tools) -> Result<ToolChoice, ApiError> {
    let (allowed, at) = names.place.allowed(choice);
    let wrong = |field: &str, message: String| Err(ApiError::param(format!("{at}.{field}"), message));
    let mut found = Vec::new();
    for (index, tool) in allowed["tools"].as_array().into_iter().flatten().enumerate() {
        match names.name(tool, tools).filter(|name| tools.contains(name)) {
            Some(name) => found.push(name),
            None => return wrong(&format!("tools[{index}]"), "there is no such tool in tools".to_owned()),
        }
    }
    if found.is_empty() {
        return wrong("tools", format!("name at least one tool, as {}", names.place.example()));
    }
    tools.retain(&found);
    match allowed["mode"].as_str() {
        Some("auto") => Ok(ToolChoice::Auto),
        Some("required") => Ok(ToolChoice::Required),
        _ => wrong("mode", "the mode is auto or required".to_owned()),
    }
}
