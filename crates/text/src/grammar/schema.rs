//! JSON schemas: the keywords that are enforced, in the form that llguidance reads; any other is refused.
//!
//! llguidance silently ignores some keywords (all keywords that the draft in `$schema` does not define, and
//! `prefixItems` next to `additionalItems`). It supports `$ref` only without escapes, and reads settings from
//! `x-guidance`. So it gets a rewritten schema: without annotations, with tuples as `prefixItems`, and with each target
//! of a reference as a definition.

use std::collections::{HashMap, HashSet};

use llguidance::JsonCompileOptions;
use serde_json::{Map, Value, json};

use super::GrammarError;
use super::budget::Budget;
use super::ecma;
use super::pointer;
use super::value::{Multiples, count, format_pattern, number};
use super::weight::Weight;

/// Schemas and constants within each other.
pub(super) const MAX_DEPTH: usize = 48;
/// Values that are looked at to weigh the targets of references.
const MAX_STEPS: u64 = 200_000;

pub(super) type Result<T> = std::result::Result<T, GrammarError>;

/// White space between tokens: a line end with 9 levels by 2. Small models fill what they may.
const SPACE: &str = r"[\x20\x0A\x0D\x09]{1,20}";

/// The schema for llguidance, and for each of its definitions the pointer in the original schema. All schemas of one
/// grammar share the budget.
///
/// # Errors
/// [`GrammarError::Schema`] with the path of the first keyword that is not enforced, or not valid.
pub(super) fn rewrite(schema: &Value, budget: &mut Budget) -> Result<(Value, Vec<String>)> {
    let mut walk = Walk::new(schema, budget);
    walk.target("");
    let mut definitions = Map::new();
    while definitions.len() < walk.targets.len() {
        walk.path.clone_from(&walk.targets[definitions.len()]);
        let target = pointer::find(schema, &walk.path).unwrap_or(&Value::Null);
        let (rewritten, _) = walk.schema(target)?;
        definitions.insert(definitions.len().to_string(), rewritten);
    }
    let mut rewritten = json!({ "$ref": "#/$defs/0", "$defs": definitions });
    let options = JsonCompileOptions {
        whitespace_pattern: Some(SPACE.to_owned()),
        // With \u a property could be written in another way, past its schema.
        json_allowed_escapes: Some("nrbtf\\\"".to_owned()),
        ..JsonCompileOptions::default()
    };
    options.apply_to(&mut rewritten);
    Ok((rewritten, walk.targets))
}

/// A walk over a schema and what it refers to.
pub(super) struct Walk<'a> {
    root: &'a Value,
    /// The pointer of what is read.
    path: String,
    pub(super) depth: usize,
    budget: &'a mut Budget,
    /// Schemas around what is read that have an identifier of their own.
    named: usize,
    /// The pointers that references lead to: of definition `i`, the `i`th.
    targets: Vec<String>,
    known: HashMap<String, usize>,
    /// The weights of targets that are combined with something.
    weights: HashMap<usize, Weight>,
    steps: u64,
    multiples: Multiples,
}

/// A schema as it is rewritten.
#[derive(Default)]
pub(super) struct Parts {
    /// Keywords about a value itself; llguidance wants them together.
    plain: Map<String, Value>,
    /// Keywords that apply other schemas or constants to the same value.
    applied: Map<String, Value>,
    all_of: Vec<Value>,
    own: Weight,
    others: Vec<Weight>,
    /// The target of `$ref`.
    target: Option<usize>,
    /// The pattern of all names, from `propertyNames`.
    pub(super) names: Option<String>,
}

impl<'a> Walk<'a> {
    fn new(root: &'a Value, budget: &'a mut Budget) -> Walk<'a> {
        let (path, depth, named, targets, known, weights, multiples) = Default::default();
        Walk { root, path, depth, named, budget, targets, known, weights, steps: MAX_STEPS, multiples }
    }

    pub(super) fn refuse<T>(&self, problem: impl Into<String>) -> Result<T> {
        Err(GrammarError::Schema { path: self.path.clone(), problem: problem.into() })
    }

    /// Refuses what a limit or a number refuses.
    fn checked<T>(&self, result: std::result::Result<T, String>) -> Result<T> {
        result.or_else(|problem| self.refuse(problem))
    }

    pub(super) fn count(&mut self) -> Result<()> {
        let counted = self.budget.value();
        self.checked(counted)
    }

    pub(super) fn name(&mut self, name: &str) -> Result<()> {
        let counted = self.budget.text(name);
        self.checked(counted)
    }

    pub(super) fn count_properties(&mut self, count: usize) -> Result<u64> {
        let counted = self.budget.properties(count);
        self.checked(counted)
    }

    pub(super) fn count_name_patterns(&mut self, count: usize) -> Result<()> {
        let counted = self.budget.name_patterns(count);
        self.checked(counted)
    }

    /// Runs a step at a path below this one.
    pub(super) fn at<T>(&mut self, step: &str, run: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let length = self.path.len();
        pointer::push(&mut self.path, step);
        let result = run(self)?;
        self.path.truncate(length);
        Ok(result)
    }

    pub(super) fn each<T>(
        &mut self,
        list: &[Value],
        mut run: impl FnMut(&mut Self, &Value) -> Result<T>,
    ) -> Result<Vec<T>> {
        list.iter().enumerate().map(|(i, value)| self.at(&i.to_string(), |walk| run(walk, value))).collect()
    }

    fn schema(&mut self, schema: &Value) -> Result<(Value, Weight)> {
        self.count()?;
        let object = match schema {
            Value::Bool(_) => return Ok((schema.clone(), Weight::ONE)),
            Value::Object(object) if self.depth < MAX_DEPTH => object,
            Value::Object(_) => return self.refuse(format!("the schema is deeper than {MAX_DEPTH} levels")),
            _ => return self.refuse("it is no schema; a schema is an object or a boolean"),
        };
        let named = usize::from(!self.path.is_empty() && pointer::is_named(schema));
        (self.depth, self.named) = (self.depth + 1, self.named + named);
        let mut parts = Parts { own: Weight::ONE, ..Parts::default() };
        for (key, value) in object {
            self.at(key, |walk| walk.keyword(object, key, value, &mut parts))?;
        }
        (self.depth, self.named) = (self.depth - 1, self.named - named);
        self.whole(parts)
    }

    fn whole(&mut self, mut parts: Parts) -> Result<(Value, Weight)> {
        if let Some(pattern) = parts.names.take() {
            let others = parts.plain.insert("additionalProperties".to_owned(), false.into());
            parts.plain.insert("patternProperties".to_owned(), json!({ pattern: others.unwrap_or(Value::Bool(true)) }));
        }
        if !parts.plain.is_empty() || (parts.others.is_empty() && parts.target.is_none()) {
            parts.others.push(parts.own);
        }
        if let Some(target) = parts.target {
            // Alone, it is a reference in the grammar too.
            let weight = if parts.others.is_empty() { Weight::ONE } else { self.weight(target) };
            parts.others.push(weight);
        }
        let (weight, work) = Weight::combined(&parts.others);
        if parts.others.len() > 1 {
            let counted = self.budget.combination(weight, work);
            self.checked(counted)?;
        }
        if !parts.all_of.is_empty() {
            parts.applied.insert("allOf".to_owned(), Value::Array(parts.all_of));
        }
        parts.plain.extend(parts.applied);
        Ok((Value::Object(parts.plain), weight))
    }

    fn weight(&mut self, target: usize) -> Weight {
        if let Some(&weight) = self.weights.get(&target) {
            return weight;
        }
        let schema = pointer::find(self.root, &self.targets[target]).unwrap_or(&Value::Null);
        let weight = Weight::of_target(self.root, schema, &mut self.steps);
        self.weights.insert(target, weight);
        weight
    }

    fn keyword(&mut self, object: &Map<String, Value>, key: &str, value: &Value, parts: &mut Parts) -> Result<()> {
        let rewritten = match key {
            "$comment" | "$defs" | "$schema" | "default" | "definitions" | "deprecated" | "description"
            | "discriminator" | "examples" | "readOnly" | "title" | "writeOnly" => return Ok(()),
            "$anchor" | "$dynamicAnchor" | "$id" | "id" => {
                return if value.is_string() { Ok(()) } else { self.refuse("it must be a string") };
            }
            "type" => self.types(value, parts)?,
            "required" => self.names(value, parts)?,
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => self.number(value)?,
            "multipleOf" => self.multiple(value)?,
            "minProperties" => self.least_properties(object, value)?,
            "minLength" | "maxLength" | "minItems" | "maxItems" | "maxProperties" => self.length(value)?,
            "pattern" => self.pattern(value)?,
            "properties" | "patternProperties" => self.properties(key, value, parts)?,
            "additionalProperties" => self.part(value, parts)?,
            "propertyNames" => return self.property_names(object, value, parts),
            "items" | "prefixItems" | "additionalItems" => return self.items(object, key, value, parts),
            "format" => return self.format(value, parts),
            "enum" | "const" | "anyOf" | "oneOf" | "allOf" | "$ref" => return self.applied(key, value, parts),
            "uniqueItems" if *value == Value::Bool(false) => return Ok(()),
            // An annotation; `x-guidance` would be a setting of llguidance.
            key if key.starts_with("x-") && key != "x-guidance" => return Ok(()),
            _ => return self.refuse("it is not enforced; leave it out"),
        };
        parts.plain.insert(key.to_owned(), rewritten);
        Ok(())
    }

    fn list<'v>(&self, value: &'v Value) -> Result<&'v [Value]> {
        match value.as_array() {
            Some(list) if !list.is_empty() => Ok(list),
            _ => self.refuse("it must be an array, and not empty"),
        }
    }

    fn text<'v>(&mut self, value: &'v Value) -> Result<&'v str> {
        let Some(text) = value.as_str() else { return self.refuse("it must be a string") };
        self.name(text)?;
        Ok(text)
    }

    fn pattern(&mut self, value: &Value) -> Result<Value> {
        let text = self.text(value)?;
        self.translated(text).map(Value::String)
    }

    pub(super) fn translated(&mut self, pattern: &str) -> Result<String> {
        let counted = self.budget.pattern(pattern);
        self.checked(counted)?;
        let translated = self.checked(ecma::translated(pattern))?;
        self.checked(ecma::check(&translated))?;
        Ok(translated)
    }

    fn types(&mut self, value: &Value, parts: &mut Parts) -> Result<Value> {
        let known = ["null", "boolean", "integer", "number", "string", "array", "object"];
        let is_known = |value: &Value| value.as_str().is_some_and(|name| known.contains(&name));
        let list = if value.is_string() { std::slice::from_ref(value) } else { self.list(value)? };
        if list.len() > known.len() || !list.iter().all(is_known) {
            return self.refuse(format!("it must be one or several of {}", known.join(", ")));
        }
        parts.own.alternatives = list.len() as u64;
        Ok(value.clone())
    }

    fn names(&mut self, value: &Value, parts: &mut Parts) -> Result<Value> {
        let Some(list) = value.as_array() else { return self.refuse("it must be an array of strings") };
        let names = self.each(list, |walk, name| walk.text(name).map(str::to_owned))?;
        parts.own.squares += self.count_properties(names.len())?;
        Ok(json!(names))
    }

    pub(super) fn number(&mut self, value: &Value) -> Result<Value> {
        self.checked(number(value).map(|_| value.clone()))
    }

    fn multiple(&mut self, value: &Value) -> Result<Value> {
        let added = self.multiples.add(value);
        self.checked(added).map(|()| value.clone())
    }

    fn length(&mut self, value: &Value) -> Result<Value> {
        self.checked(count(value).map(|n| json!(n)))
    }

    /// Names that no property has may be drawn twice, so no more than one of them can be counted on.
    fn least_properties(&mut self, object: &Map<String, Value>, value: &Value) -> Result<Value> {
        let least = self.checked(count(value))?;
        let required = object.get("required").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let names: HashSet<&Value> = required.iter().collect();
        match least as usize > names.len() + 1 {
            true => self.refuse("it is enforced only up to one more than `required` names beside it"),
            false => Ok(json!(least)),
        }
    }

    /// A schema of a part of the value.
    fn part(&mut self, value: &Value, parts: &mut Parts) -> Result<Value> {
        let (rewritten, weight) = self.schema(value)?;
        parts.own.add(weight);
        Ok(rewritten)
    }

    fn properties(&mut self, key: &str, value: &Value, parts: &mut Parts) -> Result<Value> {
        let Some(properties) = value.as_object() else { return self.refuse("it must be an object of schemas") };
        parts.own.squares += self.count_properties(properties.len())?;
        if key == "patternProperties" {
            self.count_name_patterns(properties.len())?;
        }
        let mut rewritten = Map::new();
        for (name, schema) in properties {
            self.name(name)?;
            let part = self.at(name, |walk| walk.part(schema, parts))?;
            let name = if key == "patternProperties" { self.translated(name)? } else { name.clone() };
            if rewritten.insert(name, part).is_some() {
                return self.refuse("two of its patterns are the same");
            }
        }
        Ok(Value::Object(rewritten))
    }

    /// Tuples are `prefixItems`, and what follows them `items`. Before 2020 they were `items`, and `additionalItems`.
    fn items(&mut self, object: &Map<String, Value>, key: &str, value: &Value, parts: &mut Parts) -> Result<()> {
        let old_tuple = object.get("items").is_some_and(Value::is_array);
        let (key, rewritten) = match (key, value) {
            ("prefixItems" | "additionalItems", _) if object.contains_key("prefixItems") && old_tuple => {
                return self.refuse("`items` is an array and stands for `prefixItems`; leave out one of them");
            }
            ("additionalItems", _) if object.contains_key("prefixItems") => {
                return self.refuse("beside `prefixItems` it has no meaning; `items` is what follows them");
            }
            // Without a tuple it has no meaning in any draft.
            ("additionalItems", _) if !old_tuple => return self.schema(value).map(|_| ()),
            ("prefixItems", _) | ("items", Value::Array(_)) => {
                let list = self.list(value)?;
                ("prefixItems", Value::Array(self.each(list, |walk, item| walk.part(item, parts))?))
            }
            _ => ("items", self.part(value, parts)?),
        };
        parts.plain.insert(key.to_owned(), rewritten);
        Ok(())
    }

    fn format(&mut self, value: &Value, parts: &mut Parts) -> Result<()> {
        match (value.as_str(), value.as_str().and_then(format_pattern)) {
            (_, Some(pattern)) => {
                parts.all_of.push(json!({ "pattern": pattern }));
                parts.others.push(Weight::ONE);
            }
            (Some("hostname"), _) => {
                parts.plain.insert("format".to_owned(), value.clone());
                // RFC 1123.
                parts.all_of.push(json!({ "maxLength": 253 }));
                parts.others.push(Weight::ONE);
            }
            (Some("duration" | "email" | "ipv4" | "ipv6" | "uri" | "uuid"), _) => {
                parts.plain.insert("format".to_owned(), value.clone());
            }
            // An unknown format is an annotation.
            (Some(_), _) => {}
            (None, _) => return self.refuse("it must be a string"),
        }
        Ok(())
    }

    /// Rewrites a keyword that applies to the same value.
    fn applied(&mut self, key: &str, value: &Value, parts: &mut Parts) -> Result<()> {
        let rewritten = match key {
            "$ref" => self.reference(value, parts)?,
            "const" => {
                self.constant(value)?;
                parts.others.push(Weight::ONE);
                value.clone()
            }
            "enum" => {
                let (size, squares) = (self.budget.size, self.budget.squares);
                let list = self.list(value)?;
                self.each(list, |walk, constant| walk.constant(constant))?;
                let (size, squares) = ((self.budget.size - size) as u64, self.budget.squares - squares);
                parts.others.push(Weight { alternatives: list.len() as u64, size, squares });
                value.clone()
            }
            _ => {
                let list = self.list(value)?;
                let (schemas, weights): (Vec<Value>, Vec<Weight>) =
                    self.each(list, |walk, schema| walk.schema(schema))?.into_iter().unzip();
                if key == "allOf" {
                    parts.all_of.extend(schemas);
                    parts.others.extend(weights);
                    return Ok(());
                }
                parts.others.push(Weight::either(&weights));
                Value::Array(schemas)
            }
        };
        parts.applied.insert(key.to_owned(), rewritten);
        Ok(())
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
    fn target(&mut self, pointer: &str) -> usize {
        if let Some(&number) = self.known.get(pointer) {
            return number;
        }
        self.targets.push(pointer.to_owned());
        self.known.insert(pointer.to_owned(), self.targets.len() - 1);
        self.targets.len() - 1
    }
}
