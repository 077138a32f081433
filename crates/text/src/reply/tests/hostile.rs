//! Any text, cut anywhere: the same events, no panic, and time that is linear.

use serde_json::{Map, Value as Json};
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;

const FRAGMENTS: [&str; 124] = [
    "<|tool_calls|><|tool_call:begin|>1<|tool_call:name|>get_time<|tool_call:args|>",
    "<｜DSML｜function_calls><｜DSML｜invoke name=\"get_weather\">",
    "<｜DSML｜parameter name=\"city\" string=\"true\">",
    "</｜DSML｜parameter></｜DSML｜invoke>",
    "<|open|>tools<|sep|><|open|>call tool=\"get_weather\" index=\"1\"<|sep|>",
    "<|open|>argument key=\"city\" type=\"",
    "<|close|>argument<|sep|><|close|>call<|sep|>",
    "<function name=\"get_weather\"><param name=\"city\"><![CDATA[",
    "]]></param></function>",
    "<|tools_prefix|>[{\"get_time\": {",
    "<|tools_suffix|>",
    "<TOOLCALL>[",
    "<|tool_call|>[",
    "<|message_sep|>\n\nfunction call<|role_sep|>\n",
    "<function=get_time>{}</function>",
    ">>>get_time\n{",
    "]<]minimax[>[",
    "]<]minimax[>[<tool_call>",
    "]<]minimax[>[</tool_call>",
    "]<]minimax[>[<invoke name=\"get_weather\">",
    "]<]minimax[>[</invoke>",
    "]<]minimax[>[<city>",
    "]<]minimax[>[</city>",
    "]<]minimax[>[<item>",
    "]<]minimax[>[</item>",
    "</mm:think>",
    "```json",
    "```",
    "function<｜tool▁sep｜>get_time\n```json\n",
    "<response>",
    "</response>",
    "<tool_calls>[",
    "]</tool_calls>",
    "<answer>",
    "助手：",
    "to=get_time<|message|>",
    "<atem:function_calls>",
    "<atem:invoke name=\"get_weather\">",
    "<atem:parameter name=\"city\">",
    "<|eom|>",
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<function=",
    "</function>",
    "<parameter=",
    "</parameter>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "<minimax:tool_call>",
    "<invoke name=\"",
    "<|tool_call_start|>[",
    "<|tool_call_end|>",
    "get_weather(city='",
    "')",
    "<parameter name=\"",
    "<|channel>thought",
    "<channel|>",
    "<|tool_call>",
    "<tool_call|>",
    "call:get_weather{",
    "<|\"|>",
    "city:<|\"|>",
    "None",
    "<seed:think>",
    "</seed:think>",
    "<seed:tool_call>",
    "</seed:tool_call>",
    "</invoke>",
    "get_weather",
    "get_time",
    "city",
    "days",
    ">",
    "<",
    "<|",
    "|>",
    "{",
    "}",
    "[",
    "]",
    "\"",
    ":",
    ",",
    ";",
    "\\",
    "\n",
    "  ",
    "1",
    "true",
    "ö",
    "😀",
    "\u{2003}",
    "{\"name\": \"get_time\", \"arguments\": {}}",
    "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"",
    "\"}}",
    "\"name\"",
    "<|python_tag|>",
    "<|python_start|>",
    "<|python_end|>",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁sep｜>",
    "<｜tool▁call▁end｜>",
    "<|tool_call_begin|>functions.get_time:0<|tool_call_argument_begin|>",
    "<tool_calls:opensource><tool_call:opensource>get_time<tool_sep:opensource>",
    "[TOOL_CALLS]",
    "[ARGS]",
    "[CALL_ID]",
    "[THINK]",
    "[/THINK]",
    "<|channel|>",
    "<|message|>",
    "<|start|>assistant",
    "<|end|>",
    "<|call|>",
    "<|return|>",
    "final",
    "analysis",
    "commentary to=functions.get_time ",
    "<|constrain|>json",
];

/// Texts of marks, pieces of marks and of calls, and other characters.
fn texts() -> impl Strategy<Value = String> {
    let fragment = prop_oneof![
        8 => prop::sample::select(&FRAGMENTS[..]).prop_map(str::to_owned),
        1 => (prop::sample::select(&FRAGMENTS[..]), any::<prop::sample::Index>())
            .prop_map(|(text, end)| text.chars().take(end.index(text.chars().count())).collect()),
        1 => any::<char>().prop_map(String::from),
    ];
    prop::collection::vec(fragment, 0..40).prop_map(|fragments| fragments.concat())
}

/// A form and a text of its own marks and of their beginnings.
fn texts_of_forms() -> impl Strategy<Value = (&'static str, String)> {
    prop::sample::select(&FLOODS[..]).prop_flat_map(|(template, floods)| {
        let marks: Vec<&str> = floods.iter().flat_map(|&(head, body)| [head, body]).chain(["x", "\n", " "]).collect();
        let fragment = (prop::sample::select(marks), any::<Option<prop::sample::Index>>()).prop_map(|(mark, end)| {
            let end = end.map_or(mark.len(), |end| end.index(mark.len() + 1));
            mark[..mark.floor_char_boundary(end)].to_owned()
        });
        let text = prop::collection::vec(fragment, 0..12).prop_map(|fragments| fragments.concat());
        (Just(template), text)
    })
}

/// Prompt ends in several states.
const PROMPTS: [&str; 4] = ["", "<think>", "<|start|>assistant", "<|start|>assistant<|channel|>final<|message|>"];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn cuts_do_not_matter(
        text in texts(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        template in prop::sample::select(&TEMPLATES[..]),
        prompt in prop::sample::select(&PROMPTS[..]),
        with_tools in any::<bool>(),
    ) {
        let options = if with_tools { tools() } else { ReplyOptions::default() };
        let reply = || Reply::new(Some(template), prompt, options.clone());
        let whole = events(reply(), [text.as_str()]);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| text.floor_char_boundary(cut.index(text.len() + 1))).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        prop_assert_eq!(&events(reply(), cuts.windows(2).map(|pair| &text[pair[0]..pair[1]])), &whole);
        prop_assert_eq!(&events(reply(), pieces(&text, 1)), &whole);
        for event in whole {
            if let ReplyEvent::ToolCall(call) = event {
                prop_assert!(with_tools && !call.name.is_empty());
                prop_assert!(serde_json::from_str::<Map<String, Json>>(&call.arguments).is_ok());
            }
        }
    }

    /// Marks of one form that begin alike.
    #[test]
    fn cuts_within_marks_do_not_matter((template, text) in texts_of_forms(), n in 2..8usize) {
        let whole = events(Reply::new(Some(template), "", tools()), [text.as_str()]);
        for n in [1, n] {
            prop_assert_eq!(&events(Reply::new(Some(template), "", tools()), pieces(&text, n)), &whole);
        }
    }

    /// Without reasoning, which only starts a reply, and without calls, nothing is lost.
    #[test]
    fn malformed_text_is_not_lost(text in texts(), template in prop::sample::select(&TEMPLATES[..5])) {
        let text = format!("x{text}");
        let found = events(Reply::new(Some(template), "", tools()), pieces(&text, 3));
        if found.iter().all(|event| matches!(event, ReplyEvent::Content(_))) {
            let found: String = found.iter().map(|event| match event {
                ReplyEvent::Content(text) => text.as_str(),
                _ => "",
            }).collect();
            prop_assert_eq!(found, text);
        }
    }
}

/// Texts of hostile shape for each form: a start, and what is repeated.
const FLOODS: [(&str, &[(&str, &str)]); 18] = [
    (
        SOLAR,
        &[
            ("", "<|tool_calls|>"),
            ("<|tool_calls|><|tool_call:begin|>", "1"),
            ("<|tool_calls|><|tool_call:begin|>1<|tool_call:name|>", "f"),
            ("<|tool_calls|>", "<|tool_call:begin|>1<|tool_call:name|>f<|tool_call:args|>{}<|tool_call:end|>"),
            ("", "<|end|><|begin|>assistant"),
        ],
    ),
    (
        KIMI_K3,
        &[
            ("", "<|open|>response<|sep|>"),
            ("<|open|>tools<|sep|><|open|>call tool=\"f\" index=\"", "1"),
            (
                "<|open|>tools<|sep|><|open|>call tool=\"f\" index=\"1\"<|sep|>",
                "<|open|>argument key=\"a\" type=\"string\"<|sep|>1<|close|>argument<|sep|>",
            ),
            ("<|open|>tools<|sep|><|open|>call tool=\"f\" index=\"1\"<|sep|><|open|>argument key=\"a\" type=\"", "s"),
        ],
    ),
    (
        MINICPM,
        &[
            ("<function name=\"f\"><param name=\"a\">", "<![CDATA["),
            ("<function name=\"f\"><param name=\"a\"><![CDATA[", "]]"),
            ("<function name=\"f\"><param name=\"a\"><![CDATA[", "]]>"),
            ("<function name=\"f\">", "<param name=\"a\">1</param>"),
        ],
    ),
    (APERTUS, &[("<|tools_prefix|>[", "{\"f\": {}},"), ("<|tools_prefix|>[{\"", "f")]),
    (RECIPIENT, &[("", ">>>all\n"), ("", ">>>"), ("", ">>>f\n{}"), (">>>", "f")]),
    (
        M3,
        &[
            ("", "]<]minimax[>[<tool_call>"),
            ("]<]minimax[>[<tool_call>", "]<]minimax[>[<invoke name=\"f\">]<]minimax[>[</invoke>"),
            ("]<]minimax[>[<tool_call>]<]minimax[>[<invoke name=\"", "n"),
            ("]<]minimax[>[<tool_call>]<]minimax[>[<invoke name=\"f\">", "]<]minimax[>[<a>"),
            ("]<]minimax[>[<tool_call>]<]minimax[>[<invoke name=\"f\">", "]<]minimax[>[<a>]<]minimax[>[</a>"),
            ("]<]minimax[>[<tool_call>]<]minimax[>[<invoke name=\"f\">]<]minimax[>[<a>", "]<]minimax[>"),
            ("]<]minimax[>[<tool_call>]<]minimax[>[<invoke name=\"f\">]<]minimax[>[<", "k"),
            ("", "</mm:think>"),
        ],
    ),
    (
        HUNYUAN,
        &[
            ("", "<answer>"),
            ("", "助手："),
            ("", "<tool_calls>["),
            ("<tool_calls>[", "{\"name\": \"f\"},"),
            ("x", "</answe"),
        ],
    ),
    (
        MUSE,
        &[
            ("", "to=self "),
            ("", "<|start|>assistant to=f<|message|>"),
            ("to=f<|message|>", " "),
            ("to=f<|message|>", "<atem:function_calls>"),
            ("to=f<|message|><atem:function_calls>", "<atem:invoke name=\"f\"></atem:invoke>"),
            (
                "to=f<|message|><atem:function_calls><atem:invoke name=\"f\"><atem:parameter name=\"a\">",
                "</atem:paramete",
            ),
            ("to=f<|message|><atem:function_calls>", "{\"a\":"),
            ("to=user<|message|>", "<|eom|>"),
        ],
    ),
    (
        GLM,
        &[
            ("<tool_call>", "n"),
            ("<tool_call>", "\n"),
            ("<tool_call>f", "<arg_key>a</arg_key><arg_value>1</arg_value>"),
            ("<tool_call>f<arg_key>", "k"),
            ("<tool_call>f<arg_key>a</arg_key>", " "),
            ("<tool_call>f<arg_key>a</arg_key><arg_value>", "</arg_valu"),
            ("", "<tool_call>f</tool_call>"),
        ],
    ),
    (
        MINIMAX,
        &[
            ("<minimax:tool_call>", "<invoke name=\"f\"></invoke>"),
            ("<minimax:tool_call><invoke name=\"", "n"),
            ("<minimax:tool_call><invoke name=\"", "\""),
            ("<minimax:tool_call><invoke name=\"f\">", "<parameter name=\"a\">1</parameter>"),
            ("<minimax:tool_call><invoke name=\"f\"><parameter name=\"a\">", "</paramete"),
            ("", "<minimax:tool_call>"),
        ],
    ),
    (
        COMMAND,
        &[
            ("", "<|START_ACTION|>["),
            ("<|START_ACTION|>[", "{\"tool_name\": \"f\"},"),
            ("", "<|START_TEXT|>"),
            ("<|START_TEXT|>", " <|END_TEX"),
        ],
    ),
    (
        LFM2,
        &[
            ("", "<|tool_call_start|>["),
            ("<|tool_call_start|>[", "get_time(),"),
            ("<|tool_call_start|>[", "f"),
            ("<|tool_call_start|>[f(a=", "["),
            ("<|tool_call_start|>[f(", "a=1, "),
            ("<|tool_call_start|>[f(a='", "\\"),
            ("<|tool_call_start|>[get_time()]", "<|tool_call_en"),
        ],
    ),
    (
        CODER,
        &[
            ("", "<"),
            ("", " "),
            ("x", " "),
            ("x\n", "<tool_call> "),
            ("", "<tool_call>{\"a\": \"<tool_call>{\", "),
            ("<tool_call>", "{\"a\":"),
            ("<tool_call>{\"name\": \"f\", \"arguments\": ", "["),
            ("<tool_call>{\"name\": \"", "</tool_call>"),
            ("<tool_call>{\"name\": \"", "\\\""),
            ("<tool_call>{\"name\": ", "1"),
            ("<tool_call><function=", "n"),
            ("<tool_call><function=get_weather>", "<parameter=days>1</parameter>"),
            ("<tool_call><function=get_weather>", "\n"),
            ("<tool_call><function=get_weather><parameter=", "k"),
            ("<tool_call><function=get_weather><parameter=city>", "</paramete"),
            ("", "<tool_call><function=f></function></tool_call>"),
            ("<think>", "</thin"),
            ("<think></think>", "\n"),
        ],
    ),
    (
        LLAMA,
        &[
            ("", "{\"name\": \"get_time\", \"parameters\": {}};"),
            ("{\"name\": \"get_time\", \"parameters\": {\"a\": [", "{},"),
            ("<|python_tag|>", "\n"),
            ("", "<|python_tag|>"),
        ],
    ),
    (
        LLAMA4,
        &[
            ("", "{\"name\": \"get_time\", \"parameters\": {}}"),
            ("[", "get_time(),"),
            ("[", "f"),
            ("<|python_start|>", "<|python_end|>"),
            ("", "<|python_start|>"),
            ("[get_time()]", "<|python_en"),
        ],
    ),
    (
        MISTRAL,
        &[
            ("", "[TOOL_CALLS]["),
            ("[TOOL_CALLS]", "x"),
            ("[TOOL_CALLS]x[CALL_ID]", "[ARGS"),
            ("[TOOL_CALLS][", "{\"name\": \"f\"},"),
        ],
    ),
    (
        KIMI,
        &[
            ("", "<|tool_calls_section_begin|>"),
            ("<|tool_call_begin|>", "x"),
            ("<|tool_call_begin|>x", "<|tool_call_arg"),
            ("", "<|tool_call_begin|>get_time<|tool_call_argument_begin|>{}<|tool_call_end|>"),
            ("<|tool_call_begin|>get_time<|tool_call_argument_begin|>{}", " "),
        ],
    ),
    (
        HARMONY,
        &[
            ("<|channel|>", "analysis "),
            ("", "<|channel|>"),
            ("", "<|channel|>final<|message|>"),
            ("<|channel|>final<|message|>", "<|en"),
            ("", "<|start|>assistant to=functions.get_time<|channel|>commentary<|message|>{} <|call|>"),
            ("<|channel|>commentary to=functions.get_time<|message|>", "{\"a\": "),
            ("<|channel|>commentary to=functions.get_time<|message|>{}", " "),
        ],
    ),
];

/// A megabyte of each, in pieces of a few bytes and at once. Each takes about 0.1 s on a Zen 4 core; quadratic time
/// would be minutes.
#[test]
fn time_is_linear() {
    for (template, floods) in FLOODS {
        for (head, body) in floods {
            let text = head.to_string() + &body.repeat((1 << 20) / body.len());
            let start = Instant::now();
            let found = events(Reply::new(Some(template), "", tools()), pieces(&text, 3));
            assert_eq!(events(Reply::new(Some(template), "", tools()), [text.as_str()]), found, "{head}{body}…");
            assert!(start.elapsed() < Duration::from_secs(5), "{head}{body}… took {:?}", start.elapsed());
        }
    }
}

#[test]
fn nesting_is_bounded() {
    let nested = |depth: usize| {
        let arguments = format!("{}{}", "{\"a\":".repeat(depth - 1), "{}".to_owned() + &"}".repeat(depth - 1));
        (format!("<tool_call>{{\"name\": \"f\", \"arguments\": {arguments}}}</tool_call>"), arguments)
    };
    let (text, arguments) = nested(100);
    assert_eq!(events(Reply::new(Some(QWEN), "", tools()), [text.as_str()]), [call("f", &arguments)]);
    for depth in [127, 128, 129, 10_000] {
        let (text, arguments) = nested(depth);
        let found = events(Reply::new(Some(QWEN), "", tools()), pieces(&text, 5));
        let expected = if depth < 128 { call("f", &arguments) } else { content(&text) };
        assert_eq!(found, [expected], "{depth}");
    }
}
