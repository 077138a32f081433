//! Calls of tools, as models write them.

use super::*;

#[test]
fn qwen() {
    let one = "<think>\nThe user asks for Paris.\n</think>\n\n\
               <tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>";
    let thought = reasoning("\nThe user asks for Paris.\n");
    check_call(QWEN, one, &[thought, call("get_weather", "{\"city\": \"Paris\"}")]);
    let several = "I'll look.\n\n<tool_call>\n\
                   {\"name\": \"get_weather\", \"arguments\": {\"city\": \"Malmö\", \"days\": 2.0}}\n\
                   </tool_call>\n<tool_call>\n\
                   {\"arguments\": {\"zone\": \"</tool_call> \\\"😀\"}, \"name\": \"get_time\"}\n</tool_call>\n Done. ";
    let expected = [
        content("I'll look."),
        call("get_weather", "{\"city\": \"Malmö\", \"days\": 2.0}"),
        call("get_time", "{\"zone\": \"</tool_call> \\\"😀\"}"),
        content("Done. "),
    ];
    check_call(QWEN, several, &expected);
    // Without tools, the text is content, in unknown templates too.
    check(QWEN, "", &ReplyOptions::default(), "a <tool_call>{}</tool_call>", &[content("a <tool_call>{}</tool_call>")]);
    check_call("", "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>", &[call("f", "{}")]);
}

#[test]
fn arguments_in_several_ways() {
    for (object, arguments) in [
        (r#"{"name":"f","arguments":{ "a" : [1e2,{}] }}"#, r#"{ "a" : [1e2,{}] }"#),
        (r#"{"id":"x1","type":"function","name":"f","parameters":{"a":null}}"#, r#"{"a":null}"#),
        (r#"{"name":"f","arguments":"{\"a\": \"\\n\"}"}"#, r#"{"a": "\n"}"#),
        (r#"{"name":"f","arguments":" "}"#, "{}"),
        (r#"{"name":"f","arguments":null}"#, "{}"),
        (r#"{"name":"f"}"#, "{}"),
        (r#"{"\u006eame":"\u0066","arguments":{}}"#, "{}"),
    ] {
        check_call(QWEN, &format!("<tool_call>{object}</tool_call>"), &[call("f", arguments)]);
    }
}

#[test]
fn malformed_calls_are_content() {
    for text in [
        "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}\n</tool_call>",
        "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>",
        "<tool_call>{\"name\": \"f\", \"arguments\": \"[1]\"}</tool_call> then",
        "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": tru}}</tool_call>",
        "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1e999}}</tool_call>",
        "<tool_call>{\"name\": \"\", \"arguments\": {}}</tool_call>",
        "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1, \"a\": 2}}</tool_call>",
        "<tool_call>{\"name\": 1, \"arguments\": {}}</tool_call>",
        "<tool_call>{\"arguments\": {}}</tool_call>",
        "<tool_call>{'name': 'f'}</tool_call>",
        "<tool_call>{\"name\": \"f\", \"path\": \"C:\\Users\"}</tool_call>",
        "<tool_call>{\"name\": \"two\nlines\"}</tool_call>",
        "<tool_call>größer</tool_call>",
        "<tool_call>{\"name\": \"f\", ö}</tool_call>",
        "<tool_call></tool_call>",
        "a \n <tool_call> \n",
        "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"b",
        "  <tool_call",
    ] {
        check_call(QWEN, text, &[content(text)]);
    }
    // The mark twice; a call after a malformed one; text after an object; ends that are cut or lack.
    let good = "<tool_call>{\"name\": \"get_time\"}";
    let f = || call("get_time", "{}");
    check_call(QWEN, &format!("<tool_call>\n{good}</tool_call>"), &[content("<tool_call>\n"), f()]);
    check_call(
        QWEN,
        &format!("<tool_call>{{]</tool_call> {good}</tool_ca"),
        &[content("<tool_call>{]</tool_call>"), f()],
    );
    check_call(QWEN, &format!("{good}}}\n</tool_call>."), &[f(), content(".")]);
    check_call(QWEN, &format!("{good}{good} \n"), &[f(), f()]);
}

#[test]
fn qwen3_coder() {
    let text = "I'll write it.\n\n<tool_call>\n<function=get_weather>\n\
                <parameter=city>\nNew\n  York \"N\\Y\"\n</parameter>\n<parameter=days>\n 3\n</parameter>\n\
                <parameter=tags>\n[\"a\", {\"b\": 1}]\n</parameter>\n<parameter=exact>\nTrue\n</parameter>\n\
                <parameter=limit>None</parameter>\n<parameter=place>\n{\"lat\": 1.50}\n</parameter>\n\
                </function>\n</tool_call>";
    let (head, tail) = (r#""city": "New\n  York \"N\\Y\"", "days": 3"#, r#""limit": null, "place": {"lat": 1.50}"#);
    let arguments = format!(r#"{{{head}, "tags": ["a", {{"b": 1}}], "exact": true, {tail}}}"#);
    check_call(CODER, text, &[content("I'll write it."), call("get_weather", &arguments)]);
    for (key, text, value) in [
        ("city", "3", "\"3\""),
        ("city", "\n\n<parameter=x>\n</function>\n\n", r#""\n<parameter=x>\n</function>\n""#),
        ("days", "three", "\"three\""),
        ("days", "3.5", "\"3.5\""),
        ("days", "3.0", "3.0"),
        ("limit", "1e3", "1e3"),
        ("unit", "t", "\"t\""),
        ("either", "7", "7"),
        ("free", "{}", "\"{}\""),
        ("self", "1", "\"1\""),
        ("unknown", "true", "\"true\""),
        ("a \"key\"", "", "\"\""),
    ] {
        let text =
            format!("<tool_call><function=get_weather><parameter={key}>{text}</parameter></function></tool_call>");
        let arguments = format!("{{{}: {value}}}", json!(key));
        check_call(CODER, &text, &[call("get_weather", &arguments)]);
    }
    // The outer mark lacks; no parameters; a template without this form knows only its calls with the outer mark.
    check_call(CODER, "<function=get_time>\n</function>\n</tool_call>\n", &[call("get_time", "{}")]);
    check_call(QWEN, "<tool_call><function=get_time></function>", &[call("get_time", "{}")]);
    check_call(QWEN, "<function=get_time></function>", &[content("<function=get_time></function>")]);
    for text in [
        "<tool_call><function=get_time",
        "<tool_call><function=get\ntime></function>",
        "<tool_call><function=></function>",
        "<tool_call><function=f>text</function></tool_call>",
        "<tool_call><function=f><parameter=a<b>c</parameter></function>",
        "<tool_call><function=f><parameter=a>never ends</function></tool_call>",
    ] {
        check_call(CODER, text, &[content(text)]);
    }
}

#[test]
fn glm() {
    let text = "<think>Weather, then.</think>\nI'll look.\n<tool_call>get_weather\n<arg_key>city</arg_key>\n\
                <arg_value>New\n \"York\"</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n\
                <arg_key>tags</arg_key>\n<arg_value>[\"a\"]</arg_value>\n</tool_call>\n\
                <tool_call>get_time\n</tool_call>";
    let arguments = r#"{"city": "New\n \"York\"", "days": 3, "tags": ["a"]}"#;
    let expected =
        [reasoning("Weather, then."), content("I'll look."), call("get_weather", arguments), call("get_time", "{}")];
    check_call(GLM, text, &expected);
    for (text, arguments) in [
        ("get_time</tool_call>", "{}"),
        ("get_time<arg_key>a</arg_key><arg_value>\n</arg_key>\n</arg_value></tool_call>", r#"{"a": "\n</arg_key>\n"}"#),
        ("{\"name\": \"get_time\", \"arguments\": {\"a\": 1}}</tool_call>", "{\"a\": 1}"),
    ] {
        check_call(GLM, &format!("<tool_call>{text}"), &[call("get_time", arguments)]);
    }
    for text in [
        "<tool_call>get_time",
        "<tool_call>\n</tool_call>",
        "<tool_call>get_time\ntext</tool_call>",
        "<tool_call>get_time<arg_key>a</arg_key>text</tool_call>",
        "<tool_call>get_time<arg_key>a<b></arg_key><arg_value>1</arg_value></tool_call>",
        "<tool_call>get_time<arg_key>a</arg_key><arg_value>never ends</tool_call>",
    ] {
        check_call(GLM, text, &[content(text)]);
    }
}

#[test]
fn lfm2() {
    let text = "I'll look.<|tool_call_start|>[get_weather(city='New York', days=3, exact=True), \
                get_time()]<|tool_call_end|>Checking.";
    let expected = [
        content("I'll look."),
        call("get_weather", r#"{"city": "New York", "days": 3, "exact": true}"#),
        call("get_time", "{}"),
        content("Checking."),
    ];
    check_call(LFM2, text, &expected);
    let nested = "<|tool_call_start|>[f(a={'b': [1, None]}, c=\"x)\\\"]\")]<|tool_call_end|>";
    check_call(LFM2, nested, &[call("f", r#"{"a": {"b": [1, null]}, "c": "x)\"]"}"#)]);
    let json = "<|tool_call_start|>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]<|tool_call_end|>";
    check_call(LFM2, json, &[call("f", "{\"a\": 1}")]);
    // The end of a list that is cut.
    check_call(LFM2, "<|tool_call_start|>[get_time(", &[content("<|tool_call_start|>[get_time(")]);
    check_call(LFM2, "<|tool_call_start|>[get_time()", &[call("get_time", "{}")]);
    for text in [
        "<|tool_call_start|>",
        "<|tool_call_start|>get_time()<|tool_call_end|>",
        "<|tool_call_start|>[get_time]<|tool_call_end|>",
        "<|tool_call_start|>[get_time(1)]<|tool_call_end|>",
        "<|tool_call_start|>[get_time(a=b)]<|tool_call_end|>",
        "<|tool_call_start|>[(a=1)]<|tool_call_end|>",
        "<|tool_call_start|>[]<|tool_call_end|>",
        "[get_time()]",
    ] {
        check_call(LFM2, text, &[content(text)]);
    }
}

#[test]
fn minimax() {
    let text = "<think>\nWeather.\n</think>\n\nI'll look.\n<minimax:tool_call>\n<invoke name=\"get_weather\">\n\
                <parameter name=\"city\">New York</parameter> <parameter name=\"days\">\n3\n</parameter>\n</invoke>\n\
                <invoke name=\"get_time\">\n</invoke>\n</minimax:tool_call>";
    let expected = [
        reasoning("\nWeather.\n"),
        content("I'll look."),
        call("get_weather", r#"{"city": "New York", "days": 3}"#),
        call("get_time", "{}"),
    ];
    check_call(MINIMAX, text, &expected);
    check_call(MINIMAX, "<minimax:tool_call>{\"name\": \"f\"}</minimax:tool_call> x", &[call("f", "{}"), content("x")]);
    for text in [
        "<minimax:tool_call>",
        "<minimax:tool_call></minimax:tool_call>",
        "<minimax:tool_call><invoke name=\"f></invoke></minimax:tool_call>",
        "<minimax:tool_call><invoke name=\"a\"b\"></invoke>",
        "<minimax:tool_call><invoke name=\"f\">text</invoke>",
        "<invoke name=\"get_time\"></invoke>",
    ] {
        check_call(MINIMAX, text, &[content(text)]);
    }
}

#[test]
fn llama() {
    let weather = r#"{"name": "get_weather", "parameters": {"city": "Paris"}}"#;
    let time = r#"{"type": "function", "name": "get_time", "parameters": {}}"#;
    let is_weather = call("get_weather", r#"{"city": "Paris"}"#);
    let is_time = call("get_time", "{}");
    let both = [is_weather.clone(), is_time.clone()];
    check_call(LLAMA, weather, &both[..1]);
    check_call(LLAMA, &format!("\n{weather};\n {time} ;"), &both);
    check_call(LLAMA, &format!("<|python_tag|>{weather}; {time}"), &both);
    check_call(LLAMA, &format!("<|python_tag|>{weather}\n<|python_tag|>{time}"), &both);
    check_call(LLAMA, &format!("<think>hm</think>\n{weather}"), &[reasoning("hm"), is_weather.clone()]);
    check_call(LLAMA, &format!("Let me see. <|python_tag|>{time}"), &[content("Let me see."), is_time.clone()]);
    check_call(LLAMA, &format!("{weather} I hope."), &[is_weather, content("I hope.")]);
    let said = format!("{weather} I hope.{time}");
    check_call(LLAMA, &said, &[content(&said)]);
    // Other JSON, other tools, text first, code.
    for text in [
        r#"{"name": "Ada", "parameters": {}}"#,
        r#"{"name": "get_time"}"#,
        r#" {"answer": [1, 2]}"#,
        "{a}",
        "{\"name\": \"get_time\", \"param",
        "<|python_tag|>print(1)",
        "<|python_tag|>",
        "<|python",
        r#"The call is {"name": "get_time", "parameters": {}}"#,
    ] {
        check_call(LLAMA, text, &[content(text)]);
    }
    check_call(LLAMA, r#"<|python_tag|>{"name": "other"}"#, &[call("other", "{}")]);
    check_call(LLAMA, &format!("{time}; {{}} x"), &[is_time, content("; {} x")]);
    let unknown = ReplyOptions { tools: true, ..ReplyOptions::default() };
    let expected = [call("Ada", "{}")];
    check("ipython", "", &unknown, r#"{"name": "Ada", "parameters": {}}"#, &expected);
}

/// After the chat template that transformers has for Llama 4 (`models/llama4/processing_llama4.py`), and the lists of
/// calls of Meta's guide to its prompts.
#[test]
fn llama4() {
    let weather = r#"{"name": "get_weather", "parameters": {"city": "Paris"}}"#;
    let time = r#"{"name": "get_time", "parameters": {}}"#;
    let is_weather = call("get_weather", r#"{"city": "Paris"}"#);
    let is_time = call("get_time", "{}");
    let both = [is_weather.clone(), is_time.clone()];
    for text in [
        format!("{weather}{time}"),
        format!("\n{weather}; {time};"),
        format!("<|python_start|><|python_end|>{weather}{time}"),
        format!("<|python_start|>{weather}\n{time}<|python_end|>"),
        format!("<|python_start|>{weather}<|python_end|><|python_start|>{time}<|python_end|>"),
        "[get_weather(city='Paris'), get_time()]".to_owned(),
        format!("<|python_start|>[get_weather(city=\"Paris\"), {time}]<|python_end|>"),
        "<|python_start|><|python_end|>[get_weather(city='Paris'),get_time()]".to_owned(),
    ] {
        check_call(LLAMA4, &text, &both);
    }
    check_call(LLAMA4, &format!("I look.\n<|python_start|>{time}"), &[content("I look."), is_time.clone()]);
    let said = format!("<|python_start|>I look.<|python_end|>{time}");
    check_call(LLAMA4, &said, &[content("<|python_start|>I look."), is_time.clone()]);
    check_call(LLAMA4, &format!("{weather} I hope."), &[is_weather, content("I hope.")]);
    check_call(LLAMA4, "[get_time()] Now.", &[is_time.clone(), content("Now.")]);
    check_call(LLAMA4, "<|python_start|>[other(a=1)]", &[call("other", r#"{"a": 1}"#)]);
    check_call(LLAMA4, &format!("{time};{{}}"), &[is_time, content(";{}")]);
    for text in [
        r#"{"name": "Ada", "parameters": {}}"#,
        r#"{"name": "get_time"}"#,
        "[1, 2]",
        "[other(a=1)]",
        "[get_time(",
        "[]",
        "<|python_start|>print(1)<|python_end|>",
        "<|python_start|>",
        "<|python_start|><|python_end|>",
        "See [get_time()]",
    ] {
        check_call(LLAMA4, text, &[content(text)]);
    }
}

#[test]
fn mistral() {
    let both = [call("get_weather", r#"{"city": "Paris"}"#), call("get_time", "{}")];
    let weather = r#"{"name": "get_weather", "arguments": {"city": "Paris"}}"#;
    let list = format!(r#"[{weather}, {{"name": "get_time", "arguments": {{}}, "id": "VvvODy9mT"}}]"#);
    check_call(MISTRAL, &format!("[TOOL_CALLS] {list}"), &both);
    check_call(MISTRAL, &format!("[TOOL_CALLS]{list}\n"), &both);
    check_call(
        MISTRAL,
        &format!("Yes.\n[TOOL_CALLS]{}", list.trim_end_matches(']')),
        &[content("Yes."), both[0].clone(), both[1].clone()],
    );
    let named = r#"[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}[TOOL_CALLS]get_time[CALL_ID]a1B2[ARGS]{}"#;
    check_call(MISTRAL, named, &both);
    check_call(MAGISTRAL, &format!("[THINK]hm[/THINK]{named}"), &[reasoning("hm"), both[0].clone(), both[1].clone()]);
    check_call(MISTRAL, r#"[TOOL_CALLS] get_weather {"city": "Paris"} ok"#, &[both[0].clone(), content("ok")]);
    for text in [
        "[TOOL_CALLS]",
        "[TOOL_CALLS][]",
        "[TOOL_CALLS][{}]",
        "[TOOL_CALLS][ARGS]{}",
        "[TOOL_CALLS]get_time[ARGS][1]",
        "[TOOL_CALLS]get_time[CALL_ID]x",
        "[TOOL_CALLS]get_time[x]{}",
        "[TOOL_CALLS]get\ntime[ARGS]{}",
        "[TOOL_CALLS]get_time[ARGS]{\"a",
        "a [TOOL",
    ] {
        check_call(MISTRAL, text, &[content(text)]);
    }
    let text = r#"[TOOL_CALLS][{"name": "get_time"}, {"name": ], [TOOL_CALLS]get_time{}"#;
    check_call(MISTRAL, text, &[both[1].clone(), content(r#", {"name": ],"#), both[1].clone()]);
}

#[test]
fn harmony() {
    let weather = call("get_weather", "{\"city\": \"<|end|>\"}");
    let thought = "<|channel|>analysis<|message|>Need weather.<|end|>";
    let in_channel = "<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json\
                      <|message|>{\"city\": \"<|end|>\"}<|call|>";
    let in_role =
        "<|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{\"city\": \"<|end|>\"}";
    for text in [in_channel, in_role, &in_role.replace("functions.", "")] {
        check_call(HARMONY, &format!("{thought}{text}"), &[reasoning("Need weather."), weather.clone()]);
    }
    let bare = in_channel.trim_start_matches("<|start|>assistant");
    let several = format!("{bare} \n{in_role}<|end|><|start|>assistant<|channel|>final<|message|>Done.<|return|>");
    check_call(HARMONY, &several, &[weather.clone(), weather.clone(), content("Done.")]);
    // A preamble and other recipients are reasoning, as without tools.
    let preamble = "<|channel|>commentary<|message|>I'll look.<|end|>\
                    <|start|>assistant to=python<|channel|>analysis<|message|>1+1<|call|>";
    check_call(HARMONY, preamble, &[reasoning("I'll look.\n1+1")]);
    for text in [
        "<|channel|>commentary to=functions.get_time<|message|>{\"a\": ",
        "<|channel|>commentary to=functions.get_time<|message|>print(1)",
        "<|channel|>commentary to=functions.get_time<|mess",
        "<|channel|>commentary to=functions.<|message|>{}",
    ] {
        check_call(HARMONY, text, &[content(text)]);
    }
    let malformed = "<|channel|>commentary to=functions.get_time<|message|>{} {}<|end|>\
                     <|start|>assistant<|channel|>final<|message|> a";
    check_call(HARMONY, malformed, &[content("<|channel|>commentary to=functions.get_time<|message|>{} {} a")]);
    let malformed = malformed.replace("{} {}", "{[");
    let raw = "<|channel|>commentary to=functions.get_time<|message|>{[ a";
    check_call(HARMONY, &malformed, &[content(raw)]);
}

/// Replies as the published template writes them into later prompts (`chat_template.jinja` of google/gemma-4-31B-it, which
/// llama.cpp has as `models/templates/google-gemma-4-31B-it.jinja`).
#[test]
fn gemma4() {
    let text = "<|channel>thought\nThe user asks for Malmö.\n<channel|><|tool_call>call:get_weather{\
                city:<|\"|>Malmö, \"{\\n<|\"|>,days:2,exact:true,place:{lat:-1.5e3,tags:[<|\"|>a<|\"|>,<|\"|><|\"|>,[]]}}\
                <tool_call|><|tool_call>call:get_time{}<tool_call|>";
    let head = r#"{"city": "Malmö, \"{\\n", "days": 2, "exact": true, "#;
    let arguments = format!("{head}\"place\": {{\"lat\": -1.5e3, \"tags\": [\"a\", \"\", []]}}}}");
    let calls = [call("get_weather", &arguments), call("get_time", "{}")];
    check_call(GEMMA4, text, &[&[reasoning("\nThe user asks for Malmö.\n")], &calls[..]].concat());
    let prompt = "<|turn>model\n<|channel>thought\n<channel|>";
    check(GEMMA4, prompt, &tools(), "Two.<turn|>", &[content("Two.<turn|>")]);
    let open = "<|turn>model\n<|channel>thought\n";
    check(GEMMA4, open, &tools(), "One?\n<channel|>Two.", &[reasoning("One?\n"), content("Two.")]);
    // Strings and keys between other quotes, Python's literals, white space, calls as objects, ends that lack.
    for (text, arguments) in [
        ("call:f{a:None,b:True,c:False}", r#"{"a": null, "b": true, "c": false}"#),
        ("call:f{\"a b\": \"}\\\"<|\", <|\"|>c<|\"|>: [1, {}]}", r#"{"a b": "}\"<|", "c": [1, {}]}"#),
        (" call: f { a : 1 , b : [ ] } ", r#"{"a": 1, "b": []}"#),
        ("call:f{a:<|\"|><|\\\"<|tool_call>}<|\"|>}", r#"{"a": "<|\\\"<|tool_call>}"}"#),
        ("{\"name\": \"f\", \"arguments\": {\"a\": 1}}", "{\"a\": 1}"),
    ] {
        check_call(GEMMA4, &format!("ok <|tool_call>{text}<tool_call|>"), &[content("ok"), call("f", arguments)]);
        check_call(GEMMA4, &format!("<|tool_call>{text} Done."), &[call("f", arguments), content("Done.")]);
    }
    for text in [
        "call:f{a:1",
        "call:f{a:1]}",
        "call:f{a}",
        "call:f{a:}",
        "call:f{:1}",
        "call:f{a:1,}",
        "call:f{a:b}",
        "call:f{a:1e999}",
        "call:f{a:<b>}",
        "call:f{a:<|\"|>b}",
        "call:f{a:1 b:2}",
        "call:f{a:<|\"|>b<|\"|><|\"|>c<|\"|>}",
        "call:{a:1}",
        "call:f\n{}",
        "f{}",
        "",
    ] {
        let text = format!("<|tool_call>{text}<tool_call|>");
        check_call(GEMMA4, &text, &[content(&text)]);
    }
    let deep = |n: usize| format!("<|tool_call>call:f{{a:{}{}}}", "[".repeat(n), "]".repeat(n));
    check_call(GEMMA4, &deep(200), &[content(&deep(200))]);
    let events = events(Reply::new(Some(GEMMA4), "", tools()), [&deep(99)[..]]);
    assert!(matches!(&events[..], [ReplyEvent::ToolCall(call)] if call.name == "f"), "{events:?}");
}

/// Replies as the published template writes them into later prompts (`chat_template.jinja` of
/// ByteDance-Seed/Seed-OSS-36B-Instruct, which llama.cpp has as `models/templates/ByteDance-Seed-OSS.jinja`).
#[test]
fn command() {
    let text = "<|START_THINKING|>Two cities.<|END_THINKING|><|START_ACTION|>[\n\
                    {\"tool_call_id\": \"0\", \"tool_name\": \"get_weather\", \"parameters\": {\"city\": \"]<|END\"}},\n\
                    {\"tool_call_id\": \"1\", \"tool_name\": \"get_time\", \"parameters\": {}}\n]<|END_ACTION|>";
    let calls = [call("get_weather", "{\"city\": \"]<|END\"}"), call("get_time", "{}")];
    check_call(COMMAND, text, &[&[reasoning("Two cities.")], &calls[..]].concat());
    // An answer's marks are left out, with and without tools.
    let prompt = "<|CHATBOT_TOKEN|><|START_THINKING|>";
    let answer = "One?<|END_THINKING|><|START_RESPONSE|> Two. <|START_TEXT|><|END_TEXT|>Three<|END_RESPONSE|>";
    let expected = [reasoning("One?"), content(" Two. Three")];
    check(COMMAND, prompt, &tools(), answer, &expected);
    check(COMMAND, prompt, &ReplyOptions::default(), answer, &expected);
    let closed = "<|CHATBOT_TOKEN|><|START_THINKING|><|END_THINKING|>";
    check(COMMAND, closed, &tools(), "<|START_TEXT|>a < b<|END_TEXT|>", &[content("a < b")]);
    check_call(COMMAND, "<|START_ACTION|>[{\"tool_name\": \"f\"}]", &[call("f", "{}")]);
    for text in ["<|START_ACTION|>{\"tool_name\": \"f\"}", "<|START_ACTION|>[]<|END_ACTION|>", "<|START_ACTION|>["] {
        check_call(COMMAND, text, &[content(text)]);
    }
}

#[test]
fn seed() {
    let text = "<seed:think>Paris.<seed:cot_budget_reflect>I have used 12 tokens.</seed:cot_budget_reflect></seed:think>\n\
                I look.\n\n<seed:tool_call>\n<function=get_weather>\n<parameter=city>\nNew\n York</parameter>\n\
                <parameter=days>3</parameter>\n<parameter=tags>[\"a\"]</parameter>\n</function>\n</seed:tool_call>\
                <seed:tool_call>\n<function=get_time>\n</function>\n</seed:tool_call>";
    let thought = "Paris.<seed:cot_budget_reflect>I have used 12 tokens.</seed:cot_budget_reflect>";
    let expected = [
        reasoning(thought),
        content("I look."),
        call("get_weather", r#"{"city": "\nNew\n York", "days": 3, "tags": ["a"]}"#),
        call("get_time", "{}"),
    ];
    check_call(SEED, text, &expected);
    let budget =
        "<seed:bos>assistant\n<seed:think>\n<seed:cot_budget_reflect>0</seed:cot_budget_reflect>\n</seed:think>";
    check(SEED, budget, &tools(), "\nTwo.", &[content("\nTwo.")]);
    check(SEED, "<seed:think>", &tools(), "a</seed:think>\nb", &[reasoning("a"), content("b")]);
    check_call(SEED, "<function=get_time></function>", &[content("<function=get_time></function>")]);
    check_call(SEED, "<seed:tool_call>{\"name\": \"get_time\"}", &[call("get_time", "{}")]);
}

#[test]
fn deepseek_and_kimi() {
    let both = [call("get_weather", "{\"city\": \"Paris\"}"), call("get_time", "{}")];
    let deepseek = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": \"Paris\"}<｜tool▁call▁end｜>\
                    <｜tool▁call▁begin｜>get_time<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>";
    check_call(DEEPSEEK, deepseek, &both);
    let thought = format!("<think>Hm.</think>I look.{deepseek}");
    check_call(DEEPSEEK, &thought, &[reasoning("Hm."), content("I look."), both[0].clone(), both[1].clone()]);
    let kimi = "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>\
                {\"city\": \"Paris\"}<|tool_call_end|><|tool_call_begin|>functions.get_time:12<|tool_call_argument_begin|>{}\
                <|tool_call_end|><|tool_calls_section_end|>";
    check_call(KIMI, kimi, &both);
    // Without a section, a prefix or a number.
    let bare = "<|tool_call_begin|>get_time<|tool_call_argument_begin|>{}<|tool_call_end|> ok";
    check_call(KIMI, bare, &[both[1].clone(), content("ok")]);
    for text in [
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁calls▁begin｜><｜tool▁calls▁end｜>",
        "<｜tool▁call▁begin｜><｜tool▁sep｜>{}",
        "<｜tool▁call▁begin｜>get_time<｜tool▁sep｜>[1]",
        "<｜tool▁call▁begin｜>get\ntime<｜tool▁sep｜>{}",
        "<｜tool▁call▁begin｜>get_time{}",
    ] {
        check_call(DEEPSEEK, text, &[content(text)]);
    }
}

#[test]
fn hy3() {
    let text = "<think:opensource>Hm.</think:opensource><tool_calls:opensource>\n\
                <tool_call:opensource>get_weather<tool_sep:opensource>\n\
                <arg_key:opensource>city</arg_key:opensource>\n<arg_value:opensource>Paris</arg_value:opensource>\n\
                <arg_key:opensource>days</arg_key:opensource>\n<arg_value:opensource>2</arg_value:opensource>\n\
                </tool_call:opensource>\n<tool_call:opensource>get_time<tool_sep:opensource>\n</tool_call:opensource>\n\
                </tool_calls:opensource>";
    let weather = call("get_weather", "{\"city\": \"Paris\", \"days\": 2}");
    check_call(HY3, text, &[reasoning("Hm."), weather, call("get_time", "{}")]);
}

/// A call as the published template writes it into later prompts (llama.cpp has it as
/// `models/templates/MiniMax-M3.jinja`), and with white space between tags.
#[test]
fn minimax_m3() {
    let text = "<mm:think>Two cities.</mm:think>I look.]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name=\"get_weather\">\
                ]<]minimax[>[<city>New\n<b>York</b>]<]minimax[>[</city>]<]minimax[>[<days>3]<]minimax[>[</days>\
                ]<]minimax[>[<tags>]<]minimax[>[<item>a]<]minimax[>[</item>]<]minimax[>[<item>\
                ]<]minimax[>[<item>1.5]<]minimax[>[</item>]<]minimax[>[</item>]<]minimax[>[</tags>\
                ]<]minimax[>[<place>]<]minimax[>[<lat>-1]<]minimax[>[</lat>]<]minimax[>[<name>N. \"Y\"\
                ]<]minimax[>[</name>]<]minimax[>[</place>]<]minimax[>[<exact>true]<]minimax[>[</exact>]<]minimax[>[</invoke>\n\
                ]<]minimax[>[<invoke name=\"get_time\">]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>";
    let place = r#""place": {"lat": -1, "name": "N. \"Y\""}, "exact": true"#;
    let arguments = format!(r#"{{"city": "New\n<b>York</b>", "days": 3, "tags": ["a", [1.5]], {place}}}"#);
    let calls = [call("get_weather", &arguments), call("get_time", "{}")];
    let expected = [&[reasoning("Two cities."), content("I look.")], &calls[..]].concat();
    check_call(M3, text, &expected);
    check_call(M3, &text.replace("<mm:think>Two cities.", ""), &expected[1..]);
    check(M3, "]~b]ai\n<mm:think>", &tools(), &text["<mm:think>".len()..], &expected);
    check(M3, "]~b]ai\n</mm:think>", &ReplyOptions::default(), "Two </mm:think>", &[content("Two </mm:think>")]);
    let argument = |argument: &str| {
        let argument = argument.replace('<', "]<]minimax[>[<");
        let open = "]<]minimax[>[<tool_call>]<]minimax[>[<invoke name=\"get_weather\">";
        format!("{open}\n{argument}\n]<]minimax[>[</invoke>]<]minimax[>[</tool_call>")
    };
    for (text, arguments) in [
        ("<tags> </tags> <place></place>", r#"{"tags": [], "place": {}}"#),
        ("<tags>[\"a\"]</tags>", r#"{"tags": ["a"]}"#),
        ("<city> \n</city><limit>null</limit>", r#"{"city": " \n", "limit": null}"#),
        ("<place><item>1</item></place>", r#"{"place": {"item": 1}}"#),
        ("<free> <item>1</item>\n<item></item> </free>", r#"{"free": [1, ""]}"#),
        ("<invoke>x</invoke><either>7</either>", r#"{"invoke": "x", "either": 7}"#),
    ] {
        check_call(M3, &argument(text), &[call("get_weather", arguments)]);
    }
    for text in [
        "<city>a",
        "a<city>b</city>",
        "<city>a</city><city>b</city>",
        "<city><a>b</a></city>",
        "<place>a<lat>1</lat></place>",
        "<place><lat>1</lat><lat>2</lat></place>",
        "<city>a</days>",
        "<>a</>",
        "<city",
        "</city>",
    ] {
        let text = argument(text);
        check_call(M3, &text, &[content(&text)]);
    }
    let json = "]<]minimax[>[<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1]}}\n]<]minimax[>[</tool_call> ok";
    check_call(M3, json, &[call("f", "{\"a\": [1]}"), content("ok")]);
    let deep = |n: usize| argument(&("<free>".repeat(n) + &"</free>".repeat(n)));
    assert!(matches!(&events(Reply::new(Some(M3), "", tools()), [&deep(64)[..]])[..], [ReplyEvent::ToolCall(_)]));
    assert_eq!(events(Reply::new(Some(M3), "", tools()), pieces(&deep(65), 7)), [content(&deep(65))]);
}

/// Calls as DeepSeek's templates write them into later prompts (`tool_chat_template_deepseekr1.jinja` of vLLM).
#[test]
fn deepseek_r1() {
    let both = [call("get_weather", "{\"city\": \"```\\n\"}"), call("get_time", "{}")];
    let text = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{\"city\": \"```\\n\"}\n```\
                <｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_time\n```json\n{}\n```<｜tool▁call▁end｜>\
                <｜tool▁calls▁end｜>";
    check_call(FENCED, text, &both);
    let thought = format!("\nHm.\n</think>\n\nI look.{text}");
    let expected = [reasoning("\nHm.\n"), content("I look."), both[0].clone(), both[1].clone()];
    check(FENCED, "<｜Assistant｜><think>", &tools(), &thought, &expected);
    for text in [
        "<｜tool▁call▁begin｜>get_time\n```json\n{}\n```<｜tool▁call▁end｜>",
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_time{}<｜tool▁call▁end｜>",
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_time\n```json\n[]\n```<｜tool▁call▁end｜>",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_time\n```json\n{",
    ] {
        check_call(FENCED, text, &[content(text)]);
    }
}

/// Replies as vLLM's tests of ERNIE 4.5's parsers have them (`test_ernie45_moe_tool_parser.py`,
/// `test_ernie45_reasoning_parser.py`).
#[test]
fn ernie() {
    let calls = "Two calls.\n</think>\n\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Beijing\"}}\n\
                 </tool_call>\n<tool_call>\n{\"name\": \"get_time\", \"arguments\": {}}\n</tool_call>\n";
    let expected = [reasoning("Two calls.\n"), call("get_weather", "{\"city\": \"Beijing\"}"), call("get_time", "{}")];
    let prompt = "<|im_start|>assistant\n<think>\n";
    check(ERNIE, prompt, &tools(), calls, &expected);
    for options in [tools(), ReplyOptions::default()] {
        let answer = "abc\n</think>\n\n\n<response>\ndef\n</response>\n";
        check(ERNIE, prompt, &options, answer, &[reasoning("abc\n"), content("def")]);
        check(ERNIE, prompt, &options, "abc\n</think>\ndef", &[reasoning("abc\n"), content("def")]);
    }
    check_call(ERNIE, "a <response> b", &[content("a <response> b")]);
}

/// Replies that the template of Hunyuan A13B asks for (`tool_chat_template_hunyuan_a13b.jinja` of vLLM).
#[test]
fn hunyuan() {
    let list = "<tool_calls>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"]</tool_calls>\"}}, \
                {\"name\": \"get_time\", \"arguments\": {}}]</tool_calls>";
    let calls = [call("get_weather", "{\"city\": \"]</tool_calls>\"}"), call("get_time", "{}")];
    let thought = format!("<think>\nHm.\n</think>\n<answer>\n{list}\n</answer>");
    check_call(HUNYUAN, list, &calls);
    check_call(HUNYUAN, &thought, &[&[reasoning("\nHm.\n")], &calls[..]].concat());
    for options in [tools(), ReplyOptions::default()] {
        for text in
            ["<think>\n\n</think>\n<answer>\n助手：Two 助手：.\n</answer>", "<think>\n\n</think>\n助手：Two 助手：."]
        {
            check(HUNYUAN, "", &options, text, &[reasoning("\n\n"), content("Two 助手：.")]);
        }
        check(HUNYUAN, "<think>\n\n</think>\n", &options, " Two. ", &[content(" Two. ")]);
    }
    // Apriel's replies.
    let apriel = format!("Here are my reasoning steps:\nHm.\n{list}");
    check_call(HUNYUAN, &apriel, &[&[content("Here are my reasoning steps:\nHm.")], &calls[..]].concat());
    for text in ["<tool_calls>{\"name\": \"f\"}</tool_calls>", "<tool_calls>[]</tool_calls>", "<tool_calls>["] {
        check_call(HUNYUAN, text, &[content(text)]);
    }
}

/// Replies as the published template writes them into later prompts (llama.cpp has it as
/// `models/templates/muse-glimmer.jinja`).
#[test]
fn muse() {
    let prompt = "<|start|>assistant";
    let weather = "<|start|>assistant to=get_weather<|message|><atem:function_calls>\n<atem:invoke name=\"get_weather\">\n\
                   <atem:parameter name=\"city\"> New\n\"York\"\n</atem:parameter>\n<atem:parameter name=\"days\">3\
                   </atem:parameter>\n<atem:parameter name=\"tags\">[\"a\", 1]</atem:parameter>\n</atem:invoke>\n\
                   </atem:function_calls><|eom|>";
    let time = "<|start|>assistant to=get_time<|message|><atem:function_calls>\n<atem:invoke name=\"get_time\">\n\
                </atem:invoke>\n</atem:function_calls><|eot|>";
    let arguments = r#"{"city": " New\n\"York\"\n", "days": 3, "tags": ["a", 1]}"#;
    let calls = [call("get_weather", arguments), call("get_time", "{}")];
    let text = format!(" to=self<|message|>Hm.<|eom|>{weather}{time}");
    check(MUSE, prompt, &tools(), &text, &[&[reasoning("Hm.")], &calls[..]].concat());
    let several = format!(
        " to=self<|message|>A.<|eom|><|start|>assistant to=user<|message|> I look. <|eom|>{weather}\
                           <|start|>assistant to=self<|message|>B.<|eom|><|start|>assistant to=user<|message|>Done.<|eot|>"
    );
    let expected = [reasoning("A."), content(" I look. "), calls[0].clone(), reasoning("B."), content("Done.")];
    check(MUSE, prompt, &tools(), &several, &expected);
    // No recipient, several calls in a message, ends that lack.
    let both =
        [weather, time].map(|text| text[text.find("<atem:invoke").unwrap()..].split_once("\n</atem:f").unwrap().0);
    let untagged =
        format!("<|message|>I look.\n<atem:function_calls>\n{}\n{}\n</atem:function_calls>", both[0], both[1]);
    check(MUSE, prompt, &tools(), &untagged, &[&[content("I look.")], &calls[..]].concat());
    // Without tools, and to the user, calls are text.
    let block = &time["<|start|>assistant to=get_time<|message|>".len()..time.len() - "<|eot|>".len()];
    check(MUSE, prompt, &ReplyOptions::default(), &format!(" to=get_time<|message|>{block}<|eot|>"), &[content(block)]);
    check(MUSE, prompt, &tools(), &format!(" to=user<|message|>{block}<|eot|>"), &[content(block)]);
    check(MUSE, "<|start|>assistant to=self<|message|>", &tools(), "A", &[reasoning("A")]);
    check(MUSE, prompt, &tools(), "Two.", &[content("Two.")]);
    for text in [
        "<atem:function_calls>\n<atem:invoke name=\"get_time\">\n",
        "<atem:function_calls>text</atem:function_calls>",
        "<atem:function_calls>{\"a\": ",
        "<atem:function_calls>",
        "text",
    ] {
        check(MUSE, prompt, &tools(), &format!(" to=get_time<|message|>{text}"), &[content(text)]);
    }
    check(MUSE, prompt, &tools(), " to=get_ti", &[]);
}
