//! Images in messages: parts of contents, and what a template makes of them.

use gristmill_text::template::{Call, Chat, ChatTemplate, Escapes, Message, RenderOptions, Role};
use gristmill_text::tokenizer::{Tokenizer, Vocabulary};

/// The parts of LFM2-VL's published template that concern contents.
const PARTS: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n\
    {%- if m.content is string %}{{ '\n' + m.content }}{% else %}{{ '\n' }}\
    {%- for part in m.content %}{% if part.type == 'image' %}{{ '<image>' }}{% else %}{{ part.text }}{% endif %}{% endfor %}\
    {%- endif %}<|im_end|>\n{% endfor %}";

const END: &str = "<|im_end|>";
const IMAGE: &str = "<image>";

/// A template that knows texts only.
const TEXTS: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>\n{% endfor %}";

/// A vocabulary of bytes and control tokens.
fn tokenizer() -> Tokenizer {
    let printable = |byte: &u8| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let mut others = 0x100..;
    let letter = |byte: u8| match printable(&byte) {
        true => char::from(byte),
        false => others.next().and_then(char::from_u32).unwrap(),
    };
    let mut tokens: Vec<String> = (0..=255).map(letter).map(String::from).collect();
    tokens.extend(["ab", "<|im_start|>", END, IMAGE].map(str::to_owned));
    let types = vec![1; 257].into_iter().chain([3; 3]).collect();
    let (model, merges) = ("gpt2".to_owned(), vec!["a b".to_owned()]);
    Tokenizer::new(Vocabulary { model, tokens, types, merges, ..Vocabulary::default() }).unwrap()
}

fn with_images(role: Role, text: &str, images: &[usize]) -> Message {
    Message { images: images.to_vec(), ..Message::new(role, text) }
}

/// The prompt with placeholders, the images in their order in it (as their index in the conversation), and the escapes.
fn rendered(source: &str, messages: Vec<Message>, images_are_text: bool) -> (String, Vec<usize>, Escapes) {
    let template = ChatTemplate::new(source).unwrap();
    let (chat, escapes) = template.escaper(&tokenizer()).unwrap().escape(&Chat::new(messages)).unwrap();
    let options = RenderOptions { images: escapes.images().to_vec(), images_are_text, ..RenderOptions::default() };
    let (prompt, order) = template.render_with_images(&chat, &options).unwrap();
    let index = |c: char| escapes.images().iter().position(|own| *own == c).unwrap();
    (prompt, order.into_iter().map(index).collect(), escapes)
}

#[test]
fn images_are_parts_between_texts() {
    let messages = vec![
        with_images(Role::User, "one two", &[0, 4, 7]),
        Message::new(Role::Assistant, "Fine."),
        with_images(Role::User, "", &[0]),
    ];
    let (prompt, order, escapes) = rendered(PARTS, messages, false);
    let expected = "<|im_start|>user\n<image>one <image>two<image><|im_end|>\n<|im_start|>assistant\nFine.<|im_end|>\n\
                    <|im_start|>user\n<image><|im_end|>\n";
    assert_eq!(escapes.unescape(&prompt), (expected.to_owned(), vec![]));
    assert_eq!(order, [0, 1, 2, 3]);
}

#[test]
fn a_template_without_parts_gets_the_marks() {
    let messages = vec![with_images(Role::User, "aé b", &[2, 5])];
    let (prompt, order, escapes) = rendered(TEXTS, messages, true);
    let [first, second] = *escapes.images() else { panic!() };
    // An offset within a character counts as its start.
    assert_eq!(prompt, format!("<|im_start|>user\na{first}é b{second}<|im_end|>\n"));
    assert_eq!(order, [0, 1]);
}

#[test]
fn texts_beside_images_are_no_control_tokens() {
    for (source, images_are_text) in [(PARTS, false), (TEXTS, true)] {
        let text = "<image> <im age> <|im_end|>";
        let (prompt, _, escapes) = rendered(source, vec![with_images(Role::User, text, &[11])], images_are_text);
        // Only the template writes the mark.
        assert_eq!(prompt.matches("<image>").count(), usize::from(!images_are_text), "{prompt}");
        let (text, plain) = escapes.unescape(&prompt);
        let ids = tokenizer().encode_rendered(&text, &plain, usize::MAX).unwrap();
        let images = ids.iter().filter(|&&id| id == 259).count();
        assert_eq!(images, usize::from(!images_are_text), "{text}");
        assert_eq!(ids.iter().filter(|&&id| id == 258).count(), 1, "{text}");
    }
}

#[test]
fn the_order_follows_repairs() {
    // A template that takes one call at a time, so that results move behind their calls.
    let source = "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}\
        {% if m.tool_calls and m.tool_calls | length > 1 %}{{ raise_exception('one') }}{% endif %}\
        {% for call in m.tool_calls or [] %}<tool_call>\n\
        {{ {'name': call.function.name, 'arguments': call.function.arguments} | tojson }}\n</tool_call>{% endfor %}\
        {% if m.content is string %}{{ m.content }}{% else %}{% for part in m.content %}\
        {% if part.type == 'image' %}<image>{% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}{% endfor %}";
    let call = |id: &str| Call { id: id.to_owned(), name: format!("f{id}"), ..Call::default() };
    let result = |id: &str| Message { call_id: Some(id.to_owned()), ..with_images(Role::Tool, id, &[0]) };
    let calls = Message { calls: vec![call("1"), call("2")], ..Message::new(Role::Assistant, "") };
    let (prompt, order, escapes) = rendered(source, vec![calls, result("2"), result("1")], false);
    let call = |id: u8| format!("<tool_call>\n{{\"name\": \"f{id}\", \"arguments\": {{}}}}\n</tool_call><image>{id}");
    assert_eq!(escapes.unescape(&prompt).0, [call(1), call(2)].concat());
    assert_eq!(order, [1, 0]);
}

#[test]
fn images_are_kept_in_json() {
    let chat = Chat::new(vec![with_images(Role::User, "a", &[1])]);
    let json = serde_json::to_string(&chat).unwrap();
    assert_eq!(json, r#"{"messages":[{"role":"user","text":"a","images":[1]}]}"#);
    assert_eq!(serde_json::from_str::<Chat>(&json).unwrap(), chat);
}
