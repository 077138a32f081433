//! The JSON-Schema-Test-Suite, which `cargo xtask prove clients` fetches: a schema is enforced or refused.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{Compiler, Random};

/// Folders of the suite, and the `$schema` that a schema there means if it names none.
const DRAFTS: [(&str, &str); 5] = [
    ("draft4", "http://json-schema.org/draft-04/schema#"),
    ("draft6", "http://json-schema.org/draft-06/schema#"),
    ("draft7", "http://json-schema.org/draft-07/schema#"),
    ("draft2019-09", "https://json-schema.org/draft/2019-09/schema"),
    ("draft2020-12", "https://json-schema.org/draft/2020-12/schema"),
];

/// The files about formats that are enforced.
const ENFORCED_FORMATS: [&str; 9] =
    ["date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uuid"];

/// Texts drawn for each schema that is enforced.
const DRAWN: usize = 5;

/// Tokens of such a text, at most.
const LONGEST: usize = 400;

/// All files of a folder and the folders in it.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        match path.is_dir() {
            true => files(&path, found),
            false => found.push(path),
        }
    }
}

/// The outcomes of a draft's schemas.
#[derive(Default)]
struct Counts {
    enforced: usize,
    refused: usize,
    invalid: usize,
    /// Invalid instances that are allowed, because they are valid for several schemas of a `oneOf`.
    several: usize,
    /// Valid instances, and those of them that the grammar allows as the suite writes them.
    valid: usize,
    allowed: usize,
}

/// The schema with `anyOf` for `oneOf`, as grammars have it. No schema of the suite has both.
fn relaxed(schema: &Value) -> Value {
    match schema {
        Value::Object(keywords) => {
            let key = |key: &String| if key == "oneOf" { "anyOf".to_owned() } else { key.clone() };
            keywords.iter().map(|(name, value)| (key(name), relaxed(value))).collect()
        }
        Value::Array(items) => items.iter().map(relaxed).collect(),
        other => other.clone(),
    }
}

#[test]
#[ignore = "takes the suite, which cargo xtask prove clients fetches"]
fn each_schema_of_the_suite_is_enforced_or_refused() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/prove/json-schema");
    let (compiler, mut random) = (Compiler::new(), Random::fresh());
    let (mut wrong, mut drawn) = (Vec::new(), String::new());
    for (draft, dialect) in DRAFTS {
        let (mut counts, mut found) = (Counts::default(), Vec::new());
        files(&folder.join("tests").join(draft), &mut found);
        // Formats that are not enforced are annotations, as the specification has it.
        let is_format = |path: &Path| path.parent().is_some_and(|folder| folder.ends_with("optional/format"));
        let is_enforced = |path: &Path| ENFORCED_FORMATS.iter().any(|name| path.ends_with(format!("{name}.json")));
        found.retain(|path| !is_format(path) || is_enforced(path));
        // Draft 7 lets a validator assert the content of texts; since then it is an annotation.
        found.retain(|path| !path.ends_with("draft7/optional/content.json"));
        for path in found {
            let groups: Vec<Value> = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
            for group in groups {
                let mut schema = group["schema"].clone();
                if let Value::Object(keywords) = &mut schema
                    && !keywords.contains_key("$schema")
                {
                    keywords.insert("$schema".to_owned(), json!(dialect));
                }
                let Ok(matcher) = compiler.schema(&schema) else {
                    counts.refused += 1;
                    continue;
                };
                counts.enforced += 1;
                let judged = relaxed(&schema);
                let is_relaxed = judged != schema;
                for test in group["tests"].as_array().unwrap() {
                    let allowed = compiler.allows(compiler.schema(&schema).unwrap(), &test["data"].to_string());
                    match test["valid"].as_bool().unwrap() {
                        true => {
                            (counts.valid, counts.allowed) = (counts.valid + 1, counts.allowed + usize::from(allowed))
                        }
                        false => counts.invalid += 1,
                    }
                    if allowed && test["valid"] == json!(false) && is_relaxed {
                        counts.several += 1;
                    } else if allowed && test["valid"] == json!(false) {
                        wrong.push(format!("{}: {schema} allows {}", path.display(), test["data"]));
                    }
                }
                let mut matchers = vec![matcher];
                matchers.extend((1..DRAWN).map(|_| compiler.schema(&schema).unwrap()));
                for matcher in matchers {
                    match compiler.try_draw(matcher, &mut random, LONGEST) {
                        Ok((text, true)) => writeln!(drawn, "{}", json!({"schema": judged, "text": text})).unwrap(),
                        Ok(_) => {}
                        Err(stuck) => wrong.push(format!("{}: {schema}: {stuck:?}", path.display())),
                    }
                }
            }
        }
        let Counts { enforced, refused, invalid, several, valid, allowed } = counts;
        println!("| {draft} | {enforced} | {refused} | {invalid} | {several} | {allowed} of {valid} |");
    }
    fs::write(folder.join("drawn.jsonl"), drawn).unwrap();
    assert!(wrong.is_empty(), "{} texts are wrong:\n{}", wrong.len(), wrong.join("\n"));
}
