//! Calls as a model writes them: for templates that leave out the calls of earlier turns.

use serde_json::Value as Json;

use super::frame::{Frame, Item, Named};
use super::syntax::CallBody;
use super::tags::{Lines, Tags};

/// A call of an earlier turn: its name and its arguments, or a text that is no object.
pub type Written<'c> = (&'c str, Json);

impl CallBody {
    /// The text of calls; `None` if a template always writes calls of this form.
    pub fn written(&self, calls: &[Written]) -> Option<String> {
        match self {
            CallBody::Json(frame) => Some(frame.written(calls)),
            CallBody::Tags(tags) => Some(tags.written(calls)),
            CallBody::Gemma | CallBody::Nested => None,
        }
    }
}

impl Frame {
    fn written(&self, calls: &[Written]) -> String {
        let items: Vec<String> = calls.iter().enumerate().map(|(index, call)| self.item.written(index, call)).collect();
        let [open, close] = self.call;
        let calls = match self.is_list {
            true => format!("[{}]", items.join(", ")),
            false => {
                let between = if open.is_empty() || open.ends_with('\n') { "\n" } else { "" };
                items.iter().map(|item| [open, item, close].concat()).collect::<Vec<_>>().join(between)
            }
        };
        [self.section[0], &calls, self.section[1]].concat()
    }
}

impl Item {
    fn written(&self, index: usize, (name, arguments): &Written) -> String {
        match self {
            Item::Object([of_name, of_arguments]) => {
                format!("{{{}: {}, {}: {}}}", text(of_name), text(name), text(of_arguments), json(arguments))
            }
            Item::Keyed => format!("{{{}: {}}}", text(name), json(arguments)),
            Item::Python => {
                let argument = |(key, value): (&String, &Json)| format!("{key}={}", literal(value));
                let arguments = arguments.as_object().into_iter().flatten().map(argument);
                format!("{name}({})", arguments.collect::<Vec<_>>().join(", "))
            }
            Item::Named(Named { id_end, before, between, after, is_numbered }) => {
                let id = if id_end.is_empty() { String::new() } else { format!("call_{index}{id_end}") };
                let number = if *is_numbered { format!(":{index}") } else { String::new() };
                let arguments = arguments.as_str().map_or_else(|| json(arguments), str::to_owned);
                [&*id, before, name, &number, between, &arguments, after].concat()
            }
        }
    }
}

impl Tags {
    fn written(&self, calls: &[Written]) -> String {
        let line = if self.lines == Lines::Always { "\n" } else { "" };
        let call = |(index, (name, arguments)): (usize, &Written)| {
            let number = if self.number_end.is_empty() { String::new() } else { (index + 1).to_string() };
            let mut call = [self.function, name, self.name_end.unwrap_or_default(), &number, self.number_end].concat();
            call.push_str(self.line);
            for (key, value) in arguments.as_object().into_iter().flatten() {
                let kind = self.types.map_or("", |types| types.of(value));
                let value = match (value.as_str(), self.quotes) {
                    (Some(text), Some([open, close])) if text.contains(['<', '&', '\n']) => {
                        [open, text, close].concat()
                    }
                    (Some(text), _) => text.to_owned(),
                    (None, _) => json(value),
                };
                call.extend([
                    self.key,
                    key,
                    self.key_end,
                    kind,
                    self.value,
                    line,
                    &value,
                    line,
                    self.value_end,
                    self.line,
                ]);
            }
            call + self.end
        };
        let calls: Vec<String> = calls.iter().enumerate().map(call).collect();
        // Without a tag of its own, a call starts with the tag before its name.
        let line = if self.function.is_empty() { "" } else { self.line };
        let close = if self.end == self.close { "" } else { self.close };
        let marked = |calls: &str| [self.open, line, calls, line, close].concat();
        match self.several {
            true => marked(&calls.join(self.line)),
            false => calls.iter().map(|call| marked(call)).collect::<Vec<_>>().join("\n"),
        }
    }
}

/// A literal of Python.
fn literal(value: &Json) -> String {
    match value {
        Json::Null => "None".to_owned(),
        Json::Bool(true) => "True".to_owned(),
        Json::Bool(false) => "False".to_owned(),
        Json::String(text) => {
            format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'").replace('\n', "\\n"))
        }
        Json::Array(items) => format!("[{}]", items.iter().map(literal).collect::<Vec<_>>().join(", ")),
        Json::Object(fields) => {
            let field =
                |(key, value): (&String, &Json)| format!("{}: {}", literal(&key.as_str().into()), literal(value));
            format!("{{{}}}", fields.iter().map(field).collect::<Vec<_>>().join(", "))
        }
        number => number.to_string(),
    }
}

/// A JSON object with a space after each comma and colon, as Python writes it.
pub(crate) fn json(value: &Json) -> String {
    match value {
        Json::Array(items) => format!("[{}]", items.iter().map(json).collect::<Vec<_>>().join(", ")),
        Json::Object(fields) => {
            let fields = fields.iter().map(|(key, value)| format!("{}: {}", text(key), json(value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
        scalar => scalar.to_string(),
    }
}

fn text(text: &str) -> String {
    Json::from(text).to_string()
}
