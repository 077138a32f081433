//! Calls of LFM2: `<|tool_call_start|>[NAME(KEY=VALUE, …), …]<|tool_call_end|>`, a list of calls of Python with
//! literals. A list of JSON objects is read too.

use super::listed::Listed;
use super::marked::Marked;
use super::syntax::{CallBody, CallSyntax, Syntax, THINK};

/// The form of LFM2. A required call is JSON, which can be held to a schema.
pub(super) const SYNTAX: Syntax = Syntax {
    name: "LFM2",
    is_shown_by: |template, _| SHOWN.iter().any(|mark| template.contains(mark)),
    reasoning: &[THINK],
    answer: None,
    call: CallSyntax { opening: OPEN, body: CallBody::List("arguments"), is_control: true },
    parser: |start| Marked::parser(start, Listed::new(OPEN, CLOSE)),
};

/// The mark of a call, and the starts of lists of tools: the template of LFM2.5 Instruct shows no call.
const SHOWN: [&str; 3] = [OPEN, "<|tool_list_start|>", "List of tools: ["];

const OPEN: &str = "<|tool_call_start|>";
const CLOSE: &str = "<|tool_call_end|>";
