//! Operations that can make much out of little, paid for before they make it.

use minijinja::value::ValueKind;
use minijinja::{Error, Value};

use super::budget::Budget;
use super::library::{Outcome, invalid};
use super::{TemplateError, print};

/// The most entries of a `range`.
const MAX_RANGE: usize = 100_000;

pub(super) fn join(budget: &Budget, values: &Value, separator: &str, attribute: Option<&str>) -> Outcome {
    let mut out = String::new();
    for (index, value) in values.try_iter()?.enumerate() {
        if index > 0 {
            budget.charge(separator.len())?;
            out.push_str(separator);
        }
        let value = match attribute {
            Some(name) => value.get_attr(name)?,
            None => value,
        };
        budget.charge_entries(1)?;
        out.push_str(&print::to_text(budget, &value)?);
    }
    Ok(Value::from(out))
}

pub(super) fn replace(budget: &Budget, text: &str, from: &str, to: &str, most: usize) -> Outcome {
    budget.charge(text.len())?;
    let found = if from.is_empty() { text.chars().count() + 1 } else { text.matches(from).count() };
    budget.charge(found.min(most).saturating_mul(to.len()))?;
    Ok(Value::from(text.replacen(from, to, most)))
}

pub(super) fn indent(budget: &Budget, text: &str, width: usize, first: bool, blank: bool) -> Outcome {
    let lines = text.split('\n').count();
    budget.charge(lines.saturating_mul(width).saturating_add(text.len()))?;
    let margin = " ".repeat(width);
    let mut out = String::new();
    for (index, line) in text.split('\n').enumerate() {
        if index > 0 {
            out.push('\n');
        }
        if if index == 0 { first } else { blank || !line.is_empty() } {
            out.push_str(&margin);
        }
        out.push_str(line);
    }
    Ok(Value::from(out))
}

pub(super) fn range(budget: &Budget, first: i64, second: Option<i64>, step: Option<i64>) -> Outcome {
    let (start, stop) = second.map_or((0, first), |second| (first, second));
    let (start, stop, step) = (i128::from(start), i128::from(stop), i128::from(step.unwrap_or(1)));
    let count = match step.signum() {
        0 => return Err(invalid("range needs a step other than 0")),
        1 => (stop - start + step - 1).div_euclid(step),
        _ => (start - stop - step - 1).div_euclid(-step),
    };
    let count = usize::try_from(count.max(0)).unwrap_or(usize::MAX);
    if count > MAX_RANGE {
        return Err(budget.fail(TemplateError::RangeTooLong(MAX_RANGE)));
    }
    budget.charge_entries(count)?;
    Ok(Value::from((0..count as i128).map(|index| Value::from((start + index * step) as i64)).collect::<Vec<_>>()))
}

/// `left * right`: numbers, or a text or list repeated.
pub(super) fn multiply(budget: &Budget, left: &Value, right: &Value) -> Outcome {
    let repeated = |value: &Value| matches!(value.kind(), ValueKind::String | ValueKind::Seq | ValueKind::Iterable);
    let (value, factor) = if repeated(left) { (left, right) } else { (right, left) };
    if repeated(value) {
        // A negative factor gives nothing, as in Python.
        let count = i64::try_from(factor.clone()).map_err(|_| invalid("only an integer can repeat a text or list"))?;
        let count = usize::try_from(count).unwrap_or(0);
        if let Some(text) = value.as_str() {
            budget.charge(text.len().saturating_mul(count))?;
            return Ok(Value::from(text.repeat(count)));
        }
        let entries: Vec<Value> = value.try_iter()?.collect();
        let total = entries.len().saturating_mul(count);
        budget.charge_entries(total)?;
        return Ok(Value::from(entries.into_iter().cycle().take(total).collect::<Vec<_>>()));
    }
    let wrong = || invalid(format!("cannot multiply {} and {}", left.kind(), right.kind()));
    if left.is_integer() && right.is_integer() {
        let factors = i64::try_from(left.clone()).ok().zip(i64::try_from(right.clone()).ok());
        let product = factors.and_then(|(left, right)| left.checked_mul(right));
        return product.map(Value::from).ok_or_else(|| invalid("the product of two integers is too large"));
    }
    let float = |value: &Value| f64::try_from(value.clone()).map_err(|_| wrong());
    Ok(Value::from(float(left)? * float(right)?))
}

/// `value[start:stop:step]` of a text or list, as in Python.
pub(super) fn slice(budget: &Budget, value: &Value, start: &Value, stop: &Value, step: &Value) -> Outcome {
    let bound = |bound: &Value| -> Result<Option<i64>, Error> {
        if bound.is_none() { Ok(None) } else { Ok(Some(i64::try_from(bound.clone())?)) }
    };
    let (start, stop, step) = (bound(start)?, bound(stop)?, bound(step)?.unwrap_or(1));
    if step == 0 {
        return Err(invalid("a slice needs a step other than 0"));
    }
    budget.charge_shallow(value)?;
    match value.as_str() {
        Some(text) => {
            budget.charge(text.len().saturating_mul(4))?;
            let chars: Vec<char> = text.chars().collect();
            let indices = slice_indices(chars.len(), start, stop, step);
            Ok(Value::from(indices.filter_map(|index| chars.get(index)).collect::<String>()))
        }
        None if value.is_undefined() => Ok(Value::from(Vec::<Value>::new())),
        None if matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable) => {
            let entries: Vec<Value> = value.try_iter()?.collect();
            let indices = slice_indices(entries.len(), start, stop, step);
            Ok(Value::from(indices.filter_map(|index| entries.get(index).cloned()).collect::<Vec<_>>()))
        }
        None => Err(invalid(format!("{} cannot be sliced", value.kind()))),
    }
}

/// The indices that a slice of `len` entries takes; `step` is not zero.
fn slice_indices(len: usize, start: Option<i64>, stop: Option<i64>, step: i64) -> impl Iterator<Item = usize> {
    let (len, step) = (len as i128, i128::from(step));
    let forward = step > 0;
    let (low, high) = if forward { (0, len) } else { (-1, len - 1) };
    let place = |bound: Option<i64>, default: i128| match bound.map(i128::from) {
        Some(index) if index < 0 => (index + len).clamp(low, high),
        Some(index) => index.clamp(low, high),
        None => default,
    };
    let (start, stop) =
        if forward { (place(start, low), place(stop, high)) } else { (place(start, high), place(stop, low)) };
    let mut at = start;
    std::iter::from_fn(move || {
        let inside = if forward { at < stop } else { at > stop };
        let index = usize::try_from(at).ok().filter(|_| inside)?;
        at += step;
        Some(index)
    })
}
