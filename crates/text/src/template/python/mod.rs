//! Values as Python has them: its types that Jinja's values lack, and what kind of value each is.

mod access;
mod args;
mod arithmetic;
mod chars;
mod compare;
mod format;
mod number;
mod printf;
mod sequences;
mod text;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use minijinja::value::{Enumerator, Object, ObjectRepr, ValueKind};
use minijinja::{Error, State, Value};

pub(super) use access::{BoundMethod, attribute, call_method, is_method, item, lookup_path, slice, static_attribute};
pub(super) use args::{Args, integer, text_of};
pub(super) use arithmetic::{
    add, divide, float as float_value, floor_divide, modulo, multiply, negate, power, subtract,
};
pub(super) use chars::{capitalized, is_lower, is_printable, is_space, is_upper, is_word};
pub(super) use compare::{contains, equal, is_hashable, less};
use format::{Spec, pad};
pub(super) use number::{float_text, parse_float, parse_integer, round_float};
pub(super) use printf::percent;
pub(super) use text::{centred, replace, split_lines};

use super::budget::Budget;
use super::library::invalid;

/// The types of Python that a template can tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
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
    pub(super) fn of(value: &Value) -> Kind {
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
    pub(super) fn name(self) -> &'static str {
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
pub(super) struct Tuple {
    pub(super) entries: Vec<Value>,
    pub(super) names: &'static [&'static str],
}

pub(super) fn tuple(entries: Vec<Value>) -> Value {
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
pub(super) struct Range {
    pub(super) start: i64,
    pub(super) stop: i64,
    pub(super) step: i64,
    pub(super) count: usize,
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
pub(super) struct View {
    /// `dict_keys` and so on.
    pub(super) name: &'static str,
    pub(super) entries: Vec<Value>,
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
pub(super) struct Iter(Mutex<VecDeque<Value>>);

pub(super) fn iterator(entries: Vec<Value>) -> Value {
    Value::from_object(Iter(Mutex::new(entries.into())))
}

impl Iter {
    pub(super) fn next(&self) -> Option<Value> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    /// What is left, without reading it.
    pub(super) fn rest(&self) -> Vec<Value> {
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
pub(super) struct Cycler {
    pub(super) entries: Vec<Value>,
    pub(super) at: Mutex<usize>,
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
pub(super) struct Joiner {
    pub(super) separator: Value,
    pub(super) used: Mutex<bool>,
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

/// What a value holds that does not show its entries.
pub(super) fn held(value: &Value) -> Vec<Value> {
    if let Some(method) = value.downcast_object_ref::<BoundMethod>() {
        vec![method.value().clone()]
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
pub(super) fn entries(budget: &Budget, value: &Value) -> Result<Vec<Value>, Error> {
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
pub(super) fn length(budget: &Budget, value: &Value) -> Result<usize, Error> {
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
pub(super) fn text_like(like: &Value, text: String) -> Value {
    if like.is_safe() { Value::from_safe_string(text) } else { Value::from(text) }
}

/// `html.escape` of Jinja.
pub(super) fn escape(budget: &Budget, text: &str) -> Result<String, Error> {
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
