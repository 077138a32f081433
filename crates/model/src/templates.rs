//! The chat templates of a file: the one of all conversations, and one for conversations with tools, as some models have it.

use gristmill_files::gguf::GgufFile;

use crate::error::Result;
use crate::family::Source;

const DEFAULT: &str = "tokenizer.chat_template";
/// The names that transformers and llama.cpp give to it.
const FOR_TOOLS: &str = "tokenizer.chat_template.tool_use";
/// The names of all templates but the default one.
const NAMES: &str = "tokenizer.chat_templates";

/// The sources (Jinja) of the chat template, and of the template for conversations with tools if the file has one of its
/// own. A template for tools alone serves all conversations.
///
/// # Errors
/// [`Error::Metadata`](crate::Error::Metadata) if a key is no text.
pub fn chat_templates(file: &GgufFile) -> Result<[Option<&str>; 2]> {
    read(&Source::new(file))
}

pub(super) fn read<'a>(source: &Source<'a>) -> Result<[Option<&'a str>; 2]> {
    // Only the names of templates that are there are of use.
    let _: Option<&[String]> = source.optional(NAMES).ok().flatten();
    let own = source.optional::<&str>(DEFAULT)?;
    let for_tools = source.optional::<&str>(FOR_TOOLS)?;
    // Converters write an empty one for models that have none.
    Ok(match [own, for_tools].map(|template| template.filter(|source| !source.trim().is_empty())) {
        [None, for_tools] => [for_tools, None],
        both => both,
    })
}
