//! What templates may call, as transformers sets it up for jinja2.

use std::sync::Mutex;
use std::time::SystemTime;

use minijinja::value::Rest;
use minijinja::{Environment, Value, functions};

use super::budget::Budget;
use super::guard::{self, Guarded};
use super::outcome::{Outcome, invalid};
use super::python::{
    self, Args, Cycler, Joiner, Kind, Range, add, contains, divide, entries, equal, floor_divide, integer, less,
    modulo, multiply, negate, power, subtract, text_of, tuple,
};
use super::{TemplateError, filters, print, tests};
use crate::clock;

/// The most entries of a `range`.
const MAX_RANGE: usize = 100_000;

/// An environment for one rendering.
pub(super) fn environment(budget: &Budget, now: SystemTime) -> Environment<'static> {
    let mut env = Environment::empty();
    env.set_fuel(Some(super::MAX_INSTRUCTIONS));
    env.set_recursion_limit(super::MAX_RECURSION);
    let formatter = budget.clone();
    env.set_formatter(move |out, _, value| Ok(out.write_str(&print::to_text(&formatter, value)?)?));
    add_operators(&mut env, budget);
    add_functions(&mut env, budget, now);
    filters::add(&mut env, budget);
    tests::add(&mut env, budget);
    let methods = budget.clone();
    env.set_unknown_method_callback(move |_, value, method, args| python::call_method(&methods, value, method, args));
    env
}

/// What a template's operators become; see `guard`.
fn add_operators(env: &mut Environment, budget: &Budget) {
    for &(name, operator) in OPERATORS {
        let budget = budget.clone();
        env.add_function(name, move |args: Rest<Value>| operator(&budget, &args));
    }
}

const OPERATORS: &[(&str, Guarded)] = &[
    (guard::SETTLE, |budget, args| budget.settle(guard::operand(args, 0)?.clone())),
    (guard::TUPLE, |budget, args| budget.settle(tuple(args.to_vec()))),
    (guard::KEY, |budget, args| {
        let key = guard::operand(args, 0)?;
        budget.charge_deep(key)?;
        match python::is_hashable(key) {
            true => Ok(key.clone()),
            false => Err(invalid(format!("{} cannot be a key", Kind::of(key).name()))),
        }
    }),
    (guard::STORE, |budget, args| {
        let value = guard::operand(args, 0)?;
        budget.check_nesting(value).map(|()| value.clone())
    }),
    (guard::ITERATE, |budget, args| {
        let value = guard::operand(args, 0)?;
        match Kind::of(value) {
            Kind::List | Kind::Tuple | Kind::Dict | Kind::Range | Kind::View => Ok(value.clone()),
            _ => entries(budget, value).map(Value::from),
        }
    }),
    (guard::ATTRIBUTE, |budget, args| {
        let value = python::attribute(budget, guard::operand(args, 0)?, text_of(guard::operand(args, 1)?)?)?;
        if Kind::of(&value) == Kind::Other { budget.settle(value) } else { Ok(value) }
    }),
    (guard::ITEM, |budget, args| {
        let value = python::item(budget, guard::operand(args, 0)?, guard::operand(args, 1)?)?;
        // A method holds its value.
        if Kind::of(&value) == Kind::Other { budget.settle(value) } else { Ok(value) }
    }),
    (guard::SLICE, |budget, args| {
        let at = |index| guard::operand(args, index);
        python::slice(budget, at(0)?, at(1)?, at(2)?, at(3)?)
    }),
    (guard::CONCAT, |budget, args| {
        let mut text = String::new();
        for value in args {
            budget.charge(text.len())?;
            text.push_str(&print::to_text(budget, value)?);
        }
        Ok(Value::from(text))
    }),
    ("+", |budget, args| budget.settle(add(budget, guard::operand(args, 0)?, guard::operand(args, 1)?)?)),
    ("-", |_, args| subtract(guard::operand(args, 0)?, guard::operand(args, 1)?)),
    ("*", |budget, args| multiply(budget, guard::operand(args, 0)?, guard::operand(args, 1)?)),
    ("/", |_, args| divide(guard::operand(args, 0)?, guard::operand(args, 1)?)),
    ("//", |_, args| floor_divide(guard::operand(args, 0)?, guard::operand(args, 1)?)),
    ("%", |budget, args| modulo(budget, guard::operand(args, 0)?, guard::operand(args, 1)?)),
    ("**", |_, args| power(guard::operand(args, 0)?, guard::operand(args, 1)?)),
    (guard::NEGATE, |_, args| negate(guard::operand(args, 0)?)),
    (guard::CHAIN, chain),
];

/// A chain of comparisons: operands with the names of operators between them.
fn chain(budget: &Budget, args: &[Value]) -> Outcome {
    for at in (0..args.len().saturating_sub(2)).step_by(2) {
        let (left, right) = (guard::operand(args, at)?, guard::operand(args, at + 2)?);
        let holds = match text_of(guard::operand(args, at + 1)?)? {
            "==" => equal(budget, left, right)?,
            "!=" => !equal(budget, left, right)?,
            "<" => less(budget, left, right, false)?,
            "<=" => less(budget, left, right, true)?,
            ">" => less(budget, right, left, false)?,
            ">=" => less(budget, right, left, true)?,
            "in" => contains(budget, right, left)?,
            _ => !contains(budget, right, left)?,
        };
        if !holds {
            return Ok(Value::from(false));
        }
    }
    Ok(Value::from(true))
}

/// Functions of Jinja that are not provided.
pub(super) const MISSING_FUNCTIONS: &[&str] = &["lipsum"];

/// Methods of Python's types that are not provided.
pub(super) const MISSING_METHODS: &[&str] = &[
    "as_integer_ratio",
    "bit_count",
    "bit_length",
    "conjugate",
    "encode",
    "from_bytes",
    "fromhex",
    "fromkeys",
    "hex",
    "is_integer",
    "maketrans",
    "to_bytes",
    "translate",
];

fn add_functions(env: &mut Environment, budget: &Budget, now: SystemTime) {
    env.add_function("namespace", functions::namespace);
    let account = budget.clone();
    env.add_function("dict", move |args: Rest<Value>| dict(&account, Args::new(&args)?));
    let account = budget.clone();
    env.add_function("range", move |args: Rest<Value>| range(&account, Args::new(&args)?));
    let account = budget.clone();
    env.add_function("raise_exception", move |args: Rest<Value>| -> Outcome {
        let [message] = Args::new(&args)?.bind(["message"], 1)?;
        let message = print::to_text(&account, &message.unwrap_or_default())?;
        Err(account.fail(TemplateError::Raised(message)))
    });
    let account = budget.clone();
    env.add_function("strftime_now", move |args: Rest<Value>| -> Outcome {
        let [format] = Args::new(&args)?.bind(["format"], 1)?;
        let format = format.unwrap_or_default();
        let format = text_of(&format)?;
        // At worst a width of three digits in five characters.
        account.charge(format.len().saturating_mul(200))?;
        Ok(Value::from(clock::format(now, format)))
    });
    env.add_function("cycler", |args: Rest<Value>| -> Outcome {
        let args = Args::new(&args)?;
        if args.positional.is_empty() || !args.named.is_empty() {
            return Err(invalid("cycler needs values"));
        }
        Ok(Value::from_object(Cycler { entries: args.positional, at: Mutex::new(0) }))
    });
    env.add_function("joiner", |args: Rest<Value>| -> Outcome {
        let [separator] = Args::new(&args)?.bind(["sep"], 0)?;
        let separator = separator.unwrap_or_else(|| Value::from(", "));
        Ok(Value::from_object(Joiner { separator, used: Mutex::new(false) }))
    });
}

/// `dict(pairs, name=value)`.
fn dict(budget: &Budget, mut args: Args) -> Outcome {
    if args.positional.len() > 1 {
        return Err(invalid("dict takes one mapping or list of pairs"));
    }
    let mut pairs: Vec<(Value, Value)> = Vec::new();
    if let Some(value) = args.positional.pop() {
        for entry in entries(budget, &value)? {
            pairs.push(match Kind::of(&value) {
                Kind::Dict => (entry.clone(), value.get_item(&entry)?),
                _ => match entries(budget, &entry)?.as_slice() {
                    [key, _] if !python::is_hashable(key) => return Err(invalid("dict: a key is not hashable")),
                    [key, entry] => (key.clone(), entry.clone()),
                    _ => return Err(invalid("dict needs pairs")),
                },
            });
        }
    }
    pairs.extend(args.named.into_iter().map(|(name, value)| (Value::from(name), value)));
    Ok(pairs.into_iter().collect())
}

fn range(budget: &Budget, args: Args) -> Outcome {
    let [first, second, step] = args.unnamed(1)?;
    let first = integer(&first.unwrap_or_default())?;
    let (start, stop) = match second.as_ref().map(integer).transpose()? {
        Some(second) => (first, second),
        None => (0, first),
    };
    let step = step.as_ref().map_or(Ok(1), integer)?;
    let (from, to, by) = (i128::from(start), i128::from(stop), i128::from(step));
    let count = match by.signum() {
        0 => return Err(invalid("range needs a step other than 0")),
        1 => (to - from + by - 1).div_euclid(by),
        _ => (from - to - by - 1).div_euclid(-by),
    };
    let count = usize::try_from(count.max(0)).unwrap_or(usize::MAX);
    if count > MAX_RANGE {
        return Err(budget.fail(TemplateError::RangeTooLong(MAX_RANGE)));
    }
    budget.charge_entries(count)?;
    Ok(Value::from_object(Range { start, stop, step, count }))
}
