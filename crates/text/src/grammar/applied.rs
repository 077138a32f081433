//! Keywords that apply other schemas or constants to the same value.

use serde_json::{Map, Value, json};

use super::annotations::is_annotation;
use super::pointer;
use super::schema::{Parts, Result, Walk};
use super::weight::Weight;

impl Walk<'_> {
    /// Rewrites a keyword that applies to the same value.
    pub(super) fn applied(&mut self, key: &str, value: &Value, parts: &mut Parts) -> Result<()> {
        let rewritten = match key {
            "const" => {
                self.constant(value)?;
                parts.others.push(Weight::ONE);
                value.clone()
            }
            "enum" => {
                let (size, squares) = (self.budget.size, self.budget.squares);
                let list = self.list(value)?;
                self.each(list, |walk, constant| walk.constant(constant))?;
                let size = (self.budget.size - size) as u64;
                let squares = self.budget.squares - squares;
                parts.others.push(Weight { alternatives: list.len() as u64, size, squares });
                value.clone()
            }
            _ => self.reference(value, parts)?,
        };
        parts.applied.insert(key.to_owned(), rewritten);
        Ok(())
    }

    /// Several schemas for one value. The grammar of `oneOf` is that of `anyOf`: where no value is valid for two of its
    /// schemas, both mean the same, and a grammar cannot exclude such a value.
    pub(super) fn combined(
        &mut self,
        object: &Map<String, Value>,
        key: &str,
        value: &Value,
        parts: &mut Parts,
    ) -> Result<()> {
        let list = self.list(value)?;
        let list = if key == "allOf" { list.to_vec() } else { self.discriminated(object, list) };
        let (schemas, weights): (Vec<Value>, Vec<Weight>) =
            self.each(&list, |walk, schema| walk.schema(schema))?.into_iter().unzip();
        if key == "allOf" {
            parts.all_of.extend(schemas);
            parts.others.extend(weights);
            return Ok(());
        }
        parts.others.push(Weight::either(&weights));
        match parts.applied.contains_key("anyOf") {
            true => parts.all_of.push(json!({ "anyOf": schemas })),
            false => drop(parts.applied.insert("anyOf".to_owned(), schemas.into())),
        }
        Ok(())
    }

    /// `not` with a boolean schema, by which zod writes a value that never is.
    pub(super) fn not(&mut self, value: &Value, parts: &mut Parts) -> Result<()> {
        match value {
            Value::Bool(false) => Ok(()),
            Value::Bool(true) => {
                parts.all_of.push(Value::Bool(false));
                parts.others.push(Weight::ONE);
                Ok(())
            }
            Value::Object(keywords) if keywords.keys().all(|key| is_annotation(key)) => {
                self.not(&Value::Bool(true), parts)
            }
            _ => self.refuse("it is not enforced; leave it out, or list what is allowed"),
        }
    }

    fn reference(&mut self, value: &Value, parts: &mut Parts) -> Result<Value> {
        let reference = self.text(value)?;
        let pointer = pointer::of_reference(reference).filter(|_| self.named == 0);
        let found = pointer.and_then(|pointer| Some((pointer::find(self.root, &pointer)?, pointer)));
        let Some((_, pointer)) = found else {
            let rule = "a reference must lead to a part of this schema, as #/$defs/name does";
            return self.refuse(format!("{reference:?} is not found; {rule}, and not through a schema with an $id"));
        };
        let number = self.target(&pointer);
        parts.target = Some(number);
        Ok(json!(format!("#/$defs/{number}")))
    }

    /// The number of the definition for a target.
    pub(super) fn target(&mut self, pointer: &str) -> usize {
        if let Some(&number) = self.known.get(pointer) {
            return number;
        }
        self.targets.push(pointer.to_owned());
        self.known.insert(pointer.to_owned(), self.targets.len() - 1);
        self.targets.len() - 1
    }
}
