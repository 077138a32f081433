//! Calls of Hunyuan A13B, and of Apriel: `<tool_calls>[{"name": …, "arguments": {…}}, …]</tool_calls>`. An answer of
//! Hunyuan is between `<answer>` and `</answer>`. If a prompt has tools, its template asks that an answer starts with
//! `助手：` (assistant). (vLLM's template `tool_chat_template_hunyuan_a13b` and parsers `hunyuan_a13b`.)

use super::listed::Listed;
use super::marked::{Frames, Marked};
use super::syntax::{CallBody, CallSyntax, ReasoningMarks, Syntax, THINK};

/// The form of Hunyuan A13B.
pub(super) const SYNTAX: Syntax = Syntax {
    name: "Hunyuan",
    is_shown_by: |template, _| template.contains("<tool_calls>["),
    reasoning: &[ReasoningMarks { ending: "\n</think>\n<answer>\n", ..THINK }],
    answer: None,
    call: CallSyntax { opening: OPEN, body: CallBody::List("arguments"), is_control: false },
    parser: |start| Marked::framed(start, FRAMES, Listed::new(OPEN, "</tool_calls>")),
};

const OPEN: &str = "<tool_calls>";
const FRAMES: Frames = Frames { leads: &["<answer>", "助手："], within: &["</answer>"] };
