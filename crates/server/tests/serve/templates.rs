//! Chat templates that are broken, and those of requests.

use gristmill_server::Options;
use serde_json::{Value, json};

use crate::server::{Running, changed_model, engine, model, options};

const CHAT: &str = "/v1/chat/completions";

fn asked(more: Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": "abc"}], "max_tokens": 1});
    body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    body
}

#[test]
fn a_broken_template_is_no_fault_of_a_request() {
    let broken = changed_model(|tiny| tiny.set("tokenizer.chat_template", "{% if x %}"));
    let server = Running::new(engine(&broken, 1), options());
    for (path, body) in [
        (CHAT, asked(json!({}))),
        ("/v1/messages", asked(json!({"model": "tiny"}))),
        ("/v1/responses", json!({"input": "abc"})),
        ("/apply-template", asked(json!({}))),
    ] {
        let reply = server.post(path, &body);
        assert_eq!(reply.status, 500, "{path}: {}", reply.text);
        for word in ["the model's chat template is broken", "line 1", "replace the template"] {
            assert!(reply.text.contains(word), "{path}: {}", reply.text);
        }
    }
    assert_eq!(server.post("/v1/completions", &json!({"prompt": "abc", "max_tokens": 1})).status, 200);
    let replaced = Running::new(engine(&broken, 1).with_template("[{{ messages[0].content }}]"), options());
    assert_eq!(replaced.ask("/apply-template", &asked(json!({})))["prompt"], "[abc]");
    assert_eq!(replaced.get("/tokenizer_info").json()["chat_template"], "[{{ messages[0].content }}]");
}

#[test]
fn a_request_has_a_template_if_the_server_allows_it() {
    let own = |template: &str| asked(json!({"chat_template": template}));
    let tokenized = |template: &str| json!({"messages": own("")["messages"], "chat_template": template});
    let usual = Running::usual();
    let allowed = Running::new(engine(&model(), 1), Options { allow_chat_template: true, ..options() });
    for (path, body) in [(CHAT, own("x")), ("/apply-template", own("x")), ("/tokenize", tokenized("x"))] {
        let reply = usual.post(path, &body);
        let error = &reply.json()["error"];
        assert_eq!((reply.status, &error["param"]), (400, &json!("chat_template")), "{path}: {}", reply.text);
        assert!(reply.text.contains("--allow-chat-template"), "{path}: {}", reply.text);
        assert_eq!(allowed.post(path, &body).status, 200, "{path}");
        let mut broken = body;
        broken["chat_template"] = json!("{% if x %}");
        let reply = allowed.post(path, &broken);
        let error = &reply.json()["error"];
        assert_eq!((reply.status, &error["param"]), (400, &json!("chat_template")), "{path}: {}", reply.text);
    }
    assert_eq!(allowed.ask("/apply-template", &own("<{{ messages[0].content }}>"))["prompt"], "<abc>");
    assert_eq!(allowed.ask("/tokenize", &tokenized("abab"))["count"], 2);
    let receipt = |more: Value| {
        let body = asked(more);
        allowed.ask(CHAT, &body)["usage"]["gristmill"]["receipt"]["requests"][0]["prompt"].clone()
    };
    let of_model = receipt(json!({"receipt": true}));
    let of_request = receipt(json!({"receipt": true, "chat_template": "{{ messages[0].content }}"}));
    assert!(of_model != of_request && of_request.to_string().contains("abc"), "{of_model} {of_request}");
    let responses = allowed.post("/v1/responses", &json!({"input": "abc", "chat_template": "x"}));
    assert_eq!((responses.status, &responses.json()["error"]["param"]), (400, &json!("chat_template")));
}

/// A system message after the start, which this template refuses, is there on every interface.
#[test]
fn messages_come_in_any_order() {
    let template = "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('late') }}\
                    {% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}";
    let server =
        Running::new(engine(&changed_model(|tiny| tiny.set("tokenizer.chat_template", template)), 1), options());
    let messages = json!([{"role": "user", "content": "abc"}, {"role": "system", "content": "later"}]);
    for (path, body) in [
        (CHAT, json!({"messages": messages, "max_tokens": 1, "receipt": true})),
        ("/v1/messages", json!({"model": "tiny", "messages": messages, "max_tokens": 1, "receipt": true})),
        ("/v1/responses", json!({"input": messages, "max_output_tokens": 1, "receipt": true})),
    ] {
        let reply = server.post(path, &body);
        assert_eq!(reply.status, 200, "{path}: {}", reply.text);
        assert!(reply.text.contains("<user>abc<user>later"), "{path}: {}", reply.text);
    }
    let tokens = server.ask("/v1/messages/count_tokens", &json!({"model": "tiny", "messages": messages}));
    assert!(tokens["input_tokens"].as_u64().is_some_and(|tokens| tokens > 10), "{tokens}");
}
