//! Calls of GLM-4.5 and later: `<tool_call>NAME`, then for each argument `<arg_key>KEY</arg_key>` and
//! `<arg_value>VALUE</arg_value>`, then `</tool_call>`. Strings are written as they are, other values as JSON.

use super::hermes;
use super::syntax::{CallBody, CallSyntax, ReasoningMarks, Syntax, THINK, marked};
use super::tags::Tags;

const KEY: &str = "<arg_key>";

/// The form of GLM.
pub(super) const SYNTAX: Syntax = Syntax {
    name: "GLM",
    is_shown_by: |template, _| template.contains(KEY),
    reasoning: &[ReasoningMarks { ending: "</think>\n", ..THINK }],
    call: CallSyntax { body: CallBody::Tags(&TAGS), is_control: false },
    parser: marked,
    ..hermes::SYNTAX
};

const TAGS: Tags = Tags {
    open: hermes::OPEN,
    close: "</tool_call>",
    end: "</tool_call>",
    key: KEY,
    key_end: "</arg_key>",
    value: "<arg_value>",
    value_end: "</arg_value>",
    ..Tags::PLAIN
};
