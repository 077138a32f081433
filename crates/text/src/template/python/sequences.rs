//! Methods of lists, tuples, ranges and mappings.

use minijinja::{Error, Value};

use super::super::budget::Budget;
use super::super::outcome::{Outcome, invalid};
use super::args::{Args, integer};
use super::{Kind, Range, View, entries, equal, is_hashable, tuple};

pub(super) fn method(budget: &Budget, value: &Value, name: &str, args: Args) -> Outcome {
    match (Kind::of(value), name) {
        (Kind::Dict, "get") => {
            let [Some(key), default] = args.unnamed(1)? else { return Err(invalid("get needs a key")) };
            if !is_hashable(&key) {
                return Err(invalid(format!("{} cannot be a key", Kind::of(&key).name())));
            }
            budget.charge_deep(&key)?;
            let found = value.as_object().and_then(|object| object.get_value(&key));
            Ok(found.unwrap_or_else(|| default.unwrap_or_else(|| Value::from(()))))
        }
        (Kind::Dict, _) => {
            let [] = args.unnamed(0)?;
            let keys = entries(budget, value)?;
            let pairs = |keys: Vec<Value>| -> Result<Vec<Value>, Error> {
                keys.into_iter().map(|key| Ok(tuple(vec![key.clone(), value.get_item(&key)?]))).collect()
            };
            let view = |name, entries| Value::from_object(View { name, entries });
            Ok(match name {
                "keys" => view("dict_keys", keys),
                "values" => {
                    let values = keys.iter().map(|key| value.get_item(key)).collect::<Result<_, _>>()?;
                    view("dict_values", values)
                }
                "items" => view("dict_items", pairs(keys)?),
                _ => value.clone(),
            })
        }
        (_, "count") => {
            let [Some(entry)] = args.unnamed(1)? else { return Err(invalid("count needs an entry")) };
            let mut count = 0;
            for other in entries(budget, value)? {
                count += i64::from(equal(budget, &other, &entry)?);
            }
            Ok(Value::from(count))
        }
        (kind, "index") => {
            let [Some(entry), start, stop] = args.unnamed(1)? else { return Err(invalid("index needs an entry")) };
            if kind == Kind::Range && start.is_some() {
                return Err(invalid("index of a range takes one argument"));
            }
            let all = entries(budget, value)?;
            let len = all.len() as i64;
            let place = |bound: Option<Value>, default: i64| -> Result<usize, Error> {
                let index = bound.as_ref().map_or(Ok(default), integer)?;
                Ok(if index < 0 { index.saturating_add(len).max(0) } else { index.min(len) } as usize)
            };
            let (start, stop) = (place(start, 0)?, place(stop, len)?);
            for (index, other) in all.iter().enumerate().take(stop).skip(start) {
                if equal(budget, other, &entry)? {
                    return Ok(Value::from(index));
                }
            }
            Err(invalid(format!("index: the entry is not in {}", kind.name())))
        }
        // What a copy holds is the same.
        _ => args.unnamed::<0>(0).map(|_| value.clone()),
    }
}

/// The part of a range between two indices.
pub(super) fn range_between(of: &Value, from: i128, to: i128, step: i64, count: usize) -> Value {
    let Some(range) = of.downcast_object_ref::<Range>() else { return Value::UNDEFINED };
    let at = |index: i128| (i128::from(range.start) + index * i128::from(range.step)) as i64;
    Value::from_object(Range { start: at(from), stop: at(to), step: step.saturating_mul(range.step), count })
}
