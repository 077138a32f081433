//! Forms of calls that are derived from a template which no built-in form reads.

use gristmill_text::reply::{ParsedReply, ReplyForm, ReplyOptions};
use gristmill_text::template::{ChatTemplate, RenderOptions, Tool, ToolSupport};
use serde_json::{Value, json};

/// A template with this text of the calls of a message.
fn template(calls: &str) -> ChatTemplate {
    let source = [
        "{% for tool in tools or [] %}{{ tool | tojson }}\n{% endfor %}",
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}",
        "{% if m.tool_calls %}",
        calls,
        "{% endif %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    ];
    ChatTemplate::new(&source.concat()).expect("a template")
}

fn options() -> RenderOptions {
    RenderOptions { add_generation_prompt: true, ..RenderOptions::default() }
}

const EACH: &str = "{% for c in m.tool_calls %}{% set f = c.function %}";
const END: &str = "{% endfor %}";

/// How calls are written: around all, each, and two calls of the form.
const DERIVED: [(&str, &str, &str, &str); 9] = [
    (
        "",
        "<<CALL>>{\"name\": \"{{ f.name }}\", \"arguments\": {{ f.arguments | tojson }}}<</CALL>>",
        "",
        "<<CALL>>{\"name\": \"weigh\", \"arguments\": {\"what\": \"a < b\", \"n\": 3}}<</CALL>>\
         <<CALL>>{\"name\": \"stop\", \"arguments\": {}}<</CALL>>",
    ),
    (
        "<calls>\n",
        "<call>{\"name\": \"{{ f.name }}\", \"parameters\": {{ f.arguments | tojson }}}</call>\n",
        "</calls>",
        "<calls>\n<call>{\"name\": \"weigh\", \"parameters\": {\"what\": \"a < b\", \"n\": 3}}</call>\n\
         <call>{\"name\": \"stop\", \"parameters\": {}}</call>\n</calls>",
    ),
    (
        "<|fn_list|>[",
        "{{ ', ' if not loop.first }}{\"name\": \"{{ f.name }}\", \"arguments\": {{ f.arguments | tojson }}}",
        "]<|fn_end|>",
        "<|fn_list|>[{\"name\": \"weigh\", \"arguments\": {\"what\": \"a < b\", \"n\": 3}}, \
         {\"name\": \"stop\", \"arguments\": {}}]<|fn_end|>",
    ),
    (
        "<|fn_list|>[",
        "{{ ', ' if not loop.first }}{\"{{ f.name }}\": {{ f.arguments | tojson }}}",
        "]",
        "<|fn_list|>[{\"weigh\": {\"what\": \"a < b\", \"n\": 3}}, {\"stop\": {}}]",
    ),
    (
        "",
        "<|fn|>{{ f.name }}<|args|>{{ f.arguments | tojson }}<|fn_end|>",
        "",
        "<|fn|>weigh<|args|>{\"what\": \"a < b\", \"n\": 3}<|fn_end|><|fn|>stop<|args|>{}<|fn_end|>",
    ),
    (
        "<|section|>",
        "<|fn|>{{ f.name }}\n{{ f.arguments | tojson }}<|fn_end|>",
        "<|section_end|>",
        "<|section|><|fn|>weigh\n{\"what\": \"a < b\", \"n\": 3}<|fn_end|><|fn|>stop\n{}<|fn_end|><|section_end|>",
    ),
    (
        "",
        "<use tool=\"{{ f.name }}\">{% for k, v in f.arguments.items() %}<arg key=\"{{ k }}\">{{ v }}</arg>{% endfor %}</use>",
        "",
        "<use tool=\"weigh\"><arg key=\"what\">a < b</arg><arg key=\"n\">3</arg></use><use tool=\"stop\"></use>",
    ),
    (
        "<uses>\n",
        "<use tool=\"{{ f.name }}\">\n{% for k, v in f.arguments.items() %}<arg key=\"{{ k }}\">{{ v }}</arg>\n{% endfor %}</use>\n",
        "</uses>",
        "<uses>\n<use tool=\"weigh\">\n<arg key=\"what\">a < b</arg>\n<arg key=\"n\">3</arg>\n</use>\n\
         <use tool=\"stop\">\n</use>\n</uses>",
    ),
    (
        "",
        "<uses><use={{ f.name }}>\n{% for k, v in f.arguments.items() %}<arg={{ k }}>\n{{ v }}\n</arg>\n{% endfor %}</use>\n</uses>\n",
        "",
        "<uses><use=weigh>\n<arg=what>\na < b\n</arg>\n<arg=n>\n3\n</arg>\n</use>\n</uses>\n<uses><use=stop>\n</use>\n</uses>\n",
    ),
];

fn tools() -> Vec<Tool> {
    let properties = json!({"what": {"type": "string"}, "n": {"type": "integer"}});
    let tool = |name: &str| Tool {
        name: name.to_owned(),
        parameters: Some(json!({"type": "object", "properties": properties})),
        ..Tool::default()
    };
    ["weigh", "stop"].map(tool).to_vec()
}

#[test]
fn a_form_is_derived_from_the_calls_of_a_template() {
    for (open, each, close, text) in DERIVED {
        let template = template(&[open, EACH, each, END, close].concat());
        let support = template.support(&options());
        let ToolSupport::Native(syntax) = support.tools else { panic!("{each}: {}", support.tools) };
        assert!(syntax.is_derived() && support.tools.to_string().starts_with("derived from the template"), "{each}");
        let form =
            ReplyForm::new(syntax, template.source(), "<|im_start|>assistant\n", ReplyOptions::for_tools(&tools()));
        let found = |reply: ParsedReply| -> Vec<(String, Value)> {
            let call = |call: gristmill_text::reply::ToolCall| (call.name, call.arguments.parse().expect("JSON"));
            reply.calls.into_iter().map(call).collect()
        };
        let expected = [("weigh".to_owned(), json!({"what": "a < b", "n": 3})), ("stop".to_owned(), json!({}))];
        let parsed = form.parse(text);
        assert_eq!(parsed.content, "", "{text}");
        assert_eq!(found(parsed), expected, "{text}");
        let with_text = form.parse(&format!("<think>Well.</think>\n\nI look.\n{text}<|im_end|>"));
        assert_eq!((&*with_text.reasoning, found(with_text.clone()).len()), ("Well.", 2), "{text}");
        let mut reply = form.parser();
        let mut events: Vec<_> = text.chars().flat_map(|c| reply.push(c.encode_utf8(&mut [0; 4]))).collect();
        events.extend(reply.finish());
        assert_eq!(events.len(), 2, "{text}: {events:?}");
    }
}

/// Without marks, any text could be a call; with others than names and values, nothing is known.
#[test]
fn what_is_not_derived() {
    for calls in [
        "{% for c in m.tool_calls %}{{ c.function.name }} {{ c.function.arguments | tojson }}{% endfor %}",
        "{% for c in m.tool_calls %}{\"tool\": \"{{ c.function.name }}\", \"input\": {{ c.function.arguments | tojson }}}{% endfor %}",
        "{{ m.tool_calls | string }}",
        "<calls>{{ m.tool_calls | string | reverse }}</calls>",
    ] {
        let template = template(calls);
        let support = template.support(&options());
        assert!(matches!(support.tools, ToolSupport::SpelledOut(_)), "{calls}: {}", support.tools);
    }
}

/// Each form is kept once, and a process keeps a bounded number of them: templates come with requests, too.
#[test]
fn derived_forms_are_bounded() {
    let derived = |index: usize| {
        let each = format!("<m{index}>{{{{ f.name }}}}<a>{{{{ f.arguments | tojson }}}}</m{index}>");
        let template = template(&[EACH, &each, END].concat());
        let tools = template.support(&options()).tools.clone();
        matches!(tools, ToolSupport::Native(_))
    };
    assert!((0..200).all(|_| derived(0)));
    assert!((0..200).filter(|&index| derived(index)).count() < 100);
}
