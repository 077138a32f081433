//! Filters of lists and mappings.

use minijinja::{Error, Value};

use super::super::outcome::{Outcome, invalid};
use super::super::print;
use super::super::python::{
    Args, Iter, Kind, Tuple, add, call_method, entries, equal, integer, is_hashable, item, iterator, less, lookup_path,
    slice as python_slice, text_of,
};
use super::table::{Context, entries_if_true};

pub(super) fn length(cx: &Context, value: Value, args: Args) -> Outcome {
    let [] = args.bind([], 0)?;
    super::super::python::length(cx.budget, &value).map(Value::from)
}

pub(super) fn list(cx: &Context, value: Value, args: Args) -> Outcome {
    let [] = args.bind([], 0)?;
    entries(cx.budget, &value).map(Value::from)
}

pub(super) fn first(cx: &Context, value: Value, args: Args) -> Outcome {
    let [] = args.bind([], 0)?;
    if let Some(iter) = value.downcast_object_ref::<Iter>() {
        return Ok(iter.next().unwrap_or_default());
    }
    match Kind::of(&value) {
        Kind::List | Kind::Tuple | Kind::Dict | Kind::Range => Ok(value.try_iter()?.next().unwrap_or_default()),
        _ => Ok(entries(cx.budget, &value)?.into_iter().next().unwrap_or_default()),
    }
}

pub(super) fn last(cx: &Context, value: Value, args: Args) -> Outcome {
    let [] = args.bind([], 0)?;
    match Kind::of(&value) {
        Kind::Iterator => Err(invalid("an iterator cannot be reversed")),
        Kind::List | Kind::Tuple | Kind::Range => item(cx.budget, &value, &Value::from(-1)),
        _ => Ok(entries(cx.budget, &value)?.pop().unwrap_or_default()),
    }
}

pub(super) fn reverse(cx: &Context, value: Value, args: Args) -> Outcome {
    let [] = args.bind([], 0)?;
    if Kind::of(&value) == Kind::Str {
        let none = Value::from(());
        return python_slice(cx.budget, &value, &none, &none, &Value::from(-1));
    }
    let mut all = entries(cx.budget, &value)?;
    all.reverse();
    Ok(if Kind::of(&value) == Kind::Iterator { Value::from(all) } else { iterator(all) })
}

pub(super) fn items(cx: &Context, value: Value, args: Args) -> Outcome {
    let [] = args.bind([], 0)?;
    match Kind::of(&value) {
        Kind::Undefined => Ok(iterator(Vec::new())),
        Kind::Dict => Ok(iterator(pairs(cx, &value)?)),
        _ => Err(invalid("items needs a mapping")),
    }
}

/// The items of a mapping, as tuples.
fn pairs(cx: &Context, value: &Value) -> Result<Vec<Value>, Error> {
    if Kind::of(value) != Kind::Dict {
        return Err(invalid(format!("{} has no items", Kind::of(value).name())));
    }
    entries(cx.budget, &call_method(cx.budget, value, "items", &[])?)
}

pub(super) fn join(cx: &Context, value: Value, args: Args) -> Outcome {
    let [separator, path] = args.bind(["d", "attribute"], 0)?;
    let separator = separator.map_or(Ok(String::new()), |separator| print::to_text(cx.budget, &separator))?;
    let path = path.filter(|path| !path.is_none());
    let mut out = String::new();
    for (index, entry) in entries(cx.budget, &value)?.into_iter().enumerate() {
        if index > 0 {
            cx.budget.charge(separator.len())?;
            out.push_str(&separator);
        }
        let entry = match &path {
            Some(path) => lookup_path(cx.budget, &entry, path)?,
            None => entry,
        };
        out.push_str(&print::to_text(cx.budget, &entry)?);
    }
    Ok(Value::from(out))
}

fn lines_of(entries: &[Value], ends: impl Iterator<Item = (usize, usize)>) -> Vec<Vec<Value>> {
    ends.map(|(start, end)| entries.get(start..end.min(entries.len())).unwrap_or_default().to_vec()).collect()
}

pub(super) fn batch(cx: &Context, value: Value, args: Args) -> Outcome {
    let [count, fill] = args.bind(["linecount", "fill_with"], 1)?;
    let count = count.unwrap_or_default();
    let all = entries(cx.budget, &value)?;
    let count = match Kind::of(&count) {
        Kind::Int | Kind::Bool => usize::try_from(integer(&count)?).ok(),
        _ => None,
    };
    // A count that no length equals leaves one line.
    let per_line = count.filter(|count| *count > 0).unwrap_or(usize::MAX).min(all.len().max(1));
    let starts = (0..all.len()).step_by(per_line);
    let mut lines = lines_of(&all, starts.map(|start| (start, start.saturating_add(per_line))));
    if count == Some(0) && !all.is_empty() {
        lines.insert(0, Vec::new());
    }
    let fill = fill.filter(|fill| !fill.is_none());
    if let (Some(count), Some(fill), Some(last)) = (count, fill, lines.last_mut()) {
        cx.budget.charge_entries(count.saturating_sub(last.len()))?;
        last.resize(count.max(last.len()), fill);
    }
    Ok(iterator(lines.into_iter().map(Value::from).collect()))
}

pub(super) fn slice(cx: &Context, value: Value, args: Args) -> Outcome {
    let [slices, fill] = args.bind(["slices", "fill_with"], 1)?;
    let slices = integer(&slices.unwrap_or_default())?;
    let all = entries(cx.budget, &value)?;
    if slices == 0 {
        return Err(invalid("slice: the count must not be 0"));
    }
    let slices = usize::try_from(slices).unwrap_or(0);
    cx.budget.charge_entries(slices)?;
    let (size, more) = (all.len().checked_div(slices).unwrap_or(0), all.len().checked_rem(slices).unwrap_or(0));
    let bounds = (0..slices).map(|index| (index * size + index.min(more), (index + 1) * size + (index + 1).min(more)));
    let mut lines = lines_of(&all, bounds);
    if let Some(fill) = fill.filter(|fill| !fill.is_none()) {
        lines.iter_mut().skip(more).for_each(|line| line.push(fill.clone()));
    }
    Ok(iterator(lines.into_iter().map(Value::from).collect()))
}

/// How filters find what to order or compare by.
struct Key {
    paths: Vec<Value>,
    default: Option<Value>,
    is_case_sensitive: bool,
}

impl Key {
    fn new(attribute: Option<Value>, case_sensitive: Option<Value>) -> Key {
        Key {
            paths: attribute.filter(|attribute| !attribute.is_none()).into_iter().collect(),
            default: None,
            is_case_sensitive: case_sensitive.is_some_and(|flag| flag.is_true()),
        }
    }

    fn of(&self, cx: &Context, entry: &Value) -> Outcome {
        let folded = |value: Value| -> Outcome {
            match value.as_str() {
                Some(text) if !self.is_case_sensitive => {
                    cx.budget.charge(text.len())?;
                    Ok(Value::from(text.to_lowercase()))
                }
                _ => Ok(value),
            }
        };
        let found = |path: &Value| -> Outcome {
            let value = lookup_path(cx.budget, entry, path)?;
            let default = self.default.as_ref().filter(|_| value.is_undefined());
            folded(default.cloned().unwrap_or(value))
        };
        match self.paths.as_slice() {
            [] => folded(entry.clone()),
            [path] => found(path),
            paths => Ok(Value::from(paths.iter().map(found).collect::<Result<Vec<_>, Error>>()?)),
        }
    }

    fn pairs(&self, cx: &Context, entries: Vec<Value>) -> Result<Vec<(Value, Value)>, Error> {
        entries.into_iter().map(|entry| Ok((self.of(cx, &entry)?, entry))).collect()
    }
}

/// Sorts by keys, equal ones in their order. Keys may have no order, so that the sort of the standard library, which
/// needs one, is not for them.
fn sorted(cx: &Context, pairs: Vec<(Value, Value)>, reverse: bool) -> Result<Vec<(Value, Value)>, Error> {
    if pairs.len() < 2 {
        return Ok(pairs);
    }
    let mut left = pairs;
    let right = left.split_off(left.len() / 2);
    let mut left = sorted(cx, left, reverse)?.into_iter().peekable();
    let mut right = sorted(cx, right, reverse)?.into_iter().peekable();
    let mut out = Vec::with_capacity(left.len() + right.len());
    while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
        let right_first =
            if reverse { less(cx.budget, &a.0, &b.0, false)? } else { less(cx.budget, &b.0, &a.0, false)? };
        out.extend(if right_first { right.next() } else { left.next() });
    }
    out.extend(left);
    out.extend(right);
    Ok(out)
}

fn values(pairs: Vec<(Value, Value)>) -> Vec<Value> {
    pairs.into_iter().map(|(_, value)| value).collect()
}

pub(super) fn sort(cx: &Context, value: Value, args: Args) -> Outcome {
    let [reverse, case_sensitive, attribute] = args.bind(["reverse", "case_sensitive", "attribute"], 0)?;
    let mut key = Key::new(attribute, case_sensitive);
    if let Some(paths) = key.paths.first().and_then(Value::as_str) {
        key.paths = paths.split(',').map(Value::from).collect();
    }
    let mut pairs = key.pairs(cx, entries(cx.budget, &value)?)?;
    if key.paths.len() < 2 {
        // Jinja orders by lists of attributes, even of one. In a list, equal entries need no order.
        pairs.iter_mut().for_each(|(key, _)| *key = Value::from(vec![std::mem::take(key)]));
    }
    let reverse = reverse.is_some_and(|reverse| reverse.is_true());
    sorted(cx, pairs, reverse).map(|pairs| Value::from(values(pairs)))
}

pub(super) fn dictsort(cx: &Context, value: Value, args: Args) -> Outcome {
    let [case_sensitive, by, reverse] = args.bind(["case_sensitive", "by", "reverse"], 0)?;
    let by = by.unwrap_or_else(|| Value::from("key"));
    let place = match by.as_str() {
        Some("key") => 0,
        Some("value") => 1,
        _ => return Err(invalid("dictsort sorts by key or by value")),
    };
    let key = Key::new(Some(Value::from(place)), case_sensitive);
    let pairs = key.pairs(cx, pairs(cx, &value)?)?;
    sorted(cx, pairs, reverse.is_some_and(|reverse| reverse.is_true())).map(|pairs| Value::from(values(pairs)))
}

fn extreme(cx: &Context, value: &Value, args: Args, is_max: bool) -> Outcome {
    let [case_sensitive, attribute] = args.bind(["case_sensitive", "attribute"], 0)?;
    let key = Key::new(attribute, case_sensitive);
    let mut pairs = key.pairs(cx, entries(cx.budget, value)?)?.into_iter();
    let Some(mut best) = pairs.next() else { return Ok(Value::UNDEFINED) };
    for pair in pairs {
        let (low, high) = if is_max { (&best.0, &pair.0) } else { (&pair.0, &best.0) };
        if less(cx.budget, low, high, false)? {
            best = pair;
        }
    }
    Ok(best.1)
}

pub(super) fn max(cx: &Context, value: Value, args: Args) -> Outcome {
    extreme(cx, &value, args, true)
}

pub(super) fn min(cx: &Context, value: Value, args: Args) -> Outcome {
    extreme(cx, &value, args, false)
}

pub(super) fn unique(cx: &Context, value: Value, args: Args) -> Outcome {
    let [case_sensitive, attribute] = args.bind(["case_sensitive", "attribute"], 0)?;
    let key = Key::new(attribute, case_sensitive);
    let mut seen: Vec<Value> = Vec::new();
    let mut out = Vec::new();
    for (key, entry) in key.pairs(cx, entries(cx.budget, &value)?)? {
        if !is_hashable(&key) {
            return Err(invalid(format!("unique does not take {}", Kind::of(&key).name())));
        }
        let mut is_new = true;
        for other in &seen {
            is_new = is_new && !equal(cx.budget, other, &key)?;
        }
        if is_new {
            seen.push(key);
            out.push(entry);
        }
    }
    Ok(iterator(out))
}

pub(super) fn groupby(cx: &Context, value: Value, args: Args) -> Outcome {
    let [attribute, default, case_sensitive] = args.bind(["attribute", "default", "case_sensitive"], 1)?;
    let default = default.filter(|default| !default.is_none());
    let key = Key { default, ..Key::new(attribute, case_sensitive) };
    let pairs = key.pairs(cx, entries(cx.budget, &value)?)?;
    let mut groups: Vec<(Value, Vec<Value>)> = Vec::new();
    for (key, entry) in sorted(cx, pairs, false)? {
        match groups.last_mut() {
            Some((last, group)) if equal(cx.budget, last, &key)? => group.push(entry),
            _ => groups.push((key, vec![entry])),
        }
    }
    let key = Key { is_case_sensitive: true, ..key };
    let group = |(_, group): (Value, Vec<Value>)| -> Outcome {
        let grouper = key.of(cx, &group[0])?;
        Ok(Value::from_object(Tuple { entries: vec![grouper, Value::from(group)], names: &["grouper", "list"] }))
    };
    Ok(Value::from(groups.into_iter().map(group).collect::<Result<Vec<_>, Error>>()?))
}

pub(super) fn sum(cx: &Context, value: Value, args: Args) -> Outcome {
    let [path, start] = args.bind(["attribute", "start"], 0)?;
    let path = path.filter(|path| !path.is_none());
    let mut sum = start.unwrap_or_else(|| Value::from(0));
    if sum.as_str().is_some() {
        return Err(invalid("sum does not add strings"));
    }
    for entry in entries(cx.budget, &value)? {
        let entry = match &path {
            Some(path) => lookup_path(cx.budget, &entry, path)?,
            None => entry,
        };
        sum = add(cx.budget, &sum, &entry)?;
    }
    Ok(sum)
}

pub(super) fn map(cx: &Context, value: Value, mut args: Args) -> Outcome {
    let all = entries_if_true(cx, &value)?;
    if all.is_empty() {
        return Ok(iterator(all));
    }
    if args.positional.is_empty() && args.named.iter().any(|(name, _)| name == "attribute") {
        let [attribute, default] = args.bind(["attribute", "default"], 1)?;
        let default = default.filter(|default| !default.is_none());
        let key = Key { default, ..Key::new(attribute, Some(Value::from(true))) };
        return Ok(iterator(all.iter().map(|entry| key.of(cx, entry)).collect::<Result<_, Error>>()?));
    }
    let name = args.operand()?;
    let name = text_of(&name)?;
    let applied = all.into_iter().map(|entry| cx.state.apply_filter(name, &with_operand(entry, &args)));
    Ok(iterator(applied.collect::<Result<_, Error>>()?))
}

/// The arguments of a filter or test that another applies.
fn with_operand(operand: Value, args: &Args) -> Vec<Value> {
    let mut all = vec![operand];
    all.extend(args.positional.iter().cloned());
    if !args.named.is_empty() {
        all.push(
            args.named
                .iter()
                .map(|(name, value)| (name.as_str(), value.clone()))
                .collect::<minijinja::value::Kwargs>()
                .into(),
        );
    }
    all
}

/// Keeps the entries for which a test holds, or does not; of each entry an attribute may be tested.
fn filtered(cx: &Context, value: &Value, mut args: Args, holds: bool, by_attribute: bool) -> Outcome {
    let all = entries_if_true(cx, value)?;
    if all.is_empty() {
        return Ok(iterator(all));
    }
    let path = if by_attribute { Some(args.operand()?) } else { None };
    let test = if args.positional.is_empty() { None } else { Some(args.operand()?) };
    let test = test.as_ref().map(text_of).transpose()?;
    let mut out = Vec::new();
    for entry in all {
        let tested = match &path {
            Some(path) => lookup_path(cx.budget, &entry, path)?,
            None => entry.clone(),
        };
        let passes = match test {
            Some(test) => cx.state.perform_test(test, &with_operand(tested, &args))?,
            None => tested.is_true(),
        };
        if passes == holds {
            out.push(entry);
        }
    }
    Ok(iterator(out))
}

pub(super) fn select(cx: &Context, value: Value, args: Args) -> Outcome {
    filtered(cx, &value, args, true, false)
}

pub(super) fn reject(cx: &Context, value: Value, args: Args) -> Outcome {
    filtered(cx, &value, args, false, false)
}

pub(super) fn selectattr(cx: &Context, value: Value, args: Args) -> Outcome {
    filtered(cx, &value, args, true, true)
}

pub(super) fn rejectattr(cx: &Context, value: Value, args: Args) -> Outcome {
    filtered(cx, &value, args, false, true)
}
