//! Any text as a chat template: a typed error, or a prompt, which is the same each time.
#![no_main]

use std::time::SystemTime;

use gristmill_text::template::{Chat, ChatTemplate, Message, RenderOptions, Role, TemplateError, Tool};
use libfuzzer_sys::fuzz_target;
use serde_json::json;

/// Stands for an image.
const IMAGE: char = '\u{f0000}';

fuzz_target!(|source: &str| {
    let template = match ChatTemplate::new(source) {
        Ok(template) => template,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let options = RenderOptions {
        add_generation_prompt: true,
        bos_token: Some("<s>".to_owned()),
        eos_token: Some("</s>".to_owned()),
        now: Some(SystemTime::UNIX_EPOCH),
        images: vec![IMAGE],
        ..RenderOptions::default()
    };
    let parameters = Some(json!({"type": "object", "properties": {"grams": {"type": "number"}}}));
    let tool = Tool { name: "weigh".to_owned(), description: Some("weighs grain".to_owned()), parameters, ..Tool::default() };
    let roles = [Role::System, Role::User, Role::Assistant, Role::User];
    let mut messages = roles.map(|role| Message::new(role, "grain")).to_vec();
    messages.push(Message::new(Role::User, format!("what is {IMAGE}?")));
    let chat = Chat { tools: vec![tool], ..Chat::new(messages) };
    match template.render(&chat, &options) {
        Ok(text) => assert_eq!(template.render(&chat, &options).as_ref(), Ok(&text)),
        Err(TemplateError::Raised(_)) => {}
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
