//! `text % arguments`.

use minijinja::{Error, Value};

use super::super::budget::Budget;
use super::super::outcome::{Outcome, invalid};
use super::super::print;
use super::arithmetic::float;
use super::format::{MAX_PRECISION, leading_number, star};
use super::format::{Spec, pad};
use super::{Kind, entries};

/// The arguments that are left, and the mapping for `%(name)s`.
struct Arguments<'a> {
    left: std::vec::IntoIter<Value>,
    mapping: Option<&'a Value>,
}

impl Arguments<'_> {
    fn next(&mut self) -> Outcome {
        self.left.next().ok_or_else(|| invalid("there are too few arguments for a format"))
    }
}

/// `format % arguments`, whose format is a string.
pub(in super::super) fn percent(budget: &Budget, format: &Value, arguments: &Value) -> Outcome {
    if format.is_safe() {
        return Err(invalid("% of a safe text is not supported"));
    }
    let text = format.as_str().unwrap_or_default();
    budget.charge(text.len())?;
    let kind = Kind::of(arguments);
    let left = if kind == Kind::Tuple { entries(budget, arguments)? } else { vec![arguments.clone()] };
    let is_mapping = matches!(kind, Kind::Dict | Kind::List | Kind::Range | Kind::Undefined | Kind::Other);
    let mut arguments = Arguments { left: left.into_iter(), mapping: is_mapping.then_some(arguments) };
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        let (piece, after) = conversion(budget, &rest[at + 1..], &mut arguments)?;
        budget.charge(piece.len())?;
        out.push_str(&piece);
        rest = after;
    }
    out.push_str(rest);
    budget.charge(out.len())?;
    if arguments.left.next().is_some() && !is_mapping {
        return Err(invalid("there are too many arguments for a format"));
    }
    Ok(Value::from(out))
}

/// Writes what is after a `%`, and returns what follows it.
fn conversion<'t>(budget: &Budget, text: &'t str, arguments: &mut Arguments) -> Result<(String, &'t str), Error> {
    let mut rest = text;
    let mut keyed = None;
    if let Some(after) = rest.strip_prefix('(') {
        let mut depth = 1;
        let is_end = |c: char| {
            depth += match c {
                '(' => 1,
                ')' => -1,
                _ => 0,
            };
            depth == 0
        };
        let end = after.find(is_end).ok_or_else(|| invalid("a key of a format is not closed"))?;
        let mapping = arguments.mapping.filter(|mapping| Kind::of(mapping) == Kind::Dict);
        let mapping = mapping.ok_or_else(|| invalid("a format needs a mapping"))?;
        let key = Value::from(&after[..end]);
        let found = mapping.as_object().and_then(|object| object.get_value(&key));
        keyed = Some(found.ok_or_else(|| invalid(format!("a format lacks the argument {key}")))?);
        rest = &after[end + 1..];
    }
    let flags = rest.len() - rest.trim_start_matches(['#', '0', '-', ' ', '+']).len();
    let (flags, after) = rest.split_at(flags);
    rest = after;
    let has = |flag: char| flags.contains(flag);
    let mut spec = Spec { alternate: has('#'), ..Spec::default() };
    spec.sign = if has('+') { Some('+') } else { has(' ').then_some(' ') };
    let mut to_left = has('-');
    if let Some(after) = rest.strip_prefix('*') {
        let width = star(&arguments.next()?)?;
        to_left = to_left || width < 0;
        spec.width = usize::try_from(width.unsigned_abs()).unwrap_or(usize::MAX);
        rest = after;
    } else {
        let (width, after) = leading_number(rest)?;
        (spec.width, rest) = (width.unwrap_or(0), after);
    }
    if let Some(after) = rest.strip_prefix('.') {
        if let Some(after) = after.strip_prefix('*') {
            spec.precision = Some(usize::try_from(star(&arguments.next()?)?).unwrap_or(0));
            rest = after;
        } else {
            let (precision, after) = leading_number(after)?;
            (spec.precision, rest) = (Some(precision.unwrap_or(0)), after);
        }
    }
    rest = rest.strip_prefix(['h', 'l', 'L']).unwrap_or(rest);
    let kind = rest.chars().next().ok_or_else(|| invalid("a format is not complete"))?;
    rest = &rest[kind.len_utf8()..];
    if kind == '%' {
        return Ok(("%".to_owned(), rest));
    }
    let value = match keyed {
        Some(value) => value,
        None => arguments.next()?,
    };
    let align = if to_left { '<' } else { '>' };
    let wrong = || invalid(format!("%{kind} does not take {}", Kind::of(&value).name()));
    let is_whole = matches!(Kind::of(&value), Kind::Int | Kind::Bool);
    let text = match kind {
        's' | 'r' | 'a' | 'c' => {
            let text = match kind {
                's' => print::to_text(budget, &value)?,
                'r' => print::repr(budget, &value)?,
                'a' => print::ascii(&print::repr(budget, &value)?),
                _ => match value.as_str() {
                    Some(text) if text.chars().count() == 1 => text.to_owned(),
                    None if is_whole => {
                        let c = u32::try_from(value.clone()).ok().and_then(char::from_u32);
                        c.ok_or_else(wrong)?.to_string()
                    }
                    _ => return Err(wrong()),
                },
            };
            let most = spec.precision.filter(|_| kind != 'c').unwrap_or(usize::MAX);
            let text: String = text.chars().take(most).collect();
            return Ok((pad(budget, &text, spec.width, ' ', align)?, rest));
        }
        'd' | 'i' | 'u' | 'x' | 'X' | 'o' => {
            let takes_floats = matches!(kind, 'd' | 'i' | 'u');
            let int = match float(&value) {
                Some(float) if Kind::of(&value) == Kind::Float && takes_floats && float.is_finite() => {
                    float.trunc() as i128
                }
                _ if is_whole => i128::try_from(value.clone()).map_err(|_| wrong())?,
                _ => return Err(wrong()),
            };
            let size = int.unsigned_abs();
            let (prefix, digits) = match kind {
                'x' => ("0x", format!("{size:x}")),
                'X' => ("0X", format!("{size:X}")),
                'o' => ("0o", format!("{size:o}")),
                _ => ("", size.to_string()),
            };
            let least = spec.precision.unwrap_or(0);
            let digits = pad(budget, &digits, least, '0', '>')?;
            (int < 0, if spec.alternate { prefix } else { "" }, digits)
        }
        'e' | 'E' | 'f' | 'F' | 'g' | 'G' => {
            let float = float(&value).ok_or_else(wrong)?;
            if spec.precision.is_some_and(|precision| precision > MAX_PRECISION) {
                return Err(invalid(format!("a format has at most {MAX_PRECISION} digits of a fraction")));
            }
            spec.kind = Some(kind);
            (float.is_sign_negative() && !float.is_nan(), "", spec.float_digits(float)?)
        }
        _ => return Err(invalid(format!("a format has the unknown conversion %{kind}"))),
    };
    let (negative, prefix, digits) = text;
    spec.kind = Some(kind);
    (spec.fill, spec.align) = match (to_left, has('0')) {
        (true, _) => (None, Some('<')),
        (false, true) => (Some('0'), Some('=')),
        (false, false) => (None, Some('>')),
    };
    Ok((spec.number(budget, negative, prefix, &digits)?, rest))
}
