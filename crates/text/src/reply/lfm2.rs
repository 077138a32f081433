//! Calls of LFM2: `<|tool_call_start|>[NAME(KEY=VALUE, …), …]<|tool_call_end|>`, a list of calls of Python with
//! literals. A list of JSON objects is read too.

use super::frame::{Frame, Item};
use super::marked::Frames;
use super::syntax::{CallBody, CallSyntax, Syntax, THINK, marked};

/// The form of LFM2.
pub(super) const SYNTAX: Syntax = Syntax {
    name: "LFM2",
    is_shown_by: |template, _| SHOWN.iter().any(|mark| template.contains(mark)),
    reasoning: &[THINK],
    answer: None,
    frames: Frames::NONE,
    call: CallSyntax {
        body: CallBody::Json(Frame {
            section: [OPEN, "<|tool_call_end|>"],
            is_list: true,
            item: Item::Python,
            ..Frame::PLAIN
        }),
        is_control: true,
    },
    parser: marked,
};

/// The mark of a call, and the starts of lists of tools: the template of LFM2.5 Instruct shows no call.
const SHOWN: [&str; 3] = [OPEN, "<|tool_list_start|>", "List of tools: ["];

const OPEN: &str = "<|tool_call_start|>";
