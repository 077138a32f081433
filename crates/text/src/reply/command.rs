//! Calls of Cohere's Command: `<|START_ACTION|>[{"tool_call_id": …, "tool_name": …, "parameters": {…}}, …]<|END_ACTION|>`.
//! Marks around an answer are no part of it.

use super::listed::Listed;
use super::marked::{Frames, Marked};
use super::syntax::{CallBody, CallSyntax, ReasoningMarks, Syntax};

/// The form of Command. A required call has the tool's name as `name`, like those of other models.
pub(super) const SYNTAX: Syntax = Syntax {
    name: "Command",
    is_shown_by: |template, _| [OPEN, THINKING.open].iter().any(|mark| template.contains(mark)),
    reasoning: &[THINKING],
    answer: None,
    call: CallSyntax { opening: OPEN, body: CallBody::List("parameters"), is_control: true },
    parser: |start| Marked::framed(start, FRAMES, Listed::new(OPEN, CLOSE)),
};

const THINKING: ReasoningMarks = ReasoningMarks {
    open: "<|START_THINKING|>",
    close: "<|END_THINKING|>",
    ending: "<|END_THINKING|>",
    is_control: true,
};

const OPEN: &str = "<|START_ACTION|>";
const CLOSE: &str = "<|END_ACTION|>";
/// Around an answer: of Command R7B and A, and of later models.
const FRAMES: Frames =
    Frames { leads: &[], within: &["<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"] };
