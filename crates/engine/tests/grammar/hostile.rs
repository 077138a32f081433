//! Grammars made to cost time or memory.

use gristmill_engine::Grammar;
use serde_json::{Map, Value, json};

fn nested(depth: usize, leaf: Value, wrap: impl Fn(Value) -> Value) -> Value {
    (0..depth).fold(leaf, |schema, _| wrap(schema))
}

fn many(count: usize, value: impl Fn(usize) -> Value) -> Vec<Value> {
    (0..count).map(value).collect()
}

fn properties(count: usize, value: impl Fn(usize) -> Value) -> Value {
    Value::Object((0..count).map(|i| (format!("property {i}"), value(i))).collect::<Map<_, _>>())
}

pub(crate) fn schemas() -> Vec<(&'static str, Value)> {
    let string = json!({"type": "string"});
    let strings = |count| json!({"type": "object", "properties": properties(count, |_| json!({"type": "string"}))});
    let wide = strings(1_000);
    let letters = json!(many(26, |i| json!(char::from(b'a' + i as u8).to_string())));
    vec![
        ("enum of 9,000", json!({"enum": many(9_000, |i| json!(format!("value number {}", i * 7_919)))})),
        ("enum of 1 MB", json!({"enum": many(9_000, |i| json!(format!("{i}{}", "x".repeat(110))))})),
        ("one constant of 1 MB", json!({"const": "x".repeat(1 << 20)})),
        ("one constant of 500 kB", json!({"const": "x".repeat(500_000)})),
        ("500 properties", strings(500)),
        ("1,000 properties", wide.clone()),
        ("9 times 1,000 properties", json!({"type": "array", "prefixItems": many(9, |_| wide.clone())})),
        ("40 times 100 properties", json!({"type": "array", "prefixItems": many(40, |_| strings(100))})),
        (
            "700 required",
            json!({"properties": properties(700, |i| json!({"const": i})),
            "required": many(700, |i| json!(format!("property {i}")))}),
        ),
        ("100,000 properties", json!({"properties": properties(100_000, |_| json!(true))})),
        (
            "depth 40",
            nested(40, string.clone(), |s| json!({"type": "object", "properties": {"a": s}, "required": ["a"]})),
        ),
        ("depth 47 of any type", nested(46, string.clone(), |s| json!({"items": s, "properties": {"a": true}}))),
        ("depth 120", nested(120, string.clone(), |s| json!({"items": s}))),
        ("nested anyOf", nested(12, string.clone(), |s| json!({"anyOf": [{"items": s}, {"items": s, "minItems": 3}]}))),
        ("itself", json!({"$ref": "#"})),
        ("a circle", json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}})),
        ("a circle in allOf", json!({"allOf": [{"$ref": "#"}, {"type": "object"}]})),
        ("a circle in anyOf", json!({"anyOf": [{"$ref": "#"}, {"$ref": "#"}, {"items": {"$ref": "#"}}]})),
        (
            "two trees",
            json!({"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}], "$defs": {
            "a": {"type": "object", "properties": {"x": {"$ref": "#/$defs/a"}, "y": {"$ref": "#/$defs/b"}}},
            "b": {"type": "object", "properties": {"x": {"$ref": "#/$defs/b"}, "y": {"$ref": "#/$defs/a"}}}}}),
        ),
        (
            "alternatives times properties",
            json!({"allOf": [{"anyOf": many(400, |i| json!({"const": i}))}, wide.clone()]}),
        ),
        (
            "alternatives of the same property",
            json!({"allOf": [
            {"properties": {"p": {"enum": many(2_000, |i| json!(i))}}},
            {"properties": {"p": {"anyOf": many(2_000, |i| json!({"minimum": i}))}}}]}),
        ),
        ("product of allOf", json!({"allOf": many(8, |_| json!({"anyOf": many(3, |i| json!({"minLength": i}))}))})),
        (
            "overlapping oneOf",
            json!({"oneOf": many(2_000, |i| json!({"type": "object", "properties": {"k": {"const": i}},
            "required": ["k"]}))}),
        ),
        (
            "patterns of names",
            json!({"patternProperties": {"^(a|b){1,1000}c": true, "^(a|c){1,1000}b": true,
            "x(y{1,500}z){1,500}": true}, "anyOf": many(50, |i| json!({"minLength": i}))}),
        ),
        ("nested repeats", json!({"type": "string", "pattern": "^((((a{1,1000}){1,1000}){1,1000}){1,1000}){1,1000}$"})),
        ("repeats of any", json!({"type": "string", "pattern": "(.*a.{200}){50}"})),
        (
            "repeats and lengths",
            json!({"type": "string", "pattern": "(a|b)*a(a|b){500}", "minLength": 10_000, "maxLength": 20_000}),
        ),
        ("great lengths", json!({"type": "string", "minLength": 2_000_000_000, "maxLength": 2_147_483_647})),
        (
            "many items",
            json!({"items": {"type": "array", "items": wide, "minItems": 1_000_000}, "minItems": 2_000_000_000}),
        ),
        ("tuple of 5,000", json!({"type": "array", "prefixItems": many(5_000, |_| string.clone())})),
        ("great multiple", json!({"type": "integer", "multipleOf": 65_521, "minimum": -9e15, "maximum": 9e15})),
        (
            "ambiguous",
            json!({"type": "array",
                "items": {"anyOf": many(300, |_| json!({"type": "array", "items": {"enum": letters}}))}}),
        ),
        ("ambiguous items", json!({"items": {"anyOf": many(500, |i| json!({"type": "array", "minItems": i}))}})),
        ("wide patterns", json!({"anyOf": many(8, |i| json!({"pattern": format!("^{i}{}$", "(a|b)?".repeat(340))}))})),
        ("long patterns", json!({"anyOf": many(500, |i| json!({"pattern": format!("^(.*{i}.*x){{3,90}}$")}))})),
    ]
}

pub(crate) fn texts() -> Vec<(&'static str, Grammar)> {
    let regex = |text: &str| Grammar::Regex(text.to_owned());
    let lark = |text: String| Grammar::Lark(text);
    let rules = |count: usize, rule: &dyn Fn(usize) -> String| (0..count).map(rule).collect::<String>();
    vec![
        ("regex of nested repeats", regex("((((a{1,1000}){1,1000}){1,1000}){1,1000}){1,1000}")),
        ("regex of overlapping repeats", regex("((a|b|ab)*(ba|b){100}){1,1000}")),
        ("regex of states", regex("(.*a.{300}b){100}")),
        ("deep regex", regex(&format!("{}a{}", "(".repeat(4_000), ")".repeat(4_000)))),
        ("deep regex of repeats", regex(&format!("{}a{}", "(".repeat(200), "b?)*".repeat(200)))),
        ("wide regex", regex(&"(a|b)?".repeat(1_365))),
        ("wide regex in Lark", lark(format!("start: /{}/", "(a|b)?".repeat(2_000)))),
        ("too wide regex", regex(&"(a|b)?".repeat(10_000))),
        ("classes", regex(&r"[\p{L}--[a-z]]{1,1000}".repeat(200))),
        ("deep Lark", lark(format!("start: {}\"a\"{}", "(".repeat(6_000), ")".repeat(6_000)))),
        (
            "nested repeats in Lark",
            lark("start: a{1,1000}\na: b{1,1000}\nb: c{1,1000}\nc: \"x\"{1,1000} | \"y\"".into()),
        ),
        ("repeats of repeats", lark("start: ((((\"a\"{1,1000}){1,1000}){1,1000}){1,1000}){1,1000}".into())),
        ("many schemas in Lark", lark(format!("start: {}", "%json {\"enum\": [1,2,3,4,5,6,7,8,9]} ".repeat(3_000)))),
        ("ambiguous Lark", lark("start: start start | start start start | \"a\" |".into())),
        ("right recursion", lark("start: \"a\" start | \"a\" \"a\" start | \"a\"".into())),
        (
            "many rules",
            lark(rules(450, &|i| format!("r{i}: r{} r{} | \"{i}\"\n", i + 1, i + 1)) + "r450: \"a\"\nstart: r0\n"),
        ),
        (
            "conditions",
            lark(format!("start: a::0\na::_: \"a\" %if {}true{}\n", "not(".repeat(2_300), ")".repeat(2_300))),
        ),
        ("templates", lark(format!("start: {}a{}", "a{".repeat(4_000), "}".repeat(4_000)))),
        ("nested Lark", lark("start: %lark { ".repeat(700) + "start: \"a\"" + &" }".repeat(700))),
        ("substrings", lark(format!("start: %regex {{\"substring_chars\": \"{}\"}}", "abcab".repeat(2_400)))),
        ("a list", lark("[".repeat(12_000))),
    ]
}
