//! `propertyNames`: the names that an object may have.

use serde_json::{Map, Value};

use super::annotations::is_annotation;
use super::pointer;
use super::schema::{Parts, Result, Walk};

impl Walk<'_> {
    /// Enforces names by a pattern or a list of them, in an object that lists no properties of its own: there
    /// `additionalProperties` becomes the schema of the names with the pattern.
    pub(super) fn property_names(
        &mut self,
        object: &Map<String, Value>,
        names: &Value,
        parts: &mut Parts,
    ) -> Result<()> {
        self.count()?;
        let root = self.root;
        let keywords = match pointer::resolved(root, names) {
            Some(Value::Bool(true)) => return Ok(()),
            Some(Value::Object(keywords)) => keywords,
            None => return self.refuse("its reference is not found; it must lead to a part of this schema"),
            _ => return self.refuse("it must be an object, or true"),
        };
        let mut pattern = None;
        for (key, value) in keywords {
            let found = self.at(key, |walk| walk.name_rule(key, value))?;
            if found.is_some() && pattern.is_some() {
                return self.refuse("it has several of pattern, enum and const; leave one");
            }
            pattern = pattern.or(found);
        }
        let Some(pattern) = pattern else { return Ok(()) };
        if ["properties", "patternProperties"].iter().any(|key| object.contains_key(*key)) {
            return self.refuse("it is not enforced beside properties or patternProperties; leave it out");
        }
        self.count_name_patterns(1)?;
        parts.names = Some(pattern);
        Ok(())
    }

    /// The pattern that a keyword requests; `None` if each name follows it.
    fn name_rule(&mut self, key: &str, value: &Value) -> Result<Option<String>> {
        let list = match (key, value) {
            ("type", Value::String(name)) if name == "string" => return Ok(None),
            ("pattern", Value::String(pattern)) => return self.translated(pattern).map(Some),
            ("enum", Value::Array(list)) if !list.is_empty() => list.as_slice(),
            ("const", value) => std::slice::from_ref(value),
            (key, _) if is_annotation(key) => return Ok(None),
            _ => return self.refuse("it is not enforced for names; leave it out"),
        };
        let names = self.each(list, |walk, name| match name.as_str() {
            Some(name) => Ok(escaped(name)),
            None => walk.refuse("a name is a string"),
        })?;
        self.translated(&format!("^(?:{})$", names.join("|"))).map(Some)
    }
}

/// The regular expression that matches a text.
fn escaped(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for c in text.chars() {
        if r"\^$.*+?()[]{}|".contains(c) {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}
