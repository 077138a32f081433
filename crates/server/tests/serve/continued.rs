//! Responses that are continued by their id.

use gristmill_server::{Access, Key, Options};
use serde_json::{Value, json};

use crate::agents::prompt;
use crate::server::{Running, engine, model, options};

const PATH: &str = "/v1/responses";

/// A request whose reply is short.
fn asked(input: Value, more: Value) -> Value {
    let mut body = json!({"input": input, "seed": 5, "max_output_tokens": 4, "ignore_eos": true});
    body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    body
}

fn input_items(server: &Running, id: &Value, query: &str) -> Value {
    let reply = server.get(&format!("{PATH}/{}/input_items?{query}", id.as_str().expect("text")));
    assert_eq!(reply.status, 200, "{}", reply.text);
    reply.json()
}

/// What a continued response reads is what a request with all items reads.
#[test]
fn a_response_continues_another() {
    let server = Running::usual();
    let first = server.ask(PATH, &asked(json!("first"), json!({})));
    assert_eq!((&first["store"], &first["previous_response_id"]), (&json!(true), &Value::Null));
    let second = asked(json!([{"role": "user", "content": "second"}]), json!({"previous_response_id": first["id"]}));
    // In events too.
    let events = server.events(PATH, &second);
    let second = &events.last().expect("an event")["response"];
    assert_eq!((&second["store"], &second["previous_response_id"]), (&json!(true), &first["id"]));
    let third = json!({"input": "third", "previous_response_id": second["id"], "instructions": "be brief"});
    let user = |text: &str| vec![json!({"role": "user", "content": text})];
    let output = |of: &Value| of["output"].as_array().expect("items").clone();
    let all = [user("first"), output(&first), user("second"), output(second), user("third")].concat();
    let read = prompt(&server, PATH, third);
    assert_eq!(read, prompt(&server, PATH, json!({"input": all, "instructions": "be brief"})));
    assert!(["first", "second", "third"].iter().all(|text| read.contains(text)), "{read}");
    // Another may continue the same one.
    let other = prompt(&server, PATH, json!({"input": "other", "previous_response_id": first["id"]}));
    assert!(other.contains("first") && !other.contains("second"), "{other}");
    let found = server.get(&format!("{PATH}/{}", second["id"].as_str().expect("text")));
    assert_eq!((found.status, &found.json()), (200, second));
}

#[test]
fn references_are_kept_items() {
    let server = Running::usual();
    let first = server.ask(PATH, &asked(json!("first"), json!({})));
    let item = &first["output"][0];
    let with = |item: Value| json!({"input": [{"role": "user", "content": "first"}, item, {"role": "user", "content": "and?"}]});
    let wanted = prompt(&server, PATH, with(item.clone()));
    for reference in [json!({"type": "item_reference", "id": item["id"]}), json!({"id": item["id"]})] {
        let mut body = with(reference);
        assert_eq!(prompt(&server, PATH, body.clone()), wanted);
        body["max_output_tokens"] = json!(2);
        assert_eq!(server.post(PATH, &body).header("x-gristmill-ignored"), None);
    }
    let lost = prompt(&server, PATH, with(json!({"type": "item_reference", "id": "msg_0"})));
    assert!(lost.contains("[item: not in this conversation"), "{lost}");
}

#[test]
fn what_is_not_kept() {
    let access = Access { keys: vec![Key::new("one"), Key::new("two")], ..Access::default() };
    let server = Running::new(engine(&model(), 1), Options { access, ..options() });
    let post = |key: &str, body: &Value| {
        server.post_text(PATH, &body.to_string(), &[("authorization", &format!("Bearer {key}"))])
    };
    let kept = post("one", &asked(json!("first"), json!({}))).json();
    let not_kept = post("one", &asked(json!("first"), json!({"store": false}))).json();
    assert_eq!((&kept["store"], &not_kept["store"]), (&json!(true), &json!(false)));
    let continued = |of: &Value| asked(json!("second"), json!({"previous_response_id": of["id"]}));
    assert_eq!(post("one", &continued(&kept)).status, 200);
    for (key, of) in [("two", &kept), ("one", &not_kept)] {
        let reply = post(key, &continued(of));
        let error = &reply.json()["error"];
        assert_eq!((reply.status, &error["param"]), (400, &json!("previous_response_id")));
        assert_eq!(error["code"], "previous_response_not_found", "{}", reply.text);
        let path = format!("{PATH}/{}", of["id"].as_str().expect("text"));
        assert_eq!(server.get_with(&path, &[("authorization", &format!("Bearer {key}"))]).status, 404);
    }
    let off = Running::new(engine(&model(), 1), Options { response_bytes: 0, ..options() });
    let first = off.ask(PATH, &asked(json!("first"), json!({"store": true})));
    assert_eq!(first["store"], false);
    let reply = off.post(PATH, &continued(&first));
    assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!("previous_response_id")));
    assert!(reply.text.contains("keeps no responses"), "{}", reply.text);
}

#[test]
fn errors_name_the_items_of_the_request() {
    let server = Running::usual();
    let first = server
        .ask(PATH, &asked(json!([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]), json!({})));
    for (item, param) in [
        (json!({"role": "user", "content": 5}), "input[1].content"),
        (json!({"type": "hologram_call"}), "input[1].type"),
        (json!({"type": "message", "content": "x"}), "input[1].role"),
        (json!({"type": "function_call_output", "call_id": "c", "output": "x"}), "input[1].call_id"),
        (
            json!({"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}),
            "input[1].content[0].image_url",
        ),
    ] {
        let input = json!([{"role": "user", "content": "c"}, item]);
        let alone = server.post(PATH, &asked(input.clone(), json!({}))).json()["error"].clone();
        let continued = server.post(PATH, &asked(input, json!({"previous_response_id": first["id"]})));
        assert_eq!((continued.status, &continued.json()["error"]), (400, &alone));
        assert_eq!(alone["param"], param);
    }
    let input =
        json!([{"role": "user", "content": "c", "colour": "red"}, {"type": "reasoning", "encrypted_content": "y"}]);
    let reply = server.post(PATH, &asked(input, json!({"previous_response_id": first["id"]})));
    let named = Some("input[0].colour, input[1].encrypted_content");
    assert_eq!((reply.status, reply.header("x-gristmill-ignored")), (200, named), "{}", reply.text);
    // What the first request has been told is not told again.
    let id = &reply.json()["id"];
    let reply = server.post(PATH, &asked(json!("d"), json!({"previous_response_id": id})));
    assert_eq!((reply.status, reply.header("x-gristmill-ignored")), (200, None), "{}", reply.text);
    let empty = server.post(PATH, &asked(json!([]), json!({"previous_response_id": first["id"]})));
    assert_eq!((empty.status, &empty.json()["error"]["param"]), (400, &json!("input")));
}

#[test]
fn kept_responses_are_listed_and_deleted() {
    let server = Running::usual();
    let first = server.ask(PATH, &asked(json!("first"), json!({})));
    let second = server.ask(PATH, &asked(json!("second"), json!({"previous_response_id": first["id"]})));
    let all = input_items(&server, &second["id"], "order=asc");
    let texts: Vec<&Value> = all["data"].as_array().expect("items").iter().map(|item| &item["content"]).collect();
    assert_eq!((texts[0], texts[1], texts[2]), (&json!("first"), &first["output"][0]["content"], &json!("second")));
    assert_eq!((texts.len(), &all["has_more"], &all["first_id"]), (3, &json!(false), &all["data"][0]["id"]));
    let newest = input_items(&server, &second["id"], "limit=1");
    assert_eq!((&newest["data"][0], &newest["has_more"]), (&all["data"][2], &json!(true)));
    let after = newest["last_id"].as_str().expect("text");
    let rest = input_items(&server, &second["id"], &format!("after={after}"));
    assert_eq!((&rest["data"][0], &rest["data"][1]), (&all["data"][1], &all["data"][0]));
    let path = format!("{PATH}/{}", second["id"].as_str().expect("text"));
    for query in ["limit=0", "limit=101", "limit=x", "order=up", "after=msg_0"] {
        let reply = server.get(&format!("{path}/input_items?{query}"));
        assert_eq!(
            (reply.status, reply.json()["error"]["message"].is_string()),
            (400, true),
            "{query}: {}",
            reply.text
        );
    }
    assert_eq!(server.get(&format!("{path}?stream=true")).status, 400);
    let delete = format!("DELETE {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    let reply = server.raw(delete.as_bytes());
    assert!(reply.starts_with("HTTP/1.1 200") && reply.contains("\"deleted\":true"), "{reply}");
    assert!(server.raw(delete.as_bytes()).starts_with("HTTP/1.1 404"));
    assert_eq!((server.get(&path).status, server.get(&format!("{path}/input_items")).status), (404, 404));
    // What it contained of the first response is still there.
    assert_eq!(server.get(&format!("{PATH}/{}", first["id"].as_str().expect("text"))).status, 200);
}
