//! Grammars of required calls: what a form writes follows them, and what its tool does not allow does not.

use gristmill_text::grammar::{Grammar, Grammars, Matcher};
use gristmill_text::reply::{CallBody, Item, ReplyForm, ReplyOptions, Syntax};
use gristmill_text::template::Tool;
use gristmill_text::tokenizer::{Tokenizer, Vocabulary};
use serde_json::{Value as Json, json};

use super::call;

const END: u32 = 257;

/// Each byte, and a token that ends a text.
fn tokenizer() -> Tokenizer {
    let printable = |byte: &u8| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let mut others = 0x100..;
    let letter = |byte: u8| match printable(&byte) {
        true => char::from(byte),
        false => others.next().and_then(char::from_u32).unwrap_or_default(),
    };
    let mut tokens: Vec<String> = (0..=255).map(letter).map(String::from).collect();
    tokens.extend(["{\"", "<|im_end|>"].map(String::from));
    let mut types = vec![1; 257];
    types.push(3);
    let merges = vec!["{ \"".to_owned()];
    let model = "gpt2".to_owned();
    let pre = Some("default".to_owned());
    let eos = Some(END);
    Tokenizer::new(Vocabulary { model, pre, tokens, types, merges, eos, ..Vocabulary::default() })
        .expect("a vocabulary")
}

fn tools() -> Vec<Tool> {
    let weigh = json!({
        "type": "object",
        "properties": {
            "what": {"type": "string", "description": "What?"},
            "sacks": {"type": "integer", "minimum": 1},
            "unit": {"$ref": "#/$defs/unit"},
            "exact": {"type": "boolean"},
        },
        "required": ["what", "sacks"],
        "additionalProperties": false,
        "$defs": {"unit": {"type": "string", "enum": ["kg", "t"]}},
    });
    let code = json!({
        "type": "object",
        "properties": {"code": {"type": "string", "pattern": "^[a-z]+$"}},
        "required": ["code"],
        "additionalProperties": false,
    });
    let none = json!({"type": "object", "additionalProperties": false});
    let tool = |(name, parameters): (&str, Json)| Tool {
        name: name.to_owned(),
        parameters: Some(parameters),
        ..Tool::default()
    };
    [("weigh", weigh), ("stop", none), ("code", code)].map(tool).to_vec()
}

fn allows(mut matcher: Matcher, text: &str) -> bool {
    for byte in text.bytes() {
        if matcher.allow(true).is_err() || matcher.mask()[usize::from(byte) / 32] >> (byte % 32) & 1 == 0 {
            return false;
        }
        // Nothing can follow the last byte.
        matcher.accept(u32::from(byte)).expect("an allowed token");
    }
    matcher.allow(true).is_err() || matcher.mask()[END as usize / 32] >> (END % 32) & 1 == 1
}

/// A form, a tokenizer and the grammars of its calls.
struct Forms {
    tokenizer: Tokenizer,
    grammars: Grammars,
}

impl Forms {
    /// Whether a required call of this form may be this text.
    fn allow(&self, syntax: &Syntax, text: &str) -> bool {
        let required = call::required(syntax, "", &tools(), &self.tokenizer);
        let matcher = self.grammars.compile(&required.grammar, &self.tokenizer, END as usize + 1);
        allows(matcher.unwrap_or_else(|error| panic!("{}: {error}\n{required:?}", syntax.name())), text)
    }
}

/// The text of a call after its opening, up to where a required call ends.
fn written(syntax: &Syntax, name: &str, arguments: &Json) -> Option<String> {
    let text = syntax.call.body.written(&[(name, arguments.clone())])?;
    let opening = syntax.call.body.opening();
    let mut rest = text.strip_prefix(&opening).unwrap_or_else(|| panic!("{text:?} starts with {opening:?}"));
    if let CallBody::Json(frame) = &syntax.call.body {
        let after = if let Item::Named(named) = frame.item { named.after } else { "" };
        for end in [frame.section[1], frame.call[1], after] {
            rest = rest.strip_suffix(end).unwrap_or(rest);
        }
    }
    Some(rest.to_owned())
}

#[test]
fn what_a_form_writes_follows_the_grammar_of_a_required_call() {
    let forms = Forms { tokenizer: tokenizer(), grammars: Grammars::default() };
    let all = json!({"what": "a < b & 'c' \"d\"\nl2", "sacks": 3, "unit": "kg", "exact": true});
    let good = [
        ("weigh", all),
        ("weigh", json!({"what": "", "sacks": 1})),
        ("weigh", json!({"what": "x", "sacks": 12, "exact": false})),
        ("stop", json!({})),
    ];
    let bad = [
        ("weigh", json!({"what": "x", "sacks": 0})),
        ("weigh", json!({"what": "x"})),
        ("weigh", json!({"what": "x", "sacks": 1, "unit": "g"})),
        ("weigh", json!({"what": "x", "sacks": 1, "more": "y"})),
        ("stop", json!({"what": "x"})),
        ("code", json!({"code": "A"})),
        ("other", json!({})),
    ];
    let mut checked = 0;
    for syntax in Syntax::all() {
        // In the tags of a message, a required call is JSON.
        if syntax.name() == "Muse" {
            continue;
        }
        let opening = syntax.call.body.opening();
        let options = ReplyOptions::for_tools(&tools());
        let form = ReplyForm::new(syntax, "", "", options).started(opening).only_calls();
        for (name, arguments) in &good {
            let Some(text) = written(syntax, name, arguments) else { continue };
            assert!(forms.allow(syntax, &text), "{}: {text:?}", syntax.name());
            let calls = form.parse(&text).calls;
            assert_eq!(calls.len(), 1, "{}: {text:?}", syntax.name());
            assert_eq!(
                calls[0].arguments.parse::<Json>().ok().as_ref(),
                Some(arguments),
                "{}: {text:?}",
                syntax.name()
            );
            checked += 1;
        }
        for (name, arguments) in &bad {
            let Some(text) = written(syntax, name, arguments) else { continue };
            assert!(!forms.allow(syntax, &text), "{}: {text:?}", syntax.name());
        }
    }
    assert!(checked > 100, "{checked}");
    let gemma = Syntax::of("<|tool_call>", "");
    for (text, is_good) in [
        ("call:weigh{what:<|\"|>a < b {\"c\"}<|\"|>,sacks:3,unit:<|\"|>kg<|\"|>,exact:true}", true),
        ("call:weigh{what:<|\"|><|\"|>,sacks:3}", true),
        ("call:stop{}", true),
        ("call:weigh{what:<|\"|>a<|\"|>,sacks:0}", false),
        ("call:weigh{what:<|\"|>a<|\"|>,sacks:1,unit:<|\"|>g<|\"|>}", false),
        ("{\"name\": \"code\", \"arguments\": {\"code\": \"abc\"}}", true),
    ] {
        assert_eq!(forms.allow(gemma, text), is_good, "{text}");
    }
}

#[test]
fn nested_tags() {
    let parameters = json!({
        "type": "object",
        "properties": {
            "what": {"type": "string"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "place": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
                      "additionalProperties": false},
        },
        "required": ["what"],
        "additionalProperties": false,
    });
    let tools = [Tool { name: "find".to_owned(), parameters: Some(parameters), ..Tool::default() }];
    let m3 = Syntax::of("]<]minimax[>[", "");
    let tokenizer = tokenizer();
    let grammars = Grammars::default();
    let form = ReplyForm::new(m3, "", "", ReplyOptions::for_tools(&tools)).started(m3.call.body.opening()).only_calls();
    for (inner, expected) in [
        ("@<what>a < b</what>", Some(json!({"what": "a < b"}))),
        (
            "@<what></what>@<tags>@<item>x</item>@<item>y</item></tags>@<place>@<n>3</n></place>",
            Some(json!({"what": "", "tags": ["x", "y"], "place": {"n": 3}})),
        ),
        ("@<what>a</what>@<tags></tags>", Some(json!({"what": "a", "tags": []}))),
        ("@<tags></tags>", None),
        ("@<what>a</what>@<place>@<n>x</n></place>", None),
        ("@<what>a</what>@<other>x</other>", None),
    ] {
        let inner = inner.replace("</", "@</").replace("@@", "@");
        let text = format!("@<invoke name=\"find\">{inner}@</invoke>\n@</tool_call>").replace('@', "]<]minimax[>[");
        let required = call::required(m3, "", &tools, &tokenizer);
        let matcher = grammars.compile(&required.grammar, &tokenizer, END as usize + 1).expect("a grammar");
        assert_eq!(allows(matcher, &text), expected.is_some(), "{text}\n{required:?}");
        if let Some(expected) = expected {
            assert_eq!(form.parse(&text).calls[0].arguments.parse::<Json>().ok(), Some(expected), "{text}");
        }
    }
}

/// A tool whose schema only JSON can follow is called in JSON between the marks of the model.
#[test]
fn other_calls_are_json() {
    let forms = Forms { tokenizer: tokenizer(), grammars: Grammars::default() };
    let coder = Syntax::of("<tool_call><function=", "");
    let code = |code: &str| json!({"name": "code", "arguments": {"code": code}}).to_string();
    assert!(forms.allow(coder, &code("abc")) && !forms.allow(coder, &code("A")));
}

/// Many tools: the rules of all would exceed what a grammar may have.
#[test]
fn calls_of_many_tools_are_json() {
    let property = || json!({"type": "string"});
    let properties: serde_json::Map<String, Json> = (0..20).map(|index| (format!("key_{index}"), property())).collect();
    let parameters = json!({"type": "object", "properties": properties, "additionalProperties": false});
    let tool = |index| Tool { name: format!("tool_{index}"), parameters: Some(parameters.clone()), ..Tool::default() };
    let tools: Vec<Tool> = (0..40).map(tool).collect();
    let syntax = Syntax::of("<tool_call><function=", "");
    let required = call::required(syntax, "", &tools, &tokenizer());
    let Grammar::Lark(rules) = &required.grammar else { panic!() };
    assert!(rules.starts_with("start: call\ncall: %json {"), "{}", &rules[..100]);
    let one = call::required(syntax, "", &tools[..1], &tokenizer());
    assert!(matches!(one.grammar, Grammar::Lark(rules) if rules.contains("<parameter=key_3>")));
}
