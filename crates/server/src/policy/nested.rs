//! Fields of messages, parts, blocks, items, tools and documents that an interface does not have.

use super::NO_IMAGES;
use crate::fields::{LeftOut, Refused, refused};

/// Fields by which clients control caches, and that replies of servers have.
pub(super) const HARMLESS: &[&str] = &[
    "*.cache_control",
    // Padding of events, which hides the lengths of tokens from whoever reads the encrypted connection.
    "stream_options.include_obfuscation",
];

const OTHER_MEDIA: &str = "leave it out; this server reads texts, and its replies are texts";

pub(super) const HARMLESS_IN_CHATS: &[&str] = &[
    "messages.annotations",
    "messages.content.annotations",
    "messages.provider_specific_fields",
    "messages.tool_calls.extra_content",
    "messages.tool_calls.index",
    "messages.tool_calls.provider_specific_fields",
];

pub(super) const REFUSED_IN_CHATS: &[Refused] = &[
    refused("messages.audio", OTHER_MEDIA),
    refused("messages.documents", "write them into the content"),
    refused("messages.images", NO_IMAGES),
    refused("messages.videos", NO_IMAGES),
    refused("structured_outputs.whitespace_pattern", "leave it out; white space between tokens is short"),
];

const TEXTS: &[&str] = &["input_text", "output_text", "reasoning_text", "refusal", "summary_text", "text", "thinking"];

/// Tools that are not functions, and parts in whose place the model reads a line.
pub(super) const LEFT_OUT_OF_CHATS: &[LeftOut] =
    &[LeftOut { at: &["tools"], except: &["function"] }, LeftOut { at: &["messages.content"], except: TEXTS }];

pub(super) const HARMLESS_IN_RESPONSES: &[&str] =
    &["input.content.annotations", "input.content.logprobs", "input.phase", "input.status"];

pub(super) const REFUSED_IN_RESPONSES: &[Refused] =
    &[refused("input.audio", OTHER_MEDIA), refused("input.images", NO_IMAGES)];

/// Items of another server's tools have fields for that server.
pub(super) const LEFT_OUT_OF_RESPONSES: &[LeftOut] = &[
    LeftOut { at: &["tools", "tools.tools", "input.tools", "input.tools.tools"], except: FUNCTIONS },
    LeftOut { at: &["input.content", "input.summary", "input.output"], except: TEXTS },
    LeftOut { at: &["input"], except: ITEMS },
];

const FUNCTIONS: &[&str] = &["function", "namespace"];
const ITEMS: &[&str] =
    &["additional_tools", "custom_tool_call", "function_call", "function_call_output", "message", "reasoning"];

pub(super) const HARMLESS_IN_MESSAGES: &[&str] = &[
    "messages.content.caller",
    "messages.content.content.signature",
    "messages.content.signature",
    "tools.eager_input_streaming",
];

pub(super) const REFUSED_IN_MESSAGES: &[Refused] = &[
    refused("messages.audio", OTHER_MEDIA),
    refused("messages.images", NO_IMAGES),
    refused("output_config.task_budget", "use max_tokens, and thinking.budget_tokens"),
];

/// Blocks of another server's tools have fields for that server.
pub(super) const LEFT_OUT_OF_MESSAGES: &[LeftOut] = &[
    LeftOut { at: &["tools"], except: &["custom"] },
    LeftOut {
        at: &["messages.content", "messages.content.content", "messages.content.source.content"],
        except: BLOCKS,
    },
];

const BLOCKS: &[&str] = &["document", "search_result", "text", "thinking", "tool_result", "tool_use"];

pub(super) const REFUSED_IN_COMPARISONS: &[Refused] = &[
    refused("documents.image", NO_IMAGES),
    refused("documents.images", NO_IMAGES),
    refused("documents.title", "write it into the text"),
];
