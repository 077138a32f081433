//! Attributes: `[[name(argument)]]`.

use super::translator::Translator;

/// One attribute, and its index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Attribute {
    pub(super) name: String,
    /// The tokens between its parentheses: from, to.
    pub(super) argument: Option<(usize, usize)>,
    pub(super) at: usize,
}

/// Attributes of C++ that are ignored.
const PLAIN: &[&str] = &["maybe_unused", "nodiscard", "clang::always_inline", "clang::noinline", "gnu::always_inline"];

/// A constant expression cannot be more deeply nested.
const DEPTH: u32 = 32;

impl Translator<'_> {
    /// Whether the tokens are `[[`, which in C++ only starts an attribute.
    pub(super) fn is_attribute(&self, at: usize) -> bool {
        self.is(at, "[") && self.is(at + 1, "[")
    }

    /// The attributes of `[[…]]` at `at`, and the index after them.
    pub(super) fn attributes(&mut self, at: usize) -> (Vec<Attribute>, usize) {
        let outer = self.matching(at);
        let inner = self.matching(at + 1);
        let mut found = Vec::new();
        if outer != inner + 1 {
            self.problem(at, "an attribute does not end with ]]");
            return (found, outer + 1);
        }
        let mut i = at + 2;
        while i < inner {
            let mut name = String::new();
            let begin = i;
            while self.is_word(i) || self.is(i, "::") {
                name.push_str(self.text(i));
                i += 1;
            }
            let mut argument = None;
            if self.is(i, "(") {
                argument = Some((i + 1, self.matching(i)));
                i = self.matching(i) + 1;
            }
            if name.is_empty() || i < inner && !self.is(i, ",") {
                self.problem(begin, "an attribute is a name and perhaps an argument in parentheses");
                return (found, outer + 1);
            }
            found.push(Attribute { name, argument, at: begin });
            i += 1;
        }
        (found, outer + 1)
    }

    /// Refuses those attributes that are not among the expected and that are not plain C++.
    pub(super) fn refuse_attributes(&mut self, attributes: &[Attribute], expected: &[&str], on: &str) {
        for attribute in attributes {
            let name = attribute.name.as_str();
            if !expected.contains(&name) && !PLAIN.contains(&name) {
                self.problem(attribute.at, format!("the attribute {name} is not known on {on}"));
            }
        }
    }

    /// The value of an attribute's argument, a constant expression of integers.
    pub(super) fn number(&mut self, attribute: &Attribute) -> Option<u32> {
        let Some((from, to)) = attribute.argument else {
            self.problem(attribute.at, format!("{} needs a number", attribute.name));
            return None;
        };
        let mut at = from;
        let value = self.sum(&mut at, to, DEPTH).filter(|_| at == to).and_then(|value| u32::try_from(value).ok());
        if value.is_none() {
            let what = format!("the argument of {} must be made of numbers, + - * / % and parentheses", attribute.name);
            self.problem(attribute.at, what);
        }
        value
    }

    fn sum(&self, at: &mut usize, to: usize, depth: u32) -> Option<i64> {
        let mut value = self.product(at, to, depth)?;
        while *at < to {
            let minus = match self.text(*at) {
                "+" => false,
                "-" => true,
                _ => break,
            };
            *at += 1;
            let other = self.product(at, to, depth)?;
            value = if minus { value.checked_sub(other)? } else { value.checked_add(other)? };
        }
        Some(value)
    }

    fn product(&self, at: &mut usize, to: usize, depth: u32) -> Option<i64> {
        let mut value = self.primary(at, to, depth)?;
        while *at < to {
            let by = self.text(*at).to_owned();
            if !matches!(by.as_str(), "*" | "/" | "%") {
                break;
            }
            *at += 1;
            let other = self.primary(at, to, depth)?;
            value = match by.as_str() {
                "*" => value.checked_mul(other)?,
                "/" => value.checked_div(other)?,
                _ => value.checked_rem(other)?,
            };
        }
        Some(value)
    }

    fn primary(&self, at: &mut usize, to: usize, depth: u32) -> Option<i64> {
        if *at >= to {
            return None;
        }
        if self.is(*at, "(") {
            let close = self.matching(*at);
            *at += 1;
            let value = self.sum(at, close, depth.checked_sub(1)?)?;
            if *at != close {
                return None;
            }
            *at += 1;
            return Some(value);
        }
        let text = self.text(*at).trim_end_matches(['u', 'U', 'l', 'L']).replace('\'', "");
        *at += 1;
        match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            Some(digits) => i64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        }
    }
}
