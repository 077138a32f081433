//! Values as Python writes them, for `{{ value }}` and `tojson`.

use minijinja::{Error, Value};

use super::budget::{Budget, MAX_NESTING};
use super::error::TemplateError;
use super::outcome::invalid;
use super::python::{Kind, Range, View, float_text, is_hashable, is_printable, less};

/// `str(value)`.
pub(super) fn to_text(budget: &Budget, value: &Value) -> Result<String, Error> {
    match value.as_str() {
        Some(text) => budget.charge(text.len()).map(|()| text.to_owned()),
        None if value.is_undefined() => Ok(String::new()),
        None => repr(budget, value),
    }
}

/// `repr(value)`.
pub(super) fn repr(budget: &Budget, value: &Value) -> Result<String, Error> {
    let mut out = String::new();
    Printer { budget, json: None }.print(value, 0, &mut out)?;
    Ok(out)
}

/// The arguments of `json.dumps`.
pub(super) struct Json {
    pub(super) ascii: bool,
    pub(super) indent: Option<String>,
    /// Between entries.
    pub(super) between: String,
    /// Between a key and its value.
    pub(super) colon: String,
    pub(super) sort_keys: bool,
}

/// `json.dumps(value, …)`.
pub(super) fn to_json(budget: &Budget, value: &Value, json: Json) -> Result<String, Error> {
    let mut out = String::new();
    Printer { budget, json: Some(json) }.print(value, 0, &mut out)?;
    Ok(out)
}

/// An ASCII text, as `ascii` converts the output of `repr`.
pub(super) fn ascii(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii() { out.push(c) } else { python_escape(c, &mut out) }
    }
    out
}

fn python_escape(c: char, out: &mut String) {
    out.push_str(&match c as u32 {
        code @ 0..=0xff => format!("\\x{code:02x}"),
        code @ 0..=0xffff => format!("\\u{code:04x}"),
        code => format!("\\U{code:08x}"),
    });
}

struct Printer<'b> {
    budget: &'b Budget,
    /// `None` for `repr`.
    json: Option<Json>,
}

impl Printer<'_> {
    fn push(&self, out: &mut String, text: &str) -> Result<(), Error> {
        self.budget.charge(text.len())?;
        out.push_str(text);
        Ok(())
    }

    fn print(&self, value: &Value, level: usize, out: &mut String) -> Result<(), Error> {
        if level > MAX_NESTING {
            return Err(self.budget.fail(TemplateError::TooDeep(MAX_NESTING)));
        }
        let python = self.json.is_none();
        let word = |in_python, in_json| if python { in_python } else { in_json };
        let list = || value.try_iter().map(|entries| entries.map(|entry| (None, entry)).collect::<Vec<_>>());
        match Kind::of(value) {
            Kind::Str if python && value.is_safe() => {
                self.push(out, "Markup(")?;
                self.quote(value.as_str().unwrap_or_default(), out)?;
                self.push(out, ")")
            }
            Kind::Str => self.quote(value.as_str().unwrap_or_default(), out),
            Kind::Bool if value.is_true() => self.push(out, word("True", "true")),
            Kind::Bool => self.push(out, word("False", "false")),
            Kind::None => self.push(out, word("None", "null")),
            Kind::Int => self.push(out, &value.to_string()),
            Kind::Float => {
                let float = f64::try_from(value.clone()).unwrap_or_default();
                let infinite = if float > 0.0 { "Infinity" } else { "-Infinity" };
                match (python, float.is_finite()) {
                    (true, _) | (_, true) => self.push(out, &float_text(float)),
                    (false, _) => self.push(out, if float.is_nan() { "NaN" } else { infinite }),
                }
            }
            Kind::Tuple if python && value.len() == Some(1) => self.entries(("(", ",)"), list()?, level, out),
            Kind::Tuple if python => self.entries(("(", ")"), list()?, level, out),
            Kind::List | Kind::Tuple => self.entries(("[", "]"), list()?, level, out),
            Kind::Dict => {
                let pairs = self.pairs(value)?;
                self.entries(("{", "}"), pairs, level, out)
            }
            kind if !python => Err(invalid(format!("{} is not JSON serializable", kind.name()))),
            Kind::Undefined => self.push(out, "Undefined"),
            Kind::View => {
                self.push(out, value.downcast_object_ref::<View>().map_or("", |view| view.name))?;
                self.entries(("([", "])"), list()?, level, out)
            }
            Kind::Range => {
                let text = value.downcast_object_ref::<Range>().map(|range| match range.step {
                    1 => format!("range({}, {})", range.start, range.stop),
                    step => format!("range({}, {}, {step})", range.start, range.stop),
                });
                self.push(out, &text.unwrap_or_default())
            }
            // Python writes its place in memory.
            Kind::Iterator => self.push(out, "<generator object filter at 0x0>"),
            Kind::Other => self.object(value, level, out),
        }
    }

    /// Python prints functions with their address, so no template can depend on it.
    fn object(&self, value: &Value, level: usize, out: &mut String) -> Result<(), Error> {
        let name = value.as_object().map_or("", |object| object.type_name());
        if name.ends_with("Namespace") {
            self.push(out, "<Namespace ")?;
            let pairs = self.pairs(value)?;
            self.entries(("{", "}>"), pairs, level, out)
        } else if name.ends_with("Macro") {
            self.push(out, "<Macro ")?;
            self.print(&value.get_attr("name")?, level + 1, out)?;
            self.push(out, ">")
        } else {
            self.push(out, "<function>")
        }
    }

    fn pairs(&self, value: &Value) -> Result<Vec<(Option<Value>, Value)>, Error> {
        let mut pairs = Vec::new();
        for key in value.try_iter()? {
            self.budget.charge_entries(1)?;
            let entry = value.get_item(&key)?;
            pairs.push((key, entry));
        }
        if self.json.as_ref().is_some_and(|json| json.sort_keys) {
            // Keys of one kind are in order; of several kinds they have none.
            for pair in pairs.windows(2) {
                less(self.budget, &pair[0].0, &pair[1].0, false)?;
            }
            pairs.sort_by(|(a, _), (b, _)| a.cmp(b));
        }
        Ok(pairs.into_iter().map(|(key, entry)| (Some(key), entry)).collect())
    }

    fn entries(
        &self,
        (open, close): (&str, &str),
        entries: Vec<(Option<Value>, Value)>,
        level: usize,
        out: &mut String,
    ) -> Result<(), Error> {
        let indent = self.json.as_ref().and_then(|json| json.indent.as_deref());
        let line = |level: usize, out: &mut String| -> Result<(), Error> {
            match indent {
                Some(indent) => {
                    self.budget.charge(indent.len().saturating_mul(level) + 1)?;
                    out.push('\n');
                    out.push_str(&indent.repeat(level));
                    Ok(())
                }
                None => Ok(()),
            }
        };
        let (between, colon) =
            self.json.as_ref().map_or((", ", ": "), |json| (json.between.as_str(), json.colon.as_str()));
        self.push(out, open)?;
        let empty = entries.is_empty();
        for (index, (key, entry)) in entries.into_iter().enumerate() {
            if index > 0 {
                self.push(out, between)?;
            }
            line(level + 1, out)?;
            if let Some(key) = key {
                self.key(&key, level, out)?;
                self.push(out, colon)?;
            }
            self.print(&entry, level + 1, out)?;
        }
        if !empty {
            line(level, out)?;
        }
        self.push(out, close)
    }

    /// Keys in JSON are strings.
    fn key(&self, key: &Value, level: usize, out: &mut String) -> Result<(), Error> {
        let is_string = key.as_str().is_some();
        if self.json.is_none() || is_string {
            return self.print(key, level + 1, out);
        }
        if !is_hashable(key) || matches!(Kind::of(key), Kind::Tuple | Kind::Undefined) {
            return Err(invalid(format!("{} is no key in JSON", Kind::of(key).name())));
        }
        let mut text = String::new();
        self.print(key, level + 1, &mut text)?;
        self.quote(&text, out)
    }

    fn quote(&self, text: &str, out: &mut String) -> Result<(), Error> {
        // At worst six characters for one.
        self.budget.charge(text.len().saturating_mul(2))?;
        let python = self.json.is_none();
        let ascii = self.json.as_ref().is_some_and(|json| json.ascii);
        let quote = match python {
            true if text.contains('\'') && !text.contains('"') => '"',
            true => '\'',
            false => '"',
        };
        out.push(quote);
        for c in text.chars() {
            match c {
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' if !python => out.push_str("\\b"),
                '\u{c}' if !python => out.push_str("\\f"),
                c if c == quote => out.extend(['\\', c]),
                ' '..='~' => out.push(c),
                c if python && !is_printable(c) => python_escape(c, out),
                c if !python && (c < ' ' || ascii) => {
                    c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04x}")));
                }
                c => out.push(c),
            }
        }
        out.push(quote);
        Ok(())
    }
}
