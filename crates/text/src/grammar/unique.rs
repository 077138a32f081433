//! `uniqueItems`, over few values: the grammar lists the arrays.

use serde_json::{Map, Value, json};

use super::pointer;
use super::schema::{Parts, Result, Walk};

/// The most values that items may have.
const MAX_VALUES: usize = 4;
/// The types that have no items.
const OTHERS: [&str; 6] = ["null", "boolean", "integer", "number", "string", "object"];

impl Walk<'_> {
    /// Adds the arrays of different values to what applies to the value.
    pub(super) fn unique_items(&mut self, object: &Map<String, Value>, value: &Value, parts: &mut Parts) -> Result<()> {
        let types = object.get("type").map(|types| types.as_array().map_or(std::slice::from_ref(types), Vec::as_slice));
        let is_array = types.is_none_or(|types| types.iter().any(|name| name == "array"));
        let length = |key: &str| object.get(key).and_then(Value::as_u64);
        let most = length("maxItems").unwrap_or(u64::MAX);
        match value {
            Value::Bool(false) => return Ok(()),
            Value::Bool(true) if !is_array || most < 2 => return Ok(()),
            Value::Bool(true) => {}
            _ => return self.refuse("it must be true or false"),
        }
        let items = object.get("items").filter(|_| !object.contains_key("prefixItems"));
        let Some(values) = items.and_then(|items| self.values(items)).filter(|values| values.len() <= MAX_VALUES)
        else {
            return self.refuse(format!(
                "it is enforced only for items of at most {MAX_VALUES} values (enum, const, boolean or null); leave it \
                 out (a list in place of a set), and remove repeated items from the reply"
            ));
        };
        let least = length("minItems").unwrap_or(0);
        let mut arrays = arrays(&values);
        arrays.retain(|array| (least..=most).contains(&(array.len() as u64)));
        let of_other_types: Vec<&str> = match types {
            None => OTHERS.to_vec(),
            Some(types) => types.iter().filter_map(Value::as_str).filter(|name| *name != "array").collect(),
        };
        let others = (!of_other_types.is_empty()).then(|| json!({ "type": of_other_types }));
        let listed = (!arrays.is_empty()).then(|| json!({ "enum": arrays }));
        let either: Vec<Value> = listed.into_iter().chain(others).collect();
        // No array is long enough.
        let either = if either.is_empty() { json!(false) } else { json!({ "anyOf": either }) };
        let (rewritten, weight) = self.schema(&either)?;
        parts.all_of.push(rewritten);
        parts.others.push(weight);
        Ok(())
    }

    /// The different values that a schema allows, if it lists them.
    fn values(&self, schema: &Value) -> Option<Vec<Value>> {
        let object = pointer::resolved(self.root, schema)?.as_object()?;
        let mut values = match (object.get("enum"), object.get("const"), object.get("type").and_then(Value::as_str)) {
            (Some(Value::Array(list)), ..) => list.clone(),
            (None, Some(value), _) => vec![value.clone()],
            (None, None, Some("boolean")) => vec![json!(false), json!(true)],
            (None, None, Some("null")) => vec![Value::Null],
            _ => return None,
        };
        let mut known = Vec::new();
        values.retain(|value| {
            !known.contains(value) && {
                known.push(value.clone());
                true
            }
        });
        Some(values)
    }
}

/// All arrays of different values, the empty one too.
fn arrays(values: &[Value]) -> Vec<Vec<Value>> {
    let mut all = vec![Vec::new()];
    let mut first = 0;
    while first < all.len() {
        for value in values {
            if !all[first].contains(value) {
                let longer = all[first].iter().chain([value]).cloned().collect();
                all.push(longer);
            }
        }
        first += 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_of_different_values() {
        let values = [json!(1), json!("a"), json!(null), json!(true)];
        assert_eq!(arrays(&values[..1]), [vec![], vec![json!(1)]]);
        assert_eq!(arrays(&values[..2]).len(), 5);
        assert_eq!(arrays(&values).len(), 65);
    }
}
