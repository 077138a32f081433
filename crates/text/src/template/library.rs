//! The filters, tests, functions and methods that templates may use.
//!
//! Only what chat templates need is there. What minijinja provides is wrapped so that its operands are paid for; what
//! can make much out of little is in `ops`.

use std::time::SystemTime;

use minijinja::value::{Kwargs, Rest, from_args};
use minijinja::{Environment, Error, ErrorKind, State, Value, filters, functions, tests};
use minijinja_contrib::pycompat::unknown_method_callback;

use super::budget::Budget;
use super::guard::{COMPARE, CONCAT, MULTIPLY, SETTLE, SLICE, STORE};
use super::ops::{indent, join, multiply, range, replace, slice};
use super::{TemplateError, print};
use crate::clock;

/// The result of a function of the library.
pub(super) type Outcome = Result<Value, Error>;

pub(super) fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
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
        Err(account.fail(TemplateError::Raised(message)))
    });
    env.add_function("strftime_now", move |format: &str| {
        clock::format(now, format).map_err(|what| invalid(format!("strftime_now does not know {what}")))
    });
}

/// Names and functions, each `minijinja`'s of the same name.
macro_rules! named {
    ($module:ident: $($name:ident)*) => { vec![$((stringify!($name), Value::from_function($module::$name))),*] };
}

fn add_filters(env: &mut Environment, budget: &Budget) {
    let aliases = vec![("d", Value::from_function(filters::default)), ("count", Value::from_function(filters::length))];
    for (reads, filters) in [
        (Reads::Texts, named!(filters: abs attr bool default first last length)),
        (Reads::Texts, aliases),
        (
            Reads::Entries,
            named!(
                filters: capitalize items list lower map reject rejectattr reverse round select selectattr split title
                    trim upper
            ),
        ),
        (Reads::All, named!(filters: dictsort max min sort unique)),
    ] {
        for (name, filter) in filters {
            let account = budget.clone();
            env.add_filter(name, move |state: &State, args: Rest<Value>| -> Outcome {
                pay(&account, &args, reads)?;
                account.settle(filter.call(state, &args)?)
            });
        }
    }
    add_own_filters(env, budget);
}

/// Filters that make much out of little, or whose results differ from `minijinja`'s.
fn add_own_filters(env: &mut Environment, budget: &Budget) {
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

/// Names and functions of tests.
macro_rules! tests_by_name {
    ($($name:literal: $test:ident,)*) => { [$(($name, Value::from_function(tests::$test))),*] };
}

fn add_tests(env: &mut Environment, budget: &Budget) {
    let all = tests_by_name! {
        "boolean": is_boolean, "defined": is_defined, "divisibleby": is_divisibleby, "even": is_even, "false": is_false,
        "float": is_float, "in": is_in, "integer": is_integer, "mapping": is_mapping,
        "none": is_none, "number": is_number, "odd": is_odd, "sequence": is_sequence, "string": is_string,
        "true": is_true, "undefined": is_undefined,
        "eq": is_eq, "equalto": is_eq, "==": is_eq, "sameas": is_eq, "ne": is_ne, "!=": is_ne,
        "lt": is_lt, "lessthan": is_lt, "<": is_lt, "le": is_le, "<=": is_le,
        "gt": is_gt, "greaterthan": is_gt, ">": is_gt, "ge": is_ge, ">=": is_ge,
    };
    // Nothing is no list in Python, though minijinja goes through it as through an empty one.
    env.add_test("iterable", |value: &Value| !value.is_none() && tests::is_iterable(value));
    for (name, test) in all {
        let account = budget.clone();
        env.add_test(name, move |state: &State, args: Rest<Value>| -> Result<bool, Error> {
            // A lone operand is only asked for its type.
            if args.len() > 1 {
                pay(&account, &args, Reads::All)?;
            }
            Ok(test.call(state, &args)?.is_true())
        });
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
