//! Calls as JSON objects after marks: of GigaChat, of MiniMax M1 and of functionary.
//!
//! GigaChat 3: `<|message_sep|>`, two line ends and `function call<|role_sep|>` before `{"name": …, "arguments": {…}}`.
//! GigaChat 3.1: `<|function_call|>{"name": …, "arguments": {…}}`.
//! MiniMax M1: `<tool_calls>`, an object on each line, and `</tool_calls>`.
//! functionary 3.1: `<function=NAME>{…}</function>`.
//! functionary 3.2: `>>>NAME`, a line end and `{…}`. An answer follows `>>>all` and a line end, and a prompt ends with
//! `>>>`.

use super::frame::{Frame, Item, Named};
use super::marked::Frames;
use super::syntax::{CallBody, CallSyntax, Syntax, THINK, marked};

/// The form of GigaChat 3.
pub(super) const GIGACHAT: Syntax = Syntax {
    name: "GigaChat 3",
    is_shown_by: |template, _| ["<|message_sep|>", "'function call'"].iter().all(|mark| template.contains(mark)),
    reasoning: &[THINK],
    answer: None,
    frames: Frames::NONE,
    call: CallSyntax {
        body: CallBody::Json(Frame { call: ["<|message_sep|>\n\nfunction call<|role_sep|>\n", ""], ..Frame::PLAIN }),
        is_control: true,
    },
    parser: marked,
};

/// The form of GigaChat 3.1.
pub(super) const GIGACHAT_MARK: Syntax = Syntax {
    name: "GigaChat 3.1",
    is_shown_by: |template, _| template.contains("<|function_call|>"),
    call: CallSyntax {
        body: CallBody::Json(Frame { call: ["<|function_call|>", ""], ..Frame::PLAIN }),
        is_control: true,
    },
    ..GIGACHAT
};

/// The form of MiniMax M1.
pub(super) const MINIMAX_M1: Syntax = Syntax {
    name: "MiniMax M1",
    is_shown_by: |template, _| template.contains("<tool_calls>\\n{\"name\""),
    call: CallSyntax {
        body: CallBody::Json(Frame { section: ["<tool_calls>\n", "\n</tool_calls>"], ..Frame::PLAIN }),
        is_control: false,
    },
    ..GIGACHAT
};

/// The form of functionary 3.1.
pub(super) const FUNCTIONARY: Syntax = Syntax {
    name: "functionary 3.1",
    is_shown_by: |template, _| {
        ["'<function='", "'</function>'"].iter().all(|mark| template.contains(mark))
            && !template.contains("<parameter=")
    },
    call: CallSyntax {
        body: CallBody::Json(Frame {
            call: ["<function=", "</function>"],
            item: Item::Named(Named { between: ">", ..Named::PLAIN }),
            ..Frame::PLAIN
        }),
        is_control: false,
    },
    ..GIGACHAT
};

/// The form of functionary 3.2.
pub(super) const FUNCTIONARY_RECIPIENT: Syntax = Syntax {
    name: "functionary 3.2",
    is_shown_by: |template, _| template.contains(">>>all"),
    answer: Some((">>>", "all\n")),
    frames: Frames { leads: &["all\n", ">>>all\n"], within: &[">>>all\n"] },
    call: CallSyntax {
        body: CallBody::Json(Frame {
            call: [">>>", ""],
            item: Item::Named(Named { between: "\n", ..Named::PLAIN }),
            ..Frame::PLAIN
        }),
        is_control: false,
    },
    ..GIGACHAT
};
