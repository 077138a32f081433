//! Calls as a list of JSON objects after a mark: of Apertus, of Granite 3 and Phi-4, and of Nemotron Nano v2.
//!
//! Apertus: `<|tools_prefix|>[{"NAME": {…}}, …]<|tools_suffix|>`. Reasoning is in `<|inner_prefix|>…<|inner_suffix|>`.
//! Granite 3: `<|tool_call|>[{"name": …, "arguments": {…}}, …]`, after which Phi-4 writes `<|/tool_call|>`.
//! Nemotron Nano v2: `<TOOLCALL>[{"name": …, "arguments": {…}}, …]</TOOLCALL>`.

use super::frame::{Frame, Item};
use super::marked::Frames;
use super::syntax::{CallBody, CallSyntax, ReasoningMarks, Syntax, THINK, marked};

/// The form of Apertus.
pub(super) const APERTUS: Syntax = Syntax {
    name: "Apertus",
    is_shown_by: |template, _| template.contains("<|tools_prefix|>"),
    reasoning: &[ReasoningMarks {
        open: "<|inner_prefix|>",
        close: "<|inner_suffix|>",
        ending: "<|inner_suffix|>",
        is_control: true,
    }],
    call: CallSyntax {
        body: CallBody::Json(Frame { section: ["<|tools_prefix|>", "<|tools_suffix|>"], item: Item::Keyed, ..LIST }),
        is_control: true,
    },
    ..GRANITE
};

/// The form of Granite 3. Its template shows no calls.
pub(super) const GRANITE: Syntax = Syntax {
    name: "Granite 3",
    is_shown_by: |template, _| template.contains("<|tool_call|>"),
    reasoning: &[THINK],
    answer: None,
    frames: Frames::NONE,
    call: CallSyntax {
        body: CallBody::Json(Frame { section: ["<|tool_call|>", "<|/tool_call|>"], ..LIST }),
        is_control: true,
    },
    parser: marked,
};

/// The form of Nemotron Nano v2.
pub(super) const NEMOTRON: Syntax = Syntax {
    name: "Nemotron",
    is_shown_by: |template, _| template.contains("<TOOLCALL>"),
    call: CallSyntax {
        body: CallBody::Json(Frame { section: ["<TOOLCALL>", "</TOOLCALL>"], ..LIST }),
        is_control: false,
    },
    ..GRANITE
};

const LIST: Frame = Frame { is_list: true, ..Frame::PLAIN };
