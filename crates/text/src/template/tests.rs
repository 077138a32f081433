//! Jinja's tests: what is after `is`.

use minijinja::value::Rest;
use minijinja::{Environment, Error, Value};

use super::budget::Budget;
use super::outcome::invalid;
use super::python::{Args, BoundMethod, Cycler, Kind, contains, equal, is_hashable, is_lower, is_upper, less, modulo};
use super::{filters, print};

type Test = fn(&Budget, &Value, Args) -> Result<bool, Error>;

/// A test of the operand alone.
macro_rules! lone {
    (|$budget:ident, $value:ident| $answer:expr) => {
        |$budget, $value, args| {
            let [] = args.bind([], 0)?;
            $answer
        }
    };
}

/// A test with one argument, of this name.
macro_rules! with {
    ($name:literal, |$budget:ident, $value:ident, $other:ident| $answer:expr) => {
        |$budget, $value, args| {
            let [other] = args.bind([$name], 1)?;
            let $other = &other.unwrap_or_default();
            $answer
        }
    };
}

const EQ: Test = with!("b", |budget, a, b| equal(budget, a, b));
const NE: Test = with!("b", |budget, a, b| Ok(!equal(budget, a, b)?));
const LT: Test = with!("b", |budget, a, b| less(budget, a, b, false));
const LE: Test = with!("b", |budget, a, b| less(budget, a, b, true));
const GT: Test = with!("b", |budget, a, b| less(budget, b, a, false));
const GE: Test = with!("b", |budget, a, b| less(budget, b, a, true));

const TESTS: &[(&str, Test)] = &[
    ("!=", NE),
    ("<", LT),
    ("<=", LE),
    ("==", EQ),
    (">", GT),
    (">=", GE),
    ("boolean", lone!(|_b, value| Ok(Kind::of(value) == Kind::Bool))),
    ("callable", lone!(|_b, value| Ok(is_callable(value)))),
    ("defined", lone!(|_b, value| Ok(!value.is_undefined()))),
    ("divisibleby", with!("num", |budget, value, by| is_rest(budget, value, by, 0))),
    ("eq", EQ),
    ("equalto", EQ),
    ("escaped", lone!(|_b, value| Ok(value.is_safe()))),
    ("even", lone!(|budget, value| is_rest(budget, value, &Value::from(2), 0))),
    ("false", lone!(|_b, value| Ok(Kind::of(value) == Kind::Bool && !value.is_true()))),
    ("filter", lone!(|_b, value| is_named(value, is_filter))),
    ("float", lone!(|_b, value| Ok(Kind::of(value) == Kind::Float))),
    ("ge", GE),
    ("greaterthan", GT),
    ("gt", GT),
    ("in", with!("seq", |budget, value, all| contains(budget, all, value))),
    ("integer", lone!(|_b, value| Ok(Kind::of(value) == Kind::Int))),
    ("iterable", lone!(|_b, value| Ok(is_iterable(value)))),
    ("le", LE),
    ("lessthan", LT),
    ("lower", lone!(|budget, value| is_case(budget, value, is_lower))),
    ("lt", LT),
    ("mapping", lone!(|_b, value| Ok(Kind::of(value) == Kind::Dict))),
    ("ne", NE),
    ("none", lone!(|_b, value| Ok(value.is_none()))),
    ("number", lone!(|_b, value| Ok(matches!(Kind::of(value), Kind::Bool | Kind::Int | Kind::Float)))),
    ("odd", lone!(|budget, value| is_rest(budget, value, &Value::from(2), 1))),
    ("sameas", with!("other", |budget, value, other| is_same(budget, value, other))),
    ("sequence", lone!(|_b, value| Ok(is_sequence(value)))),
    ("string", lone!(|_b, value| Ok(value.as_str().is_some()))),
    ("test", lone!(|_b, value| is_named(value, exists))),
    ("true", lone!(|_b, value| Ok(Kind::of(value) == Kind::Bool && value.is_true()))),
    ("undefined", lone!(|_b, value| Ok(value.is_undefined()))),
    ("upper", lone!(|budget, value| is_case(budget, value, is_upper))),
];

/// Whether there is a test of this name.
pub(super) fn exists(name: &str) -> bool {
    TESTS.iter().any(|(known, _)| *known == name)
}

pub(super) fn add(env: &mut Environment, budget: &Budget) {
    for &(name, test) in TESTS {
        let budget = budget.clone();
        env.add_test(name, move |args: Rest<Value>| -> Result<bool, Error> {
            let mut args = Args::new(&args)?;
            let value = args.operand()?;
            test(&budget, &value, args)
        });
    }
}

fn is_case(budget: &Budget, value: &Value, is_it: fn(&str) -> bool) -> Result<bool, Error> {
    let text = print::to_text(budget, value)?;
    budget.charge(text.len().saturating_mul(4))?;
    Ok(is_it(&text))
}

fn is_named(value: &Value, exists: fn(&str) -> bool) -> Result<bool, Error> {
    match is_hashable(value) {
        true => Ok(value.as_str().is_some_and(exists)),
        false => Err(invalid(format!("{} is no name", Kind::of(value).name()))),
    }
}

fn is_filter(name: &str) -> bool {
    filters::exists(name) || filters::MISSING.contains(&name)
}

fn is_rest(budget: &Budget, value: &Value, by: &Value, rest: i64) -> Result<bool, Error> {
    equal(budget, &modulo(budget, value, by)?, &Value::from(rest))
}

fn is_iterable(value: &Value) -> bool {
    !matches!(Kind::of(value), Kind::None | Kind::Bool | Kind::Int | Kind::Float | Kind::Other)
}

fn is_sequence(value: &Value) -> bool {
    is_iterable(value) && !matches!(Kind::of(value), Kind::View | Kind::Iterator)
}

fn is_callable(value: &Value) -> bool {
    let is_plain = || {
        let name = value.as_object().map_or("", |object| object.type_name());
        !name.ends_with("Namespace") && value.downcast_object_ref::<Cycler>().is_none()
    };
    match Kind::of(value) {
        Kind::Undefined => true,
        Kind::Other => value.downcast_object_ref::<BoundMethod>().is_some() || is_plain(),
        _ => false,
    }
}

/// Identity: what only one value of each kind has, or can be told apart from no other, is compared.
fn is_same(budget: &Budget, value: &Value, other: &Value) -> Result<bool, Error> {
    match Kind::of(value) {
        Kind::List | Kind::Dict | Kind::Tuple | Kind::Range | Kind::View | Kind::Other if value.is_true() => {
            Err(invalid("sameas compares only numbers, strings, booleans and none"))
        }
        kind => Ok(kind == Kind::of(other) && equal(budget, value, other)?),
    }
}
