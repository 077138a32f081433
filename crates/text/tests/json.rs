//! Conversations as JSON.

use gristmill_text::reply::{ParsedReply, ToolCall};
use gristmill_text::template::{Chat, Message, Role, Tool};

#[test]
fn a_conversation_survives_json() {
    let mut chat = Chat::new(vec![Message::new(Role::System, "Be brief."), Message::new(Role::User, "Weather?")]);
    chat.tools.push(Tool { name: "weather".into(), is_deferred: true, ..Tool::default() });
    (chat.thinking, chat.continues, chat.template) = (Some(false), true, Some("{{ messages }}".into()));
    chat.variables.insert("today".into(), "Friday".into());
    let call = ToolCall { name: "weather".into(), arguments: r#"{"city":"Ulm","days":2}"#.into() };
    let reply = ParsedReply { reasoning: "I ask.".into(), content: String::new(), calls: vec![call] };
    chat.messages.push(reply.into());
    chat.messages.push(Message { call_id: Some("1".into()), ..Message::new(Role::Tool, "Rain.") });
    let asked = &chat.messages[2];
    assert_eq!((asked.role, asked.reasoning.as_deref()), (Role::Assistant, Some("I ask.")));
    assert_eq!(asked.calls[0].arguments.get("days"), Some(&2.into()));
    let json = serde_json::to_string(&chat).unwrap();
    assert_eq!(serde_json::from_str::<Chat>(&json).unwrap(), chat, "{json}");
}

#[test]
fn unknown_fields_are_refused() {
    for json in [
        r#"{"messages": [], "tool": []}"#,
        r#"{"messages": [{"role": "user", "content": "Hello"}]}"#,
        r#"{"messages": [{"role": "model", "text": "Hello"}]}"#,
    ] {
        assert!(serde_json::from_str::<Chat>(json).is_err(), "{json}");
    }
}
