//! Calls of MiniMax M2: `<minimax:tool_call>`, then for each call `<invoke name="NAME">`, `<parameter
//! name="KEY">VALUE</parameter>` for each argument and `</invoke>`, then `</minimax:tool_call>`.

use super::hermes;
use super::syntax::{CallBody, CallSyntax, Syntax, marked};
use super::tags::{Lines, Tags};

/// The form of MiniMax M2.
pub(super) const SYNTAX: Syntax = Syntax {
    name: "MiniMax",
    is_shown_by: |template, _| template.contains(TAGS.open),
    call: CallSyntax { body: CallBody::Tags(&TAGS), is_control: false },
    parser: marked,
    ..hermes::SYNTAX
};

const TAGS: Tags = Tags {
    open: "<minimax:tool_call>",
    close: "</minimax:tool_call>",
    function: "<invoke name=\"",
    name_end: Some("\">"),
    end: "</invoke>",
    key: "<parameter name=\"",
    key_end: "\">",
    value_end: "</parameter>",
    lines: Lines::Sometimes,
    several: true,
    ..Tags::PLAIN
};
