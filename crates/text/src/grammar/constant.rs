//! Constants in a schema.

use serde_json::Value;

use super::schema::{MAX_DEPTH, Result, Walk};

impl Walk<'_> {
    /// Checks that a constant can be written.
    pub(super) fn constant(&mut self, value: &Value) -> Result<()> {
        self.count()?;
        if self.depth >= MAX_DEPTH {
            return self.refuse(format!("the schema is deeper than {MAX_DEPTH} levels"));
        }
        self.depth += 1;
        self.constant_value(value)?;
        self.depth -= 1;
        Ok(())
    }

    fn constant_value(&mut self, value: &Value) -> Result<()> {
        match value {
            Value::Number(_) => self.number(value).map(|_| ()),
            Value::String(text) => {
                let short = ['\n', '\r', '\t', '\u{8}', '\u{c}'];
                self.name(text)?;
                match text.contains(|c: char| c.is_control() && c.is_ascii() && !short.contains(&c)) {
                    true => self.refuse("it has a control character, which is not generated"),
                    false => Ok(()),
                }
            }
            Value::Array(list) => self.each(list, |walk, item| walk.constant(item)).map(|_| ()),
            Value::Object(object) => {
                self.count_properties(object.len())?;
                object.iter().try_for_each(|(name, value)| {
                    self.name(name)?;
                    self.at(name, |walk| walk.constant(value))
                })
            }
            Value::Null | Value::Bool(_) => Ok(()),
        }
    }
}
