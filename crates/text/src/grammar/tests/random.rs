//! Random schemas: what is drawn is valid for them.

use serde_json::{Map, Value, json};

use super::{Compiler, Random, valid};

const NAMES: [&str; 6] = ["a", "b", "ab", "x-y", "say \"so\"", "é\n"];

/// Adds keywords that each are there half the time.
fn some(random: &mut Random, schema: &mut Map<String, Value>, keywords: &[(&str, Value)]) {
    for (key, value) in keywords {
        if random.below(2) == 0 {
            schema.insert((*key).to_owned(), value.clone());
        }
    }
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        _ => unreachable!("an object"),
    }
}

fn of_string(random: &mut Random) -> Value {
    let mut schema = object(json!({"type": "string"}));
    let least = random.below(4);
    some(
        random,
        &mut schema,
        &[("minLength", json!(least)), ("maxLength", json!(least + 5)), ("pattern", json!("^ab"))],
    );
    Value::Object(schema)
}

fn of_number(random: &mut Random) -> Value {
    let (low, high) = (random.below(100) as f64 - 70.5, random.below(100) as f64 + 40.25);
    let mut schema = object(json!({"type": *random.pick(&["integer", "number"])}));
    // Numbers without a bound may have exponents beyond a double.
    schema.insert(random.pick(&["minimum", "exclusiveMinimum"]).to_string(), json!(low));
    schema.insert(random.pick(&["maximum", "exclusiveMaximum"]).to_string(), json!(high));
    let multiple = json!(*random.pick(&[0.25, 0.5, 3.0, 7.0]));
    some(random, &mut schema, &[("multipleOf", multiple)]);
    Value::Object(schema)
}

fn of_array(random: &mut Random, depth: usize) -> Value {
    let (first, second, rest) = (schema(random, depth), schema(random, depth), schema(random, depth));
    let prefix = json!([first, second]);
    let items = json!([rest, false])[random.below(2)].clone();
    let least = random.below(3);
    let mut schema = object(json!({"type": "array", "items": rest, "maxItems": least + 2}));
    some(random, &mut schema, &[("minItems", json!(least)), ("prefixItems", prefix)]);
    if schema.contains_key("prefixItems") {
        some(random, &mut schema, &[("items", items)]);
    }
    Value::Object(schema)
}

fn of_object(random: &mut Random, depth: usize) -> Value {
    let mut properties = Map::new();
    for _ in 0..random.below(4) {
        properties.insert(random.pick(&NAMES).to_string(), schema(random, depth));
    }
    let mut required: Vec<Value> = properties.keys().filter(|_| random.below(2) == 0).map(|name| json!(name)).collect();
    if random.below(4) == 0 {
        required.push(json!("more"));
    }
    let others = schema(random, depth);
    let additional = random.pick(&[json!(false), json!(true), others.clone()]).clone();
    let mut schema = object(json!({"type": "object", "properties": properties, "required": required}));
    let patterns = json!({"^p": others, "^q": {"type": "null"}});
    some(random, &mut schema, &[("additionalProperties", additional), ("patternProperties", patterns)]);
    Value::Object(schema)
}

fn constants(random: &mut Random) -> Value {
    let all = [
        json!("a"),
        json!("\"\\ é\u{1F600}\n"),
        json!(12),
        json!(-1.5),
        json!(null),
        json!(true),
        json!([1, {"a": []}]),
    ];
    let mut list: Vec<Value> = all.iter().filter(|_| random.below(2) == 0).cloned().collect();
    list.push(json!({"b": "c", "a": [0.5]}));
    if random.below(2) == 0 { json!({ "enum": list }) } else { json!({ "const": random.pick(&list) }) }
}

fn schema(random: &mut Random, depth: usize) -> Value {
    let kinds = if depth == 0 { 5 } else { 10 };
    match random.below(kinds) {
        0 => of_string(random),
        1 => of_number(random),
        2 => constants(random),
        3 => json!({"type": ["null", "boolean"]}),
        4 => json!({"title": "either", "anyOf": [of_string(random), of_number(random)]}),
        5 => of_array(random, depth - 1),
        6 => json!({"oneOf": [of_object(random, depth - 1), {"type": "array", "items": {"type": "null"}}]}),
        7 => json!({"allOf": [of_object(random, depth - 1), of_object(random, depth - 1)]}),
        8 => json!({"$ref": "#/$defs/tree"}),
        _ => of_object(random, depth - 1),
    }
}

#[test]
fn what_is_sampled_is_valid() {
    let (compiler, mut random) = (Compiler::new(), Random::fresh());
    let (mut refused, mut ended) = (0, 0);
    for _ in 0..300 {
        let mut root = schema(&mut random, 3);
        let tree = json!({"type": "object",
            "properties": {"leaf": of_number(&mut random), "next": {"$ref": "#/$defs/tree"}},
            "required": ["leaf"], "additionalProperties": false});
        root["$defs"] = json!({ "tree": tree });
        let Ok(matcher) = compiler.schema(&root) else {
            refused += 1;
            continue;
        };
        let (text, whole) = compiler.draw(matcher, &mut random, 1_500);
        match serde_json::from_str::<Value>(&text) {
            Ok(value) if whole => {
                ended += 1;
                assert!(valid(&root, &root, &value), "{text}\nis not valid for\n{root}");
            }
            // A property of any type may be a number beyond a double.
            Err(error) if error.to_string().starts_with("number out of range") => {}
            Ok(_) => {}
            Err(error) => assert!(!whole && error.is_eof(), "{error}: {text}\n{root}"),
        }
    }
    // Refused are mostly parts of `allOf` that exclude each other.
    println!("{refused} refused, {ended} ended");
    assert!(refused < 120 && ended > 150, "{refused} refused, {ended} ended");
}
