//! Calls of Cohere's Command: `<|START_ACTION|>[{"tool_call_id": …, "tool_name": …, "parameters": {…}}, …]<|END_ACTION|>`.
//! Marks around an answer are no part of it.

use super::frame::{Frame, Item};
use super::marked::Frames;
use super::syntax::{CallBody, CallSyntax, ReasoningMarks, Syntax, marked};

/// The form of Command.
pub(super) const SYNTAX: Syntax = Syntax {
    name: "Command",
    is_shown_by: |template, _| [OPEN, THINKING.open].iter().any(|mark| template.contains(mark)),
    reasoning: &[THINKING],
    answer: None,
    frames: FRAMES,
    call: CallSyntax {
        body: CallBody::Json(Frame {
            section: [OPEN, "<|END_ACTION|>"],
            is_list: true,
            item: Item::Object(["tool_name", "parameters"]),
            ..Frame::PLAIN
        }),
        is_control: true,
    },
    parser: marked,
};

const THINKING: ReasoningMarks = ReasoningMarks {
    open: "<|START_THINKING|>",
    close: "<|END_THINKING|>",
    ending: "<|END_THINKING|>",
    is_control: true,
};

const OPEN: &str = "<|START_ACTION|>";
/// Around an answer: of Command R7B and A, and of later models.
const FRAMES: Frames =
    Frames { leads: &[], within: &["<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"] };
