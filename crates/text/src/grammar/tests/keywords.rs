//! Keywords that are enforced, and those that are refused with their path.

use serde_json::{Value, json};

use super::Compiler;
use crate::grammar::GrammarError;

/// Schemas, texts that they allow, and texts that they refuse.
fn enforced() -> Vec<(Value, Vec<&'static str>, Vec<&'static str>)> {
    let strict = json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "null"}},
        "required": ["a"], "additionalProperties": false});
    vec![
        (json!(true), vec!["{}", "[1,\"a\"]", "null"], vec!["", "a"]),
        (json!({}), vec!["{\"a\": 1}", "-1.5e3"], vec!["01"]),
        (json!({"type": "object"}), vec!["{}", "{ \"a\" : [ 1 ] }"], vec!["[]", " {}"]),
        (
            strict,
            vec!["{\"a\":1}", "{\"a\":1,\"b\":null}"],
            vec!["{}", "{\"a\":\"\"}", "{\"b\":null,\"a\":1}", "{\"a\":1,\"c\":1}"],
        ),
        // A name that is written in another way is still that name.
        (json!({"properties": {"a": {"type": "null"}}, "type": "object"}), vec!["{\"b\":1}"], vec!["{\"\\u0061\":1}"]),
        (json!({"const": 1.5}), vec!["1.5"], vec!["1.6"]),
        (json!({"enum": ["a", [true]]}), vec!["\"a\"", "[true]"], vec!["\"b\"", "[]"]),
        (
            json!({"type": "array", "items": [{"const": 1}], "additionalItems": false}),
            vec!["[]", "[1]"],
            vec!["[2]", "[1,1]"],
        ),
        (
            json!({"type": "array", "prefixItems": [{"const": 1}], "items": {"const": 2}}),
            vec!["[1,2,2]"],
            vec!["[1,1]"],
        ),
        (
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "array", "prefixItems": [{"const": 1}]}),
            vec!["[1,true]"],
            vec!["[2]"],
        ),
        (
            json!({"type": "array", "items": {"type": "null"}, "additionalItems": false, "maxItems": 2.0}),
            vec!["[null,null]"],
            vec!["[null,null,null]"],
        ),
        (json!({"type": "string", "pattern": "^a|b$"}), vec!["\"ac\"", "\"cb\""], vec!["\"cbc\""]),
        (
            json!({"type": "string", "pattern": "^[[\\s]\\.$"}),
            vec!["\"[.\"", "\"\u{feff}.\""],
            vec!["\"\u{85}.\"", "\"[a\""],
        ),
        (
            json!({"type": "object", "patternProperties": {"^\\S$": {"const": 1}}, "additionalProperties": false}),
            vec!["{\"\u{85}\":1}"],
            vec!["{\"\u{feff}\":1}", "{\"a\":2}"],
        ),
        (
            json!({"type": "string", "format": "date"}),
            vec!["\"2024-02-29\"", "\"2000-02-29\""],
            vec!["\"2023-02-29\"", "\"1900-02-29\"", "\"2023-04-31\""],
        ),
        (
            json!({"type": "string", "format": "date-time"}),
            vec!["\"2024-12-31T23:59:59.5Z\""],
            vec!["\"2024-12-31T23:59:60Z\""],
        ),
        (json!({"type": "string", "format": "ipv4"}), vec!["\"127.0.0.1\""], vec!["\"127.0.0.256\""]),
        (json!({"type": "integer", "minimum": -3, "exclusiveMaximum": 12}), vec!["-3", "11"], vec!["-4", "12", "1.5"]),
        (json!({"type": "number", "multipleOf": 0.25}), vec!["-0.75", "12"], vec!["0.3"]),
        (json!({"$ref": "#/$defs/a%25~1b", "$defs": {"a%/b": {"const": 7}}}), vec!["7"], vec!["8"]),
        (
            json!({"$ref": "#/definitions/x/items/0", "definitions": {"x": {"items": [{"const": 7}]}}}),
            vec!["7"],
            vec!["8"],
        ),
        (
            json!({"type": "object", "minProperties": 1, "additionalProperties": {"const": 1}}),
            vec!["{\"x\":1}"],
            vec!["{}"],
        ),
        (
            json!({"type": "object", "properties": {"n": {"$ref": "#"}}, "additionalProperties": false}),
            vec!["{\"n\":{\"n\":{}}}"],
            vec!["{\"n\":1}"],
        ),
        (
            json!({"$id": "https://example.com/a", "title": "", "description": 1, "default": [], "examples": [1], "deprecated": true,
            "readOnly": true, "writeOnly": true, "$comment": "", "type": "null", "uniqueItems": false,
            "discriminator": {"propertyName": "a"}, "$anchor": "a"}),
            vec!["null"],
            vec!["1"],
        ),
    ]
}

#[test]
fn patterns_that_look_ahead() {
    let compiler = Compiler::new();
    // Of zod 4, with the format beside it, and of pydantic 2.
    let email = r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$";
    let decimal = r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$";
    for (schema, yes, no) in [
        (
            json!({"type": "string", "format": "email", "pattern": email}),
            vec!["a.b@c.de", "a'b@c-d.e.com"],
            vec![".a@b.cd", "a..b@c.de", "a@b", "a.@c.de"],
        ),
        (json!({"type": "string", "pattern": decimal}), vec!["-1.5", "007", "1."], vec!["", "-.", "1.2.3"]),
        (json!({"type": "string", "pattern": "^(?=.*[0-9]).{2,}$"}), vec!["a1"], vec!["ab", "1"]),
    ] {
        for (texts, allowed) in [(yes, true), (no, false)] {
            for text in texts {
                let matcher = compiler.schema(&schema).unwrap_or_else(|error| panic!("{schema}: {error}"));
                assert_eq!(compiler.allows(matcher, &format!("\"{text}\"")), allowed, "{text} of {schema}");
            }
        }
    }
}

#[test]
fn a_hostname_has_at_most_253_characters() {
    let compiler = Compiler::new();
    let schema = json!({"type": "string", "format": "hostname"});
    let longest = format!("{}a", "a.".repeat(126));
    for (name, allowed) in [(longest.clone(), true), (longest + ".a", false), ("a..b".to_owned(), false)] {
        let matcher = compiler.schema(&schema).unwrap();
        assert_eq!(compiler.allows(matcher, &format!("\"{name}\"")), allowed, "{name}");
    }
}

#[test]
fn enforced_keywords() {
    let compiler = Compiler::new();
    for (schema, yes, no) in enforced() {
        for (texts, allowed) in [(yes, true), (no, false)] {
            for text in texts {
                let matcher = compiler.schema(&schema).unwrap_or_else(|error| panic!("{schema}: {error}"));
                assert_eq!(compiler.allows(matcher, text), allowed, "{text} of {schema}");
            }
        }
    }
}

/// Records as zod and pydantic write them.
#[test]
fn names_of_properties_are_enforced() {
    let compiler = Compiler::new();
    let integers =
        |names: Value| json!({"type": "object", "propertyNames": names, "additionalProperties": {"type": "integer"}});
    let mut listed = integers(json!({"type": "string", "enum": ["a", "b.c"]}));
    listed["required"] = json!(["a"]);
    for (schema, yes, no) in [
        (integers(json!({"type": "string"})), r#"{"x":1}"#, r#"{"x":"1"}"#),
        (integers(json!(true)), r#"{"x":1}"#, r#"{"x":"1"}"#),
        (integers(json!({"pattern": "^[a-z]+$"})), r#"{"x":1,"y":2}"#, r#"{"X":1}"#),
        (integers(json!({"const": "a"})), r#"{"a":1}"#, r#"{"aa":1}"#),
        (integers(json!({"enum": ["a", "b.c"]})), r#"{"b.c":1}"#, r#"{"bxc":1}"#),
        (integers(json!({"enum": ["a", "b.c"]})), r#"{"a":1}"#, r#"{"a":true}"#),
        (json!({"type": "object", "propertyNames": {"pattern": "^a"}}), r#"{"ab":[1]}"#, r#"{"b":1}"#),
        (listed, r#"{"a":1}"#, r#"{"b.c":1}"#),
        (
            json!({"type": "object", "propertyNames": {"$ref": "#/$defs/n"}, "$defs": {"n": {"enum": ["a"], "title": "N"}}}),
            r#"{"a":1}"#,
            r#"{"b":1}"#,
        ),
    ] {
        for (text, allowed) in [(yes, true), (no, false)] {
            let matcher = compiler.schema(&schema).unwrap_or_else(|error| panic!("{schema}: {error}"));
            assert_eq!(compiler.allows(matcher, text), allowed, "{text} of {schema}");
        }
    }
}

#[test]
fn annotations_change_nothing() {
    let compiler = Compiler::new();
    for keyword in [
        json!({"format": "my-own"}),
        json!({"format": "int32"}),
        json!({"x-order": 1}),
        json!({"contentEncoding": "base64", "contentMediaType": "image/png", "contentSchema": true}),
        json!({"example": 7, "externalDocs": {"url": "x"}, "xml": {}, "nullable": true, "components": {}}),
        json!({"markdownDescription": "", "enumDescriptions": [""], "errorMessage": "", "defaultSnippets": []}),
        json!({"propertyOrdering": ["a"], "discriminator": {"propertyName": "a"}, "env_names": ["a"]}),
        json!({"exclusiveMinimum": true, "exclusiveMaximum": false, "not": false}),
    ] {
        let mut schema = json!({"enum": [7]});
        schema.as_object_mut().unwrap().extend(keyword.as_object().unwrap().clone());
        assert!(compiler.allows(compiler.schema(&schema).unwrap(), "7"), "{schema}");
        assert!(!compiler.allows(compiler.schema(&schema).unwrap(), "8"), "{schema}");
    }
}

/// As pydantic, zod and OpenAPI write it.
#[test]
fn variants_and_sets() {
    let compiler = Compiler::new();
    let kind = |values: Value| {
        json!({"type": "object", "properties": {"kind": values, "n": {"type": "integer"}},
        "required": ["kind", "n"], "additionalProperties": false})
    };
    let union = |kinds: [Value; 2], mapping: Value| {
        json!({"oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}],
            "discriminator": {"propertyName": "kind", "mapping": mapping},
            "$defs": {"Cat": kind(kinds[0].clone()), "Dog": kind(kinds[1].clone())}})
    };
    let cats = json!({"cat": "#/$defs/Cat", "tiger": "Cat", "dog": "#/$defs/Dog"});
    let text = || json!({"type": "string"});
    let set = |items: Value| json!({"type": "array", "items": items, "uniqueItems": true});
    let color = json!({"type": "array", "items": {"$ref": "#/$defs/c"}, "uniqueItems": true, "minItems": 1,
        "$defs": {"c": {"enum": ["red", "blue"], "type": "string"}}});
    for (schema, yes, no) in [
        (
            union([json!({"const": "cat"}), json!({"const": "dog"})], cats.clone()),
            vec![r#"{"kind":"cat","n":1}"#, r#"{"kind":"dog","n":1}"#],
            vec![r#"{"kind":"cow","n":1}"#],
        ),
        (
            union([text(), text()], cats),
            vec![r#"{"kind":"cat","n":1}"#, r#"{"kind":"tiger","n":1}"#, r#"{"kind":"dog","n":1}"#],
            vec![r#"{"kind":"Cat","n":1}"#],
        ),
        (union([text(), text()], json!(null)), vec![r#"{"kind":"Cat","n":1}"#], vec![r#"{"kind":"cat","n":1}"#]),
        // A value may be valid for both.
        (json!({"oneOf": [{"type": "string"}, {"type": "string", "maxLength": 3}]}), vec![r#""a""#], vec!["1"]),
        (
            json!({"oneOf": [{"const": 1}, {"const": 2}], "anyOf": [{"const": 2}, {"const": 3}]}),
            vec!["2"],
            vec!["1", "3"],
        ),
        (set(json!({"enum": ["a", "b", "a"]})), vec!["[]", r#"["b","a"]"#], vec![r#"["a","a"]"#, r#"["a","b","a"]"#]),
        (set(json!({"type": "boolean"})), vec!["[true,false]"], vec!["[true,true]"]),
        (color, vec![r#"["blue"]"#], vec!["[]", r#"["blue","blue"]"#, "null"]),
        (
            json!({"type": ["array", "null"], "items": {"enum": [1, 2]}, "uniqueItems": true, "maxItems": 1}),
            vec!["[2]", "null"],
            vec!["[1,2]"],
        ),
        (
            json!({"type": ["array", "null"], "items": {"enum": [1, 2]}, "uniqueItems": true}),
            vec!["null"],
            vec!["[1,1]"],
        ),
        (json!({"type": "string", "nullable": true}), vec!["null", r#""""#], vec!["1"]),
        (json!({"type": "integer", "minimum": 1, "exclusiveMinimum": true}), vec!["2"], vec!["1"]),
        (json!({"type": "integer", "maximum": 1, "exclusiveMaximum": false}), vec!["1"], vec!["2"]),
        (
            json!({"type": "object", "properties": {"a": {"not": {"description": ""}}}, "additionalProperties": {"const": 1}}),
            vec![r#"{"b":1}"#],
            vec![r#"{"a":1}"#],
        ),
    ] {
        for (texts, allowed) in [(yes, true), (no, false)] {
            for text in texts {
                let matcher = compiler.schema(&schema).unwrap_or_else(|error| panic!("{schema}: {error}"));
                assert_eq!(compiler.allows(matcher, text), allowed, "{text} of {schema}");
            }
        }
    }
}

/// Each variant of a discriminated union has further ones.
#[test]
fn unions_within_their_variants() {
    let compiler = Compiler::new();
    for kind in [json!({"const": "sum"}), json!({"type": "string"})] {
        let schema = json!({
            "$ref": "#/$defs/Any",
            "$defs": {
                "Any": {"oneOf": [{"$ref": "#/$defs/sum"}, {"$ref": "#/$defs/leaf"}], "discriminator": {"propertyName": "kind"}},
                "sum": {"type": "object", "properties": {"kind": kind, "of": {"type": "array", "items": {"$ref": "#/$defs/Any"}}},
                    "required": ["kind", "of"], "additionalProperties": false},
                "leaf": {"type": "object", "properties": {"kind": {"const": "leaf"}}, "required": ["kind"],
                    "additionalProperties": false},
            },
        });
        let matcher = || compiler.schema(&schema).unwrap_or_else(|error| panic!("{schema}: {error}"));
        assert!(compiler.allows(matcher(), r#"{"kind":"sum","of":[{"kind":"leaf"},{"kind":"sum","of":[]}]}"#));
        assert!(!compiler.allows(matcher(), r#"{"kind":"sum","of":[{"kind":"other"}]}"#));
    }
}

#[test]
fn refused_keywords_are_named_by_their_path() {
    let compiler = Compiler::new();
    let refused = |schema: Value, expected: &str| match compiler.schema(&schema) {
        Err(GrammarError::Schema { path, .. }) => assert_eq!(path, expected, "{schema}"),
        other => panic!("{schema}: {other:?}"),
    };
    let keywords = [
        "if",
        "then",
        "else",
        "contains",
        "minContains",
        "maxContains",
        "dependencies",
        "dependentRequired",
        "dependentSchemas",
        "unevaluatedItems",
        "unevaluatedProperties",
        "$dynamicRef",
        "$recursiveRef",
        "$recursiveAnchor",
        "$vocabulary",
        "x-guidance",
        "unknown",
        "extends",
        "disallow",
        "divisibleBy",
        "Type",
        "",
    ];
    for keyword in keywords {
        refused(json!({ keyword: {} }), &format!("/{keyword}"));
        refused(json!({"items": {"anyOf": [true, { keyword: 1 }]}}), &format!("/items/anyOf/1/{keyword}"));
        refused(
            json!({"$ref": "#/$defs/d", "$defs": {"d": {"title": "", keyword: true}}}),
            &format!("/$defs/d/{keyword}"),
        );
    }
    for (schema, path) in [
        (json!(1), ""),
        (json!({"type": "array", "uniqueItems": true}), "/uniqueItems"),
        (json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true}), "/uniqueItems"),
        (json!({"type": "array", "items": {"enum": [1, 2, 3, 4, 5]}, "uniqueItems": true}), "/uniqueItems"),
        (json!({"type": "array", "items": {"const": 1}, "prefixItems": [true], "uniqueItems": true}), "/uniqueItems"),
        (json!({"uniqueItems": 1}), "/uniqueItems"),
        (json!({"type": "string", "nullable": 1}), "/nullable"),
        (json!({"not": {"type": "null"}}), "/not"),
        (json!({"properties": {"a/b~": {"if": {}}}}), "/properties/a~1b~0/if"),
        (json!({"properties": {"a": 1}}), "/properties/a"),
        (json!({"properties": []}), "/properties"),
        (json!({"type": "text"}), "/type"),
        (json!({"type": []}), "/type"),
        (json!({"required": "a"}), "/required"),
        (json!({"required": [1]}), "/required/0"),
        (json!({"enum": []}), "/enum"),
        (json!({"enum": [1, 9007199254740993_u64]}), "/enum/1"),
        (json!({"const": {"a": "\u{1}"}}), "/const/a"),
        (json!({"format": 1}), "/format"),
        (json!({"propertyNames": {"minLength": 1}}), "/propertyNames/minLength"),
        (json!({"propertyNames": {"pattern": "a"}, "properties": {"a": true}}), "/propertyNames"),
        (json!({"propertyNames": {"enum": [1]}}), "/propertyNames/enum/0"),
        (json!({"propertyNames": false}), "/propertyNames"),
        (json!({"propertyNames": {"$ref": "#/$defs/none"}}), "/propertyNames"),
        (json!({"propertyNames": {"$ref": "#/propertyNames"}}), "/propertyNames"),
        (json!({"minimum": "1"}), "/minimum"),
        (json!({"minimum": "1", "exclusiveMinimum": true}), "/minimum"),
        (json!({"multipleOf": 0}), "/multipleOf"),
        (json!({"multipleOf": 70001}), "/multipleOf"),
        (json!({"minLength": -1}), "/minLength"),
        (json!({"maxItems": 1.5}), "/maxItems"),
        (json!({"minProperties": 2}), "/minProperties"),
        (json!({"pattern": 1}), "/pattern"),
        (json!({"allOf": {}}), "/allOf"),
        (json!({"prefixItems": [true], "additionalItems": false}), "/additionalItems"),
        (json!({"prefixItems": [true], "items": [true]}), "/prefixItems"),
        (json!({"$ref": "#/$defs/none"}), "/$ref"),
        (json!({"$ref": "other.json"}), "/$ref"),
        (json!({"$ref": "#anchor", "$anchor": "anchor"}), "/$ref"),
        (json!({"items": {"$id": "b", "$ref": "#/items"}}), "/items/$ref"),
        (json!({"$ref": "#/items/items", "items": {"$id": "b", "items": true}}), "/$ref"),
        (json!({"id": {"type": "string"}}), "/id"),
        (json!({"type": "string", "pattern": "^[a-z](?!x)[a-z]+$"}), "/pattern"),
        (json!({"patternProperties": {"^(?!x)": true}}), "/patternProperties"),
        (json!({"properties": {"a": {"type": "string", "pattern": "("}}}), "/properties/a/pattern"),
        (json!({"patternProperties": {"(?=a)": true}}), "/patternProperties"),
    ] {
        refused(schema, path);
    }
    // Definitions that nothing refers to mean nothing.
    assert!(compiler.schema(&json!({"type": "null", "$defs": {"d": {"if": {}}}})).is_ok());
}

/// A schema that llguidance itself refuses, as a whole.
#[test]
fn schemas_that_cannot_be_followed() {
    let compiler = Compiler::new();
    for schema in [
        json!(false),
        json!({"not": {}}),
        json!({"type": "array", "items": {"const": 1}, "minItems": 2, "uniqueItems": true}),
        json!({"type": "string", "minLength": 3, "maxLength": 2}),
        json!({"type": "integer", "minimum": 3, "maximum": 2}),
        json!({"allOf": [{"type": "string"}, {"type": "null"}]}),
        json!({"type": "object", "properties": {"a": true, "b": true, "c": true}, "maxProperties": 2}),
        json!({"type": "object", "required": ["a"], "additionalProperties": false}),
        json!({"type": "object", "patternProperties": {"^a": true, "b$": true}}),
    ] {
        let error = compiler.schema(&schema).expect_err(&schema.to_string());
        let is_whole = match &error {
            GrammarError::Schema { path, .. } => path.is_empty(),
            error => matches!(error, GrammarError::Refused(_)),
        };
        assert!(is_whole && !error.to_string().contains("$defs"), "{schema}: {error}");
        assert_eq!(error.to_string().lines().count(), 1, "{error}");
    }
}
