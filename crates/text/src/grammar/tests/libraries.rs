//! Schemas as libraries write them, which `cargo xtask prove clients` makes: each is enforced.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::{Compiler, Random};
use crate::grammar::closed_schema;

/// Texts drawn for each schema, and the most tokens of one.
const DRAWN: usize = 5;
const LONGEST: usize = 400;

/// Schemas that are refused, by the end of their names, and what the error names.
const REFUSED: &[(&str, &str)] = &[("zod, duration", "look-around")];

#[derive(Default)]
struct Counts {
    schemas: usize,
    refused: usize,
    valid: usize,
    invalid: usize,
    drawn: usize,
}

#[test]
#[ignore = "takes the schemas, which cargo xtask prove clients makes"]
fn schemas_of_libraries_are_enforced() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/prove/schemas");
    let (compiler, mut random) = (Compiler::new(), Random::fresh());
    let (mut counts, mut wrong, mut drawn): (BTreeMap<String, Counts>, _, _) =
        (BTreeMap::new(), Vec::new(), String::new());
    for line in fs::read_to_string(folder.join("cases.jsonl")).expect("the schemas").lines() {
        let case: Value = serde_json::from_str(line).expect("a case");
        let name = case["name"].as_str().expect("a name");
        let count = counts.entry(name.split(',').next().unwrap_or_default().to_owned()).or_default();
        count.schemas += 1;
        let schema = closed_schema(case["schema"].clone());
        let refused = REFUSED.iter().find(|(of, _)| name.contains(of));
        match (compiler.schema(&schema), refused) {
            (Ok(_), None) => {}
            (Err(error), Some((_, named))) if error.to_string().contains(named) => {
                count.refused += 1;
                continue;
            }
            (found, _) => {
                wrong.push(format!(
                    "{name}: {:?}: {schema}",
                    found.map(|_| "enforced").map_err(|error| error.to_string())
                ));
                continue;
            }
        }
        let matcher = || compiler.schema(&schema).expect("it was enforced");
        for (key, is_allowed) in [("valid", true), ("invalid", false)] {
            for text in case[key].as_array().expect("texts").iter().filter_map(Value::as_str) {
                *(if is_allowed { &mut count.valid } else { &mut count.invalid }) += 1;
                if compiler.allows(matcher(), text) != is_allowed {
                    wrong.push(format!("{name}: {key}: {text} of {schema}"));
                }
            }
        }
        for _ in 0..DRAWN {
            match compiler.try_draw(matcher(), &mut random, LONGEST) {
                Ok((text, true)) => {
                    count.drawn += 1;
                    let line = json!({"schema": case["schema"], "dialect": case["dialect"], "text": text});
                    writeln!(drawn, "{line}").expect("memory");
                }
                Ok(_) => {}
                Err(stuck) => wrong.push(format!("{name}: {stuck:?}")),
            }
        }
    }
    for (library, Counts { schemas, refused, valid, invalid, drawn }) in counts {
        println!("| {library} | {schemas} | {refused} | {valid} | {invalid} | {drawn} |");
    }
    fs::write(folder.join("drawn.jsonl"), drawn).expect("the folder");
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
}
