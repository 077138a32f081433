//! `str.format` and its format specifications.

use minijinja::{Error, Value};

use super::super::budget::Budget;
use super::super::outcome::invalid;
use super::super::print;
use super::args::{Args, integer};
use super::arithmetic::float;
use super::{Kind, attribute, item, number};

/// The most digits of a fraction.
pub(super) const MAX_PRECISION: usize = 1000;

/// `[[fill]align][sign][#][0][width][grouping][.precision][type]`
#[derive(Debug, Default)]
pub(super) struct Spec {
    pub(super) fill: Option<char>,
    pub(super) align: Option<char>,
    pub(super) sign: Option<char>,
    pub(super) alternate: bool,
    pub(super) width: usize,
    pub(super) grouping: Option<char>,
    pub(super) precision: Option<usize>,
    pub(super) kind: Option<char>,
}

/// `text` with `fill` up to a width in characters.
pub(super) fn pad(budget: &Budget, text: &str, width: usize, fill: char, align: char) -> Result<String, Error> {
    budget.charge(text.len())?;
    let missing = width.saturating_sub(text.chars().count());
    budget.charge(missing.saturating_mul(fill.len_utf8()))?;
    let left = match align {
        '<' => 0,
        '^' => missing / 2,
        _ => missing,
    };
    let fill = |count: usize| fill.to_string().repeat(count);
    Ok(fill(left) + text + &fill(missing - left))
}

/// Reads a number at the start of a text.
pub(super) fn leading_number(text: &str) -> Result<(Option<usize>, &str), Error> {
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    let parse = |digits: &str| digits.parse().map_err(|_| invalid("a width or precision is too large"));
    Ok(((!digits.is_empty()).then(|| parse(digits)).transpose()?, rest))
}

impl Spec {
    fn parse(text: &str) -> Result<Spec, Error> {
        let wrong = || invalid(format!("the format {text:?} is not valid"));
        let mut spec = Spec::default();
        let mut rest = text;
        let is_align = |c: Option<char>| c.filter(|c| "<>=^".contains(*c));
        let (first, second) = (text.chars().next(), text.chars().nth(1));
        if let Some(align) = is_align(second) {
            (spec.fill, spec.align) = (first, Some(align));
            rest = &rest[first.map_or(0, char::len_utf8) + 1..];
        } else if let Some(align) = is_align(first) {
            spec.align = Some(align);
            rest = &rest[1..];
        }
        if let Some(sign) = rest.chars().next().filter(|c| "+- ".contains(*c)) {
            (spec.sign, rest) = (Some(sign), &rest[1..]);
        }
        if let Some(after) = rest.strip_prefix('#') {
            (spec.alternate, rest) = (true, after);
        }
        if let Some(after) = rest.strip_prefix('0') {
            spec.align = spec.align.or(if spec.fill.is_none() { Some('0') } else { None });
            spec.fill = spec.fill.or(Some('0'));
            rest = after;
        }
        let (width, after) = leading_number(rest)?;
        (spec.width, rest) = (width.unwrap_or(0), after);
        if let Some(grouping) = rest.chars().next().filter(|c| ",_".contains(*c)) {
            (spec.grouping, rest) = (Some(grouping), &rest[1..]);
        }
        if let Some(after) = rest.strip_prefix('.') {
            let (precision, after) = leading_number(after)?;
            (spec.precision, rest) = (Some(precision.ok_or_else(wrong)?), after);
        }
        let mut kinds = rest.chars();
        spec.kind = kinds.next();
        if kinds.next().is_some() || spec.precision.is_some_and(|precision| precision > MAX_PRECISION) {
            return Err(wrong());
        }
        Ok(spec)
    }

    /// A number of these digits, with sign and filling.
    pub(super) fn number(&self, budget: &Budget, negative: bool, prefix: &str, digits: &str) -> Result<String, Error> {
        budget.charge(digits.len())?;
        let sign = match self.sign {
            _ if negative => "-",
            Some('+') => "+",
            Some(' ') => " ",
            _ => "",
        };
        let end = digits.bytes().position(|byte| !byte.is_ascii_hexdigit()).unwrap_or(digits.len());
        let is_float = matches!(self.kind, None | Some('e' | 'E' | 'f' | 'F' | 'g' | 'G' | '%'));
        // The `e` of an exponent is no digit.
        let end = if is_float { digits.find(['.', 'e', 'E', '%']).unwrap_or(end) } else { end };
        let (whole, rest) = digits.split_at(end);
        let align = match self.align {
            Some('0') => '=',
            align => align.unwrap_or('>'),
        };
        let fill = self.fill.unwrap_or(' ');
        let head = sign.len() + prefix.len();
        let whole = match self.grouping {
            None => whole.to_owned(),
            Some(separator) => {
                let every = if matches!(self.kind, Some('b' | 'o' | 'x' | 'X')) { 4 } else { 3 };
                let least = if align == '=' && fill == '0' { self.width.saturating_sub(head + rest.len()) } else { 0 };
                budget.charge(least)?;
                grouped(whole, separator, every, least)
            }
        };
        if align == '=' {
            let body = pad(budget, &(whole + rest), self.width.saturating_sub(head), fill, '>')?;
            return Ok([sign, prefix, &body].concat());
        }
        pad(budget, &[sign, prefix, &whole, rest].concat(), self.width, fill, align)
    }

    fn integer(&self, budget: &Budget, value: &Value) -> Result<String, Error> {
        let int = i128::try_from(value.clone()).map_err(|_| invalid("an integer is too large"))?;
        let size = int.unsigned_abs();
        let (prefix, digits) = match self.kind {
            None | Some('d' | 'n') => ("", size.to_string()),
            Some('b') => ("0b", format!("{size:b}")),
            Some('o') => ("0o", format!("{size:o}")),
            Some('x') => ("0x", format!("{size:x}")),
            Some('X') => ("0X", format!("{size:X}")),
            Some('c') if self.sign.is_none() && self.grouping.is_none() && !self.alternate => {
                let c = u32::try_from(int).ok().and_then(char::from_u32);
                let c = c.ok_or_else(|| invalid("an integer is no character"))?;
                return pad(
                    budget,
                    &c.to_string(),
                    self.width,
                    self.fill.unwrap_or(' '),
                    match self.align {
                        Some(align @ ('<' | '^')) => align,
                        None => '<',
                        _ => '>',
                    },
                );
            }
            Some('e' | 'E' | 'f' | 'F' | 'g' | 'G' | '%') => return self.float(budget, int as f64),
            Some(kind) => return Err(invalid(format!("the format {kind} does not take an integer"))),
        };
        if self.precision.is_some() || self.grouping == Some(',') && !matches!(self.kind, None | Some('d')) {
            return Err(invalid("the format of an integer is not valid"));
        }
        self.number(budget, int < 0, if self.alternate { prefix } else { "" }, &digits)
    }

    /// A float without its sign.
    pub(super) fn float_digits(&self, float: f64) -> Result<String, Error> {
        let float = float.abs();
        if !float.is_finite() {
            let text = number::float_text(float);
            return Ok(if matches!(self.kind, Some('E' | 'F' | 'G')) { text.to_uppercase() } else { text });
        }
        let precision = self.precision.unwrap_or(6);
        let dot = |text: String| match text.find('e') {
            _ if !self.alternate || text.contains('.') => text,
            Some(at) => [&text[..at], ".", &text[at..]].concat(),
            None => text + ".",
        };
        Ok(match self.kind {
            Some('f' | 'F') => dot(format!("{float:.precision$}")),
            Some('e') => dot(number::exponential(float, precision)),
            Some('E') => dot(number::exponential(float, precision)).to_uppercase(),
            Some('g' | 'n') => dot(number::general(float, precision, self.alternate, false)),
            Some('G') => dot(number::general(float, precision, self.alternate, false)).to_uppercase(),
            Some('%') => dot(format!("{:.precision$}", float * 100.0)) + "%",
            None => match self.precision {
                Some(precision) => number::general(float, precision, self.alternate, true),
                None => number::float_text(float),
            },
            Some(kind) => return Err(invalid(format!("the format {kind} does not take a float"))),
        })
    }

    fn float(&self, budget: &Budget, float: f64) -> Result<String, Error> {
        let is_negative = float.is_sign_negative() && !float.is_nan();
        self.number(budget, is_negative, "", &self.float_digits(float)?)
    }

    /// `format(value, spec)`
    fn apply(&self, budget: &Budget, value: &Value) -> Result<String, Error> {
        match Kind::of(value) {
            Kind::Bool | Kind::Int => self.integer(budget, value),
            Kind::Float => self.float(budget, float(value).unwrap_or_default()),
            Kind::Str => {
                let is_plain = matches!(self.kind, None | Some('s')) && self.sign.is_none() && self.grouping.is_none();
                if !is_plain || self.alternate || self.align == Some('=') {
                    return Err(invalid("the format of a string is not valid"));
                }
                let text = value.as_str().unwrap_or_default();
                let text: String = text.chars().take(self.precision.unwrap_or(usize::MAX)).collect();
                let align = self.align.filter(|align| *align != '0').unwrap_or('<');
                pad(budget, &text, self.width, self.fill.unwrap_or(' '), align)
            }
            kind => Err(invalid(format!("a format for {} must be empty", kind.name()))),
        }
    }
}

/// Digits in groups, with zeros in front up to a width.
fn grouped(digits: &str, separator: char, every: usize, least: usize) -> String {
    let mut out: Vec<char> = Vec::new();
    let mut digits = digits.chars().rev();
    let mut count = 0;
    loop {
        let next = match digits.next() {
            Some(digit) => digit,
            None if out.len() < least => '0',
            None => break,
        };
        if count > 0 && count % every == 0 {
            out.push(separator);
        }
        out.push(next);
        count += 1;
    }
    out.iter().rev().collect()
}

/// `text.format(*positional, **named)`
pub(super) fn format(budget: &Budget, text: &str, args: &Args) -> Result<String, Error> {
    let mut formatter = Formatter { budget, args, next: Some(0), nested: false };
    formatter.expand(text)
}

struct Formatter<'a> {
    budget: &'a Budget,
    args: &'a Args,
    /// The next field without a name; `None` once a field had a number.
    next: Option<usize>,
    nested: bool,
}

impl Formatter<'_> {
    fn expand(&mut self, text: &str) -> Result<String, Error> {
        let mut out = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            out.push_str(&rest[..at]);
            let (mark, after) = rest[at..].split_at(1);
            if after.starts_with(mark) {
                out.push_str(mark);
                rest = &after[1..];
                continue;
            }
            if mark == "}" {
                return Err(invalid("a format has a single }"));
            }
            let end = closing(after).ok_or_else(|| invalid("a format has a { that is not closed"))?;
            let field = self.field(&after[..end])?;
            self.budget.charge(field.len())?;
            out.push_str(&field);
            rest = &after[end + 1..];
        }
        out.push_str(rest);
        self.budget.charge(out.len())?;
        Ok(out)
    }

    /// One field: `name!conversion:spec`.
    fn field(&mut self, field: &str) -> Result<String, Error> {
        let name_end = name_end(field);
        let (name, rest) = field.split_at(name_end);
        let (conversion, spec) = match rest.strip_prefix('!') {
            Some(rest) => {
                let conversion = rest.chars().next().filter(|c| "rsa".contains(*c));
                let conversion = conversion.ok_or_else(|| invalid("a format has an unknown conversion"))?;
                let rest = &rest[1..];
                let spec = rest.strip_prefix(':').or(rest.is_empty().then_some(""));
                (Some(conversion), spec.ok_or_else(|| invalid("a format needs : after its conversion"))?)
            }
            None => (None, rest.strip_prefix(':').unwrap_or_default()),
        };
        let value = self.value(name)?;
        let value = match conversion {
            Some('r') => Value::from(print::repr(self.budget, &value)?),
            Some('a') => Value::from(print::ascii(&print::repr(self.budget, &value)?)),
            Some(_) => Value::from(print::to_text(self.budget, &value)?),
            None => value,
        };
        let spec = if spec.contains('{') {
            if std::mem::replace(&mut self.nested, true) {
                return Err(invalid("a format is nested too deeply"));
            }
            let spec = self.expand(spec)?;
            self.nested = false;
            spec
        } else {
            spec.to_owned()
        };
        if spec.is_empty() {
            return print::to_text(self.budget, &value);
        }
        Spec::parse(&spec)?.apply(self.budget, &value)
    }

    /// The value of a field such as `0.name[key]`.
    fn value(&mut self, name: &str) -> Result<Value, Error> {
        let end = name.find(['.', '[']).unwrap_or(name.len());
        let (first, mut rest) = name.split_at(end);
        let index = match (first.parse::<usize>(), self.next) {
            (Ok(index), None | Some(0)) => {
                self.next = None;
                Some(index)
            }
            (Err(_), Some(next)) if first.is_empty() => {
                self.next = Some(next + 1);
                Some(next)
            }
            (Err(_), _) if !first.is_empty() => None,
            _ => return Err(invalid("a format has fields both with and without numbers")),
        };
        let named = || self.args.named.iter().find(|(name, _)| name == first).map(|(_, value)| value);
        let value = match index {
            Some(index) => self.args.positional.get(index),
            None => named(),
        };
        let mut value = value.cloned().ok_or_else(|| invalid(format!("a format lacks the argument {first:?}")))?;
        while !rest.is_empty() {
            let wrong = || invalid("a format has a field that is not valid");
            if let Some(after) = rest.strip_prefix('.') {
                let end = after.find(['.', '[']).unwrap_or(after.len());
                value = attribute(
                    self.budget,
                    &value,
                    after.get(..end).filter(|name| !name.is_empty()).ok_or_else(wrong)?,
                )?;
                rest = &after[end..];
            } else {
                let (key, after) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')).ok_or_else(wrong)?;
                if key.is_empty() {
                    return Err(wrong());
                }
                let key = key.parse::<u32>().map_or_else(|_| Value::from(key), Value::from);
                value = item(self.budget, &value, &key)?;
                rest = after;
            }
        }
        Ok(value)
    }
}

/// Where the field that starts here ends.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => return Some(at),
            '}' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Where a field's name ends: `!` and `:` within brackets belong to it.
fn name_end(field: &str) -> usize {
    let mut in_brackets = false;
    for (at, c) in field.char_indices() {
        match c {
            '[' => in_brackets = true,
            ']' => in_brackets = false,
            '!' | ':' if !in_brackets => return at,
            _ => {}
        }
    }
    field.len()
}

/// The integer of a width or precision that `*` takes from the arguments.
pub(super) fn star(value: &Value) -> Result<i64, Error> {
    integer(value).map_err(|_| invalid("* needs an integer"))
}
