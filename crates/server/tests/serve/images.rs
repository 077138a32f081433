//! Images in all interfaces, with the tiny tower of LFM2-VL.

use gristmill_engine::receipt::Receipt;
use gristmill_server::{ImageOptions, Options};
use serde_json::{Value, json};

use crate::server::{Running, engine, options, seeing_model};

const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";
const MESSAGES: &str = "/v1/messages";

/// A BMP of 24 bits of noise.
fn bmp(width: u32, height: u32, seed: u8) -> Vec<u8> {
    let row = (width * 3).next_multiple_of(4);
    let mut file = b"BM\0\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0".to_vec();
    file.extend(width.to_le_bytes().into_iter().chain(height.to_le_bytes()));
    file.extend(b"\x01\0\x18\0");
    file.resize(54, 0);
    file.extend((0..row * height).map(|at| (at.wrapping_mul(2654435761) >> 24) as u8 ^ seed));
    file
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let bits = (0..3).fold(0, |bits, at| bits << 8 | usize::from(three.get(at).copied().unwrap_or(0)));
        text.extend((0..4).map(|digit| match digit <= three.len() {
            true => char::from(DIGITS[bits >> (18 - 6 * digit) & 63]),
            false => '=',
        }));
    }
    text
}

fn url(image: &[u8]) -> String {
    format!("data:image/bmp;base64,{}", base64(image))
}

fn seeing() -> Running {
    Running::new(engine(&seeing_model(), 2), options())
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn image(image: &[u8]) -> Value {
    json!({"type": "image_url", "image_url": {"url": url(image)}})
}

fn chat(content: Value) -> Value {
    json!({"messages": [{"role": "user", "content": content}], "max_tokens": 12, "temperature": 0})
}

#[test]
fn an_image_is_seen_and_counted_in_every_interface() {
    let server = seeing();
    // 64 × 64 pixels are 8 × 8 tokens. The template's text: <|im_start|>user\n … <|im_end|>\n<|im_start|>assistant\n.
    let (one, other) = (bmp(64, 64, 0), bmp(64, 64, 255));
    let asked = |image: &[u8]| server.ask(CHAT, &chat(json!([self::image(image), text("abc")])));
    let found = asked(&one);
    let words = server.ask(CHAT, &chat(json!([text("abc")])));
    let tokens = |reply: &Value| reply["usage"]["prompt_tokens"].as_u64().expect("a number");
    assert_eq!(tokens(&found), tokens(&words) + 64 + 2, "the image and its marks");
    let content = |reply: &Value| reply["choices"][0]["message"]["content"].as_str().expect("a text").to_owned();
    // A model of random weights may say the same of both.
    let logprob = |image: &[u8]| {
        let mut body = chat(json!([self::image(image), text("abc")]));
        body["logprobs"] = json!(true);
        server.ask(CHAT, &body)["choices"][0]["logprobs"]["content"][0]["logprob"].as_f64().expect("a number")
    };
    assert_ne!(logprob(&one), logprob(&other), "the pixels matter");
    assert_eq!(content(&found), content(&asked(&one)));

    let parts = json!([{"type": "input_image", "image_url": url(&one)}, {"type": "input_text", "text": "abc"}]);
    let response = json!({"input": [{"role": "user", "content": parts}], "max_output_tokens": 16, "temperature": 0});
    let response = server.ask(RESPONSES, &response);
    assert_eq!(response["usage"]["input_tokens"], found["usage"]["prompt_tokens"]);
    let said = response["output"][0]["content"][0]["text"].as_str().expect("a text");
    assert!(said.starts_with(&content(&found)), "{said}");

    let source = json!({"type": "base64", "media_type": "image/bmp", "data": base64(&one)});
    let blocks = json!([{"type": "image", "source": source}, text("abc")]);
    let message = json!({"model": "tiny", "max_tokens": 12, "temperature": 0,
                         "messages": [{"role": "user", "content": blocks}]});
    let reply = server.ask(MESSAGES, &message);
    assert_eq!(reply["content"][0]["text"], content(&found).as_str());
    let mut counted = message;
    counted.as_object_mut().expect("an object").retain(|name, _| name == "model" || name == "messages");
    let count = server.ask("/v1/messages/count_tokens", &counted);
    assert_eq!(count["input_tokens"], found["usage"]["prompt_tokens"]);
}

#[test]
fn images_of_several_turns_and_of_tools_keep_their_places() {
    let server = seeing();
    let (one, other) = (bmp(64, 64, 0), bmp(64, 64, 255));
    let body = |content: Value| chat(content);
    let prompt = |body: &Value| server.ask("/apply-template", body)["prompt"].as_str().expect("a text").to_owned();
    let marks = "<|image_start|><image><|image_end|>";
    let found = prompt(&body(json!([text("a"), image(&one), text("b"), text("c"), image(&other)])));
    assert!(found.contains(&format!("user\na{marks}b\nc{marks}<|im_end|>")), "{found}");
    // What a message says is no image.
    let said = prompt(&body(json!([text("<image>"), image(&one)])));
    let tokens = server.ask("/tokenize", &body(json!([text("<image>"), image(&one)])));
    assert!(said.contains(&format!("user\n<image>{marks}")), "{said}");
    let ids = tokens["tokens"].as_array().expect("tokens");
    assert_eq!(ids.iter().filter(|id| **id == 260).count(), 64);
    // A tool's result, in two interfaces.
    let call = json!({"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}});
    let messages = json!([{"role": "user", "content": "look"},
        {"role": "assistant", "content": null, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": [text("seen:"), image(&one)]}]);
    let tool = prompt(&json!({"messages": messages}));
    assert!(tool.contains(&format!("seen:{marks}")), "{tool}");
    let source = json!({"type": "base64", "media_type": "image/bmp", "data": base64(&one)});
    let result = json!({"type": "tool_result", "tool_use_id": "c1", "content": [text("seen:"), {"type": "image", "source": source}]});
    let messages = json!([{"role": "user", "content": "look"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "look", "input": {}}]},
        {"role": "user", "content": [result]}]);
    let body = json!({"model": "tiny", "max_tokens": 4, "messages": messages});
    let usage = server.ask(MESSAGES, &body)["usage"].clone();
    assert!(usage["input_tokens"].as_u64().expect("a number") > 64 + 2, "{usage}");
}

#[test]
fn low_detail_has_one_tile() {
    let server = seeing();
    let body = |detail: Value| {
        let mut part = image(&bmp(256, 256, 0));
        part["image_url"]["detail"] = detail;
        json!({"messages": [{"role": "user", "content": [part]}]})
    };
    let low = server.ask("/tokenize", &body(json!("low")))["count"].as_u64().expect("a number");
    assert!((256..300).contains(&low), "{low}");
    // 256 × 256 pixels are too many for one tile of 256 tokens of 8 × 8 pixels. Tiles of 512 × 512 are too many tokens for
    // the context, and no pixels are decoded.
    for detail in [json!("high"), json!("auto"), Value::Null] {
        let refused = server.post("/tokenize", &body(detail));
        let error = refused.json()["error"].clone();
        assert_eq!((refused.status, error["code"].as_str()), (400, Some("context_length_exceeded")), "{error}");
        assert!(error["message"].as_str().is_some_and(|text| text.contains("or use the detail low")), "{error}");
    }
}

#[test]
fn wrong_images_are_refused_by_their_paths() {
    let options = Options { images: ImageOptions { count: 2, ..ImageOptions::default() }, ..options() };
    let server = Running::new(engine(&seeing_model(), 2), options);
    let good = bmp(16, 16, 0);
    let data = |url: &str| json!({"type": "image_url", "image_url": {"url": url}});
    let with_detail = json!({"type": "image_url", "image_url": {"url": url(&good), "detail": "tall"}});
    for (content, param, part) in [
        (
            json!([data("data:image/png;base64,AAAA")]),
            "messages[0].content[0].image_url.url",
            "is no image that can be read",
        ),
        (json!([data("data:image/png;base64,*")]), "messages[0].content[0].image_url.url", "not valid base64"),
        (json!([data("data:image/png,abc")]), "messages[0].content[0].image_url.url", "not in base64"),
        (json!([data("https://a.example/b.png")]), "messages[0].content[0].image_url.url", "not fetched from URLs"),
        (
            json!([text("a"), data(&url(&bmp(1, 300, 0)))]),
            "messages[0].content[1].image_url.url",
            "ratio of at most 200",
        ),
        (json!([data(&url(&good[..60]))]), "messages[0].content[0].image_url.url", "cannot be decoded"),
        (json!([with_detail]), "messages[0].content[0].image_url.detail", "use low, high or auto"),
        (json!([{"type": "image_url"}]), "messages[0].content[0].image_url", "needs the address"),
        (
            json!([image(&good), image(&good), image(&good)]),
            "messages[0].content[2].image_url.url",
            "at most 2 are accepted",
        ),
        (json!([{"type": "input_audio"}]), "messages[0].content[0].type", "not supported here"),
    ] {
        let reply = server.post(CHAT, &chat(content));
        let error = &reply.json()["error"];
        assert_eq!((reply.status, error["param"].as_str()), (400, Some(param)), "{error}");
        assert!(error["message"].as_str().is_some_and(|message| message.contains(part)), "{error}");
    }
    // Images of the assistant and of the system are no part of a prompt.
    for role in ["assistant", "system"] {
        let body = json!({"messages": [{"role": role, "content": [image(&good)]}]});
        assert_eq!(server.post(CHAT, &body).status, 400);
    }
}

#[test]
fn a_model_without_a_tower_refuses_images_by_name() {
    let server = Running::usual();
    let image = bmp(16, 16, 0);
    let reply = server.post(CHAT, &chat(json!([self::image(&image)])));
    let error = reply.json()["error"].clone();
    assert_eq!((reply.status, error["code"].as_str()), (400, Some("unsupported")));
    assert!(error["message"].as_str().is_some_and(|text| text.contains("the model llama reads no images")), "{error}");
}

#[test]
fn the_prefix_cache_compares_pixels() {
    let server = seeing();
    let ask = |picture: &[u8]| {
        let usage = server.ask(CHAT, &chat(json!([text("see"), image(picture), text("abc")])))["usage"].clone();
        let tokens = usage["prompt_tokens"].as_u64().expect("a number");
        (tokens, usage["prompt_tokens_details"]["cached_tokens"].as_u64().expect("a number"))
    };
    let (one, other) = (bmp(64, 64, 0), bmp(64, 64, 255));
    let (tokens, cached) = ask(&one);
    assert_eq!(cached, 0);
    // All blocks but the last. Before another image there are few tokens.
    assert!(ask(&one).1 + 32 > tokens, "{tokens}");
    assert!(ask(&other).1 < 32);
    assert!(ask(&other).1 + 32 > tokens);
}

#[test]
fn a_receipt_names_images_by_their_hash() {
    let server = seeing();
    let picture = bmp(64, 64, 0);
    let mut body = chat(json!([image(&picture), text("abc")]));
    body["receipt"] = json!(true);
    let receipt = server.ask(CHAT, &body)["usage"]["gristmill"]["receipt"].clone();
    let written = receipt.to_string();
    assert!(written.contains("sha256") && !written.contains(&base64(&picture)[..100]), "{written}");
    let error = Receipt::read(&receipt).expect_err("it has no pixels").to_string();
    assert!(error.contains("only the hashes"), "{error}");
}
