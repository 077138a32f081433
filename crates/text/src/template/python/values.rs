//! Values that minijinja lacks, and the types of Python by which templates tell values apart.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use minijinja::value::{Enumerator, Object, ObjectRepr, ValueKind};
use minijinja::{Error, State, Value};

use super::super::budget::Budget;
use super::super::outcome::{Outcome, invalid};

/// The types of Python that a template can tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Undefined,
    None,
    Bool,
    Int,
    Float,
    Str,
    List,
    Tuple,
    Dict,
    Range,
    View,
    Iterator,
    /// Functions, namespaces, loops.
    Other,
}

impl Kind {
    pub(crate) fn of(value: &Value) -> Kind {
        match value.kind() {
            ValueKind::Undefined => Kind::Undefined,
            ValueKind::None => Kind::None,
            ValueKind::Bool => Kind::Bool,
            ValueKind::Number if value.is_integer() => Kind::Int,
            ValueKind::Number => Kind::Float,
            ValueKind::String => Kind::Str,
            ValueKind::Map if is_engine_object(value) => Kind::Other,
            ValueKind::Map => Kind::Dict,
            ValueKind::Seq | ValueKind::Iterable => {
                if value.downcast_object_ref::<Tuple>().is_some() {
                    Kind::Tuple
                } else if value.downcast_object_ref::<Range>().is_some() {
                    Kind::Range
                } else if value.downcast_object_ref::<View>().is_some() {
                    Kind::View
                } else if value.downcast_object_ref::<Iter>().is_some() {
                    Kind::Iterator
                } else {
                    Kind::List
                }
            }
            _ => Kind::Other,
        }
    }

    /// Python's name of the type, for messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Undefined => "an undefined value",
            Kind::None => "None",
            Kind::Bool => "a boolean",
            Kind::Int => "an integer",
            Kind::Float => "a float",
            Kind::Str => "a string",
            Kind::List => "a list",
            Kind::Tuple => "a tuple",
            Kind::Dict => "a mapping",
            Kind::Range => "a range",
            Kind::View => "a view of a mapping",
            Kind::Iterator => "an iterator",
            Kind::Other => "an object",
        }
    }
}

/// Namespaces, loops and macros present themselves as mappings, and are none in Python.
fn is_engine_object(value: &Value) -> bool {
    let Some(object) = value.as_object() else { return false };
    ["Namespace", "Loop", "Macro"].iter().any(|name| object.type_name().ends_with(name))
}

/// `(1, 2)`; those of `groupby` have names.
#[derive(Debug)]
pub(crate) struct Tuple {
    pub(crate) entries: Vec<Value>,
    pub(crate) names: &'static [&'static str],
}

pub(crate) fn tuple(entries: Vec<Value>) -> Value {
    Value::from_object(Tuple { entries, names: &[] })
}

impl Object for Tuple {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        if let Some(name) = key.as_str() {
            let index = self.names.iter().position(|known| *known == name)?;
            return self.entries.get(index).cloned();
        }
        self.entries.get(key.as_usize()?).cloned()
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(self.entries.len())
    }
}

/// `range(start, stop, step)`.
#[derive(Debug, PartialEq)]
pub(crate) struct Range {
    pub(crate) start: i64,
    pub(crate) stop: i64,
    pub(crate) step: i64,
    pub(crate) count: usize,
}

impl Range {
    fn get(&self, index: usize) -> Option<Value> {
        let at = || i128::from(self.start) + index as i128 * i128::from(self.step);
        (index < self.count).then(|| Value::from(at() as i64))
    }
}

impl Object for Range {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.get(key.as_usize()?)
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(self.count)
    }
}

/// What `keys()`, `values()` and `items()` of a mapping return.
#[derive(Debug)]
pub(crate) struct View {
    /// `dict_keys` and so on.
    pub(crate) name: &'static str,
    pub(crate) entries: Vec<Value>,
}

impl Object for View {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Iterable
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        let this = self.clone();
        let len = self.entries.len();
        Enumerator::Iter(Box::new((0..len).map(move |index| this.entries[index].clone())))
    }
}

/// What `map`, `select` and other filters return: it is read once, and has no length.
#[derive(Debug)]
pub(crate) struct Iter(Mutex<VecDeque<Value>>);

pub(crate) fn iterator(entries: Vec<Value>) -> Value {
    Value::from_object(Iter(Mutex::new(entries.into())))
}

impl Iter {
    pub(crate) fn next(&self) -> Option<Value> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    /// What is left, without reading it.
    pub(crate) fn rest(&self) -> Vec<Value> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

impl Object for Iter {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Iterable
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        let this = self.clone();
        Enumerator::Iter(Box::new(std::iter::from_fn(move || this.next())))
    }

    fn is_true(self: &Arc<Self>) -> bool {
        true
    }
}

/// `cycler(…)`.
#[derive(Debug)]
pub(crate) struct Cycler {
    pub(crate) entries: Vec<Value>,
    pub(crate) at: Mutex<usize>,
}

impl Object for Cycler {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let at = *self.at.lock().unwrap_or_else(PoisonError::into_inner);
        (key.as_str() == Some("current")).then(|| self.entries.get(at).cloned())?
    }

    fn call_method(self: &Arc<Self>, _: &State, method: &str, args: &[Value]) -> Result<Value, Error> {
        if !args.is_empty() {
            return Err(invalid(format!("{method} takes no arguments")));
        }
        let mut at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        match method {
            "reset" => {
                *at = 0;
                Ok(Value::from(()))
            }
            "next" => {
                let current = self.entries.get(*at).cloned().unwrap_or_default();
                *at = (*at + 1) % self.entries.len().max(1);
                Ok(current)
            }
            _ => Err(Error::from(minijinja::ErrorKind::UnknownMethod)),
        }
    }
}

/// `joiner(…)`: nothing at its first call, then the separator.
#[derive(Debug)]
pub(crate) struct Joiner {
    pub(crate) separator: Value,
    pub(crate) used: Mutex<bool>,
}

impl Object for Joiner {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn call(self: &Arc<Self>, _: &State<'_, '_>, _: &[Value]) -> Result<Value, Error> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let first = !std::mem::replace(&mut *used, true);
        Ok(if first { Value::from("") } else { self.separator.clone() })
    }
}

/// A method that is not called at once, as of `{% if schema.items %}`.
#[derive(Debug)]
pub(crate) struct BoundMethod {
    budget: Budget,
    value: Value,
    name: String,
    call: Call,
}

/// Calls a method of a value by its name.
type Call = fn(&Budget, &Value, &str, &[Value]) -> Outcome;

impl BoundMethod {
    pub(crate) fn new(budget: &Budget, value: &Value, name: &str, call: Call) -> BoundMethod {
        BoundMethod { budget: budget.clone(), value: value.clone(), name: name.to_owned(), call }
    }
}

impl Object for BoundMethod {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn call(self: &Arc<Self>, _: &State<'_, '_>, args: &[Value]) -> Outcome {
        (self.call)(&self.budget, &self.value, &self.name, args)
    }
}

/// What a value holds that does not show its entries.
pub(crate) fn held(value: &Value) -> Vec<Value> {
    if let Some(method) = value.downcast_object_ref::<BoundMethod>() {
        vec![method.value.clone()]
    } else if let Some(cycler) = value.downcast_object_ref::<Cycler>() {
        cycler.entries.clone()
    } else if let Some(joiner) = value.downcast_object_ref::<Joiner>() {
        vec![joiner.separator.clone()]
    } else if let Some(iter) = value.downcast_object_ref::<Iter>() {
        // Going through it would empty it.
        iter.rest()
    } else {
        Vec::new()
    }
}

/// `iter(value)`, all of it.
pub(crate) fn entries(budget: &Budget, value: &Value) -> Result<Vec<Value>, Error> {
    match Kind::of(value) {
        Kind::Undefined => Ok(Vec::new()),
        Kind::Str => {
            let text = value.as_str().unwrap_or_default();
            budget.charge_entries(text.len())?;
            Ok(text.chars().map(Value::from).collect())
        }
        Kind::List | Kind::Tuple | Kind::Dict | Kind::Range | Kind::View | Kind::Iterator => {
            budget.charge_entries(value.len().unwrap_or(1))?;
            Ok(value.try_iter()?.collect())
        }
        kind => Err(invalid(format!("{} is not iterable", kind.name()))),
    }
}

/// `len(value)`.
pub(crate) fn length(budget: &Budget, value: &Value) -> Result<usize, Error> {
    match Kind::of(value) {
        Kind::Undefined => Ok(0),
        Kind::Str => {
            let text = value.as_str().unwrap_or_default();
            budget.charge(text.len())?;
            Ok(text.chars().count())
        }
        Kind::List | Kind::Tuple | Kind::Dict | Kind::Range | Kind::View => Ok(value.len().unwrap_or(0)),
        kind => Err(invalid(format!("{} has no length", kind.name()))),
    }
}

/// A text of the same kind as another: what is made of a safe text is safe.
pub(crate) fn text_like(like: &Value, text: String) -> Value {
    if like.is_safe() { Value::from_safe_string(text) } else { Value::from(text) }
}

/// `html.escape` of Jinja.
pub(crate) fn escape(budget: &Budget, text: &str) -> Result<String, Error> {
    budget.charge(text.len())?;
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\'' => out.push_str("&#39;"),
            '"' => out.push_str("&#34;"),
            c => out.push(c),
        }
    }
    budget.charge(out.len())?;
    Ok(out)
}
