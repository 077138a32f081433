//! Python's operators on numbers, texts and lists.

use minijinja::{Error, Value};

use super::super::budget::Budget;
use super::super::outcome::{Outcome, invalid};
use super::{Kind, entries, escape, integer, percent, text_like, tuple};

/// Two numbers, as Python takes them for an operator.
enum Pair {
    Ints(i128, i128),
    Floats(f64, f64),
}

fn number_pair(left: &Value, right: &Value) -> Option<Pair> {
    let is_whole = |value: &Value| matches!(Kind::of(value), Kind::Int | Kind::Bool);
    let is_number = |value: &Value| is_whole(value) || Kind::of(value) == Kind::Float;
    if is_whole(left) && is_whole(right) {
        return Some(Pair::Ints(i128::try_from(left.clone()).ok()?, i128::try_from(right.clone()).ok()?));
    }
    (is_number(left) && is_number(right)).then(|| Some(Pair::Floats(float(left)?, float(right)?)))?
}

/// A number as a float.
pub(in super::super) fn float(value: &Value) -> Option<f64> {
    match Kind::of(value) {
        Kind::Bool => Some(f64::from(u8::from(value.is_true()))),
        Kind::Int => i128::try_from(value.clone()).ok().map(|int| int as f64),
        Kind::Float => f64::try_from(value.clone()).ok(),
        _ => None,
    }
}

/// An integer: Python's have no bound, ours that of 128 bits.
fn int(value: Option<i128>) -> Outcome {
    let value = value.ok_or_else(|| invalid("the integer result of an operator is too large"))?;
    Ok(i64::try_from(value).map_or_else(|_| Value::from(value), Value::from))
}

fn unsupported(op: &str, left: &Value, right: &Value) -> Error {
    let names = (Kind::of(left).name(), Kind::of(right).name());
    invalid(format!("{op} does not take {} and {}", names.0, names.1))
}

pub(in super::super) fn add(budget: &Budget, left: &Value, right: &Value) -> Outcome {
    match (Kind::of(left), Kind::of(right)) {
        (Kind::Str, Kind::Str) => {
            let (a, b) = (left.as_str().unwrap_or_default(), right.as_str().unwrap_or_default());
            budget.charge(a.len() + b.len())?;
            if left.is_safe() == right.is_safe() {
                return Ok(text_like(left, [a, b].concat()));
            }
            let part = |value: &Value, text: &str| {
                if value.is_safe() { Ok(text.to_owned()) } else { escape(budget, text) }
            };
            Ok(Value::from_safe_string(part(left, a)? + &part(right, b)?))
        }
        (kind @ (Kind::List | Kind::Tuple), other) if kind == other => {
            let mut all = entries(budget, left)?;
            all.extend(entries(budget, right)?);
            Ok(if kind == Kind::List { Value::from(all) } else { tuple(all) })
        }
        _ => match number_pair(left, right).ok_or_else(|| unsupported("+", left, right))? {
            Pair::Ints(a, b) => int(a.checked_add(b)),
            Pair::Floats(a, b) => Ok(Value::from(a + b)),
        },
    }
}

pub(in super::super) fn subtract(left: &Value, right: &Value) -> Outcome {
    match number_pair(left, right).ok_or_else(|| unsupported("-", left, right))? {
        Pair::Ints(a, b) => int(a.checked_sub(b)),
        Pair::Floats(a, b) => Ok(Value::from(a - b)),
    }
}

/// `left * right`: numbers, or a text, list or tuple repeated.
pub(in super::super) fn multiply(budget: &Budget, left: &Value, right: &Value) -> Outcome {
    let is_repeated = |value: &Value| matches!(Kind::of(value), Kind::Str | Kind::List | Kind::Tuple);
    let (value, factor) = if is_repeated(left) { (left, right) } else { (right, left) };
    if is_repeated(value) {
        let wrong = |_| invalid("only an integer can repeat a text or list");
        // A negative factor gives an empty value.
        let count = usize::try_from(integer(factor).map_err(wrong)?).unwrap_or(0);
        if let Some(text) = value.as_str() {
            budget.charge(text.len().saturating_mul(count))?;
            return Ok(text_like(value, text.repeat(count)));
        }
        let all = entries(budget, value)?;
        let total = all.len().saturating_mul(count);
        budget.charge_entries(total)?;
        let all: Vec<Value> = all.into_iter().cycle().take(total).collect();
        return Ok(if Kind::of(value) == Kind::List { Value::from(all) } else { tuple(all) });
    }
    match number_pair(left, right).ok_or_else(|| unsupported("*", left, right))? {
        Pair::Ints(a, b) => int(a.checked_mul(b)),
        Pair::Floats(a, b) => Ok(Value::from(a * b)),
    }
}

fn by_zero() -> Error {
    invalid("division by zero")
}

pub(in super::super) fn divide(left: &Value, right: &Value) -> Outcome {
    let (a, b) = match number_pair(left, right).ok_or_else(|| unsupported("/", left, right))? {
        Pair::Ints(a, b) => (a as f64, b as f64),
        Pair::Floats(a, b) => (a, b),
    };
    if b == 0.0 { Err(by_zero()) } else { Ok(Value::from(a / b)) }
}

/// The quotient rounded down, and the rest, which has the sign of the divisor.
fn divided(op: &str, left: &Value, right: &Value) -> Result<(Value, Value), Error> {
    match number_pair(left, right).ok_or_else(|| unsupported(op, left, right))? {
        Pair::Ints(_, 0) => Err(by_zero()),
        Pair::Ints(a, b) => {
            let rest = a.checked_rem(b).unwrap_or(0);
            let differs = rest != 0 && (rest < 0) != (b < 0);
            let quotient = a.checked_div(b).and_then(|q| q.checked_sub(i128::from(differs)));
            Ok((int(quotient)?, int(Some(if differs { rest + b } else { rest }))?))
        }
        Pair::Floats(_, 0.0) => Err(by_zero()),
        Pair::Floats(a, b) => {
            let mut rest = a % b;
            let mut quotient = (a - rest) / b;
            if rest == 0.0 {
                rest = 0.0_f64.copysign(b);
            } else if (rest < 0.0) != (b < 0.0) {
                rest += b;
                quotient -= 1.0;
            }
            let floor = quotient.floor();
            let quotient = match quotient {
                0.0 => 0.0_f64.copysign(a / b),
                _ if quotient - floor > 0.5 => floor + 1.0,
                _ => floor,
            };
            Ok((Value::from(quotient), Value::from(rest)))
        }
    }
}

pub(in super::super) fn floor_divide(left: &Value, right: &Value) -> Outcome {
    divided("//", left, right).map(|(quotient, _)| quotient)
}

/// `left % right`.
pub(in super::super) fn modulo(budget: &Budget, left: &Value, right: &Value) -> Outcome {
    match Kind::of(left) {
        Kind::Str => percent(budget, left, right),
        _ => divided("%", left, right).map(|(_, rest)| rest),
    }
}

pub(in super::super) fn power(left: &Value, right: &Value) -> Outcome {
    let (a, b) = match number_pair(left, right).ok_or_else(|| unsupported("**", left, right))? {
        Pair::Ints(a, b) if b >= 0 => {
            let exponent = u32::try_from(b).ok();
            return int(match a {
                0 | 1 => Some(if b == 0 { 1 } else { a }),
                -1 => Some(if b % 2 == 0 { 1 } else { -1 }),
                _ => exponent.and_then(|b| a.checked_pow(b)),
            });
        }
        Pair::Ints(a, b) => (a as f64, b as f64),
        Pair::Floats(a, b) => (a, b),
    };
    if a == 0.0 && b < 0.0 {
        return Err(by_zero());
    }
    let result = a.powf(b);
    if result.is_nan() && !a.is_nan() && !b.is_nan() {
        return Err(invalid("a power of a negative number is complex"));
    }
    if result.is_infinite() && a.is_finite() && b.is_finite() {
        return Err(invalid("a power is too large"));
    }
    Ok(Value::from(result))
}

pub(in super::super) fn negate(value: &Value) -> Outcome {
    match Kind::of(value) {
        Kind::Int | Kind::Bool => int(i128::try_from(value.clone()).ok().and_then(i128::checked_neg)),
        Kind::Float => Ok(Value::from(-float(value).unwrap_or_default())),
        kind => Err(invalid(format!("- does not take {}", kind.name()))),
    }
}
