//! Attributes, items, slices and methods of values.

use minijinja::{Error, ErrorKind, Value};

use super::super::budget::Budget;
use super::super::outcome::{Outcome, invalid};
use super::args::{Args, integer};
use super::{BoundMethod, Kind, entries, is_hashable, sequences, text, text_like, tuple};

/// The methods of a type, but those that change their value, which the sandbox hides.
fn methods(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Str => text::METHODS,
        Kind::List => &["copy", "count", "index"],
        Kind::Tuple | Kind::Range => &["count", "index"],
        Kind::Dict => &["copy", "get", "items", "keys", "values"],
        _ => &[],
    }
}

/// Methods that change a list or mapping: undefined in the sandbox, whatever keys a mapping has.
fn is_hidden(kind: Kind, name: &str) -> bool {
    match kind {
        Kind::List => ["append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"].contains(&name),
        Kind::Dict => ["clear", "pop", "popitem", "setdefault", "update"].contains(&name),
        _ => false,
    }
}

/// Whether a value of some type has a method of this name, be it hidden.
pub(in super::super) fn is_method(name: &str) -> bool {
    let has = |kind: &Kind| methods(*kind).contains(&name) || is_hidden(*kind, name);
    [Kind::Str, Kind::List, Kind::Dict].iter().any(has)
}

/// A method of the value's type, which comes before an entry of this name; undefined if it is hidden.
pub(in super::super) fn static_attribute(budget: &Budget, value: &Value, name: &str) -> Option<Value> {
    let kind = Kind::of(value);
    if is_hidden(kind, name) {
        return Some(Value::UNDEFINED);
    }
    let method = || BoundMethod::new(budget, value, name, call_method);
    methods(kind).contains(&name).then(|| Value::from_object(method()))
}

/// `value.name`.
pub(in super::super) fn attribute(budget: &Budget, value: &Value, name: &str) -> Outcome {
    match static_attribute(budget, value, name) {
        Some(method) => Ok(method),
        None => value.get_attr(name),
    }
}

/// `value[key]`.
pub(in super::super) fn item(budget: &Budget, value: &Value, key: &Value) -> Outcome {
    let kind = Kind::of(value);
    if kind == Kind::Undefined {
        return Err(Error::from(ErrorKind::UndefinedError));
    }
    let found = match kind {
        Kind::Dict if !is_hashable(key) => None,
        Kind::Dict => {
            budget.charge_deep(key)?;
            value.as_object().and_then(|object| object.get_value(key))
        }
        Kind::Str | Kind::List | Kind::Tuple | Kind::Range => match Kind::of(key) {
            Kind::Int | Kind::Bool => {
                if kind == Kind::Str {
                    budget.charge_shallow(value)?;
                }
                let index = i64::try_from(key.clone()).map(Value::from);
                index.ok().and_then(|index| value.get_item(&index).ok()).filter(|found| !found.is_undefined())
            }
            // The names of an entry of `groupby`.
            _ if kind == Kind::Tuple => value.as_object().and_then(|object| object.get_value(key)),
            _ => None,
        },
        Kind::Other => value.get_item(key).ok().filter(|found| !found.is_undefined()),
        _ => None,
    };
    match (found, key.as_str()) {
        (Some(found), _) => Ok(found),
        (None, Some(name)) => Ok(static_attribute(budget, value, name).unwrap_or_default()),
        (None, None) => Ok(Value::UNDEFINED),
    }
}

/// What filters find by an attribute such as `a.0.b`.
pub(in super::super) fn lookup_path(budget: &Budget, value: &Value, path: &Value) -> Outcome {
    let Some(path) = path.as_str() else { return item(budget, value, path) };
    let mut value = value.clone();
    for part in path.split('.') {
        let key = match part.parse::<i64>() {
            Ok(index) if part.bytes().all(|byte| byte.is_ascii_digit()) => Value::from(index),
            _ => Value::from(part),
        };
        value = item(budget, &value, &key)?;
    }
    Ok(value)
}

/// `value.name(args)`.
pub(in super::super) fn call_method(budget: &Budget, value: &Value, name: &str, args: &[Value]) -> Outcome {
    let kind = Kind::of(value);
    if is_hidden(kind, name) {
        return Err(invalid(format!("{name} would change {}, which the sandbox does not allow", kind.name())));
    }
    if !methods(kind).contains(&name) {
        let lacks = || Error::new(ErrorKind::UnknownMethod, format!("{} has no method {name}", kind.name()));
        return Err(if kind == Kind::Undefined { Error::from(ErrorKind::UndefinedError) } else { lacks() });
    }
    budget.charge_text(value)?;
    args.iter().try_for_each(|arg| budget.charge_text(arg))?;
    match kind {
        Kind::Str => text::method(budget, value, name, Args::new(args)?),
        _ => sequences::method(budget, value, name, Args::new(args)?),
    }
}

/// `value[start:stop:step]`.
pub(in super::super) fn slice(budget: &Budget, value: &Value, start: &Value, stop: &Value, step: &Value) -> Outcome {
    let kind = Kind::of(value);
    match kind {
        Kind::Undefined => return Err(Error::from(ErrorKind::UndefinedError)),
        Kind::Str | Kind::List | Kind::Tuple | Kind::Range => {}
        kind => return Err(invalid(format!("{} cannot be sliced", kind.name()))),
    }
    let bound = |bound: &Value| -> Result<Option<i64>, Error> {
        match Kind::of(bound) {
            Kind::None => Ok(None),
            // Bounds out of range are those of the range.
            Kind::Int => Ok(Some(integer(bound).unwrap_or(match i128::try_from(bound.clone()) {
                Ok(bound) if bound < 0 => i64::MIN,
                _ => i64::MAX,
            }))),
            _ => integer(bound).map(Some).map_err(|_| invalid("only integers say where a text or list is sliced")),
        }
    };
    let start = bound(start)?;
    let stop = bound(stop)?;
    let step = bound(step)?.unwrap_or(1);
    if step == 0 {
        return Err(invalid("a slice needs a step other than 0"));
    }
    if let Some(text) = value.as_str() {
        budget.charge(text.len().saturating_mul(5))?;
        let chars: Vec<char> = text.chars().collect();
        let indices = slice_indices(chars.len(), start, stop, step);
        return Ok(text_like(value, indices.filter_map(|index| chars.get(index)).collect()));
    }
    let all = entries(budget, value)?;
    let indices = slice_indices(all.len(), start, stop, step);
    let part: Vec<Value> = indices.filter_map(|index| all.get(index).cloned()).collect();
    Ok(match kind {
        Kind::Tuple => tuple(part),
        Kind::Range => {
            let (from, to) = slice_bounds(all.len(), start, stop, step);
            sequences::range_between(value, from, to, step, part.len())
        }
        _ => Value::from(part),
    })
}

/// Where a slice of `len` entries starts and ends.
fn slice_bounds(len: usize, start: Option<i64>, stop: Option<i64>, step: i64) -> (i128, i128) {
    let len = len as i128;
    let forward = step > 0;
    let (low, high) = if forward { (0, len) } else { (-1, len - 1) };
    let place = |bound: Option<i64>, default: i128| match bound.map(i128::from) {
        Some(index) if index < 0 => (index + len).clamp(low, high),
        Some(index) => index.clamp(low, high),
        None => default,
    };
    if forward { (place(start, low), place(stop, high)) } else { (place(start, high), place(stop, low)) }
}

/// The indices that a slice of `len` entries takes; `step` is not zero.
fn slice_indices(len: usize, start: Option<i64>, stop: Option<i64>, step: i64) -> impl Iterator<Item = usize> {
    let (start, stop) = slice_bounds(len, start, stop, step);
    let forward = step > 0;
    let step = i128::from(step);
    let mut at = start;
    std::iter::from_fn(move || {
        let inside = if forward { at < stop } else { at > stop };
        let index = usize::try_from(at).ok().filter(|_| inside)?;
        at += step;
        Some(index)
    })
}
