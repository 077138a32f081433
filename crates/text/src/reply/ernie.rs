//! Calls of ERNIE 4.5's thinking models: `<tool_call>{"name": …, "arguments": {…}}</tool_call>`. An answer is between
//! `<response>` and `</response>`. (vLLM's parsers `ernie45`, of reasoning and of calls.)

use super::hermes;
use super::marked::Frames;
use super::syntax::{CallSyntax, ReasoningMarks, Syntax, THINK};

/// The form of ERNIE 4.5.
pub(super) const SYNTAX: Syntax = Syntax {
    name: "ERNIE",
    // Around the settings of a prompt; the template may write its calls in a macro.
    is_shown_by: |template, _| template.contains("<global_setting>"),
    reasoning: &[ReasoningMarks { is_control: true, ..THINK }],
    frames: Frames { leads: &["<response>"], within: &["</response>"] },
    call: CallSyntax { is_control: true, ..hermes::SYNTAX.call },
    ..hermes::SYNTAX
};
