//! Python's comparisons.

use std::cmp::Ordering;

use minijinja::{Error, Value};

use super::super::budget::{Budget, MAX_NESTING};
use super::super::error::TemplateError;
use super::super::outcome::invalid;
use super::arithmetic::float;
use super::{Iter, Kind, Range, View, entries};

/// What a comparison costs, besides the texts that it reads.
const STEP: usize = 16;

/// `left == right`.
pub(in super::super) fn equal(budget: &Budget, left: &Value, right: &Value) -> Result<bool, Error> {
    equal_at(budget, left, right, MAX_NESTING)
}

fn deeper(budget: &Budget, levels: usize) -> Result<usize, Error> {
    levels.checked_sub(1).ok_or_else(|| budget.fail(TemplateError::TooDeep(MAX_NESTING)))
}

fn is_number(kind: Kind) -> bool {
    matches!(kind, Kind::Bool | Kind::Int | Kind::Float)
}

/// The order of two numbers; none with a value that is not a number.
fn number_order(left: &Value, right: &Value) -> Option<Ordering> {
    match (Kind::of(left), Kind::of(right)) {
        (Kind::Float, _) | (_, Kind::Float) => float(left)?.partial_cmp(&float(right)?),
        _ => Some(i128::try_from(left.clone()).ok()?.cmp(&i128::try_from(right.clone()).ok()?)),
    }
}

fn equal_at(budget: &Budget, left: &Value, right: &Value, levels: usize) -> Result<bool, Error> {
    budget.charge(STEP)?;
    match (Kind::of(left), Kind::of(right)) {
        (Kind::Undefined, Kind::Undefined) | (Kind::None, Kind::None) => Ok(true),
        (a, b) if is_number(a) && is_number(b) => Ok(number_order(left, right) == Some(Ordering::Equal)),
        (Kind::Str, Kind::Str) => {
            let (a, b) = (left.as_str().unwrap_or_default(), right.as_str().unwrap_or_default());
            if a.len() == b.len() {
                budget.charge(a.len())?;
            }
            Ok(a == b)
        }
        (Kind::List, Kind::List) | (Kind::Tuple, Kind::Tuple) => {
            let levels = deeper(budget, levels)?;
            if left.len() != right.len() {
                return Ok(false);
            }
            for (a, b) in left.try_iter()?.zip(right.try_iter()?) {
                if !equal_at(budget, &a, &b, levels)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        (Kind::Dict, Kind::Dict) => {
            let levels = deeper(budget, levels)?;
            if left.len() != right.len() {
                return Ok(false);
            }
            for key in left.try_iter()? {
                budget.charge_shallow(&key)?;
                let other = right.as_object().and_then(|object| object.get_value(&key));
                let Some(other) = other else { return Ok(false) };
                if !equal_at(budget, &left.get_item(&key)?, &other, levels)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        (Kind::Range, Kind::Range) => Ok(entries(budget, left)? == entries(budget, right)?),
        (Kind::View, Kind::View) => {
            // Views of values are compared by identity.
            if !is_set(left) || !is_set(right) {
                return Ok(false);
            }
            let levels = deeper(budget, levels)?;
            if left.len() != right.len() {
                return Ok(false);
            }
            for a in left.try_iter()? {
                let mut found = false;
                for b in right.try_iter()? {
                    found = found || equal_at(budget, &a, &b, levels)?;
                }
                if !found {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        (Kind::Iterator, Kind::Iterator) => {
            let at = |value: &Value| value.downcast_object_ref::<Iter>().map(std::ptr::from_ref);
            Ok(at(left) == at(right))
        }
        (Kind::Other, Kind::Other) => {
            budget.charge_deep(left)?;
            budget.charge_deep(right)?;
            Ok(left == right)
        }
        _ => Ok(false),
    }
}

/// Whether a view is of keys or of items.
fn is_set(value: &Value) -> bool {
    value.downcast_object_ref::<View>().is_some_and(|view| view.name != "dict_values")
}

/// `left < right`; `or_equal` for `left <= right`.
pub(in super::super) fn less(budget: &Budget, left: &Value, right: &Value, or_equal: bool) -> Result<bool, Error> {
    less_at(budget, left, right, or_equal, MAX_NESTING)
}

fn less_at(budget: &Budget, left: &Value, right: &Value, or_equal: bool, levels: usize) -> Result<bool, Error> {
    budget.charge(STEP)?;
    let holds = |order: Ordering| order == Ordering::Less || or_equal && order == Ordering::Equal;
    match (Kind::of(left), Kind::of(right)) {
        (a, b) if is_number(a) && is_number(b) => Ok(number_order(left, right).is_some_and(holds)),
        (Kind::Str, Kind::Str) => {
            let (a, b) = (left.as_str().unwrap_or_default(), right.as_str().unwrap_or_default());
            budget.charge(a.len().min(b.len()))?;
            Ok(holds(a.cmp(b)))
        }
        (Kind::List, Kind::List) | (Kind::Tuple, Kind::Tuple) => {
            let levels = deeper(budget, levels)?;
            for (a, b) in left.try_iter()?.zip(right.try_iter()?) {
                if !equal_at(budget, &a, &b, levels)? {
                    return less_at(budget, &a, &b, or_equal, levels);
                }
            }
            Ok(holds(left.len().cmp(&right.len())))
        }
        // Of views it is whether one is a part of the other.
        (Kind::View, Kind::View) if is_set(left) && is_set(right) => {
            for entry in entries(budget, left)? {
                if !among(budget, right, &entry)? {
                    return Ok(false);
                }
            }
            Ok(or_equal || left.len() < right.len())
        }
        (a, b) => Err(invalid(format!("{} and {} have no order", a.name(), b.name()))),
    }
}

/// Whether a value can be a key of a mapping.
pub(in super::super) fn is_hashable(value: &Value) -> bool {
    match Kind::of(value) {
        Kind::List | Kind::Dict | Kind::View => false,
        Kind::Tuple => value.try_iter().is_ok_and(|mut entries| entries.all(|entry| is_hashable(&entry))),
        _ => true,
    }
}

/// `entry in container`.
pub(in super::super) fn contains(budget: &Budget, container: &Value, entry: &Value) -> Result<bool, Error> {
    match Kind::of(container) {
        Kind::Undefined => Ok(false),
        Kind::Str => {
            let text = container.as_str().unwrap_or_default();
            let wrong = || invalid(format!("{} cannot be in a string", Kind::of(entry).name()));
            budget.charge(text.len())?;
            Ok(text.contains(entry.as_str().ok_or_else(wrong)?))
        }
        Kind::Dict => {
            if !is_hashable(entry) {
                return Err(invalid(format!("{} cannot be a key", Kind::of(entry).name())));
            }
            budget.charge_deep(entry)?;
            Ok(container.as_object().is_some_and(|object| object.get_value(entry).is_some()))
        }
        Kind::Range => {
            let range = container.downcast_object_ref::<Range>();
            budget.charge_entries(range.map_or(0, |range| range.count))?;
            among(budget, container, entry)
        }
        Kind::List | Kind::Tuple | Kind::View | Kind::Iterator => among(budget, container, entry),
        kind => Err(invalid(format!("{} contains nothing", kind.name()))),
    }
}

fn among(budget: &Budget, container: &Value, entry: &Value) -> Result<bool, Error> {
    for other in container.try_iter()? {
        if equal(budget, &other, entry)? {
            return Ok(true);
        }
    }
    Ok(false)
}
