//! Conversations in any order of roles, for templates with the habits of published ones: every word reaches the prompt.

use gristmill_text::template::{
    Call, Chat, ChatTemplate, Message, ReasoningSupport, RenderOptions, Role, TemplateError, Tool, ToolSupport,
};
use serde_json::{Value, json};

/// Writes the messages; `{{ m.role }}` marks each.
const PLAIN: &str = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";

/// A name, and a template.
const HABITS: [(&str, &str); 12] = [
    ("plain", PLAIN),
    (
        "a system message is the first",
        "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('late') }}{% endif %}\
         <{{ m.role }}>{{ m.content }}{% endfor %}",
    ),
    (
        "no system message, and roles alternate",
        "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) or m.role not in ['user', \
         'assistant'] %}{{ raise_exception('no') }}{% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}",
    ),
    (
        "one system message, then roles alternate but for calls and results",
        "{% set ns = namespace(user=true) %}{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}\
         {% if m.role == 'system' and loop.first %}{% elif m.role == 'system' %}{{ raise_exception('late') }}\
         {% elif m.role != 'tool' and not m.tool_calls %}{% if (m.role == 'user') != ns.user %}\
         {{ raise_exception('alternate') }}{% endif %}{% set ns.user = not ns.user %}{% endif %}\
         {% if m.tool_calls %}{% for c in m.tool_calls %}[TOOL_CALLS][{\"name\": {{ c.function.name | tojson }}, \
         \"arguments\": {{ c.function.arguments | tojson }}}]{% endfor %}{% else %}<{{ m.role }}>{{ m.content }}\
         {% endif %}{% endfor %}",
    ),
    (
        "later system messages are left out",
        "{% for m in messages %}{% if m.role != 'system' or loop.first %}<{{ m.role }}>{{ m.content }}{% endif %}\
         {% endfor %}",
    ),
    (
        "the last system message replaces the others",
        "{% set ns = namespace(system='') %}{% for m in messages %}{% if m.role == 'system' %}\
         {% set ns.system = m.content %}{% endif %}{% endfor %}{{ ns.system }}{% for m in messages %}\
         {% if m.role != 'system' %}<{{ m.role }}>{{ m.content }}{% endif %}{% endfor %}",
    ),
    (
        "text beside calls is left out, and a result needs a call",
        "{% set ns = namespace(called=false) %}{% if tools %}{% for t in tools %}{{ '// ' + t.function.description }}\
         {{ t.function.name }}{{ t.function.parameters.properties | length }}{% endfor %}{% endif %}\
         {% for m in messages %}{% if m.tool_calls %}{% set ns.called = true %}<tool_call>\n\
         {{ m.tool_calls[0].function | tojson }}\n</tool_call>{% elif m.role == 'tool' and not ns.called %}\
         {{ raise_exception('no call') }}{% else %}{% if m.role != 'tool' %}{% set ns.called = false %}{% endif %}\
         <{{ m.role }}>{{ m.content }}{% endif %}{% endfor %}",
    ),
    (
        "tools are a list",
        "{% for t in tools %}{{ t.function.description + t.function.name }}{% endfor %}{# <tool_call> #}\
         {% for m in messages %}<{{ m.role }}>{{ m.content }}{% if m.tool_calls %}{{ m.tool_calls | tojson }}\
         {% endif %}{% endfor %}",
    ),
    (
        "tools with a system message only",
        "{# <tool_call> #}{% for m in messages %}{% if m.role == 'system' and tools %}{{ tools | tojson }}{% endif %}\
         <{{ m.role }}>{{ m.content }}{% if m.tool_calls %}<tool_call>\n\
         {{ m.tool_calls[0].function | tojson }}\n</tool_call>{% endif %}{% endfor %}",
    ),
    (
        "results and calls are left out",
        "{# <tool_call> #}{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{% if m.role != 'tool' %}\
         <{{ m.role }}>{{ m.content }}{% endif %}{% endfor %}",
    ),
    (
        "texts are lists of parts",
        "{% for m in messages %}<{{ m.role }}>{% for part in m.content %}{% if part.type == 'text' %}{{ part.text }}\
         {% endif %}{% endfor %}{% endfor %}",
    ),
    (
        "a user asks",
        "{% if messages | selectattr('role', 'equalto', 'user') | list | length == 0 %}{{ raise_exception('none') }}\
         {% endif %}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}",
    ),
];

fn golden() -> Vec<(String, String)> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/template.json");
    let json: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let templates = json["templates"].as_object().unwrap().iter();
    // The template `parts` shows what an engine can, and no conversation.
    let shown = templates.filter(|(name, _)| *name != "parts");
    shown.map(|(name, source)| (name.clone(), source.as_str().unwrap().to_owned())).collect()
}

fn options() -> RenderOptions {
    let text = |token: &str| Some(token.to_owned());
    RenderOptions {
        add_generation_prompt: true,
        bos_token: text("<s>"),
        eos_token: text("</s>"),
        ..RenderOptions::default()
    }
}

/// The conversation of a pattern, and its words: `s`, `u` and `a` are messages with a text, `k` is a call, `c` a call
/// next to a text, and `t` a result.
fn conversation(pattern: &str) -> (Chat, Vec<(Role, String)>) {
    let (mut messages, mut words, mut calls) = (Vec::new(), Vec::new(), 0);
    for (index, kind) in pattern.chars().enumerate() {
        let role = match kind {
            's' => Role::System,
            'u' => Role::User,
            't' => Role::Tool,
            _ => Role::Assistant,
        };
        let text = if kind == 'k' { String::new() } else { format!("word{index}w and{index}w") };
        let mut message = Message::new(role, text);
        words.extend(message.text.split_whitespace().map(|word| (role, word.to_owned())));
        calls += usize::from("kc".contains(kind));
        let id = format!("call{calls:05}");
        match kind {
            'k' | 'c' => {
                let arguments = json!({"city": format!("city{index}w")}).as_object().unwrap().clone();
                message.calls = vec![Call { id, name: "lookup".into(), arguments: arguments.into() }];
                words.push((role, format!("city{index}w")));
            }
            't' => message.call_id = Some(id),
            _ => {}
        }
        messages.push(message);
    }
    (Chat::new(messages), words)
}

fn tools() -> Vec<Tool> {
    let tool = |name: &str, parameters| Tool { name: name.into(), parameters, ..Tool::default() };
    vec![tool("lookup", Some(json!({"properties": {"city": {"type": "string"}}}))), tool("other", None)]
}

/// Patterns that clients are known to send, and random ones.
fn patterns() -> Vec<String> {
    let known =
        "u su s ss ssu sus usu us sausu uu au a ua suau uaau ukt ukta uktu uct uctau t tu ut kt uktt sukts uakt";
    let mut state = 7_u64;
    let mut next = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut random = || (0..=next(8)).map(|_| char::from(b"suakct"[next(6) as usize])).collect();
    known.split(' ').map(str::to_owned).chain((0..30).map(|_| random())).collect()
}

#[test]
fn every_word_of_any_conversation_is_shown() {
    let habits = HABITS.iter().map(|(name, source)| ((*name).to_owned(), (*source).to_owned()));
    for (name, source) in habits.chain(golden()) {
        let template = ChatTemplate::new(&source).unwrap();
        for pattern in patterns() {
            for tools in [Vec::new(), tools()] {
                let (chat, words) = conversation(&pattern);
                let chat = Chat { tools, ..chat };
                let prompt = template.render_with_tools(&chat, &options());
                let prompt = prompt.unwrap_or_else(|error| panic!("{name}, {pattern}: {error}"));
                for tool in &chat.tools {
                    assert!(prompt.contains(&tool.name), "{name}, {pattern}: {} in {prompt}", tool.name);
                }
                let place = |word: &str| {
                    prompt.find(word).unwrap_or_else(|| panic!("{name}, {pattern}: {word} is not in {prompt}"))
                };
                let places: Vec<(Role, usize)> = words.iter().map(|(role, word)| (*role, place(word))).collect();
                // A template may put system messages elsewhere.
                assert!(
                    places.iter().filter(|(role, _)| *role != Role::System).is_sorted_by_key(|(_, place)| *place),
                    "{name}, {pattern}: the order of {prompt}"
                );
            }
        }
    }
}

/// What a template shows by itself stays as it is, to the byte.
#[test]
fn no_more_is_repaired_than_needed() {
    let rendered = |habit: usize, pattern: &str, tools: Vec<Tool>| {
        let template = ChatTemplate::new(HABITS[habit].1).unwrap();
        template.render_with_tools(&Chat { tools, ..conversation(pattern).0 }, &options()).unwrap()
    };
    assert_eq!(rendered(0, "us", vec![]), "<user>word0w and0w<system>word1w and1w");
    assert_eq!(rendered(1, "us", vec![]), "<user>word0w and0w<user>word1w and1w");
    assert_eq!(rendered(2, "sus", vec![]), "<user>word0w and0w\n\nword1w and1w\n\nword2w and2w");
    assert_eq!(rendered(2, "a", vec![]), "<user><assistant>word0w and0w");
    assert_eq!(rendered(11, "s", vec![]), "<system>word0w and0w<user>");
    let call = "<tool_call>\n{\"name\": \"lookup\", \"arguments\": {\"city\": \"city1w\"}}\n</tool_call>";
    let expected = format!("// lookup1// other0<user>word0w and0w<assistant>word1w and1w{call}<tool>word2w and2w");
    assert_eq!(rendered(6, "uct", tools()), expected, "what a tool lacks is completed for this template");
    assert!(
        rendered(3, "ukt", tools()).starts_with(
            "[{\"type\": \"function\", \"function\": {\"name\": \"lookup\", \
        \"parameters\": {\"properties\": {\"city\": {\"type\": \"string\"}}}}}, "
        ),
        "and not for this one"
    );
}

#[test]
fn templates_are_probed_with_a_complete_tool() {
    let support = |source: &str| ChatTemplate::new(source).unwrap().support(&options()).clone();
    let tools = |source: &str| support(&format!("{source}{PLAIN}")).tools.to_string();
    for (source, name) in [
        (
            "{% for t in tools %}{{ '// ' + t.function.description }}{{ t.function.name }}{% endfor %}<tool_call>",
            "Hermes, built in",
        ),
        (
            "{% for t in tools %}{{ t.function.name }}{% for k, v in t.function.parameters.properties.items() %}{{ k }}\
          {{ v.description + v.type }}{% endfor %}{% endfor %}<|channel|>",
            "Harmony, built in",
        ),
    ] {
        assert_eq!(tools(source), name);
    }
    // Marks alone are no proof: what is written for a call has to be read.
    let calls = "{% for m in messages %}{% for c in m.tool_calls or [] %}<call {{ c.function.name }} \
                 {{ c.function.arguments | string }}>{% endfor %}{% endfor %}";
    let spelled = "none: spelled out";
    for (source, reason) in [
        ("", "the template shows no tools"),
        ("{{ tools | tojson }}", "the template writes calls in a form that is not read"),
        (&*format!("{{{{ tools | tojson }}}}{calls}"), "the template writes calls in a form that is not read"),
        ("{% if tools %}{{ raise_exception('No tools.') }}{% endif %}", "the template refuses tools: No tools."),
    ] {
        assert_eq!(tools(source), format!("{spelled} ({reason})"));
    }
    // An error with tools is no silent substitute.
    let fails = format!("{{% if tools %}}{{{{ tools.x.y }}}}{{% endif %}}{PLAIN}");
    assert!(matches!(support(&fails).tools, ToolSupport::Fails(TemplateError::Render { .. })));
    let chat = Chat { tools: self::tools(), ..conversation("u").0 };
    let error = ChatTemplate::new(&fails).unwrap().render_with_tools(&chat, &options());
    assert!(matches!(error, Err(TemplateError::Render { .. })), "{error:?}");
    let broken = support("{{ messages.x.y }}");
    assert!(matches!((broken.failure, broken.tools), (Some(_), ToolSupport::Fails(_))));
}

#[test]
fn reasoning_is_reported_as_it_is_read() {
    let reasoning = |source: &str| ChatTemplate::new(source).unwrap().support(&options()).reasoning;
    let shown = |open: &str, close: &str| {
        format!(
            "{{% for m in messages %}}<{{{{ m.role }}}}>\
                 {{% if m.reasoning_content %}}{open}{{{{ m.reasoning_content }}}}{close}{{% endif %}}\
                 {{{{ m.content }}}}{{% endfor %}}{{% if add_generation_prompt %}}<assistant>{{% endif %}}"
        )
    };
    let think = ReasoningSupport::Marks { open: "<think>", close: "</think>" };
    assert_eq!(reasoning(&shown("<think>", "</think>")), think);
    assert_eq!(reasoning(&format!("{{# <think> #}}{PLAIN}")), think);
    assert_eq!(reasoning(&shown("<thought>", "</thought>")), ReasoningSupport::Unknown);
    assert_eq!(reasoning(PLAIN), ReasoningSupport::NotShown { open: "<think>", close: "</think>" });
}
