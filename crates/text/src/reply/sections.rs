//! Calls of DeepSeek R1, of DeepSeek V3.1, of Kimi K2 and of Solar Open: a section with a name, a mark and a JSON object
//! for each call.
//!
//! DeepSeek V3 and R1: `<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME`, a line end, and the
//! arguments in a fence, ````json … ````, before `<｜tool▁call▁end｜>…<｜tool▁calls▁end｜>`.
//! DeepSeek V3.1: `<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{…}<｜tool▁call▁end｜>…<｜tool▁calls▁end｜>`.
//! Kimi K2: `<|tool_calls_section_begin|><|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>{…}`
//! `<|tool_call_end|>…<|tool_calls_section_end|>`, where the calls of a conversation are numbered.
//! Solar Open: `<|tool_calls|><|tool_call:begin|>ID<|tool_call:name|>NAME<|tool_call:args|>{…}<|tool_call:end|>…<|calls|>`.
//! Each part of a reply is a message: `<|think|>…<|end|><|begin|>assistant<|content|>…<|end|>`.

use super::frame::{Frame, Item, Named};
use super::marked::Frames;
use super::syntax::{CallBody, CallSyntax, ReasoningMarks, Syntax, THINK, marked};

const REASONING: ReasoningMarks = ReasoningMarks { ending: "</think>", ..THINK };

/// The form of DeepSeek V3 and R1, which write a fence around the arguments.
pub(super) const FENCED: Syntax = Syntax {
    name: "DeepSeek R1",
    is_shown_by: |template, _| [SEPARATOR, "```json"].iter().all(|mark| template.contains(mark)),
    call: CallSyntax {
        body: CallBody::Json(Frame {
            item: Item::Named(Named {
                before: "function<｜tool▁sep｜>",
                between: "\n```json\n",
                after: "\n```",
                ..Named::PLAIN
            }),
            ..SECTION
        }),
        is_control: true,
    },
    ..DEEPSEEK
};

/// The form of DeepSeek V3.1.
pub(super) const DEEPSEEK: Syntax = Syntax {
    name: "DeepSeek",
    is_shown_by: |template, _| template.contains(SEPARATOR),
    reasoning: &[REASONING],
    answer: None,
    frames: Frames::NONE,
    call: CallSyntax { body: CallBody::Json(SECTION), is_control: true },
    parser: marked,
};

/// The form of Kimi K2. A required call has the number 0.
pub(super) const KIMI: Syntax = Syntax {
    name: "Kimi",
    is_shown_by: |template, _| template.contains("<|tool_call_argument_begin|>"),
    call: CallSyntax {
        body: CallBody::Json(Frame {
            section: ["<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"],
            is_list: false,
            call: ["<|tool_call_begin|>", "<|tool_call_end|>"],
            item: Item::Named(Named {
                before: "functions.",
                between: "<|tool_call_argument_begin|>",
                is_numbered: true,
                ..Named::PLAIN
            }),
        }),
        is_control: true,
    },
    ..DEEPSEEK
};

/// The form of Solar Open.
pub(super) const SOLAR: Syntax = Syntax {
    name: "Solar",
    is_shown_by: |template, _| template.contains("<|tool_call:begin|>"),
    reasoning: &[ReasoningMarks {
        open: "<|think|>",
        close: "<|end|>",
        ending: "<|end|><|begin|>assistant",
        is_control: true,
    }],
    answer: Some(("<|begin|>assistant", "<|content|>")),
    frames: Frames { leads: &["<|begin|>assistant", "<|content|>"], within: &["<|end|>", "<|begin|>assistant"] },
    call: CallSyntax {
        body: CallBody::Json(Frame {
            section: ["<|tool_calls|>", "<|calls|>"],
            is_list: false,
            call: ["<|tool_call:begin|>", "<|tool_call:end|>"],
            item: Item::Named(Named { id_end: "<|tool_call:name|>", between: "<|tool_call:args|>", ..Named::PLAIN }),
        }),
        is_control: true,
    },
    parser: marked,
};

const SEPARATOR: &str = "<｜tool▁sep｜>";

const SECTION: Frame = Frame {
    section: ["<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"],
    is_list: false,
    call: ["<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"],
    item: Item::Named(Named { between: SEPARATOR, ..Named::PLAIN }),
};
