//! Each number that `/openapi.json` describes, with strange values: it is obeyed, or refused by its name.

use serde_json::{Value, json};

use crate::server::{Reply, Running, engine_with, model, options};

/// Values as JSON writes them, or does not.
const NUMBERS: [&str; 17] = [
    "-1",
    "0",
    "1",
    "-0.0",
    "1.5",
    "1e-46",
    "1e39",
    "9223372036854775808",
    "18446744073709551616",
    "1e400",
    "-1e400",
    "NaN",
    "\"NaN\"",
    "\"1\"",
    "[]",
    "{}",
    "true",
];

/// Stands for the value in a body.
const MARK: &str = "@number@";

/// One step to a number in a body.
#[derive(Debug, Clone, PartialEq)]
enum Step {
    Field(String),
    /// An index of a list, or a key of a map with ids of tokens.
    Any,
}

/// A good body, with the numbers' companions.
fn body(path: &str) -> Value {
    let calls = json!([{"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]);
    let messages = json!([{"role": "assistant", "content": "a", "tool_calls": calls}]);
    let plain = json!([{"role": "user", "content": "a"}]);
    let thinking = json!({"type": "enabled"});
    // What shows a prompt, or counts its tokens, has the body of what runs it.
    let runs = ["/render", "/input_tokens"].into_iter().find_map(|suffix| path.strip_suffix(suffix));
    match runs.unwrap_or(path) {
        "/v1/chat/completions" => json!({"messages": messages, "max_tokens": 2, "logprobs": true}),
        "/v1/completions" => json!({"prompt": "a", "max_tokens": 2}),
        "/v1/embeddings" => json!({"input": "a"}),
        "/v1/responses" => {
            json!({"input": "a", "max_output_tokens": 2, "include": ["message.output_text.logprobs"]})
        }
        "/v1/messages" => json!({"model": "tiny", "messages": plain, "max_tokens": 2, "thinking": thinking}),
        "/v1/messages/count_tokens" => json!({"model": "tiny", "messages": plain, "thinking": thinking}),
        "/tokenize" => json!({"messages": messages}),
        "/detokenize" => json!({"tokens": [1]}),
        "/apply-template" => json!({"messages": messages, "logprobs": true}),
        "/v1/rerank" => json!({"query": "a", "documents": ["b"]}),
        "/v1/score" => json!({"text_1": "a", "text_2": ["b"]}),
        "/flush_cache" => json!({}),
        _ => panic!("{path} is new; give a good body for it here"),
    }
}

/// The places of all numbers in what a schema describes.
fn numbers(document: &Value, schema: &Value, at: &[Step], found: &mut Vec<Vec<Step>>) {
    // Schemas refer to themselves.
    if at.len() > 6 {
        return;
    }
    if let Some(target) = schema["$ref"].as_str() {
        let target = document.pointer(&target[1..]).expect("it leads somewhere");
        return numbers(document, target, at, found);
    }
    let kinds = match &schema["type"] {
        Value::Array(kinds) => kinds.clone(),
        kind => vec![kind.clone()],
    };
    if (kinds.contains(&json!("integer")) || kinds.contains(&json!("number"))) && !found.contains(&at.to_vec()) {
        found.push(at.to_vec());
    }
    let below = |step: Step| [at, &[step]].concat();
    for part in ["allOf", "oneOf", "anyOf"].into_iter().flat_map(|name| schema[name].as_array().into_iter().flatten()) {
        numbers(document, part, at, found);
    }
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        numbers(document, schema, &below(Step::Field(name.clone())), found);
    }
    for inner in [&schema["items"], &schema["additionalProperties"]] {
        if inner.is_object() {
            numbers(document, inner, &below(Step::Any), found);
        }
    }
}

/// Puts the mark at a place, which is made where it is missing.
fn put(body: &mut Value, at: &[Step]) {
    match at {
        [] => *body = json!(MARK),
        [Step::Field(name), rest @ ..] => put(&mut body[name.as_str()], rest),
        [Step::Any, ..] if body.is_null() && at.len() == 1 => *body = json!([MARK]),
        [Step::Any, rest @ ..] => {
            if body.as_array().is_none_or(Vec::is_empty) {
                *body = json!([null]);
            }
            put(&mut body[0], rest);
        }
    }
}

/// All numbers of requests: interface, place and body.
fn cases(server: &Running) -> Vec<(String, Vec<Step>, String)> {
    let document = server.get("/openapi.json").json();
    let mut cases = Vec::new();
    for (path, methods) in document["paths"].as_object().expect("an object") {
        let schema = &methods["post"]["requestBody"]["content"]["application/json"]["schema"];
        if schema.is_null() {
            continue;
        }
        let mut found = Vec::new();
        numbers(&document, schema, &[], &mut found);
        for at in found {
            let mut body = body(path);
            match at.as_slice() {
                // A map with ids of tokens, not a list.
                [Step::Field(name), Step::Any] if name == "logit_bias" => body[name] = json!({"1": MARK}),
                at => put(&mut body, at),
            }
            cases.push((path.clone(), at, body.to_string()));
        }
    }
    cases
}

/// The field of a request that a refusal names.
fn refused_field(path: &str, reply: &Reply) -> String {
    let error = &reply.json()["error"];
    match path.starts_with("/v1/messages") {
        true => {
            error["message"].as_str().and_then(|message| message.split_once(": ")).map(|(field, _)| field.to_owned())
        }
        false => error["param"].as_str().map(str::to_owned),
    }
    .unwrap_or_default()
}

/// Whether a reply is one to this number, as far as a reply shows it.
fn obeys(field: &str, number: &str, reply: &Value) -> bool {
    let whole = number.parse::<i128>().ok();
    let receipt = reply["usage"]["gristmill"]["choices"].as_array().cloned().unwrap_or_default();
    let tokens = ["completion_tokens", "output_tokens"].iter().find_map(|name| reply["usage"][name].as_i64());
    match (field, whole, tokens) {
        // Nothing is generated from a prompt that is shown.
        _ if reply["usage"].is_null() => true,
        // A seed is chosen, and the context is the limit.
        ("seed" | "max_tokens" | "max_output_tokens", Some(-1), _) => true,
        // Negative seeds are those of two's complement.
        ("seed", Some(seed), _) => receipt[0]["seed"].as_u64() == Some(seed as u64),
        ("n", Some(n), _) => receipt.len() as i128 == n,
        ("max_tokens" | "max_output_tokens", Some(0), Some(tokens)) => tokens == 1,
        ("max_tokens" | "max_output_tokens", Some(most), Some(tokens)) => i128::from(tokens) <= most,
        ("min_tokens", Some(least), Some(tokens)) => i128::from(tokens) >= least,
        ("top_logprobs", Some(top), _) => {
            let chat = reply.pointer("/choices/0/logprobs/content/0/top_logprobs");
            let response = reply.pointer("/output/0/content/0/logprobs/0/top_logprobs");
            let told = chat.or(response).and_then(Value::as_array).map(Vec::len);
            told.is_none_or(|told| told as i128 == top)
        }
        // No number here is the width of the model.
        ("dimensions", ..) => false,
        _ => true,
    }
}

#[test]
fn each_number_is_obeyed_or_refused_by_its_name() {
    let server = Running::new(engine_with(&model(), 4, 120), options());
    let cases = cases(&server);
    let fields: Vec<&[Step]> = cases.iter().map(|(_, at, _)| at.as_slice()).collect();
    for known in ["temperature", "seed", "top_logprobs", "max_output_tokens", "min_p", "n", "dimensions"] {
        assert!(fields.contains(&[Step::Field(known.to_owned())].as_slice()), "{known} is missing in {fields:?}");
    }
    assert!(fields.iter().any(|at| at.len() > 1), "numbers in lists are missing in {fields:?}");
    let try_case = |(path, at, body): &(String, Vec<Step>, String)| {
        let Some(Step::Field(field)) = at.first() else { panic!("{path}: a body is an object") };
        for number in NUMBERS {
            let body = body.replace(&format!("\"{MARK}\""), number);
            let reply = server.post_text(path, &body, &[]);
            let text = &reply.text;
            match (reply.status, number) {
                (200, _) => assert!(obeys(field, number, &reply.json()), "{path} {body}: {text}"),
                // It is in no message of a conversation that the number of a call is wrong, since nothing reads it.
                (400, "NaN" | "1e400" | "-1e400") => assert!(text.contains("not valid JSON"), "{path} {body}: {text}"),
                (400, _) => {
                    let named = refused_field(path, &reply);
                    assert!(named.starts_with(field.as_str()), "{path} {body}: {text}");
                    // Vectors are wider.
                    assert!(number != "1" || field == "dimensions", "{path} {body}: {text}");
                }
                (status, _) => panic!("{path} {body}: {status} {text}"),
            }
        }
    };
    std::thread::scope(|scope| {
        for cases in cases.chunks(cases.len().div_ceil(4)) {
            scope.spawn(move || cases.iter().for_each(try_case));
        }
    });
    println!("{} numbers with {} values each", cases.len(), NUMBERS.len());
    assert_eq!(server.get("/health").status, 200);
}

/// 0 and −0 both take the most likely token, and so does 1 as the number of tokens to choose from.
#[test]
fn equal_numbers_give_equal_replies() {
    let server = Running::new(engine_with(&model(), 2, 90), options());
    let text = |field: &str, number: &str| {
        let body = format!(
            "{{\"prompt\": \"abc\", \"max_tokens\": 20, \"ignore_eos\": true, \"seed\": 3, \"{field}\": {number}}}"
        );
        let reply = server.post_text("/v1/completions", &body, &[]);
        assert_eq!(reply.status, 200, "{body}: {}", reply.text);
        reply.json()["choices"].clone()
    };
    let likeliest = text("temperature", "0");
    assert_eq!(text("temperature", "-0.0"), likeliest);
    assert_eq!(text("temperature", "1e-46"), likeliest);
    assert_eq!(text("top_k", "1"), likeliest);
    assert_eq!((text("top_p", "0"), text("top_p", "-0.0")), (likeliest.clone(), likeliest));
    assert_eq!(text("top_k", "-1"), text("top_k", "0"));
    assert_eq!(text("min_p", "-0.0"), text("min_p", "0"));
}
