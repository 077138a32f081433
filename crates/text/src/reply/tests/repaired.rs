//! Replies as models wrote them that are not in their form, and texts about calls within values.

use super::*;
use crate::template::Tool;

fn files() -> ReplyOptions {
    let parameters = json!({
        "properties": {"path": {"type": "string"}, "content": {"type": "string"}, "lines": {"type": "array"}},
        "required": ["path"],
    });
    let tool = |name: &str, parameters| Tool { name: name.to_owned(), parameters, ..Tool::default() };
    ReplyOptions::for_tools(&[tool("write_file", Some(parameters)), tool("now", None)])
}

fn written(path: &str, content: &str) -> ReplyEvent {
    let arguments = format!("{{\"path\": {}, \"content\": {}}}", json!(path), json!(content));
    call("write_file", &arguments)
}

/// A call of Qwen3-Coder's form, with this after the name's tag.
fn coder(parameters: &str) -> String {
    format!("<tool_call>\n<function=write_file>\n{parameters}</function>\n</tool_call>")
}

#[test]
fn a_tag_within_a_value_is_text() {
    let example = "<tool_call>\n<function=write_file>\n<parameter=path>\nx\n</parameter>\n</function>\n</tool_call>";
    for text in [
        "A block ends with </parameter> here.",
        "</parameter>\n</function>\nmore",
        "<parameter=content>\n</parameter> and </parameter>\n</function>, too",
        "See <function=now>",
        &format!("One:\n{example}\nTwo:\n{example}\n."),
        example,
    ] {
        let text_of_call =
            coder(&format!("<parameter=path>\n/data/a.md\n</parameter>\n<parameter=content>\n{text}\n</parameter>\n"));
        check(CODER, "", &files(), &text_of_call, &[written("/data/a.md", text)]);
    }
    let json =
        coder("<parameter=path>\na\n</parameter>\n<parameter=lines>\n[\"</parameter>\\n</function>\"]\n</parameter>\n");
    let arguments = "{\"path\": \"a\", \"lines\": [\"</parameter>\\n</function>\"]}";
    check(CODER, "", &files(), &json, &[call("write_file", arguments)]);
}

#[test]
fn an_omitted_end_is_repaired_or_there_is_no_call() {
    let repaired = "<parameter=path>\n/data/a\n<parameter=content>\nhi\n</parameter>\n";
    check(CODER, "", &files(), &coder(repaired), &[written("/data/a", "hi")]);
    let glm = "<tool_call>write_file\n<arg_key>path</arg_key>\n<arg_value>/data/a\n\
               <arg_key>content</arg_key>\n<arg_value>hi</arg_value>\n</tool_call>";
    check(GLM, "", &files(), glm, &[written("/data/a", "hi")]);
    let minimax = "<minimax:tool_call>\n<invoke name=\"write_file\">\n<parameter name=\"path\">/data/a\n\
                   <parameter name=\"content\">hi</parameter>\n</invoke>\n</minimax:tool_call>";
    check(MINIMAX, "", &files(), minimax, &[written("/data/a", "hi")]);
    for text in [
        // The last end lacks, or is there twice; a parameter is there twice; the start of one lacks.
        "<parameter=path>\n/data/a\n",
        "<parameter=path>\n/data/a\n</parameter>\n</parameter>\n",
        "<parameter=path>\na\n</parameter>\n<parameter=path>\nb\n</parameter>\n",
        "<parameter=content>\na\n</parameter>\npath>\nb\n</parameter>\n",
    ] {
        check(CODER, "", &files(), &coder(text), &[content(&coder(text))]);
    }
    // A call ends before its parameters.
    let early = coder("</function><parameter=path>\na\n</parameter>\n");
    check(CODER, "", &files(), &early, &[content(&early)]);
    let early = "<tool_call>write_file\n<arg_key>path</arg_key>\n<arg_value>a</arg_value>\n</tool_call><arg_key>content\
                 </arg_key>\n<arg_value>b</arg_value>\n</tool_call>";
    check(GLM, "", &files(), early, &[content(early)]);
    // The last end lacks, and another call follows, with a tag in a value.
    let next = "<tool_call>now\n<arg_key>a</arg_key>\n<arg_value>. </tool_call>.</arg_value>\n</tool_call>";
    let first = "<tool_call>write_file\n<arg_key>path</arg_key>\n<arg_value>a\n</tool_call>";
    let expected = [content(first), call("now", r#"{"a": ". </tool_call>."}"#)];
    check(GLM, "", &files(), &format!("{first}\n{next}"), &expected);
    let first = "<tool_call>write_file\n<arg_key>path</arg_key>\n<arg_value>a</arg_value>";
    let expected = [content(first), call("now", r#"{"a": ". </tool_call>."}"#)];
    check(GLM, "", &files(), &format!("{first}\n{next}"), &expected);
    // A value that must be JSON ends within a string.
    let open = "<minimax:tool_call><invoke name=\"write_file\"><parameter name=\"path\">a</parameter>\
                <parameter name=\"lines\">[\"</parameter></invoke>";
    check(MINIMAX, "", &files(), open, &[content(open)]);
    let twice = "<minimax:tool_call>\n<invoke name=\"write_file\">\n<parameter name=\"path\">\na</parameter></parameter>\n\
                 </invoke>\n</minimax:tool_call>";
    check(MINIMAX, "", &files(), twice, &[content(twice)]);
    // A call without its last end does not take the next one in.
    let next = "<tool_call>\n<function=now>\n</function>\n</tool_call>";
    let first = coder("<parameter=path>\n/data/a\n");
    check(CODER, "", &files(), &format!("{first}\n{next}"), &[content(&first), call("now", "{}")]);
}

#[test]
fn a_call_that_ends_reasoning_is_a_call() {
    let now = "<tool_call>\n<function=now>\n</function>\n</tool_call>";
    for end in ["", "\n", "\n</think>", "</think>\n\n"] {
        let text = format!("<think>\nI should call.\n{now}{end}");
        check(CODER, "", &files(), &text, &[reasoning("\nI should call.\n"), call("now", "{}")]);
    }
    let two = format!("I call.{now}\n{now}");
    check(CODER, "<think>\n", &files(), &two, &[reasoning("I call."), call("now", "{}"), call("now", "{}")]);
    // The model only thinks about a call.
    let open = format!("Perhaps {now}, or not.");
    check(CODER, "<think>\n", &files(), &open, &[reasoning(&open)]);
    let done = format!("Perhaps {now}\n");
    let closed = format!("{done}</think>\n\nNo.");
    check(CODER, "<think>\n", &files(), &closed, &[reasoning(&done), content("No.")]);
    let again = format!("{done}</think>\n\n{now}");
    check(CODER, "<think>\n", &files(), &again, &[reasoning(&done), call("now", "{}")]);
    let other = now.replace("now", "other");
    check(CODER, "<think>\n", &files(), &other, &[reasoning(&other)]);
    // A limit ended the reasoning.
    let mut reply = Reply::new(Some(CODER), "<think>\n", files());
    assert_eq!([reply.push(now), reply.cut()].concat(), [reasoning(now)]);
}

#[test]
fn a_call_without_arguments_has_none() {
    let head = "<|channel|>commentary to=functions.now <|constrain|>json<|message|>";
    for end in ["<|call|>", " \n<|call|>", "<|end|>", ""] {
        check(HARMONY, "", &files(), &format!("{head}{end}"), &[call("now", "{}")]);
    }
    let head = head.replace("now", "write_file");
    check(HARMONY, "", &files(), &format!("{head}<|call|>"), &[call("write_file", "{}")]);
    check(HARMONY, "", &files(), &head, &[content(&head)]);
}

#[test]
fn blanks_between_texts_are_kept() {
    let harmony = "<|channel|>analysis<|message|>One.<|end|><|start|>assistant<|channel|>analysis<|message|>Two.<|end|>\
                   <|start|>assistant<|channel|>final<|message|>Three.<|return|>";
    check_call(HARMONY, harmony, &[reasoning("One.\nTwo."), content("Three.")]);
    let command =
        "<|START_RESPONSE|>\n<|START_TEXT|>One. <|END_TEXT|>\n<|START_TEXT|>Two.<|END_TEXT|>\n<|END_RESPONSE|>";
    check_call(COMMAND, command, &[content("One. \nTwo.")]);
}

/// Found by a search of damaged replies.
#[test]
fn what_no_call_may_be_is_content() {
    // Calls whose object a bracket too many has ended.
    for (template, text) in [
        (QWEN, r#"<tool_call>{"name": "get_weather", "arguments": {}}, "days": 3}}</tool_call>"#),
        (NAMED, r#"[TOOL_CALLS]get_weather[ARGS]{"city": "a"}, "days": 3}"#),
        (GEMMA4, r#"<|tool_call>call:get_weather{city:<|"|>a<|"|>}, days:3}<tool_call|>"#),
        (GEMMA4, r#"<|tool_call>call:get_weather{days:3}.<|"|>}<tool_call|>"#),
        (GEMMA4, r#"<|tool_call>call:call:get_time{}<tool_call|>"#),
        (GEMMA4, r#"<|tool_call>call:get_weather{days:3} b<|"|>}<tool_call|>"#),
        (NAMED, r#"[TOOL_CALLS]get_weather[ARGS]{"days": 5}<, "city": ""}"#),
        (NAMED, r#"[TOOL_CALLS]get_weather[ARGS]{"days": 5} and [TOOL_CALLS]", "city": ""}"#),
        (MISTRAL, r#"[TOOL_CALLS][{"name": "get_weather", "arguments": {"days": 5}}]"}}]"#),
        (LFM2, "<|tool_call_start|>[get_weather(days=5), city='a')]<|tool_call_end|>"),
        (LLAMA, r#"{"name": "get_weather", "parameters": {"days": 5}}; "city": "a"}}"#),
    ] {
        check_call(template, text, &[content(text)]);
    }
    // The end of a turn that the engine does not know.
    for (template, text, end) in [
        (LLAMA, r#"{"name": "get_time", "parameters": {}}"#, "<|eot_id|>"),
        (NAMED, "[TOOL_CALLS]get_time[ARGS]{}", "</s>"),
        (MISTRAL, r#"[TOOL_CALLS][{"name": "get_time", "arguments": {}}]"#, "[/INST]"),
        (GEMMA4, "<|tool_call>call:get_time{}", "<end_of_turn>"),
    ] {
        check_call(template, &format!("{text}{end}"), &[call("get_time", "{}"), content(end)]);
        let text = text.replace("{}", "{}<br>");
        check_call(template, &text, &[content(&text)]);
    }
    // One too many at the end is none of the call.
    for (template, text) in [
        (QWEN, r#"<tool_call>{"name": "get_time", "arguments": {}}}</tool_call>"#),
        (NAMED, r#"[TOOL_CALLS]get_time[ARGS]{}}} "#),
        (GEMMA4, "<|tool_call>call:get_time{}}\n<tool_call|>"),
        (HARMONY, "<|channel|>commentary to=functions.get_time<|message|>{}}<|call|>"),
        (LFM2, "<|tool_call_start|>[get_time())]<|tool_call_end|>"),
    ] {
        check_call(template, text, &[call("get_time", "{}")]);
    }
    let text = r#"{"city": "a"}, "days": 3}"#;
    let head = "<|channel|>commentary to=functions.get_weather<|message|>";
    let whole = format!("{head}{text}");
    check_call(HARMONY, &format!("{whole}<|call|>"), &[content(&whole)]);
    // A mark that lacks, with one in a value, and a mark too many.
    for text in [
        r#"<|channel|>commentary to=functions.get_weather json{"city": "<|message|><|call|>."}<|call|>"#,
        r#"<|channel|>commentary to=functions.write_file json<|message|><|channel|>{"path": ""}<|call|>"#,
        r#"<|channel|>commentary to=functions.now json<|message|><|call|>{"path": ""}<|call|>"#,
    ] {
        let found = events(Reply::new(Some(HARMONY), "", files()), [text]);
        assert!(found.iter().all(|event| matches!(event, ReplyEvent::Content(_))), "{found:?}");
    }
    // Marks in a value of a malformed call, with a name that no tool has.
    for text in [
        r#"[TOOL_CALLS][{"name": "get_time", "arguments": {a: "see [TOOL_CALLS]f[ARGS]{}"}}]"#,
        r#"[TOOL_CALLS][{"name": "get_time", "arguments": {a: "[TOOL_CALLS]", "b": {}}}]"#,
    ] {
        check_call(MISTRAL, text, &[content(text)]);
    }
    let text = "<tool_call>{a: \"<tool_call>{\"name\": \"f\"}</tool_call>\"}</tool_call>";
    check_call(QWEN, text, &[content(text)]);
}
