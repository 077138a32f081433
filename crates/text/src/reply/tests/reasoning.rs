//! Reasoning and answer, without tools.

use super::*;

/// Checks reasoning and answer, and that no piece is empty.
fn check_split(prompt: &str, text: &str, thought: &str, answer: &str) {
    let expected: Vec<_> = [reasoning(thought), content(answer)]
        .into_iter()
        .filter(|event| !matches!(event, ReplyEvent::Reasoning(text) | ReplyEvent::Content(text) if text.is_empty()))
        .collect();
    check("", prompt, &ReplyOptions::default(), text, &expected);
}

#[test]
fn any_cut_gives_the_same() {
    let turn = "<|start|>user<|message|>Hi<|end|><|start|>assistant";
    let cases = [
        ("", "\n<think>a < b</think>\n\nyes </think>", "a < b", "yes </think>"),
        ("<|im_start|>assistant\n<think>\n", "hm</thin</think>ok", "hm</thin", "ok"),
        ("", "plain <think>x</think>", "", "plain <think>x</think>"),
        ("", "<thin", "", "<thin"),
        ("", "<think>never ends</th", "never ends</th", ""),
        ("", "  two", "", "  two"),
        ("", "two  \n", "", "two  \n"),
        ("", " \n", "", " \n"),
        ("", "", "", ""),
        ("", "<think>größer</think> größer 😀", "größer", "größer 😀"),
        ("", "<|channel|>final<|message|>x", "", "<|channel|>final<|message|>x"),
        (
            turn,
            "<|channel|>analysis<|message|>a <|b<|end|><|start|>assistant<|channel|>final<|message|> Hi <|",
            "a <|b",
            " Hi <|",
        ),
        (turn, "<|channel|>final<|message|>Hi<|return|>", "", "Hi"),
        (
            turn,
            "<|channel|>commentary to=functions.weigh <|constrain|>json<|message|>{\"kg\": 1}<|call|>",
            "{\"kg\": 1}",
            "",
        ),
        // Ends that were discarded, heads that stop short, and no channel at all.
        (turn, "<|channel|>analysis<|message|>a<|channel|>final<|message|>b<|start|>assist", "a", "b"),
        (turn, "<|channel|>ana", "", ""),
        (turn, "<|channel|>analysis<|message|>never ends<|en", "never ends<|en", ""),
        (turn, "plain", "", "plain"),
        (turn, "<|message|>no channel", "no channel", ""),
        (turn, "<|channel|>final <|constrain|>json<|message|>{}<|end|>", "", "{}"),
        (turn, "<|channel|>final<|constrain|>json<|message|>{}<|end|>", "", "{}"),
    ];
    for (prompt, text, thought, answer) in cases {
        check_split(prompt, text, thought, answer);
    }
}

#[test]
fn a_prompt_may_start_the_reply() {
    let none = ReplyOptions::default();
    check(QWEN, "<|im_start|>assistant\n<think>\n\n</think>\n\n", &none, "ok", &[content("ok")]);
    check(MAGISTRAL, "[/INST][THINK]", &none, "hm[/THINK] ok", &[reasoning("hm"), content("ok")]);
    let done = "<|start|>assistant<|channel|>final<|message|>Hi<|end|>";
    for (prompt, text, expected) in [
        ("<|start|>assistant<|channel|>final<|message|>", "ok<|return|>", [content("ok")]),
        ("<|start|>assistant<|channel|>analysis<|message|>So", " hm<|end|>", [reasoning(" hm")]),
        (done, "<|start|>assistant<|channel|>final<|message|>ok", [content("ok")]),
    ] {
        check(HARMONY, prompt, &none, text, &expected);
    }
}

#[test]
fn plain_text_has_no_marks() {
    let text = "<think>a</think> <tool_call>{}</tool_call>";
    assert_eq!(events(Reply::plain(), pieces(text, 3)), [content(text)]);
    let mut reply = Reply::new(None, "", ReplyOptions::default());
    assert_eq!([reply.push("<think>a"), reply.finish()].concat(), [reasoning("a")]);
    assert_eq!(reply.push("</think>"), [content("</think>")]);
}

#[test]
fn control_tokens_are_asked_for_where_marks_are() {
    for (template, tools_only, always) in [
        (QWEN, false, false),
        (CODER, false, false),
        (GLM, false, false),
        (MINIMAX, false, false),
        (LLAMA, true, false),
        (MISTRAL, true, false),
        (MAGISTRAL, true, true),
        (HARMONY, true, true),
        ("", false, false),
    ] {
        let of = |options| form(template, "", options).marks_are_control_tokens();
        assert_eq!((of(tools()), of(ReplyOptions::default())), (tools_only, always), "{template}");
    }
    assert!(form("", "<|start|>assistant", ReplyOptions::default()).marks_are_control_tokens());
    assert!(!ReplyForm::plain().marks_are_control_tokens());
}

#[test]
fn a_parser_tells_whether_it_is_in_reasoning() {
    let told = |template: &str, prompt: &str, pieces: &[&str]| {
        let mut reply = Reply::new(Some(template), prompt, tools());
        let first = reply.is_reasoning();
        let told = pieces.iter().map(|piece| {
            let _ = reply.push(piece);
            reply.is_reasoning()
        });
        [vec![first], told.collect()].concat()
    };
    let text = ["<think>", "a", "</thi", "nk>", "\n", "b", "<tool_call>"];
    assert_eq!(told(QWEN, "", &text), [false, true, true, true, false, false, false, false]);
    assert_eq!(told(QWEN, "<think>\n", &["a", "</think>"]), [true, true, false]);
    let analysis =
        ["<|channel|>analysis", "<|message|>", "a", "<|end|>", "<|start|>assistant<|channel|>final<|message|>b"];
    assert_eq!(told(HARMONY, "<|start|>assistant", &analysis), [false, false, true, true, false, false]);
    let mut plain = Reply::plain();
    let _ = plain.push("<think>");
    assert!(!plain.is_reasoning());
}
