//! Calls of Seed-OSS: those of Qwen3-Coder between `<seed:tool_call>` and `</seed:tool_call>`, with values as they are.

use super::hermes::{self, Hermes};
use super::marked::Marked;
use super::syntax::{CallBody, CallSyntax, ReasoningMarks, Syntax};
use super::tags::{CODER, Lines, Tags};

/// The form of Seed-OSS. A required call is JSON, which can be held to a schema.
pub(super) const SYNTAX: Syntax = Syntax {
    name: "Seed",
    is_shown_by: |template, _| template.contains(TAGS.open),
    reasoning: &[ReasoningMarks {
        open: "<seed:think>",
        close: "</seed:think>",
        ending: "</seed:think>\n",
        is_control: true,
    }],
    call: CallSyntax { opening: "<seed:tool_call>\n", body: CallBody::Object("arguments"), is_control: true },
    parser: |start| {
        let schemas = start.options.schemas.clone();
        Marked::parser(start, Hermes::new(&TAGS, &[TAGS.open], schemas))
    },
    ..hermes::SYNTAX
};

const TAGS: Tags = Tags { open: "<seed:tool_call>", close: "</seed:tool_call>", lines: Lines::Never, ..CODER };
