//! Values as Python writes them, for `{{ value }}` and `tojson`.

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};

use super::TemplateError;
use super::budget::{Budget, MAX_NESTING};

/// `str(value)`.
pub(super) fn to_text(budget: &Budget, value: &Value) -> Result<String, Error> {
    let mut out = String::new();
    match value.as_str() {
        Some(text) => push(budget, &mut out, text)?,
        None if value.is_undefined() => {}
        None => Printer { budget, style: Style::Python }.print(value, 0, &mut out)?,
    }
    Ok(out)
}

/// `json.dumps(value, ensure_ascii=False, indent=indent)`.
pub(super) fn to_json(budget: &Budget, value: &Value, indent: Option<usize>) -> Result<String, Error> {
    let mut out = String::new();
    Printer { budget, style: Style::Json { indent } }.print(value, 0, &mut out)?;
    Ok(out)
}

fn push(budget: &Budget, out: &mut String, text: &str) -> Result<(), Error> {
    budget.charge(text.len())?;
    out.push_str(text);
    Ok(())
}

#[derive(Clone, Copy, PartialEq)]
enum Style {
    Python,
    Json { indent: Option<usize> },
}

struct Printer<'b> {
    budget: &'b Budget,
    style: Style,
}

impl Printer<'_> {
    fn print(&self, value: &Value, level: usize, out: &mut String) -> Result<(), Error> {
        if level > MAX_NESTING {
            return Err(self.budget.fail(TemplateError::TooDeep(MAX_NESTING)));
        }
        let python = self.style == Style::Python;
        let word = |in_python, in_json| if python { in_python } else { in_json };
        match value.kind() {
            ValueKind::String => self.quote(value.as_str().unwrap_or_default(), out),
            ValueKind::Bool if value.is_true() => push(self.budget, out, word("True", "true")),
            ValueKind::Bool => push(self.budget, out, word("False", "false")),
            ValueKind::None => push(self.budget, out, word("None", "null")),
            ValueKind::Undefined if python => Ok(()),
            ValueKind::Number => push(self.budget, out, &number(value)),
            ValueKind::Seq | ValueKind::Iterable => {
                let entries = value.try_iter()?.map(|entry| (None, entry));
                self.entries(('[', ']'), entries, level, out)
            }
            ValueKind::Map => {
                let mut pairs = Vec::new();
                for key in value.try_iter()? {
                    self.budget.charge_entries(1)?;
                    let entry = value.get_item(&key)?;
                    pairs.push((Some(key), entry));
                }
                self.entries(('{', '}'), pairs.into_iter(), level, out)
            }
            kind if python => push(self.budget, out, &format!("<{kind}>")),
            kind => Err(Error::new(ErrorKind::InvalidOperation, format!("{kind} is not JSON serializable"))),
        }
    }

    fn entries(
        &self,
        (open, close): (char, char),
        entries: impl Iterator<Item = (Option<Value>, Value)>,
        level: usize,
        out: &mut String,
    ) -> Result<(), Error> {
        let indent = match self.style {
            Style::Json { indent } => indent,
            Style::Python => None,
        };
        let line = |level: usize| indent.map(|width| format!("\n{}", " ".repeat(width * level)));
        out.push(open);
        let mut empty = true;
        for (key, entry) in entries {
            let separator = match (&indent, empty) {
                (_, true) => "",
                (Some(_), false) => ",",
                (None, false) => ", ",
            };
            empty = false;
            push(self.budget, out, separator)?;
            push(self.budget, out, &line(level + 1).unwrap_or_default())?;
            if let Some(key) = key {
                match key.kind() {
                    ValueKind::String => self.print(&key, level + 1, out)?,
                    _ if self.style == Style::Python => self.print(&key, level + 1, out)?,
                    // JSON keys are strings.
                    _ => {
                        let mut text = String::new();
                        self.print(&key, level + 1, &mut text)?;
                        self.quote(&text, out)?;
                    }
                }
                push(self.budget, out, ": ")?;
            }
            self.print(&entry, level + 1, out)?;
        }
        if !empty {
            push(self.budget, out, &line(level).unwrap_or_default())?;
        }
        out.push(close);
        Ok(())
    }

    fn quote(&self, text: &str, out: &mut String) -> Result<(), Error> {
        // At worst six characters for one.
        self.budget.charge(text.len().saturating_mul(2))?;
        let quote = match self.style {
            Style::Python if text.contains('\'') && !text.contains('"') => '"',
            Style::Python => '\'',
            Style::Json { .. } => '"',
        };
        let python = self.style == Style::Python;
        out.push(quote);
        for c in text.chars() {
            match c {
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' if !python => out.push_str("\\b"),
                '\u{c}' if !python => out.push_str("\\f"),
                '\0'..='\x1f' | '\x7f' if python => out.push_str(&format!("\\x{:02x}", c as u32)),
                '\0'..='\x1f' => out.push_str(&format!("\\u{:04x}", c as u32)),
                c if c == quote => out.extend(['\\', c]),
                c => out.push(c),
            }
        }
        out.push(quote);
        Ok(())
    }
}

/// Floats get a fraction or an exponent of at least two digits, as in Python.
fn number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    match f64::try_from(value.clone()) {
        Ok(float) if float.is_finite() => {
            let text = format!("{float:?}");
            match text.split_once('e') {
                Some((digits, exponent)) => {
                    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
                    format!("{digits}e{sign}{exponent:0>2}")
                }
                None => text,
            }
        }
        Ok(float) if float.is_nan() => "nan".to_owned(),
        Ok(float) => if float > 0.0 { "inf" } else { "-inf" }.to_owned(),
        Err(_) => value.to_string(),
    }
}
