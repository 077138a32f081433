//! The types of the header. `size` is the first field of a struct, so that later versions can add fields at its end.

#![expect(non_camel_case_types, reason = "they are the names of the header")]
#![allow(unreachable_pub, reason = "the header has public items only")]

use std::ffi::{c_char, c_void};

/// The version of the interface. It changes if a program must be compiled again; new functions and new fields at the end of a
/// struct do not change it.
pub const GM_ABI_VERSION: u32 = 1;

/// The result of a function. `gm_last_error` returns the message of a failure.
#[repr(u32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum gm_status {
    /// Success.
    GM_OK = 0,
    /// An argument or a field of the request is wrong.
    GM_BAD_REQUEST = 1,
    /// Too many requests wait. The same request can succeed later.
    GM_BUSY = 2,
    /// The engine has failed. A new engine can serve requests.
    GM_UNAVAILABLE = 3,
    /// A fault of the library or of the model file.
    GM_INTERNAL = 4,
    /// The model or its context does not fit into the memory.
    GM_OUT_OF_MEMORY = 5,
    /// The model cannot be opened or read.
    GM_FILE = 6,
    /// The request was cancelled.
    GM_CANCELLED = 7,
    /// The time of `gm_wait` is over, and the request still runs.
    GM_TIMEOUT = 8,
    /// The caller's buffer is too small. The count that it needs is set.
    GM_BUFFER_TOO_SMALL = 9,
}

/// The kind of an event.
#[repr(u32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum gm_event_kind {
    /// A chunk of the reply, as JSON of the interface. All parts of a chunk follow as events of their own, so a program can
    /// ignore this kind.
    GM_EVENT_CHUNK = 1,
    /// Text of the answer.
    GM_EVENT_CONTENT = 2,
    /// Text of the reasoning before the answer.
    GM_EVENT_REASONING = 3,
    /// A part of a tool call: an element of `delta.tool_calls`, as JSON.
    GM_EVENT_TOOL_CALL = 4,
    /// The end of a choice. The text is the reason, such as `stop` or `length`.
    GM_EVENT_FINISH = 5,
    /// The whole reply as JSON, if the request has `"stream": false`.
    GM_EVENT_REPLY = 6,
    /// The last event of a request. `status` is its result, and the text is the error message.
    GM_EVENT_END = 7,
}

/// Where a model is loaded and how much it can do at a time. Zero is the default of each field; start with
/// `GM_OPTIONS_INIT`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gm_options {
    /// `sizeof(gm_options)`.
    pub size: usize,
    /// `auto`, `cpu`, `cuda`, `cuda:N`, `metal` or `metal:N`; NULL for `auto`.
    pub device: *const c_char,
    /// Threads of the CPU; 0 for one on each physical core.
    pub threads: u32,
    /// Tokens of one sequence; 0 for what the model was trained on, at most 32,768, and what fits into the memory.
    pub context: u32,
    /// Sequences at a time; 0 for 1. Further requests wait.
    pub sequences: u32,
    /// Requests that can wait; 0 for any number.
    pub queue: u32,
    /// Bits of a number in the KV cache: 16 or 8; 0 for 16.
    pub kv_bits: u32,
    /// Other than 0: the same result for the same request on a GPU, independent of other requests. A CPU always has it.
    pub deterministic: u32,
    /// Bytes of a CUDA device's memory that may be used; 0 for all that is free.
    pub gpu_memory: u64,
    /// Bytes of the host's memory that may be used; 0 for all that is free.
    pub cpu_memory: u64,
}

/// An event of a request. Its pointers are valid until the callback returns.
#[repr(C)]
pub struct gm_event {
    /// The size of this struct in the library. Fields at its end can be missing in an older library.
    pub size: usize,
    /// What the text is.
    pub kind: gm_event_kind,
    /// The result of the request, in `GM_EVENT_END`; else `GM_OK`.
    pub status: gm_status,
    /// The choice that the text belongs to; 0 for a request with `n` of 1.
    pub choice: u32,
    /// UTF-8. A NUL follows the text, which can contain NULs itself.
    pub text: *const c_char,
    /// Bytes of the text.
    pub length: usize,
}

/// Embeddings: `rows` vectors with `columns` numbers each, one after the other.
#[repr(C)]
pub struct gm_vectors {
    /// `sizeof(gm_vectors)`.
    pub size: usize,
    /// The numbers.
    pub data: *mut f32,
    /// The number of texts.
    pub rows: usize,
    /// The numbers of each vector.
    pub columns: usize,
}

/// Receives the events of a request, one at a time, on a thread of the request. It may block: only its own request waits.
/// It may call all functions except `gm_wait` on its own request. It must not unwind.
pub type gm_event_fn = Option<unsafe extern "C" fn(user: *mut c_void, event: *const gm_event)>;
