//! Replies whose beginning is in the prompt: required calls, and messages that are continued.

use super::*;

/// A call of `get_time` in each form: template, end of the prompt, and the call after its opening.
const REQUIRED: [(&str, &str, &str); 34] = [
    (QWEN, "<|im_start|>assistant\n", "{\"name\": \"get_time\", \"arguments\": {\"zone\": \"}\"}}"),
    (CODER, "<think>\n\n</think>\n\n", "{\"name\": \"get_time\", \"arguments\": {\"zone\": \"}\"}}"),
    (GLM, "<|assistant|>\n", "{\"name\": \"get_time\", \"arguments\": {\"zone\": \"}\"}}"),
    (MINIMAX, "</think>\n\n", "{\"name\": \"get_time\", \"arguments\": {\"zone\": \"}\"}}"),
    (GEMMA4, "<|channel>thought\n<channel|>", "{\"name\": \"get_time\", \"arguments\": {\"zone\": \"}\"}}"),
    (SOLAR, "<|begin|>assistant", "get_time<|tool_call:args|>{\"zone\": \"}\"}"),
    (DSML, "</think>", "{\"name\": \"get_time\", \"arguments\": {\"zone\": \"}\"}}"),
    (DSML_V4, "</think>", "{\"name\": \"get_time\", \"arguments\": {\"zone\": \"}\"}}"),
    (KIMI_K3, "<|open|>response<|sep|>", "{\"name\": \"get_time\", \"arguments\": {\"zone\": \"}\"}}"),
    (MINICPM, "<|im_start|>assistant\n", "{\"name\": \"get_time\", \"arguments\": {\"zone\": \"}\"}}"),
    (APERTUS, "<|assistant_start|>", "[{\"get_time\": {\"zone\": \"}\"}}]"),
    (NEMOTRON, "<think>\n\n</think>\n", "[{\"name\": \"get_time\", \"arguments\": {\"zone\": \"}\"}}]"),
    (GRANITE, "<|end_of_role|>", "[{\"name\": \"get_time\", \"arguments\": {\"zone\": \"}\"}}]"),
    (GIGACHAT, "<|role_sep|>\n", "{\"name\": \"get_time\", \"arguments\": {\"zone\": \"}\"}}"),
    (GIGACHAT_MARK, "<|role_sep|>\n", "{\"name\": \"get_time\", \"arguments\": {\"zone\": \"}\"}}"),
    (MINIMAX_M1, "ai name=assistant\n", "{\"name\": \"get_time\", \"arguments\": {\"zone\": \"}\"}}"),
    (FUNCTIONARY, "<|end_header_id|>\n\n", "get_time>{\"zone\": \"}\"}"),
    (RECIPIENT, "<|end_header_id|>\n\n", "get_time\n{\"zone\": \"}\"}"),
    (
        COMMAND,
        "<|START_THINKING|><|END_THINKING|>",
        "[{\"tool_name\": \"get_time\", \"parameters\": {\"zone\": \"}\"}}]",
    ),
    (SEED, "<seed:bos>assistant\n", "{\"name\": \"get_time\", \"arguments\": {\"zone\": \"}\"}}"),
    (LFM2, "<|im_start|>assistant\n", "[{\"name\": \"get_time\", \"arguments\": {\"zone\": \"}\"}}]"),
    (LLAMA, "<|end_header_id|>\n\n", "{\"name\": \"get_time\", \"parameters\": {\"zone\": \"}\"}}"),
    (LLAMA4, "<|header_end|>\n\n", "{\"name\": \"get_time\", \"parameters\": {\"zone\": \"}\"}}"),
    (MISTRAL, "[/INST]", "[{\"name\": \"get_time\", \"arguments\": {\"zone\": \"}\"}}]"),
    (NAMED, "[/INST]", "get_time[ARGS]{\"zone\": \"}\"}"),
    (DEEPSEEK, "<｜Assistant｜></think>", "get_time<｜tool▁sep｜>{\"zone\": \"}\"}"),
    (KIMI, "assistant<|im_middle|>", "get_time:0<|tool_call_argument_begin|>{\"zone\": \"}\"}"),
    (HY3, "<think:opensource></think:opensource>", "{\"name\": \"get_time\", \"arguments\": {\"zone\": \"}\"}}"),
    (FENCED, "<｜Assistant｜><think>\n\n</think>\n\n", "get_time\n```json\n{\"zone\": \"}\"}"),
    (M3, "]~b]ai\n</mm:think>", "{\"name\": \"get_time\", \"arguments\": {\"zone\": \"}\"}}"),
    (ERNIE, "<|im_start|>assistant\n", "{\"name\": \"get_time\", \"arguments\": {\"zone\": \"}\"}}"),
    (HUNYUAN, "<think>\n\n</think>\n", "[{\"name\": \"get_time\", \"arguments\": {\"zone\": \"}\"}}]"),
    (MUSE, "<|start|>assistant", "get_time<|message|><atem:function_calls>\n{\"zone\": \"}\"}"),
    (HARMONY, "<|start|>assistant", "get_time <|constrain|>json<|message|>{\"zone\": \"}\"}"),
];

/// Both ways of a prompt: with the opening of a call, and with as much of the call as names a single tool.
fn required(template: &str, prompt: &str, known: &str) -> ReplyForm {
    let form = form(template, prompt, tools());
    let opening = Syntax::of(template, prompt).call.body.opening();
    form.started([&*opening, known].concat()).only_calls()
}

#[test]
fn required_calls_are_whole_or_left_out() {
    for (template, prompt, text) in REQUIRED {
        let expected = [call("get_time", "{\"zone\": \"}\"}")];
        let known = text.split_once('{').map_or("", |(known, _)| known).trim_start_matches('[');
        for known in ["", known] {
            let form = required(template, prompt, known);
            let text = &text[known.len()..];
            for n in 1..=text.len() {
                assert_eq!(events(form.parser(), pieces(text, n)), expected, "{text} in pieces of {n}");
            }
            let end = text.rfind('}').expect("an object") + 1;
            for cut in (0..end).filter(|&cut| text.is_char_boundary(cut)) {
                let mut reply = form.parser();
                assert_eq!([reply.push(&text[..cut]), reply.cut()].concat(), [], "{}", &text[..cut]);
            }
            assert_eq!(form.parse(&text[..end]).calls.len(), 1);
        }
    }
}

#[test]
fn a_continued_message_gives_what_follows() {
    let time = "<tool_call>\n{\"name\": \"get_time\"}\n</tool_call>";
    for (started, text, expected) in [
        ("Hello", " world ", vec![content(" world ")]),
        // Held white space is of the start.
        ("Hello \n", "world", vec![content("world")]),
        ("Hello", " \n\n", vec![content(" \n\n")]),
        // A mark starts before, and does or does not end.
        ("See: <tool", &time[5..], vec![call("get_time", "{}")]),
        ("See: <tool", "s>", vec![content("s>")]),
        ("See:", time, vec![call("get_time", "{}")]),
        // A call that is in the prompt is not one of the reply.
        (time, "\nDone.", vec![content("Done.")]),
        ("<think>a", "b</think>c", vec![reasoning("b"), content("c")]),
        ("<think>a</th", "ink>c", vec![content("c")]),
        ("größer", "größer", vec![content("größer")]),
    ] {
        for n in 1..=text.chars().count() {
            let form = form(QWEN, "", tools()).started(started);
            assert_eq!(events(form.parser(), pieces(text, n)), expected, "{started:?}, {text:?} in pieces of {n}");
        }
    }
    let form = form(HARMONY, "<|start|>assistant<|channel|>final<|message|>", tools()).started("Hi <|");
    assert_eq!(events(form.parser(), ["there", "<|return|>"]), [content("there")]);
    assert!(!form.parser().has_calls() && !form.parser().is_reasoning());
}

#[test]
fn further_calls_are_dropped_on_request() {
    let both = "<tool_call>{\"name\": \"a\"}</tool_call><tool_call>{\"name\": \"b\"}</tool_call>.";
    let one = ReplyOptions { parallel_calls: false, ..tools() };
    for (options, expected) in
        [(tools(), vec![call("a", "{}"), call("b", "{}"), content(".")]), (one, vec![call("a", "{}"), content(".")])]
    {
        check(QWEN, "", &options, both, &expected);
    }
}
