//! Calls of ERNIE 4.5's thinking models: `<tool_call>{"name": …, "arguments": {…}}</tool_call>`. An answer is between
//! `<response>` and `</response>`. (vLLM's parsers `ernie45`, of reasoning and of calls.)

use super::hermes::{self, Hermes};
use super::marked::{Frames, Marked};
use super::syntax::{CallSyntax, ReasoningMarks, Syntax, THINK};
use super::tags;

/// The form of ERNIE 4.5.
pub(super) const SYNTAX: Syntax = Syntax {
    name: "ERNIE",
    // Around the settings of a prompt; the template may write its calls in a macro.
    is_shown_by: |template, _| template.contains("<global_setting>"),
    reasoning: &[ReasoningMarks { is_control: true, ..THINK }],
    call: CallSyntax { is_control: true, ..hermes::SYNTAX.call },
    parser: |start| {
        let schemas = start.options.schemas.clone();
        Marked::framed(start, FRAMES, Hermes::new(&tags::CODER, &[hermes::OPEN], schemas))
    },
    ..hermes::SYNTAX
};

const FRAMES: Frames = Frames { leads: &["<response>"], within: &["</response>"] };
