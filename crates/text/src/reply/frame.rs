//! How a form writes calls whose arguments are JSON, as data. The reader of calls, the grammar of a required call, and
//! the text of earlier calls follow from it.

use super::call::ToolCall;

/// The marks around calls, with the white space that a model writes beside them; readers accept any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// Before the first call and after the last; empty if calls only have marks of their own.
    pub section: [&'static str; 2],
    /// The calls are the items of a JSON list, and have no marks of their own.
    pub is_list: bool,
    /// Before and after each call.
    pub call: [&'static str; 2],
    /// What is between the marks of a call.
    pub item: Item,
}

/// A call between its marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item {
    /// A JSON object with the name and the arguments under these keys.
    Object([&'static str; 2]),
    /// A JSON object whose only key is the name, and whose value is the arguments.
    Keyed,
    /// `NAME(KEY=VALUE, …)`, with literals of Python; an object with `name` and `arguments` is read too.
    Python,
    /// The name, and the arguments as a JSON object.
    Named(Named),
}

/// The marks of a call with its name before its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Named {
    /// Between the call's id and its name; empty if calls have no ids.
    pub id_end: &'static str,
    /// Before the name.
    pub before: &'static str,
    /// Between the name and the arguments.
    pub between: &'static str,
    /// After the arguments; may be missing.
    pub after: &'static str,
    /// The name is `functions.NAME:NUMBER`.
    pub is_numbered: bool,
}

impl Named {
    /// Without marks.
    pub const PLAIN: Named = Named { id_end: "", before: "", between: "", after: "", is_numbered: false };
}

impl Frame {
    /// Without marks, for JSON objects with the usual keys.
    pub const PLAIN: Frame = Frame { section: ["", ""], is_list: false, call: ["", ""], item: Item::OBJECT };

    /// The text before the first call, up to its name or its object.
    pub fn opening(&self) -> String {
        let (id, before) = match self.item {
            Item::Named(named) if !named.id_end.is_empty() => (ID, [named.id_end, named.before].concat()),
            Item::Named(named) => ("", named.before.to_owned()),
            _ => ("", String::new()),
        };
        [self.section[0], self.call[0], id, &before].concat()
    }

    /// The text between a name and its arguments, for an item with its name before them.
    pub fn between(&self) -> Option<String> {
        match self.item {
            Item::Named(Named { between, is_numbered: true, .. }) => Some(format!(":0{between}")),
            Item::Named(Named { between, .. }) => Some(between.to_owned()),
            _ => None,
        }
    }

    /// The marks that announce calls: of all calls, and of one.
    pub(super) fn openings(&self) -> impl Iterator<Item = &'static str> {
        [self.section[0], self.call[0]].into_iter().map(str::trim).filter(|mark| !mark.is_empty())
    }

    /// All marks that may follow the arguments of a call.
    pub(super) fn following(&self) -> Vec<&'static str> {
        let after = if let Item::Named(named) = self.item { named.after } else { "" };
        // Where a call has no mark, the next object follows.
        let next = if self.call[0].is_empty() && !self.is_list { "{" } else { "" };
        let ends = [after, self.call[1], self.section[1], next].map(str::trim);
        ends.into_iter().filter(|mark| !mark.is_empty()).chain(self.openings()).collect()
    }
}

/// The id of a required call, in forms with ids.
const ID: &str = "call_0";

impl Item {
    /// An object with the usual keys.
    pub const OBJECT: Item = Item::Object(["name", "arguments"]);

    /// The call in a JSON object.
    pub(super) fn call(&self, object: &str) -> Option<ToolCall> {
        match self {
            Item::Keyed => ToolCall::from_keyed_object(object),
            _ => ToolCall::from_object(object),
        }
    }
}
