//! Calls of MiniMax M2: `<minimax:tool_call>`, then for each call `<invoke name="NAME">`, `<parameter
//! name="KEY">VALUE</parameter>` for each argument and `</invoke>`, then `</minimax:tool_call>`.

use super::hermes::{self, Hermes};
use super::marked::Marked;
use super::syntax::{CallBody, CallSyntax, Syntax};
use super::tags::{Lines, Tags};

/// The form of MiniMax M2. A required call is JSON, which can be held to a schema.
pub(super) const SYNTAX: Syntax = Syntax {
    name: "MiniMax",
    is_shown_by: |template, _| template.contains(TAGS.open),
    call: CallSyntax { opening: "<minimax:tool_call>\n", body: CallBody::Object("arguments"), is_control: false },
    parser: |start| {
        let schemas = start.options.schemas.clone();
        Marked::parser(start, Hermes::new(&TAGS, &[TAGS.open], schemas))
    },
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
    value: "",
    value_end: "</parameter>",
    lines: Lines::Sometimes,
    several: true,
};
