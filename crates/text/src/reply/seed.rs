//! Calls of Seed-OSS: those of Qwen3-Coder between `<seed:tool_call>` and `</seed:tool_call>`, with values as they are.

use super::hermes;
use super::syntax::{CallBody, CallSyntax, ReasoningMarks, Syntax, marked};
use super::tags::{CODER, Lines, Tags};

/// The form of Seed-OSS.
pub(super) const SYNTAX: Syntax = Syntax {
    name: "Seed",
    is_shown_by: |template, _| template.contains(TAGS.open),
    reasoning: &[ReasoningMarks {
        open: "<seed:think>",
        close: "</seed:think>",
        ending: "</seed:think>\n",
        is_control: true,
    }],
    call: CallSyntax { body: CallBody::Tags(&TAGS), is_control: true },
    parser: marked,
    ..hermes::SYNTAX
};

const TAGS: Tags =
    Tags { open: "<seed:tool_call>", close: "</seed:tool_call>", is_open_needed: true, lines: Lines::Never, ..CODER };
