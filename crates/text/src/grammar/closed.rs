//! Schemas whose objects have the properties that they list, and no others.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::annotations::is_annotation;
use super::pointer;
use super::schema::MAX_DEPTH;

/// The schema with `additionalProperties: false` at each object that lists its properties and does not speak of others:
/// a small model would add properties without end.
///
/// A schema that another one is combined with stays open, because a closed one would forbid the other's properties. So
/// do the properties that both have. Schemas are combined by `allOf` of several, and by a `$ref`, `anyOf`, `oneOf` or
/// `allOf` next to other keywords.
pub fn closed_schema(mut schema: Value) -> Value {
    let mut walk = Walk { root: &schema, alone: HashSet::new(), combined: HashSet::new(), whole: HashSet::new() };
    if walk.alone(&Place::root(&schema), MAX_DEPTH).is_none() {
        return schema;
    }
    let Walk { alone, combined, .. } = walk;
    for pointer in alone.difference(&combined) {
        if let Some(Value::Object(fields)) = schema.pointer_mut(pointer)
            && lists_all(fields)
        {
            fields.insert("additionalProperties".to_owned(), false.into());
        }
    }
    schema
}

/// Keywords with schemas for the same value.
const COMBINING: [&str; 4] = ["allOf", "anyOf", "oneOf", "$ref"];

/// A schema and its pointer.
#[derive(Clone)]
struct Place<'a> {
    pointer: String,
    schema: &'a Value,
}

/// The pointers of schemas that are alone in describing their value, and of those that are combined with others.
struct Walk<'a> {
    root: &'a Value,
    alone: HashSet<String>,
    combined: HashSet<String>,
    /// Those of the latter whose parts are combined too.
    whole: HashSet<String>,
}

impl<'a> Place<'a> {
    fn root(schema: &'a Value) -> Place<'a> {
        Place { pointer: String::new(), schema }
    }

    fn step(&self, step: &str) -> Option<Place<'a>> {
        let schema = match self.schema {
            Value::Array(items) => items.get(step.parse::<usize>().ok()?)?,
            schema => schema.get(step)?,
        };
        let mut pointer = self.pointer.clone();
        pointer::push(&mut pointer, step);
        Some(Place { pointer, schema })
    }

    /// The schemas in a list or in an object of schemas.
    fn each(&self, key: &str) -> Vec<(String, Place<'a>)> {
        let Some(list) = self.step(key) else { return Vec::new() };
        let steps: Vec<String> = match list.schema {
            Value::Array(items) => (0..items.len()).map(|index| index.to_string()).collect(),
            Value::Object(fields) => fields.keys().cloned().collect(),
            _ => Vec::new(),
        };
        steps.into_iter().filter_map(|step| list.step(&step).map(|place| (step, place))).collect()
    }

    fn has(&self, key: &str) -> bool {
        self.schema.get(key).is_some()
    }

    /// Whether the properties that it does not list have a schema too.
    fn describes_others(&self) -> bool {
        self.has("patternProperties") || self.schema.get("additionalProperties").is_some_and(Value::is_object)
    }

    /// The schemas of the parts of the value, by what names the part.
    fn parts(&self) -> Vec<(String, Place<'a>)> {
        let mut parts: Vec<(String, Place)> =
            self.each("properties").into_iter().map(|(name, place)| (format!("properties/{name}"), place)).collect();
        let lists = ["prefixItems", "items", "patternProperties"]
            .into_iter()
            .filter(|key| self.schema.get(key).is_some_and(|list| list.is_array() || *key == "patternProperties"));
        parts.extend(lists.flat_map(|key| self.each(key)).map(|(_, place)| ("others".to_owned(), place)));
        let single = ["items", "additionalItems", "additionalProperties"].into_iter();
        let single = single.filter_map(|key| self.step(key)).filter(|place| place.schema.is_object());
        parts.extend(single.map(|place| ("others".to_owned(), place)));
        parts
    }
}

impl<'a> Walk<'a> {
    /// The schemas for the same value that a schema has within it.
    fn members(&self, place: &Place<'a>) -> Vec<Place<'a>> {
        let lists = COMBINING[..3].iter().flat_map(|key| place.each(key)).map(|(_, place)| place);
        let target = place.schema.get("$ref").and_then(Value::as_str).and_then(pointer::of_reference);
        let target =
            target.and_then(|pointer| pointer::find(self.root, &pointer).map(|schema| Place { pointer, schema }));
        lists.chain(target).collect()
    }

    /// Visits a schema that is alone in describing its value. `None` if it is too deep.
    fn alone(&mut self, place: &Place<'a>, depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        let Value::Object(fields) = place.schema else { return Some(()) };
        if !self.alone.insert(place.pointer.clone()) {
            return Some(());
        }
        let combining: Vec<&str> = COMBINING.into_iter().filter(|key| fields.contains_key(*key)).collect();
        let is_neutral = |key: &String| {
            is_annotation(key) || key == "type" || key == "nullable" || combining.contains(&key.as_str())
        };
        let members = self.members(place);
        let is_one = combining != ["allOf"] || members.len() == 1;
        if combining.len() == 1 && is_one && fields.keys().all(is_neutral) {
            return members.iter().try_for_each(|member| self.alone(member, depth));
        }
        if combining.is_empty() {
            let is_clear = !place.has("patternProperties");
            let mut visit = |(_, part): (String, Place<'a>)| match is_clear {
                true => self.alone(&part, depth),
                false => self.combined(&part, depth),
            };
            return place.parts().into_iter().try_for_each(&mut visit);
        }
        self.group(place, depth)
    }

    /// Visits a schema that is combined with those within it.
    fn group(&mut self, place: &Place<'a>, depth: usize) -> Option<()> {
        let mut group = vec![place.clone()];
        let mut known = HashSet::from([place.pointer.clone()]);
        let mut next = 0;
        while let Some(member) = group.get(next).cloned() {
            self.combined.insert(member.pointer.clone());
            group.extend(self.members(&member).into_iter().filter(|member| known.insert(member.pointer.clone())));
            next += 1;
        }
        let describes_others = group.iter().any(Place::describes_others);
        let parts: Vec<(String, Place)> = group.iter().flat_map(Place::parts).collect();
        let mut uses: HashMap<&str, usize> = HashMap::new();
        parts.iter().for_each(|(name, _)| *uses.entry(name).or_default() += 1);
        for (name, part) in &parts {
            match uses[name.as_str()] == 1 && !describes_others {
                true => self.alone(part, depth)?,
                false => self.combined(part, depth)?,
            }
        }
        Some(())
    }

    /// Visits a schema that is combined with another one, and with all parts of that.
    fn combined(&mut self, place: &Place<'a>, depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        if !place.schema.is_object() || !self.whole.insert(place.pointer.clone()) {
            return Some(());
        }
        self.combined.insert(place.pointer.clone());
        self.members(place).iter().try_for_each(|member| self.combined(member, depth))?;
        place.parts().iter().try_for_each(|(_, part)| self.combined(part, depth))
    }
}

/// Whether `properties` names all that this schema speaks of.
fn lists_all(fields: &Map<String, Value>) -> bool {
    let Some(properties) = fields.get("properties").and_then(Value::as_object) else { return false };
    let others = ["additionalProperties", "patternProperties", "minProperties"];
    let required = fields.get("required").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let listed = |name: &Value| name.as_str().is_some_and(|name| properties.contains_key(name));
    !properties.is_empty() && !others.iter().any(|key| fields.contains_key(*key)) && required.iter().all(listed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn objects_that_list_their_properties() {
        let open = json!({
            "type": "object",
            "properties": {
                "a": {"$ref": "#/$defs/x"},
                "b": {"items": {"properties": {"c": true}}},
                "d": {"anyOf": [{"properties": {"e": {}}, "required": ["e"]}, {"type": "null"}]},
                "f": {"type": "object"},
            },
            "$defs": {"x": {"type": "object", "properties": {"y": {"const": {"properties": {"z": 1}}}}}},
        });
        let mut expected = open.clone();
        for place in ["", "/$defs/x", "/properties/b/items", "/properties/d/anyOf/0"] {
            expected.pointer_mut(place).unwrap()["additionalProperties"] = json!(false);
        }
        assert_eq!(closed_schema(open), expected);
    }

    /// As pydantic writes unions and zod intersections, next to an object of its own.
    #[test]
    fn only_combined_objects_stay_open() {
        let object = |name: &str| json!({"type": "object", "properties": {name: {"type": "null"}}, "required": [name]});
        let owner = object("age");
        let deep = json!({"properties": {"c": object("d"), "both": object("e")}});
        for (open, closed) in [
            (json!({"oneOf": [object("a"), {"$ref": "#/properties/owner"}]}), vec!["/0/oneOf/0", "/owner"]),
            (json!({"anyOf": [object("a"), {"type": "null"}], "description": "x"}), vec!["/0/anyOf/0"]),
            (json!({"allOf": [object("a")], "title": "x", "type": "object"}), vec!["/0/allOf/0"]),
            (json!({"allOf": [{"$ref": "#/$defs/spare"}]}), vec![]),
            (json!({"allOf": [object("a"), object("b")]}), vec![]),
            (json!({"properties": {"a": true}, "anyOf": [object("b"), {"not": object("c")}]}), vec![]),
            // Only a property that one of the schemas has is closed.
            (json!({"allOf": [deep, {"properties": {"both": object("f")}}]}), vec!["/0/allOf/0/properties/c"]),
            (json!({"allOf": [deep, {"additionalProperties": object("f")}]}), vec![]),
            // A definition that is combined in one place stays open in all.
            (json!({"allOf": [{"$ref": "#/properties/owner"}, object("b")]}), vec!["-"]),
        ] {
            let schema = json!({"type": "object", "properties": {"0": open, "owner": owner}, "$defs": {"spare": {}}});
            let mut expected = schema.clone();
            let owner_is_closed = closed != ["-"];
            let others = closed.iter().filter(|place| **place != "-").map(|place| format!("/properties{place}"));
            let owner = owner_is_closed.then(|| "/properties/owner".to_owned());
            for place in others.chain(owner).chain([String::new()]) {
                expected.pointer_mut(&place).unwrap()["additionalProperties"] = json!(false);
            }
            assert_eq!(closed_schema(schema), expected);
        }
    }

    #[test]
    fn others_stay_as_they_are() {
        let one = json!({"properties": {"a": true}});
        for schema in [
            json!({"type": "object"}),
            json!({"properties": {}}),
            json!({"properties": {"a": true}, "additionalProperties": true}),
            json!({"properties": {"a": true}, "additionalProperties": {"type": "null"}}),
            json!({"properties": {"a": true}, "patternProperties": {"b": true}}),
            json!({"properties": {"a": true}, "minProperties": 2}),
            json!({"properties": {"a": true}, "required": ["b"]}),
            json!({"properties": {"a": true}, "anyOf": [{"required": ["a"]}, true]}),
            json!({"allOf": [one, {"properties": {"b": true}}]}),
            json!({"properties": {"a": true}, "$ref": "#/$defs/x", "$defs": {"x": one}}),
            json!([one]),
            json!(true),
        ] {
            assert_eq!(closed_schema(schema.clone()), schema);
        }
        let mut deep = one;
        for _ in 0..1_000 {
            deep = json!({"items": deep});
        }
        assert_eq!(closed_schema(deep.clone()), deep);
    }
}
