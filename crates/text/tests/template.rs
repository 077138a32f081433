//! Chat templates against transformers, on what `scripts/golden/template.py` wrote, and hostile templates.

use std::time::{Duration, Instant, UNIX_EPOCH};

use gristmill_text::template::{
    Call, Chat, ChatTemplate, MAX_SOURCE, Message, RenderOptions, Role, TemplateError, Tool,
};
use serde_json::{Map, Value, json};

fn golden() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/template.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn message(value: &Value) -> Message {
    let roles = [Role::System, Role::User, Role::Assistant, Role::Tool];
    let role = roles.into_iter().find(|role| value["role"] == role.name()).unwrap();
    let call = |call: &Value| Call {
        id: text(&call["id"]).unwrap_or_default(),
        name: text(&call["function"]["name"]).unwrap(),
        arguments: call["function"]["arguments"].as_object().unwrap().clone().into(),
    };
    let calls = value["tool_calls"].as_array().into_iter().flatten().map(call).collect();
    let reasoning = text(&value["reasoning_content"]);
    Message { reasoning, calls, ..Message::new(role, value["content"].as_str().unwrap()) }
}

fn tool(value: &Value) -> Tool {
    let function = &value["function"];
    let (name, description) = (text(&function["name"]).unwrap(), text(&function["description"]));
    Tool { name, description, parameters: Some(function["parameters"].clone()), ..Tool::default() }
}

#[test]
fn prompts_are_those_of_transformers() {
    prompts(str::to_owned);
}

/// jinja2 reads every line end as a line feed.
#[test]
fn line_ends_of_other_systems_change_no_prompt() {
    prompts(|template| template.replace('\n', "\r\n"));
    prompts(|template| template.replace('\n', "\r"));
}

/// Compares prompts with those of transformers, by templates that are changed first.
fn prompts(changed: impl Fn(&str) -> String) {
    let golden = golden();
    let cases = golden["cases"].as_array().unwrap();
    assert!(cases.len() > 100);
    for case in cases {
        let name = case["template"].as_str().unwrap();
        let chat = Chat {
            messages: case["messages"].as_array().unwrap().iter().map(message).collect(),
            tools: case.get("tools").and_then(Value::as_array).into_iter().flatten().map(tool).collect(),
            thinking: case["enable_thinking"].as_bool(),
            ..Chat::default()
        };
        let options = RenderOptions {
            add_generation_prompt: case["add_generation_prompt"].as_bool().unwrap(),
            bos_token: Some("<s>".into()),
            eos_token: Some("</s>".into()),
            ..RenderOptions::default()
        };
        let template = ChatTemplate::new(&changed(golden["templates"][name].as_str().unwrap())).unwrap();
        let result = template.render(&chat, &options);
        match case["text"].as_str() {
            Some(text) => assert_eq!(result.as_deref(), Ok(text), "{name}: {chat:?}"),
            None => {
                let message = case["error"].as_str().unwrap().to_owned();
                assert_eq!(result, Err(TemplateError::Raised(message)), "{name}: {chat:?}");
            }
        }
    }
}

/// The fields in which templates find messages, calls and tools.
#[test]
fn templates_read_fields_of_openai() {
    let called = |id: &str, name: &str| Call {
        id: id.into(),
        name: name.into(),
        arguments: json!({"sacks": 2.0}).as_object().unwrap().clone().into(),
    };
    let result = |id: &str| Message { call_id: Some(id.into()), ..Message::new(Role::Tool, "1") };
    let reasoned = Message { reasoning: Some("hm".into()), ..Message::new(Role::Assistant, "x") };
    let messages = vec![
        Message { name: Some("Ada".into()), ..Message::new(Role::User, "a") },
        Message { calls: vec![called("c1", "weigh"), called("", "now")], text: String::new(), ..reasoned.clone() },
        result("c1"),
        Message { name: Some("own".into()), ..result("c1") },
        result("other"),
        Message { calls: vec![called("c1", "again")], ..reasoned.clone() },
        result("c1"),
        reasoned,
    ];
    let deferred = Tool { name: "later".into(), is_deferred: true, ..Tool::default() };
    let tools = vec![Tool { name: "now".into(), ..Tool::default() }, deferred];
    let chat = Chat { messages, tools, ..Chat::default() };
    let template = ChatTemplate::new("{{ messages | tojson }}\n{{ tools | tojson }}").unwrap();
    let text = template.render(&chat, &RenderOptions::default()).unwrap();
    let found: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let call = |id: Value, name: &str| {
        let mut call = json!({"type": "function", "function": {"name": name, "arguments": {"sacks": 2.0}}});
        if id.is_string() {
            call["id"] = id;
        }
        call
    };
    let thought = json!({"role": "assistant", "content": "", "reasoning_content": "hm", "thinking": "hm",
                         "tool_calls": [call(json!("c1"), "weigh"), call(Value::Null, "now")]});
    let expected = json!([
        {"role": "user", "content": "a", "name": "Ada"},
        thought,
        {"role": "tool", "content": "1", "tool_call_id": "c1", "name": "weigh"},
        {"role": "tool", "content": "1", "tool_call_id": "c1", "name": "own"},
        {"role": "tool", "content": "1", "tool_call_id": "other"},
        {"role": "assistant", "content": "x", "reasoning_content": "hm", "thinking": "hm",
         "tool_calls": [call(json!("c1"), "again")]},
        {"role": "tool", "content": "1", "tool_call_id": "c1", "name": "again"},
        {"role": "assistant", "content": "x", "reasoning_content": "hm", "thinking": "hm"},
    ]);
    assert_eq!(found, [expected, json!([{"type": "function", "function": {"name": "now"}}])]);
    // The template of gpt-oss refuses a call with both reasoning and text.
    let source =
        "{#<|channel|>#}{{ messages | selectattr('thinking', 'defined') | map(attribute='content') | join(',') }}";
    let text = ChatTemplate::new(source).unwrap().render(&chat, &RenderOptions::default());
    assert_eq!(text.as_deref(), Ok(",x"), "the first call, and the message without one");
    let none = template.render(&Chat::default(), &RenderOptions::default());
    assert_eq!(none.as_deref(), Ok("[]\nnull"), "no tools are null, as in transformers");
}

fn render(source: &str) -> Result<String, TemplateError> {
    let chat = Chat::new(vec![Message::new(Role::User, "Hello")]);
    ChatTemplate::new(source)?.render(&chat, &RenderOptions::default())
}

/// Nothing is not iterable, as in Jinja: the template of Qwen3-Coder reads the length of tools that are.
#[test]
fn nothing_is_not_iterable() {
    let source = "{% for x in [none, 1, 'ab', [], {}, unknown] %}{{ x is iterable }} {% endfor %}\
                  {% if tools is iterable and tools | length > 0 %}tools{% endif %}";
    assert_eq!(render(source).as_deref(), Ok("False False True True True True "));
}

/// What each filter, test, operator and method of Jinja gives for values of every type: `scripts/golden/expressions.py`
/// wrote it, with the outcomes of jinja2.
#[test]
fn expressions_are_those_of_jinja2() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/expressions.json");
    let golden: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let texts = golden["texts"].as_array().unwrap();
    let operands: Vec<&str> = golden["operands"].as_array().unwrap().iter().map(|x| x.as_str().unwrap()).collect();
    let options =
        RenderOptions { now: Some(UNIX_EPOCH + Duration::from_secs(1_795_255_715)), ..RenderOptions::default() };
    let chat = Chat { variables: golden["variables"].as_object().unwrap().clone(), ..Chat::default() };
    let mut count = 0;
    let mut check = |source: &str, expected: &Value| {
        // 0: jinja2 fails; -1: what it writes is not to be compared.
        let expected = match expected.as_i64().unwrap() {
            -1 => return,
            0 => None,
            index => texts[index as usize].as_str(),
        };
        let found = ChatTemplate::new(source).and_then(|template| template.render(&chat, &options));
        assert_eq!(found.as_deref().ok(), expected, "{source}: {found:?}");
        count += 1;
    };
    for (source, expected) in golden["lone"].as_object().unwrap() {
        check(source, expected);
    }
    for (form, expected) in golden["forms"].as_object().unwrap() {
        for (operand, expected) in operands.iter().zip(expected.as_array().unwrap()) {
            check(&format!("{{{{ {} }}}}", form.replacen('@', operand, 1)), expected);
        }
    }
    assert!(count > 5000, "{count}");
}

#[test]
fn variables_and_time_reach_the_template() {
    let options = RenderOptions {
        now: Some(UNIX_EPOCH + Duration::from_secs(1_795_255_715)),
        bos_token: Some("A".into()),
        ..RenderOptions::default()
    };
    let variables = Map::from_iter([("date".to_owned(), Value::from("today")), ("bos_token".to_owned(), "B".into())]);
    let chat = Chat { variables, ..Chat::default() };
    let source = "{{ strftime_now('%d %b %Y') }} {{ date }} {{ bos_token }} {{ eos_token }} {{ eos_token is defined }}";
    let text = ChatTemplate::new(source).unwrap().render(&chat, &options);
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
        ("{{ strftime_now(1) }}", "string"),
        ("{{ 'x'.encode() }}", "the method encode at line 1, which is not supported"),
        ("a\n{{ x|pprint }}", "the filter pprint at line 2, which is not supported"),
        ("{% if 0 %}{{ x|urlize }}{% endif %}", "the filter urlize at line 1, which is not supported"),
        ("{{ x is frobnicated }}", "the test frobnicated at line 1, which is not supported"),
        ("{{ lipsum() }}", "the function lipsum at line 1, which is not supported"),
        ("{% macro m() %}{{ varargs }}{% endmacro %}", "varargs at line 1, which is not supported"),
        ("{% if 1 %}\n{{ 'x'|frobnicate }}{% endif %}", "frobnicate"),
        ("{% include 'x' %}", "{% include %}"),
        ("\n{% extends 'x' %}", "{% extends %} at line 2"),
        ("{% import 'x' as y %}", "{% import %}"),
        ("{% from 'x' import y %}", "{% from %}"),
        ("{% block x %}{% endblock %}", "{% block %}"),
        ("{% autoescape true %}{% endautoescape %}", "{% autoescape %}"),
        ("{{ '%1000000000d'|format(1) }}", "bytes of text"),
        ("{{ '%d' % 'x' }}", "%d does not take a string"),
        ("{{ 1 / 0 }}{{ 1 // 0 }}", "failed at line 1"),
        ("{{ 2 ** 100 * 2 ** 100 }}", "too large"),
        ("{{ 'a'[::0] }}", "step"),
        ("{{ range(1, 2, 0) }}", "step"),
    ];
    for (source, expected) in cases {
        let error = render(source).unwrap_err().to_string();
        assert!(error.contains(expected), "{source:?}: expected {expected:?} in: {error}");
    }
    for half in ["{%}generation", "generation{%", "{%-}generation%}"] {
        assert!(matches!(ChatTemplate::new(half), Err(TemplateError::Syntax { line: 1, .. })), "{half}");
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
        "{% set x = 'a' * 10000000 %}{{ (x[1:] ~ 'b') in ([x] * 100000) }}".to_owned(),
        "{% set x = 'a' * 10000000 %}{{ ([x] * 100000).count(x[1:] ~ 'b') }}".to_owned(),
        "{% set x = 'a' * 10000000 %}{{ ([x] * 100000)|select('eq', x[1:] ~ 'b')|list }}".to_owned(),
        "{% set x = 'a' * 10000000 %}{% set y = 'a' * 10000000 %}{% for i in range(100000) %}{{ x == y }}{% endfor %}"
            .to_owned(),
        "{% set x = 'a' * 10000000 %}{{ (([x] * 100000) ~ '')|length }}".to_owned(),
        "{{ 'a\\nb'|indent(10**12) }}".to_owned(),
        "{{ [1]|tojson(indent=10**12) }}".to_owned(),
        "{{ ('a' * 1000000).replace('', 'a' * 1000000) }}".to_owned(),
        grow("[1]", "{% set ns.x = [ns.x].copy %}"),
        grow("[1]", "{% set ns.x = [ns.x]['copy'] %}"),
        grow("[1]", "{% set ns.x = cycler(ns.x) %}"),
        grow("[1]", "{% set ns.x = joiner(ns.x) %}"),
        grow("[1]", "{% set ns.x = (ns.x, ) %}"),
        grow("[1]", "{% set ns.x = [ns.x]|map('list') %}"),
        grow("[1]", "{% set ns.x = [ns.x]|reverse %}"),
        grow("[1]", "{% set ns.x = {1: ns.x}.items() %}"),
        grow("[1]", "{% set ns.x = [ns.x]|sum(start=[ns.x]) %}"),
        grow("[1]", "{% set ns.x = ns.x|batch(99999, 1)|list + [1] %}"),
        grow("'a'", "{% set ns.x = '%s%s' % (ns.x, ns.x) %}"),
        grow("'a'", "{% set ns.x = '{0}{0}'.format(ns.x) %}"),
        grow("'a'", "{% set ns.x = '{a}{a}'.format_map({'a': ns.x}) %}"),
        grow("'a'", "{% set ns.x = ns.x|format(ns.x) ~ ns.x ~ ns.x %}"),
        grow("'<'", "{% set ns.x = ns.x|forceescape|string %}"),
        grow("'<'", "{% set ns.x = ns.x|urlencode %}"),
        grow("1.5", "{% set ns.x = [ns.x, ns.x]|tojson(separators=('a' * 1000, '')) %}"),
        "{{ '%*d' % (10**12, 1) }}".to_owned(),
        "{{ '%.1000000000d' % 1 }}".to_owned(),
        "{{ '%.1000000000f' % 1.0 }}".to_owned(),
        "{{ '{:1000000000}'.format('a') }}".to_owned(),
        "{{ '{:.1000000000f}'.format(1.0) }}".to_owned(),
        "{{ '{:01000000000,}'.format(1) }}".to_owned(),
        "{{ '{:{}}'.format(1, 10**12) }}".to_owned(),
        format!("{{{{ '{}'.format(1) }}}}", "{:".repeat(9000)),
        "{{ 'a'.center(10**12) }}{{ 'a'|center(10**12) }}".to_owned(),
        "{{ 'a'.ljust(10**12) }}".to_owned(),
        "{{ 'a'.zfill(10**12) }}".to_owned(),
        "{{ '\t'.expandtabs(10**12) }}".to_owned(),
        "{{ ('\n' * 10000)|indent('a' * 100000) }}".to_owned(),
        "{{ [1]|tojson(indent='a' * 10**10) }}".to_owned(),
        "{{ [1]|batch(10**12, 1)|list }}".to_owned(),
        "{{ [1]|slice(10**12)|list }}".to_owned(),
        "{{ 7 ** 10**12 }}{{ 2.0 ** 10**12 }}".to_owned(),
        "{% for i in range(100000) %}{{ strftime_now('%999c' * 100)|length }}{% endfor %}".to_owned(),
        "{{ range(100000)|list|unique|list|length }}".to_owned(),
        "{{ (range(100000)|map('string')|list)|groupby(0)|length + range(0, 10**9)|length }}".to_owned(),
        "{% set x = 'a' * 10000000 %}{% for i in range(100000) %}{{ x.find('b') }}{% endfor %}".to_owned(),
        "{% set x = 'a' * 10000000 %}{% for i in range(100000) %}{{ x[5] }}{% endfor %}".to_owned(),
        "{% set x = 'a' * 10000000 %}{% for i in range(100000) %}{{ x.isalpha() }}{{ x is upper }}{% endfor %}"
            .to_owned(),
        "{% set x = 'ab' * 100000 %}{{ x.strip('c' * 100000 ~ 'ab') }}{{ x.strip('c' * 100000 ~ 'ab') }}".to_owned(),
        "{% set x = range(100000)|list %}{% for i in range(100000) %}{{ 'a' in x }}{% endfor %}".to_owned(),
        "{% set x = range(100000)|list %}{% for i in range(100000) %}{{ x.index(99999) }}{% endfor %}".to_owned(),
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

/// Templates and conversations within the bounds still work, on the same small stack.
#[test]
fn long_conversations_and_nested_templates_are_fine() {
    let run = || {
        let golden = golden();
        let text = "word ".repeat(200);
        let messages: Vec<Message> = (0..2000)
            .map(|turn| Message::new(if turn % 2 == 0 { Role::User } else { Role::Assistant }, text.as_str()))
            .collect();
        let chat = Chat::new(messages);
        for name in ["chatml", "qwen3", "llama2", "mistral", "llama3"] {
            let template = ChatTemplate::new(golden["templates"][name].as_str().unwrap()).unwrap();
            let options = RenderOptions {
                bos_token: Some("<s>".into()),
                eos_token: Some("</s>".into()),
                ..RenderOptions::default()
            };
            assert!(template.render(&chat, &options).unwrap().len() > 1_900_000, "{name}");
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
