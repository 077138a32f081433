//! Calls of Hunyuan A13B, and of Apriel: `<tool_calls>[{"name": …, "arguments": {…}}, …]</tool_calls>`. An answer of
//! Hunyuan is between `<answer>` and `</answer>`. If a prompt has tools, its template asks that an answer starts with
//! `助手：` (assistant). (vLLM's template `tool_chat_template_hunyuan_a13b` and parsers `hunyuan_a13b`.)

use super::frame::Frame;
use super::marked::Frames;
use super::syntax::{CallBody, CallSyntax, ReasoningMarks, Syntax, THINK, marked};

/// The form of Hunyuan A13B.
pub(super) const SYNTAX: Syntax = Syntax {
    name: "Hunyuan",
    is_shown_by: |template, _| template.contains("<tool_calls>["),
    reasoning: &[ReasoningMarks { ending: "\n</think>\n<answer>\n", ..THINK }],
    answer: None,
    frames: Frames { leads: &["<answer>", "助手："], within: &["</answer>"] },
    call: CallSyntax {
        body: CallBody::Json(Frame { section: ["<tool_calls>", "</tool_calls>"], is_list: true, ..Frame::PLAIN }),
        is_control: false,
    },
    parser: marked,
};
