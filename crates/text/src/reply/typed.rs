//! Calls between tags that state the type of a value, or that quote it: of DeepSeek V3.2 and V4, of Kimi K3 and of
//! MiniCPM 5.
//!
//! DeepSeek V3.2: `<｜DSML｜function_calls>`, then for each call `<｜DSML｜invoke name="NAME">`, `<｜DSML｜parameter
//! name="KEY" string="true">VALUE</｜DSML｜parameter>` for each argument, where `string="false"` precedes JSON, and
//! `</｜DSML｜invoke>`, then `</｜DSML｜function_calls>`. V4 writes `tool_calls` for `function_calls`.
//! Kimi K3: `<|open|>tools<|sep|>`, then for each call `<|open|>call tool="NAME" index="1"<|sep|>`, `<|open|>argument
//! key="KEY" type="TYPE"<|sep|>VALUE<|close|>argument<|sep|>` for each argument and `<|close|>call<|sep|>`, then
//! `<|close|>tools<|sep|>`. Reasoning and answer have the same tags, of the names `think` and `response`.
//! MiniCPM 5: `<function name="NAME">`, `<param name="KEY">VALUE</param>` for each argument, and `</function>`, where a
//! value may be in `<![CDATA[…]]>`.

use super::marked::Frames;
use super::sections::DEEPSEEK;
use super::syntax::{CallBody, CallSyntax, ReasoningMarks, Syntax, THINK, marked};
use super::tags::{Tags, Types};

/// The form of DeepSeek V3.2.
pub(super) const DSML: Syntax = Syntax {
    name: "DeepSeek V3.2",
    is_shown_by: |template, _| [DSML_TOKEN, "function_calls>"].iter().all(|mark| template.contains(mark)),
    call: CallSyntax { body: CallBody::Tags(&DSML_TAGS), is_control: false },
    ..DEEPSEEK
};

/// The form of DeepSeek V4.
pub(super) const DSML_V4: Syntax = Syntax {
    name: "DeepSeek V4",
    is_shown_by: |template, _| template.contains(DSML_TOKEN),
    call: CallSyntax { body: CallBody::Tags(&DSML_V4_TAGS), is_control: false },
    ..DEEPSEEK
};

/// The form of Kimi K3.
pub(super) const KIMI_K3: Syntax = Syntax {
    name: "Kimi K3",
    is_shown_by: |template, _| ["<|open|>", "<|close|>", "<|sep|>"].iter().all(|mark| template.contains(mark)),
    reasoning: &[ReasoningMarks {
        open: "<|open|>think<|sep|>",
        close: "<|close|>think<|sep|>",
        ending: "<|close|>think<|sep|><|open|>response<|sep|>",
        is_control: true,
    }],
    answer: None,
    frames: Frames {
        leads: &["<|open|>response<|sep|>"],
        within: &["<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>"],
    },
    call: CallSyntax { body: CallBody::Tags(&KIMI_K3_TAGS), is_control: true },
    parser: marked,
};

/// The form of MiniCPM 5.
pub(super) const MINICPM: Syntax = Syntax {
    name: "MiniCPM 5",
    is_shown_by: |template, _| ["<function name=\"", "<param name=\""].iter().all(|mark| template.contains(mark)),
    reasoning: &[THINK],
    call: CallSyntax { body: CallBody::Tags(&MINICPM_TAGS), is_control: false },
    ..DEEPSEEK
};

const DSML_TOKEN: &str = "｜DSML｜";

const DSML_TAGS: Tags = Tags {
    open: "<｜DSML｜function_calls>",
    close: "</｜DSML｜function_calls>",
    function: "<｜DSML｜invoke name=\"",
    name_end: Some("\">"),
    end: "</｜DSML｜invoke>",
    key: "<｜DSML｜parameter name=\"",
    key_end: "\" string=\"",
    value: "\">",
    types: Some(Types::IsString),
    value_end: "</｜DSML｜parameter>",
    several: true,
    ..Tags::PLAIN
};

const DSML_V4_TAGS: Tags = Tags { open: "<｜DSML｜tool_calls>", close: "</｜DSML｜tool_calls>", ..DSML_TAGS };

const KIMI_K3_TAGS: Tags = Tags {
    open: "<|open|>tools<|sep|>",
    close: "<|close|>tools<|sep|>",
    function: "<|open|>call tool=\"",
    name_end: Some("\" index=\""),
    number_end: "\"<|sep|>",
    end: "<|close|>call<|sep|>",
    key: "<|open|>argument key=\"",
    key_end: "\" type=\"",
    value: "\"<|sep|>",
    types: Some(Types::Name),
    value_end: "<|close|>argument<|sep|>",
    line: "",
    several: true,
    ..Tags::PLAIN
};

const MINICPM_TAGS: Tags = Tags {
    open: "<function name=\"",
    close: "</function>",
    name_end: Some("\">"),
    end: "</function>",
    key: "<param name=\"",
    key_end: "\">",
    value_end: "</param>",
    line: "",
    quotes: Some(["<![CDATA[", "]]>"]),
    ..Tags::PLAIN
};
