//! Calls of GLM-4.5 and later: `<tool_call>NAME`, then for each argument `<arg_key>KEY</arg_key>` and
//! `<arg_value>VALUE</arg_value>`, then `</tool_call>`. Strings are written as they are, other values as JSON.

use super::hermes::{self, Hermes};
use super::marked::Marked;
use super::syntax::{ReasoningMarks, Syntax, THINK};
use super::tags::{Lines, Tags};

const KEY: &str = "<arg_key>";

/// The form of GLM. A required call is JSON, which can be held to a schema.
pub(super) const SYNTAX: Syntax = Syntax {
    name: "GLM",
    is_shown_by: |template, _| template.contains(KEY),
    reasoning: &[ReasoningMarks { ending: "</think>\n", ..THINK }],
    parser: |start| {
        let schemas = start.options.schemas.clone();
        Marked::parser(start, Hermes::new(&TAGS, &[TAGS.open], schemas))
    },
    ..hermes::SYNTAX
};

const TAGS: Tags = Tags {
    open: hermes::OPEN,
    close: "</tool_call>",
    function: "",
    name_end: None,
    end: "</tool_call>",
    key: KEY,
    key_end: "</arg_key>",
    value: "<arg_value>",
    value_end: "</arg_value>",
    lines: Lines::Never,
    several: false,
};
