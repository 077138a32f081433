//! Chat templates against transformers, on what `scripts/golden/template.py` wrote, and hostile templates.

use std::time::{Duration, Instant, UNIX_EPOCH};

use gristmill_engine::template::{ChatTemplate, MAX_SOURCE, Message, RenderOptions, TemplateError};
use serde_json::{Map, Value, json};

fn golden() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/template.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn message(value: &Value) -> Message {
    let mut extra = value.as_object().unwrap().clone();
    let mut take = |key| extra.shift_remove(key).unwrap().as_str().unwrap().to_owned();
    Message { role: take("role"), content: take("content"), extra }
}

#[test]
fn prompts_are_those_of_transformers() {
    let golden = golden();
    let cases = golden["cases"].as_array().unwrap();
    assert!(cases.len() > 100);
    for case in cases {
        let name = case["template"].as_str().unwrap();
        let messages: Vec<Message> = case["messages"].as_array().unwrap().iter().map(message).collect();
        // transformers always passes tools.
        let tools = case.get("tools").cloned().unwrap_or(Value::Null);
        let options = RenderOptions {
            add_generation_prompt: case["add_generation_prompt"].as_bool().unwrap(),
            bos_token: Some("<s>".into()),
            eos_token: Some("</s>".into()),
            enable_thinking: case["enable_thinking"].as_bool(),
            variables: [("tools".to_owned(), tools)].into_iter().collect(),
            ..RenderOptions::default()
        };
        let template = ChatTemplate::new(golden["templates"][name].as_str().unwrap()).unwrap();
        let result = template.render(&messages, &options);
        match case["text"].as_str() {
            Some(text) => assert_eq!(result.as_deref(), Ok(text), "{name}: {messages:?}"),
            None => {
                let message = case["error"].as_str().unwrap().to_owned();
                assert_eq!(result, Err(TemplateError::Raised(message)), "{name}: {messages:?}");
            }
        }
    }
}

/// The same conversations as OpenAI's interface writes them: arguments are strings, content is null or in parts.
#[test]
fn conversations_of_openai_render_alike() {
    let golden = golden();
    let mut with_calls = 0;
    for case in golden["cases"].as_array().unwrap() {
        let name = case["template"].as_str().unwrap();
        let mut messages = case["messages"].as_array().unwrap().clone();
        for (index, message) in messages.iter_mut().enumerate() {
            if let Some(calls) = message.get_mut("tool_calls") {
                let arguments = &mut calls[0]["function"]["arguments"];
                *arguments = arguments.to_string().into();
                calls[0]["id"] = "call_1".into();
                message["content"] = Value::Null;
                with_calls += 1;
            } else if message["content"].is_string() {
                let text = message["content"].take();
                message["content"] = if index % 2 == 0 { json!([{"type": "text", "text": text}]) } else { text };
            }
            for absent in ["refusal", "audio", "function_call"] {
                message[absent] = Value::Null;
            }
        }
        let options = RenderOptions {
            add_generation_prompt: case["add_generation_prompt"].as_bool().unwrap(),
            bos_token: Some("<s>".into()),
            eos_token: Some("</s>".into()),
            enable_thinking: case["enable_thinking"].as_bool(),
            variables: [("tools".to_owned(), case.get("tools").cloned().unwrap_or_default())].into_iter().collect(),
            ..RenderOptions::default()
        };
        let template = ChatTemplate::new(golden["templates"][name].as_str().unwrap()).unwrap();
        let result = template.render(&Message::from_openai(&messages).unwrap(), &options);
        match case["text"].as_str() {
            Some(text) => assert_eq!(result.as_deref(), Ok(text), "{name}: {messages:?}"),
            None => assert!(matches!(result, Err(TemplateError::Raised(_))), "{name}: {messages:?}"),
        }
    }
    assert!(with_calls > 10);
}

#[test]
fn messages_of_openai_become_what_templates_know() {
    let call = json!({"id": "c1", "type": "function", "function": {"name": "weigh", "arguments": "{\"sacks\": 2.0}"}});
    let blank = json!({"id": "c2", "type": "function", "function": {"name": "now", "arguments": ""}});
    let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
    let messages = Message::from_openai(&[
        json!({"role": "user", "content": parts, "name": "Ada"}),
        json!({"role": "assistant", "content": null, "tool_calls": [call, blank], "reasoning": "hm", "refusal": null}),
        json!({"role": "tool", "tool_call_id": "c2", "content": "noon"}),
        json!({"role": "tool", "tool_call_id": "c1", "name": "own", "content": ""}),
        json!({"role": "tool", "tool_call_id": "other"}),
        json!({"role": "assistant", "content": "x", "tool_calls": [], "thinking": "so"}),
    ]);
    let called = json!([
        {"id": "c1", "type": "function", "function": {"name": "weigh", "arguments": {"sacks": 2.0}}},
        {"id": "c2", "type": "function", "function": {"name": "now", "arguments": {}}},
    ]);
    let expected = json!([
        {"role": "user", "content": "a\nb", "name": "Ada"},
        {"role": "assistant", "content": "", "tool_calls": called, "reasoning_content": "hm", "thinking": "hm"},
        {"role": "tool", "content": "noon", "tool_call_id": "c2", "name": "now"},
        {"role": "tool", "content": "", "tool_call_id": "c1", "name": "own"},
        {"role": "tool", "content": "", "tool_call_id": "other"},
        {"role": "assistant", "content": "x", "reasoning_content": "so", "thinking": "so"},
    ]);
    assert_eq!(serde_json::to_value(messages.unwrap()).unwrap(), expected);
}

#[test]
fn wrong_messages_are_named() {
    let function = |function: Value| json!({"role": "assistant", "tool_calls": [{"function": function}]});
    for (message, expected) in [
        (json!("text"), "messages[1] is not an object"),
        (json!({"content": "a"}), "messages[1].role is not text"),
        (json!({"role": "user", "content": 1}), "messages[1].content is not text or a list of parts"),
        (json!({"role": "user", "content": [{"type": "text"}]}), "messages[1].content[0].text is not text"),
        (
            json!({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}]}),
            "messages[1].content[1].type is not text: other parts are not supported",
        ),
        (json!({"role": "assistant", "tool_calls": {}}), "messages[1].tool_calls is not a list"),
        (function(json!(null)), "messages[1].tool_calls[0].function is not an object"),
        (function(json!({"arguments": "{}"})), "messages[1].tool_calls[0].function.name is not text"),
        (
            function(json!({"name": "f", "arguments": "[1]"})),
            "messages[1].tool_calls[0].function.arguments is not the text of a JSON object",
        ),
        (
            function(json!({"name": "f", "arguments": 1})),
            "messages[1].tool_calls[0].function.arguments is not the text of a JSON object",
        ),
    ] {
        let error = Message::from_openai(&[json!({"role": "user"}), message]).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}

fn render(source: &str) -> Result<String, TemplateError> {
    let messages = [Message::new("user", "Hello")];
    ChatTemplate::new(source)?.render(&messages, &RenderOptions::default())
}

#[test]
fn variables_and_time_reach_the_template() {
    let options = RenderOptions {
        now: Some(UNIX_EPOCH + Duration::from_secs(1_795_255_715)),
        variables: Map::from_iter([("date".to_owned(), Value::from("today")), ("bos_token".to_owned(), "B".into())]),
        bos_token: Some("A".into()),
        ..RenderOptions::default()
    };
    let source = "{{ strftime_now('%d %b %Y') }} {{ date }} {{ bos_token }} {{ eos_token }} {{ eos_token is defined }}";
    let text = ChatTemplate::new(source).unwrap().render(&[], &options);
    assert_eq!(text.as_deref(), Ok("21 Nov 2026 today B  False"));
}

#[test]
fn errors_say_what_is_wrong_and_where() {
    let cases = [
        ("a\n{% if %}", "not valid at line 2"),
        ("{{ 'open }}", "not valid at line 1"),
        ("\n{% for x in messages %}", "not valid at line 2"),
        ("{{ raise_exception('no ' ~ 1) }}", "refuses these messages: no 1"),
        ("\n\n{{ nothing.attribute }}", "failed at line 3"),
        ("{{ nothing() }}", "failed at line 1"),
        ("{{ 'x'|frobnicate }}", "frobnicate"),
        ("{{ 'x'.frobnicate() }}", "frobnicate"),
        ("{{ strftime_now('%Q') }}", "%Q"),
        ("{% include 'x' %}", "{% include %}"),
        ("\n{% extends 'x' %}", "{% extends %} at line 2"),
        ("{% import 'x' as y %}", "{% import %}"),
        ("{% from 'x' import y %}", "{% from %}"),
        ("{% block x %}{% endblock %}", "{% block %}"),
        ("{% autoescape true %}{% endautoescape %}", "{% autoescape %}"),
        ("{{ '%1000000000d'|format(1) }}", "format"),
        ("{{ 1 / 0 }}{{ 1 // 0 }}", "failed at line 1"),
        ("{{ 9223372036854775807 * 9223372036854775807 }}", "too large"),
        ("{{ 'a'[::0] }}", "step"),
        ("{{ range(1, 2, 0) }}", "step"),
    ];
    for (source, expected) in cases {
        let error = render(source).unwrap_err().to_string();
        assert!(error.contains(expected), "{source:?}: expected {expected:?} in: {error}");
    }
    let long = ChatTemplate::new(&"x".repeat(MAX_SOURCE + 1));
    assert_eq!(long.unwrap_err(), TemplateError::SourceTooLong { len: MAX_SOURCE + 1, max: MAX_SOURCE });
}

/// Each of these would run forever, fill the memory or overflow the stack. The stack here is that of a small thread.
#[test]
fn hostile_templates_fail_fast() {
    let nest = |open: &str, close: &str, n: usize| format!("{}{}", open.repeat(n), close.repeat(n));
    let grow = |start: &str, body: &str| {
        format!("{{% set ns = namespace(x={start}) %}}{{% for i in range(100000) %}}{body}{{% endfor %}}{{{{ ns.x }}}}")
    };
    let sources = vec![
        "{% for i in range(10**9) %}{% endfor %}".to_owned(),
        "{% for i in range(0, 0 - 10**18, -1) %}{% endfor %}".to_owned(),
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}".to_owned(),
        "{{ 'a' * 10**12 }}".to_owned(),
        "{{ 'a' * 9223372036854775807 }}".to_owned(),
        "{{ ([1] * 10**12)|length }}".to_owned(),
        "{{ (([1, 2] * 10**9) * 10**10)|length }}".to_owned(),
        "{{ ([1] * 10**9)|tojson }}".to_owned(),
        format!("{{{{ {} }}}}", ["'a' * 100000000"; 60].join(" ~ ")),
        grow("'aa'", "{% set ns.x = ns.x ~ ns.x %}"),
        grow("'aa'", "{% set ns.x = ns.x + ns.x %}"),
        grow("'aa'", "{% set ns.x = ns.x * 2 %}"),
        grow("'aa'", "{% set x %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = x %}"),
        grow("'aa'", "{% set ns.x = ns.x|replace('a', 'aa') %}"),
        grow("'aa'", "{% set ns.x = ns.x.replace('a', 'aa') %}"),
        grow("'aa'", "{% set ns.x = [ns.x, ns.x]|join %}"),
        grow("'aa'", "{% set ns.x = ns.x.join([ns.x, ns.x]) %}"),
        grow("'aa'", "{% set ns.x = [ns.x, ns.x]|string %}"),
        grow("'aa'", "{% set ns.x = [ns.x, ns.x]|tojson %}"),
        grow("['aa']", "{% set ns.x = ns.x + ns.x %}"),
        grow("['aa']", "{% set ns.x = ns.x * 3 %}"),
        grow("[1]", "{% set ns.x = [ns.x] %}"),
        grow("[1]", "{% set ns.x = {'a': ns.x} %}"),
        grow("[1]", "{% set ns.x = dict(a=ns.x) %}"),
        grow("[1]", "{% set ns.x = namespace(a=ns.x) %}"),
        grow("[1]", "{% set n = namespace() %}{% set n.a = ns.x %}{% set ns.x = n %}"),
        grow("[1]", "{% set ns.x = ns %}"),
        "{% set x = 'a' * 10000000 %}{% for i in range(100000) %}{{ x|length }}{% endfor %}".to_owned(),
        grow("[1]", "{% set ns.x = ns.x|map('list') %}{{ 'a' * 10000 }}"),
        grow("[1]", "{% set ns.x = ns.x[::1] %}{{ 'a' * 10000 }}"),
        "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns == ns }}{{ ns|tojson }}{{ ns }}".to_owned(),
        "{% set x = 'a' * 10000000 %}{{ ([x] * 100000)|map('upper')|list|length }}".to_owned(),
        "{% set x = 'a' * 10000000 %}{{ ([x] * 100000)|join|length }}".to_owned(),
        "{% set x = 'a' * 10000000 %}{{ ([x] * 100000)|sort|length }}".to_owned(),
        "{% set x = 'a' * 10000000 %}{{ ([x] * 100000)|unique|list|length }}".to_owned(),
        "{% set x = 'a' * 10000000 %}{{ ([x] * 100000) == ([x] * 100000) }}".to_owned(),
        "{% set x = 'a' * 10000000 %}{{ (x ~ 'b') in ([x] * 100000) }}".to_owned(),
        "{% set x = 'a' * 10000000 %}{{ ([x] * 100000).count(x ~ 'b') }}".to_owned(),
        "{% set x = 'a' * 10000000 %}{{ ([x] * 100000)|select('eq', x ~ 'b')|list }}".to_owned(),
        "{% set x = 'a' * 10000000 %}{% set y = 'a' * 10000000 %}{% for i in range(100000) %}{{ x == y }}{% endfor %}"
            .to_owned(),
        "{% set x = 'a' * 10000000 %}{{ (([x] * 100000) ~ '')|length }}".to_owned(),
        "{{ 'a\\nb'|indent(10**12) }}".to_owned(),
        "{{ [1]|tojson(indent=10**12) }}".to_owned(),
        "{{ ('a' * 1000000).replace('', 'a' * 1000000) }}".to_owned(),
        format!("{{% set x %}}{{% for i in range(99999) %}}{}{{% endfor %}}{{% endset %}}", "x".repeat(200_000)),
        format!("{{% for i in range(99999) %}}{}{{% endfor %}}", "x".repeat(200_000)),
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}".to_owned(),
        "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}".to_owned(),
        "{% macro m() %}{% call m() %}{{ caller() }}{% endcall %}{% endmacro %}{% call m() %}x{% endcall %}".to_owned(),
        "{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}".to_owned(),
        "{% for x in [[1]] recursive %}a{{ loop([[1]]) ~ loop([[1]]) }}{% endfor %}".to_owned(),
        nest("{% if true %}", "{% endif %}", 10_000),
        nest("{% for x in [1] %}", "{% endfor %}", 8_000),
        nest("{% set x %}", "{% endset %}", 10_000),
        nest("{% filter upper %}", "{% endfilter %}", 7_000),
        nest("{% macro m() %}", "{% endmacro %}", 8_000),
        format!("{{% if 0 %}}{}{{% endif %}}", "{% elif 0 %}".repeat(10_000)),
        format!("{{{{ {}1{} }}}}", "(".repeat(50_000), ")".repeat(50_000)),
        format!("{{{{ {}1{} }}}}", "[".repeat(50_000), "]".repeat(50_000)),
        format!("{{{{ {}1 }}}}", "not ".repeat(40_000)),
        format!("{{{{ {}1 }}}}", "-".repeat(100_000)),
        format!("{{{{ 1{} }}}}", "+1".repeat(100_000)),
        format!("{{{{ 1{} }}}}", "**1".repeat(50_000)),
        format!("{{{{ x{} }}}}", ".a".repeat(100_000)),
        format!("{{{{ x{} }}}}", "[0]".repeat(60_000)),
        format!("{{{{ x{} }}}}", "|d".repeat(100_000)),
        format!("{{{{ x{} }}}}", "()".repeat(100_000)),
        format!("{{{{ 1{} }}}}", " if 1 else 1".repeat(20_000)),
        format!("{{{{ 1{} }}}}", " is odd".repeat(30_000)),
        format!("{{{{ 1{} }}}}", " and 1".repeat(40_000)),
    ];
    let thread = std::thread::Builder::new().stack_size(2 << 20);
    let run = move || {
        for source in &sources {
            let start = Instant::now();
            let error = render(source).map(|text| text.len());
            let shown: String = source.chars().take(120).collect();
            assert!(error.is_err(), "{shown:?} gave {error:?}");
            assert!(start.elapsed() < Duration::from_secs(10), "{shown:?} took {:?}", start.elapsed());
        }
    };
    thread.spawn(run).unwrap().join().unwrap();
}

/// What is within the bounds still works, on the same small stack.
#[test]
fn long_conversations_and_nested_templates_are_fine() {
    let run = || {
        let golden = golden();
        let text = "word ".repeat(200);
        let messages: Vec<Message> = (0..2000)
            .map(|turn| Message::new(if turn % 2 == 0 { "user" } else { "assistant" }, text.as_str()))
            .collect();
        for name in ["chatml", "qwen3", "llama2", "mistral", "llama3"] {
            let template = ChatTemplate::new(golden["templates"][name].as_str().unwrap()).unwrap();
            let options = RenderOptions {
                bos_token: Some("<s>".into()),
                eos_token: Some("</s>".into()),
                variables: [("tools".to_owned(), Value::Null)].into_iter().collect(),
                ..RenderOptions::default()
            };
            assert!(template.render(&messages, &options).unwrap().len() > 1_900_000, "{name}");
        }
        let nested = format!("{}x{}", "{% if true %}".repeat(50), "{% endif %}".repeat(50));
        assert_eq!(render(&nested).as_deref(), Ok("x"));
        let chain = format!("{{{{ {} }}}}", ["'x'"; 400].join(" ~ "));
        assert_eq!(render(&chain), Ok("x".repeat(400)));
        let recursive = "{% macro m(n) %}{{ n }}{% if n %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(9) }}";
        assert_eq!(render(recursive).as_deref(), Ok("9876543210"));
        // Each macro holds the one before.
        let macros = "{% set ns = namespace(x=1) %}{% for i in range(50000) %}{% set p = ns.x %}\
                      {% macro m() %}{{ p }}{% endmacro %}{% set ns.x = m %}{% endfor %}x";
        assert_eq!(render(macros).as_deref(), Ok("x"));
    };
    std::thread::Builder::new().stack_size(2 << 20).spawn(run).unwrap().join().unwrap();
}
