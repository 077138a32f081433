//! The filters, tests, functions and methods that templates may use.
//!
//! Only what chat templates need is there. What minijinja provides is wrapped so that its operands are paid for; what
//! can make much out of little (`join`, `replace`, `indent`, `range`, `*`, slices) is written here.

use std::time::SystemTime;

use minijinja::value::{Kwargs, Rest, ValueKind, from_args};
use minijinja::{Environment, Error, ErrorKind, State, Value, filters, functions, tests};
use minijinja_contrib::pycompat::unknown_method_callback;

use super::budget::Budget;
use super::guard::{COMPARE, CONCAT, MULTIPLY, SETTLE, SLICE, STORE};
use super::{TemplateError, print};
use crate::clock;

/// What a function of the library gives.
type Outcome = Result<Value, Error>;

/// The most entries of a `range`.
const MAX_RANGE: usize = 100_000;

fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

/// An environment for one rendering.
pub(super) fn environment(budget: &Budget, now: SystemTime) -> Environment<'static> {
    let mut env = Environment::empty();
    env.set_fuel(Some(super::MAX_INSTRUCTIONS));
    env.set_recursion_limit(super::MAX_RECURSION);
    let formatter = budget.clone();
    env.set_formatter(move |out, _, value| {
        match value.as_str() {
            Some(text) => {
                formatter.charge(text.len())?;
                out.write_str(text)?;
            }
            None => out.write_str(&print::to_text(&formatter, value)?)?,
        }
        Ok(())
    });
    add_guards(&mut env, budget);
    add_functions(&mut env, budget, now);
    add_filters(&mut env, budget);
    add_tests(&mut env, budget);
    let methods = budget.clone();
    env.set_unknown_method_callback(move |state, value, method, args| {
        call_method(&methods, state, value, method, args)
    });
    env
}

fn add_guards(env: &mut Environment, budget: &Budget) {
    let account = budget.clone();
    env.add_function(SETTLE, move |value: Value| account.settle(value));
    let account = budget.clone();
    env.add_function(COMPARE, move |value: Value| account.charge_deep(&value).map(|()| value));
    let account = budget.clone();
    env.add_function(STORE, move |value: Value| account.check_nesting(&value).map(|()| value));
    let account = budget.clone();
    env.add_function(CONCAT, move |left: Value, right: Value| -> Result<String, Error> {
        let mut text = print::to_text(&account, &left)?;
        account.charge(text.len())?;
        text.push_str(&print::to_text(&account, &right)?);
        Ok(text)
    });
    let account = budget.clone();
    env.add_function(MULTIPLY, move |left: Value, right: Value| multiply(&account, &left, &right));
    let account = budget.clone();
    env.add_function(SLICE, move |value: Value, start: Value, stop: Value, step: Value| {
        slice(&account, &value, &start, &stop, &step)
    });
}

fn add_functions(env: &mut Environment, budget: &Budget, now: SystemTime) {
    env.add_function("namespace", functions::namespace);
    env.add_function("dict", functions::dict);
    let account = budget.clone();
    env.add_function("range", move |first: i64, second: Option<i64>, step: Option<i64>| {
        range(&account, first, second, step)
    });
    let account = budget.clone();
    env.add_function("raise_exception", move |message: Value| -> Outcome {
        let message = print::to_text(&account, &message)?;
        Err(account.fail(TemplateError::Raised { message }))
    });
    env.add_function("strftime_now", move |format: &str| {
        clock::format(now, format).map_err(|what| invalid(format!("strftime_now does not know {what}")))
    });
}

fn add_filters(env: &mut Environment, budget: &Budget) {
    let mut wrap = |name: &'static str, filter: Value, reads: Reads| {
        let account = budget.clone();
        env.add_filter(name, move |state: &State, args: Rest<Value>| -> Outcome {
            pay(&account, &args, reads)?;
            account.settle(filter.call(state, &args)?)
        });
    };
    for name in ["default", "d"] {
        wrap(name, Value::from_function(filters::default), Reads::Texts);
    }
    for name in ["length", "count"] {
        wrap(name, Value::from_function(filters::length), Reads::Texts);
    }
    wrap("abs", Value::from_function(filters::abs), Reads::Texts);
    wrap("attr", Value::from_function(filters::attr), Reads::Texts);
    wrap("bool", Value::from_function(filters::bool), Reads::Texts);
    wrap("capitalize", Value::from_function(filters::capitalize), Reads::Entries);
    wrap("dictsort", Value::from_function(filters::dictsort), Reads::All);
    wrap("first", Value::from_function(filters::first), Reads::Texts);
    wrap("items", Value::from_function(filters::items), Reads::Entries);
    wrap("last", Value::from_function(filters::last), Reads::Texts);
    wrap("list", Value::from_function(filters::list), Reads::Entries);
    wrap("lower", Value::from_function(filters::lower), Reads::Entries);
    wrap("map", Value::from_function(filters::map), Reads::Entries);
    wrap("max", Value::from_function(filters::max), Reads::All);
    wrap("min", Value::from_function(filters::min), Reads::All);
    wrap("reject", Value::from_function(filters::reject), Reads::Entries);
    wrap("rejectattr", Value::from_function(filters::rejectattr), Reads::Entries);
    wrap("reverse", Value::from_function(filters::reverse), Reads::Entries);
    wrap("round", Value::from_function(filters::round), Reads::Entries);
    wrap("select", Value::from_function(filters::select), Reads::Entries);
    wrap("selectattr", Value::from_function(filters::selectattr), Reads::Entries);
    wrap("sort", Value::from_function(filters::sort), Reads::All);
    wrap("split", Value::from_function(filters::split), Reads::Entries);
    wrap("title", Value::from_function(filters::title), Reads::Entries);
    wrap("trim", Value::from_function(filters::trim), Reads::Entries);
    wrap("unique", Value::from_function(filters::unique), Reads::All);
    wrap("upper", Value::from_function(filters::upper), Reads::Entries);

    env.add_filter("float", |state: &State, value: Value, default: Option<Value>| {
        filters::float(state, &value).unwrap_or_else(|_| default.unwrap_or_else(|| Value::from(0.0)))
    });
    env.add_filter("int", |state: &State, value: Value, default: Option<Value>| {
        filters::int(state, &value).unwrap_or_else(|_| default.unwrap_or_else(|| Value::from(0)))
    });
    // There is no escaping in a prompt.
    env.add_filter("safe", |value: Value| value);
    let account = budget.clone();
    env.add_filter("string", move |value: Value| print::to_text(&account, &value));
    let account = budget.clone();
    env.add_filter("tojson", move |value: Value, kwargs: Kwargs| tojson(&account, &value, &kwargs));
    let account = budget.clone();
    env.add_filter("join", move |value: Value, separator: Option<&str>, kwargs: Kwargs| -> Outcome {
        let attribute: Option<&str> = kwargs.get("attribute")?;
        kwargs.assert_all_used()?;
        join(&account, &value, separator.unwrap_or_default(), attribute)
    });
    let account = budget.clone();
    env.add_filter("replace", move |text: &str, from: &str, to: &str| replace(&account, text, from, to, usize::MAX));
    let account = budget.clone();
    env.add_filter(
        "indent",
        move |text: &str, width: Option<usize>, first: Option<bool>, blank: Option<bool>, kwargs: Kwargs| {
            let width = width.or(kwargs.get("width")?).unwrap_or(4);
            let first = first.or(kwargs.get("first")?).unwrap_or(false);
            let blank = blank.or(kwargs.get("blank")?).unwrap_or(false);
            kwargs.assert_all_used()?;
            indent(&account, text, width, first, blank)
        },
    );
}

fn add_tests(env: &mut Environment, budget: &Budget) {
    let mut wrap = |name: &'static str, test: Value| {
        let account = budget.clone();
        env.add_test(name, move |state: &State, args: Rest<Value>| -> Result<bool, Error> {
            // A lone operand is only asked for its type.
            if args.len() > 1 {
                pay(&account, &args, Reads::All)?;
            }
            Ok(test.call(state, &args)?.is_true())
        });
    };
    wrap("boolean", Value::from_function(tests::is_boolean));
    wrap("defined", Value::from_function(tests::is_defined));
    wrap("divisibleby", Value::from_function(tests::is_divisibleby));
    wrap("even", Value::from_function(tests::is_even));
    wrap("false", Value::from_function(tests::is_false));
    wrap("float", Value::from_function(tests::is_float));
    wrap("in", Value::from_function(tests::is_in));
    wrap("integer", Value::from_function(tests::is_integer));
    wrap("iterable", Value::from_function(tests::is_iterable));
    wrap("mapping", Value::from_function(tests::is_mapping));
    wrap("none", Value::from_function(tests::is_none));
    wrap("number", Value::from_function(tests::is_number));
    wrap("odd", Value::from_function(tests::is_odd));
    wrap("sequence", Value::from_function(tests::is_sequence));
    wrap("string", Value::from_function(tests::is_string));
    wrap("true", Value::from_function(tests::is_true));
    wrap("undefined", Value::from_function(tests::is_undefined));
    for name in ["eq", "equalto", "==", "sameas"] {
        wrap(name, Value::from_function(tests::is_eq));
    }
    for name in ["ne", "!="] {
        wrap(name, Value::from_function(tests::is_ne));
    }
    for name in ["lt", "lessthan", "<"] {
        wrap(name, Value::from_function(tests::is_lt));
    }
    for name in ["le", "<="] {
        wrap(name, Value::from_function(tests::is_le));
    }
    for name in ["gt", "greaterthan", ">"] {
        wrap(name, Value::from_function(tests::is_gt));
    }
    for name in ["ge", ">="] {
        wrap(name, Value::from_function(tests::is_ge));
    }
}

/// How much of its operands a filter or test reads.
#[derive(Debug, Clone, Copy)]
enum Reads {
    /// Texts, but of lists a fixed amount.
    Texts,
    /// Also each entry of a list, but not what it holds.
    Entries,
    /// Also what the entries hold.
    All,
}

fn pay(budget: &Budget, args: &[Value], reads: Reads) -> Result<(), Error> {
    args.iter().try_for_each(|arg| match reads {
        Reads::Texts => budget.charge(arg.as_str().map_or(0, str::len)),
        Reads::Entries => budget.charge_shallow(arg),
        Reads::All => budget.charge_deep(arg),
    })
}

/// Methods of Python's `str`, `list` and `dict`.
fn call_method(budget: &Budget, state: &State, value: &Value, method: &str, args: &[Value]) -> Outcome {
    pay(budget, args, Reads::Entries)?;
    budget.charge_shallow(value)?;
    if let Some(text) = value.as_str() {
        match method {
            "join" => {
                let (values,): (Value,) = from_args(args)?;
                return join(budget, &values, text, None);
            }
            "replace" => {
                let (from, to, count): (&str, &str, Option<i64>) = from_args(args)?;
                let most = count.and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX);
                return replace(budget, text, from, to, most);
            }
            "count" => {
                let (what,): (&str,) = from_args(args)?;
                return Ok(Value::from(if what.is_empty() {
                    text.chars().count() + 1
                } else {
                    text.matches(what).count()
                }));
            }
            "removeprefix" => {
                let (prefix,): (&str,) = from_args(args)?;
                return Ok(Value::from(text.strip_prefix(prefix).unwrap_or(text)));
            }
            "removesuffix" => {
                let (suffix,): (&str,) = from_args(args)?;
                return Ok(Value::from(text.strip_suffix(suffix).unwrap_or(text)));
            }
            // Its format can ask for any width.
            "format" => return Err(Error::from(ErrorKind::UnknownMethod)),
            _ => {}
        }
    }
    // Comparing entries costs more than counting them.
    if method == "count" {
        budget.charge_deep(value)?;
    }
    budget.settle(unknown_method_callback(state, value, method, args)?)
}

/// Python's `json.dumps` with `ensure_ascii=False`, as transformers sets it.
fn tojson(budget: &Budget, value: &Value, kwargs: &Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = kwargs.get("indent")?;
    let ascii: Option<bool> = kwargs.get("ensure_ascii")?;
    kwargs.assert_all_used()?;
    if indent.is_some_and(|width| width > 16) {
        return Err(invalid("tojson indents by at most 16"));
    }
    if ascii == Some(true) {
        return Err(invalid("tojson does not support ensure_ascii=true"));
    }
    print::to_json(budget, value, indent)
}

fn join(budget: &Budget, values: &Value, separator: &str, attribute: Option<&str>) -> Outcome {
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

fn replace(budget: &Budget, text: &str, from: &str, to: &str, most: usize) -> Outcome {
    budget.charge(text.len())?;
    let found = if from.is_empty() { text.chars().count() + 1 } else { text.matches(from).count() };
    budget.charge(found.min(most).saturating_mul(to.len()))?;
    Ok(Value::from(text.replacen(from, to, most)))
}

fn indent(budget: &Budget, text: &str, width: usize, first: bool, blank: bool) -> Outcome {
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

fn range(budget: &Budget, first: i64, second: Option<i64>, step: Option<i64>) -> Outcome {
    let (start, stop) = second.map_or((0, first), |second| (first, second));
    let (start, stop, step) = (i128::from(start), i128::from(stop), i128::from(step.unwrap_or(1)));
    let count = match step.signum() {
        0 => return Err(invalid("range needs a step other than 0")),
        1 => (stop - start + step - 1).div_euclid(step),
        _ => (start - stop - step - 1).div_euclid(-step),
    };
    let count = usize::try_from(count.max(0)).unwrap_or(usize::MAX);
    if count > MAX_RANGE {
        return Err(budget.fail(TemplateError::RangeTooLong { limit: MAX_RANGE }));
    }
    budget.charge_entries(count)?;
    Ok(Value::from((0..count as i128).map(|index| Value::from((start + index * step) as i64)).collect::<Vec<_>>()))
}

/// `left * right`: numbers, or a text or list repeated.
fn multiply(budget: &Budget, left: &Value, right: &Value) -> Outcome {
    let repeated = |value: &Value| matches!(value.kind(), ValueKind::String | ValueKind::Seq | ValueKind::Iterable);
    let (value, factor) = if repeated(left) { (left, right) } else { (right, left) };
    if repeated(value) {
        // As in Python, a negative factor gives nothing.
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
fn slice(budget: &Budget, value: &Value, start: &Value, stop: &Value, step: &Value) -> Outcome {
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
