//! Calls of Hy3: `<tool_calls:opensource>`, then for each call `<tool_call:opensource>NAME<tool_sep:opensource>`,
//! `<arg_key:opensource>KEY</arg_key:opensource>` and `<arg_value:opensource>VALUE</arg_value:opensource>` for each
//! argument and `</tool_call:opensource>`, then `</tool_calls:opensource>`. The template makes the suffix of the marks.

use super::hermes;
use super::syntax::{CallBody, CallSyntax, ReasoningMarks, Syntax, marked};
use super::tags::Tags;

/// The form of Hy3.
pub(super) const SYNTAX: Syntax = Syntax {
    name: "Hy3",
    is_shown_by: |template, _| ["<tool_sep{}>", "<tool_sep:opensource>"].iter().any(|mark| template.contains(mark)),
    reasoning: &[ReasoningMarks {
        open: "<think:opensource>",
        close: "</think:opensource>",
        ending: "</think:opensource>",
        is_control: true,
    }],
    call: CallSyntax { body: CallBody::Tags(&TAGS), is_control: true },
    parser: marked,
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
    several: true,
    ..Tags::PLAIN
};
