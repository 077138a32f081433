//! A model's reply, taken apart as it is generated: reasoning, content, and calls of tools.
//!
//! How models mark these differs; a chat template shows which form its model writes (`syntax`):
//!
//! - Muse Glimmer, if the template has `<atem:function_calls>`: messages to recipients. Those to `self` are reasoning,
//!   those to a tool have tags of a call (`muse`).
//! - Harmony (gpt-oss), if the template has `<|channel|>`: messages on channels. Those to `functions.NAME` are calls,
//!   those on the channel `final` content, others reasoning.
//! - Mistral, if it has `[TOOL_CALLS]`: `[TOOL_CALLS][{"name": …, "arguments": {…}}, …]`, or
//!   `[TOOL_CALLS]NAME[ARGS]{…}` if it has `[ARGS]`; both are read. Reasoning is in `[THINK]…[/THINK]`, if the template
//!   has that.
//! - Llama 3.1 to 3.3, if it has `<|python_tag|>` or the role `ipython`, and no `<tool_call>`:
//!   `{"name": …, "parameters": {…}}` as the whole reply or after `<|python_tag|>`, several separated by `;`.
//! - Llama 4, if it has `<|python_start|>`: the same objects, or `[NAME(KEY=VALUE, …), …]` with Python's literals, as
//!   the whole reply, between `<|python_start|>` and `<|python_end|>`, or after the latter.
//! - LFM2, if it has `<|tool_call_start|>` or `<|tool_list_start|>`:
//!   `<|tool_call_start|>[NAME(KEY=VALUE, …), …]<|tool_call_end|>` with Python's literals, or a list of JSON objects.
//! - DeepSeek V3.1, if it has `<｜tool▁sep｜>`, DeepSeek R1, if it also has a fence of JSON, and Kimi K2, if it has
//!   `<|tool_call_argument_begin|>`: sections with a name, a mark and a JSON object for each call (`sections`).
//! - Solar, if it has `<|tool_call:begin|>`: such sections with an id before each name, in messages with `<|think|>`.
//! - DeepSeek V3.2 and V4, if it has `｜DSML｜`, Kimi K3, if it has `<|open|>`, `<|close|>` and `<|sep|>`, and MiniCPM 5,
//!   if it has `<function name="` and `<param name="`: tags that state the type of a value, or quote it (`typed`).
//! - Apertus, if it has `<|tools_prefix|>`, Nemotron Nano v2, if it has `<TOOLCALL>`, and Granite 3, if it has
//!   `<|tool_call|>`: a list of JSON objects after a mark (`lists`).
//! - GigaChat 3, if it has `<|function_call|>` or `'function call'`, MiniMax M1, if it has `<tool_calls>` before an
//!   object, and functionary, if it has `'<function='` or `>>>all`: JSON objects after marks (`objects`).
//! - Hy3, if it has `<tool_sep{}>`: the tags of GLM and others around a name, with the suffix `:opensource` (`hy3`).
//! - GLM, if it has `<arg_key>`:
//!   `<tool_call>NAME<arg_key>KEY</arg_key><arg_value>value</arg_value></tool_call>`.
//! - MiniMax, if it has `<minimax:tool_call>`: `<minimax:tool_call><invoke name="NAME"><parameter
//!   name="KEY">value</parameter></invoke></minimax:tool_call>`, with one `<invoke …>` or several.
//! - MiniMax M3, if it has `]<]minimax[>[`: nested tags, each after this token (`minimax_m3`). Reasoning is in
//!   `<mm:think>…</mm:think>`.
//! - Gemma 4, if it has `<|tool_call>`: `<|tool_call>call:NAME{KEY:VALUE, …}<tool_call|>`, where strings are between
//!   `<|"|>`. Reasoning is in `<|channel>thought…<channel|>`.
//! - Command, if it has `<|START_ACTION|>` or `<|START_THINKING|>`: `<|START_ACTION|>[{"tool_name": …, "parameters":
//!   {…}},
//!   …]<|END_ACTION|>`. Reasoning is in `<|START_THINKING|>…<|END_THINKING|>`; marks around an answer are left out.
//! - Seed-OSS, if it has `<seed:tool_call>`: Qwen3-Coder's calls between `<seed:tool_call>` and `</seed:tool_call>`.
//!   Reasoning is in `<seed:think>…</seed:think>`.
//! - ERNIE 4.5, if it has `<global_setting>`: Hermes' calls. Marks around an answer are left out.
//! - Hunyuan A13B and Apriel, if it has `<tool_calls>[`: `<tool_calls>[{"name": …, "arguments": {…}}, …]</tool_calls>`.
//!   Marks around an answer are left out.
//! - Qwen3-Coder, if it has `<function=`:
//!   `<tool_call><function=NAME><parameter=KEY>value</parameter></function></tool_call>`, where the outer mark may be
//!   missing.
//! - A form that is derived from the calls which a template writes, if none of these reads them (`derive`).
//! - Qwen and Hermes, otherwise: `<tool_call>{"name": …, "arguments": {…}}</tool_call>`. Qwen3-Coder's form after
//!   `<tool_call>` is read too.
//!
//! Reasoning is in `<think>…</think>` unless said otherwise. For all forms:
//!
//! - However the text is split into pieces, the events are the same.
//! - A call is one event, when its arguments are complete and valid: the text of a JSON object as the model wrote it.
//!   Arguments that are a string with such a text are unwrapped. Missing arguments are `{}`, unless only its
//!   JSON announces the call. An object with fields that calls do not have is no call, nor
//!   one after which text follows as within a call (`follow`). Closing brackets that are too many are left out.
//! - A call that is malformed or unfinished is content, its marks included: up to the first character that is wrong,
//!   from which on the text is read as content, in which new calls may start. They must be of tools of the request, if
//!   these are known, because their marks may be in a value of the malformed call.
//! - Values between tags are not escaped. The text after a tag decides whether the tag ends a value or is text. The
//!   tool's schema lists the parameters (`function`). If this is not enough to decide, there is no call, so a call
//!   never has other arguments than the model wrote.
//! - White space between reasoning and answer is dropped, around calls too. Except in Harmony and Muse, reasoning only
//!   starts a reply. Where other marks divide a text, its white space is kept. Texts that a call or a message of Harmony
//!   or Muse separates are joined by a line end (`output`).
//! - A call within reasoning is reasoning, unless the reply ends with it, or with it and the end of reasoning
//!   (`draft`): some models start a call without ending their reasoning. It must be of a tool of the request.
//! - A call may otherwise name a tool that the request lacks, if it looks like a name; the caller decides.
//!
//! A parser takes any text in linear time and holds at most a call and the white space before it, or a message's head.
//!
//! # A reply is parsed as it is generated
//!
//! A reply is parsed as it is generated, into reasoning, content and tool calls. The template determines the form. The
//! forms are a table (`reply/table.rs`). The parser reads the same marks that start an answer after reasoning and a
//! required call. If the prompt contains the start of the reply (an opened call, a continued message), the parser reads
//! it too, so a mark can span prompt and reply. A call is emitted only when it is complete, so its arguments are a JSON
//! object. *The events do not depend on how the text is split, and time is linear. A malformed or unfinished call is
//! content, or nothing if a call is required.*

mod call;
mod calls;
mod command;
mod derive;
mod draft;
mod ernie;
mod follow;
mod form;
mod frame;
mod framed;
mod function;
mod gemma4;
mod glm;
mod harmony;
mod hermes;
mod hunyuan;
mod hy3;
mod input;
mod lfm2;
mod list;
mod lists;
mod literals;
mod llama;
mod llama4;
mod marked;
mod message;
mod minimax;
mod minimax_m3;
mod mistral;
mod muse;
mod names;
mod objects;
mod options;
mod output;
mod parameters;
mod parser;
mod python;
mod scan;
mod schema;
mod sections;
mod seed;
mod syntax;
mod table;
mod tags;
#[cfg(test)]
mod tests;
mod typed;
mod value;
mod write;

pub use call::ToolCall;
pub(crate) use derive::{Samples, Words, derived};
pub use form::{ParsedReply, ReplyForm};
pub use frame::{Frame, Item, Named};
pub use options::ReplyOptions;
pub use output::{Joiner, ReplyEvent};
pub use parser::Reply;
pub use syntax::{CallBody, CallSyntax, ReasoningMarks, Syntax};
pub use tags::{Lines, Tags, Types};
pub use write::Written;
pub(crate) use write::json as written_json;
