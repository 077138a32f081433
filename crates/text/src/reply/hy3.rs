//! Calls of Hy3: `<tool_calls:opensource>`, then for each call `<tool_call:opensource>NAME<tool_sep:opensource>`,
//! `<arg_key:opensource>KEY</arg_key:opensource>` and `<arg_value:opensource>VALUE</arg_value:opensource>` for each
//! argument and `</tool_call:opensource>`, then `</tool_calls:opensource>`. The template makes the suffix of the marks.

use super::hermes::{self, Hermes};
use super::marked::Marked;
use super::syntax::{CallBody, CallSyntax, ReasoningMarks, Syntax};
use super::tags::{Lines, Tags};

/// The form of Hy3. A required call is JSON, which can be held to a schema.
pub(super) const SYNTAX: Syntax = Syntax {
    name: "Hy3",
    is_shown_by: |template, _| ["<tool_sep{}>", "<tool_sep:opensource>"].iter().any(|mark| template.contains(mark)),
    reasoning: &[ReasoningMarks {
        open: "<think:opensource>",
        close: "</think:opensource>",
        ending: "</think:opensource>",
        is_control: true,
    }],
    call: CallSyntax { opening: "<tool_calls:opensource>\n", body: CallBody::Object("arguments"), is_control: true },
    parser: |start| {
        let schemas = start.options.schemas.clone();
        Marked::parser(start, Hermes::new(&TAGS, &[TAGS.open], schemas))
    },
    ..hermes::SYNTAX
};

const TAGS: Tags = Tags {
    open: "<tool_calls:opensource>",
    close: "</tool_calls:opensource>",
    function: "<tool_call:opensource>",
    name_end: Some("<tool_sep:opensource>"),
    end: "</tool_call:opensource>",
    key: "<arg_key:opensource>",
    key_end: "</arg_key:opensource>",
    value: "<arg_value:opensource>",
    value_end: "</arg_value:opensource>",
    lines: Lines::Never,
    several: true,
};
