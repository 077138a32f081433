//! Filters of numbers.

use minijinja::Value;

use super::super::outcome::{Outcome, invalid};
use super::super::print;
use super::super::python::{Args, Kind, float_value, integer, negate, parse_float, parse_integer, round_float};
use super::table::Context;

pub(super) fn abs(_: &Context, value: Value, args: Args) -> Outcome {
    let [] = args.bind([], 0)?;
    match Kind::of(&value) {
        Kind::Float => Ok(Value::from(float_value(&value).unwrap_or_default().abs())),
        Kind::Int | Kind::Bool => match i128::try_from(value.clone()) {
            Ok(int) if int < 0 => negate(&value),
            _ => Ok(if Kind::of(&value) == Kind::Bool { Value::from(integer(&value)?) } else { value }),
        },
        kind => Err(invalid(format!("abs does not take {}", kind.name()))),
    }
}

/// The whole part of a float.
fn whole(float: f64) -> Option<Value> {
    let whole = float.trunc();
    // Beyond 128 bits Python has integers, and there are none here.
    (whole.is_finite() && whole.abs() < 1e38).then(|| {
        let int = whole as i128;
        i64::try_from(int).map_or_else(|_| Value::from(int), Value::from)
    })
}

pub(super) fn int(_: &Context, value: Value, args: Args) -> Outcome {
    let [default, base] = args.bind(["default", "base"], 0)?;
    let default = default.unwrap_or_else(|| Value::from(0));
    let base = base.as_ref().map_or(Ok(10), integer)?;
    let too_large = || invalid("int: the number is too large");
    match Kind::of(&value) {
        Kind::Undefined => Err(minijinja::Error::from(minijinja::ErrorKind::UndefinedError)),
        Kind::Int => Ok(value),
        Kind::Bool => Ok(Value::from(integer(&value)?)),
        Kind::Float => match float_value(&value).unwrap_or_default() {
            float if float.is_nan() => Ok(default),
            float => whole(float).ok_or_else(too_large),
        },
        Kind::Str => {
            let text = value.as_str().unwrap_or_default();
            let base = u32::try_from(base).ok().filter(|base| *base == 0 || (2..=36).contains(base));
            match base.and_then(|base| parse_integer(text, base)) {
                Some(int) => {
                    int.map(|int| i64::try_from(int).map_or(Value::from(int), Value::from)).ok_or_else(too_large)
                }
                None => match parse_float(text) {
                    Some(float) if float.is_finite() => whole(float).ok_or_else(too_large),
                    _ => Ok(default),
                },
            }
        }
        _ => Ok(default),
    }
}

pub(super) fn float(_: &Context, value: Value, args: Args) -> Outcome {
    let [default] = args.bind(["default"], 0)?;
    let found = match Kind::of(&value) {
        Kind::Undefined => return Err(minijinja::Error::from(minijinja::ErrorKind::UndefinedError)),
        Kind::Str => parse_float(value.as_str().unwrap_or_default()),
        _ => float_value(&value),
    };
    Ok(found.map_or_else(|| default.unwrap_or_else(|| Value::from(0.0)), Value::from))
}

pub(super) fn round(_: &Context, value: Value, args: Args) -> Outcome {
    let [precision, method] = args.bind(["precision", "method"], 0)?;
    let places = precision.as_ref().map_or(Ok(0), integer)?;
    let method = method.unwrap_or_else(|| Value::from("common"));
    let round = match method.as_str() {
        Some("common") => None,
        Some("ceil") => Some(f64::ceil as fn(f64) -> f64),
        Some("floor") => Some(f64::floor as fn(f64) -> f64),
        _ => return Err(invalid("round: the method must be common, ceil or floor")),
    };
    let wrong = || invalid(format!("round does not take {}", Kind::of(&value).name()));
    let number = float_value(&value).ok_or_else(wrong)?;
    if let Some(round) = round {
        let unit = 10.0_f64.powi(i32::try_from(places).unwrap_or(400));
        if !(number * unit).is_finite() || unit == 0.0 {
            return Err(invalid("round: the number is too large"));
        }
        return Ok(Value::from(round(number * unit) / unit));
    }
    if Kind::of(&value) == Kind::Float {
        return Ok(Value::from(round_float(number, places)));
    }
    let int = i128::try_from(value.clone()).map_err(|_| wrong())?;
    let unit = match u32::try_from(-places.min(0)).ok().and_then(|places| 10_i128.checked_pow(places)) {
        Some(unit) => unit,
        None => return Ok(Value::from(0)),
    };
    let (quotient, rest) = (int.div_euclid(unit), int.rem_euclid(unit));
    let up = match (rest * 2).cmp(&unit) {
        std::cmp::Ordering::Less => 0,
        std::cmp::Ordering::Equal => quotient.rem_euclid(2),
        std::cmp::Ordering::Greater => 1,
    };
    let rounded = (quotient + up).checked_mul(unit).ok_or_else(|| invalid("round: the number is too large"))?;
    Ok(i64::try_from(rounded).map_or(Value::from(rounded), Value::from))
}

pub(super) fn filesizeformat(cx: &Context, value: Value, args: Args) -> Outcome {
    let [binary] = args.bind(["binary"], 0)?;
    let is_binary = binary.is_some_and(|binary| binary.is_true());
    let number = match Kind::of(&value) {
        Kind::Str => parse_float(value.as_str().unwrap_or_default()),
        _ => float_value(&value),
    };
    let bytes = number.ok_or_else(|| invalid("filesizeformat needs a number"))?;
    let (base, mark) = if is_binary { (1024.0_f64, "i") } else { (1000.0, "") };
    if bytes == 1.0 {
        return Ok(Value::from("1 Byte"));
    }
    if bytes < base {
        let whole = whole(bytes).ok_or_else(|| invalid("filesizeformat: the number is too large"))?;
        return Ok(Value::from(print::to_text(cx.budget, &whole)? + " Bytes"));
    }
    let prefixes = ["k", "M", "G", "T", "P", "E", "Z", "Y"];
    let power = (2..9).find(|power| bytes < base.powi(*power)).unwrap_or(9);
    let prefix = prefixes[(power as usize - 2).min(7)];
    let prefix = if is_binary { prefix.to_uppercase() } else { prefix.to_owned() };
    let unit = base.powi(power);
    Ok(Value::from(format!("{:.1} {prefix}{mark}B", base * bytes / unit)))
}
