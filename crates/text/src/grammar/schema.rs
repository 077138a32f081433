//! JSON schemas: the keywords that are enforced, in the form that llguidance reads; any other is refused.
//!
//! llguidance silently ignores some keywords (all keywords that the draft in `$schema` does not define, and
//! `prefixItems` next to `additionalItems`). It supports `$ref` only without escapes, and reads settings from
//! `x-guidance`. So it gets a rewritten schema: without annotations, with tuples as `prefixItems`, and with each target
//! of a reference as a definition.
//!
//! # Grammars fail closed
//!
//! Grammars fail closed llguidance silently ignores some keywords of a schema. So `text/src/grammar/schema.rs` lists
//! each keyword that is enforced, and refuses any other keyword with its path. It rewrites the schema in one form whose
//! enforcement was verified in llguidance's source. `oneOf` becomes `anyOf`, the only place where a text can be
//! invalid: for a value that two of its schemas allow. Look-ahead at the start of a pattern becomes further patterns
//! (`lookahead.rs`). `budget.rs` limits the cost of compilation. Before you raise the exact version in `Cargo.toml`,
//! review both files. Compilation has a thread of its own with a deep stack, because llguidance recurses once for each
//! property. *Only `earley::Parser` of llguidance is used, because its `TokenParser` and `Matcher` install a panic
//! hook.*

use std::collections::{HashMap, HashSet};

use llguidance::JsonCompileOptions;
use serde_json::{Map, Value, json};

use super::GrammarError;
use super::annotations::is_annotation;
use super::budget::Budget;
use super::ecma;
use super::lookahead;
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
    pub(super) root: &'a Value,
    /// The pointer of what is read.
    path: String,
    pub(super) depth: usize,
    pub(super) budget: &'a mut Budget,
    /// Schemas around what is read that have an identifier of their own.
    pub(super) named: usize,
    /// The pointers that references lead to: of definition `i`, the `i`th.
    pub(super) targets: Vec<String>,
    pub(super) known: HashMap<String, usize>,
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
    pub(super) applied: Map<String, Value>,
    pub(super) all_of: Vec<Value>,
    own: Weight,
    pub(super) others: Vec<Weight>,
    /// The target of `$ref`.
    pub(super) target: Option<usize>,
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

    pub(super) fn schema(&mut self, schema: &Value) -> Result<(Value, Weight)> {
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
            "$anchor" | "$dynamicAnchor" | "$id" | "id" => {
                return if value.is_string() { Ok(()) } else { self.refuse("it must be a string") };
            }
            "type" => self.types(object, value, parts)?,
            // Of OpenAPI 3.0; `type` reads it.
            "nullable" if value.is_boolean() => return Ok(()),
            "nullable" => return self.refuse("it must be true or false"),
            "required" => self.names(value, parts)?,
            "exclusiveMinimum" | "exclusiveMaximum" if value.is_boolean() => {
                return self.exclusive(object, key, value, parts);
            }
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => self.number(value)?,
            "multipleOf" => self.multiple(value)?,
            "minProperties" => self.least_properties(object, value)?,
            "minLength" | "maxLength" | "minItems" | "maxItems" | "maxProperties" => self.length(value)?,
            "pattern" => self.pattern(value, parts)?,
            "properties" | "patternProperties" => self.properties(key, value, parts)?,
            "additionalProperties" => self.part(value, parts)?,
            "propertyNames" => return self.property_names(object, value, parts),
            "items" | "prefixItems" | "additionalItems" => return self.items(object, key, value, parts),
            "format" => return self.format(value, parts),
            "enum" | "const" | "$ref" => return self.applied(key, value, parts),
            "anyOf" | "oneOf" | "allOf" => return self.combined(object, key, value, parts),
            "uniqueItems" => return self.unique_items(object, value, parts),
            "not" => return self.not(value, parts),
            key if is_annotation(key) => return Ok(()),
            _ => return self.refuse("it is not enforced; leave it out"),
        };
        parts.plain.insert(key.to_owned(), rewritten);
        Ok(())
    }

    pub(super) fn list<'v>(&self, value: &'v Value) -> Result<&'v [Value]> {
        match value.as_array() {
            Some(list) if !list.is_empty() => Ok(list),
            _ => self.refuse("it must be an array, and not empty"),
        }
    }

    pub(super) fn text<'v>(&mut self, value: &'v Value) -> Result<&'v str> {
        let Some(text) = value.as_str() else { return self.refuse("it must be a string") };
        self.name(text)?;
        Ok(text)
    }

    fn pattern(&mut self, value: &Value, parts: &mut Parts) -> Result<Value> {
        let text = self.text(value)?;
        let mut patterns = self.translations(text)?.into_iter().map(Value::String);
        let first = patterns.next().unwrap_or_default();
        for pattern in patterns {
            parts.all_of.push(json!({ "pattern": pattern }));
            parts.others.push(Weight::ONE);
        }
        Ok(first)
    }

    /// The pattern of names, which is one.
    pub(super) fn translated(&mut self, pattern: &str) -> Result<String> {
        match self.translations(pattern)?.as_mut_slice() {
            [one] => Ok(std::mem::take(one)),
            _ => self.refuse("look-around is not enforced in names; write the pattern without it"),
        }
    }

    /// Patterns that a text has to match instead of one in a schema.
    fn translations(&mut self, pattern: &str) -> Result<Vec<String>> {
        let counted = self.budget.pattern(pattern);
        self.checked(counted)?;
        let translated = self.checked(ecma::translated(pattern))?;
        let parts = self.checked(lookahead::parts(&translated))?;
        for part in &parts {
            if parts.len() > 1 {
                let counted = self.budget.pattern(part);
                self.checked(counted)?;
            }
            self.checked(ecma::check(part))?;
        }
        Ok(parts)
    }

    fn types(&mut self, object: &Map<String, Value>, value: &Value, parts: &mut Parts) -> Result<Value> {
        let known = ["null", "boolean", "integer", "number", "string", "array", "object"];
        let is_known = |value: &Value| value.as_str().is_some_and(|name| known.contains(&name));
        let list = if value.is_string() { std::slice::from_ref(value) } else { self.list(value)? };
        if list.len() > known.len() || !list.iter().all(is_known) {
            return self.refuse(format!("it must be one or several of {}", known.join(", ")));
        }
        let mut list = list.to_vec();
        if object.get("nullable") == Some(&Value::Bool(true)) && !list.iter().any(|name| name == "null") {
            list.push("null".into());
        }
        parts.own.alternatives = list.len() as u64;
        Ok(if list.len() == 1 { list.swap_remove(0) } else { list.into() })
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

    /// Draft 4 and OpenAPI 3.0 have a boolean next to the bound.
    fn exclusive(&mut self, object: &Map<String, Value>, key: &str, value: &Value, parts: &mut Parts) -> Result<()> {
        let bound = object.get(if key == "exclusiveMinimum" { "minimum" } else { "maximum" });
        if let (Value::Bool(true), Some(bound)) = (value, bound) {
            let bound = self.number(bound)?;
            parts.plain.insert(key.to_owned(), bound);
        }
        Ok(())
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
}
