//! Blocks of contents, and the text that the model reads of those that are none.

use gristmill_engine::template::Tool;
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::content::{Content, ContentOrPart, TextOr, placeholder, shortened};
use crate::error::ApiError;
use crate::images::{Images, Said};
use crate::tools::Tools;

/// A block of a content: `text`, `thinking`, `tool_use` or `tool_result`; a `document` or `search_result` that is text.
/// Blocks that another server has written, such as `server_tool_use`, are text, calls and results too.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
pub(crate) struct Block {
    pub(super) r#type: Option<String>,
    pub(super) text: Option<String>,
    pub(super) thinking: Option<String>,
    /// The id of a call.
    pub(super) id: Option<String>,
    /// The tool of a call.
    pub(super) name: Option<String>,
    /// The arguments of a call.
    pub(super) input: Option<Map<String, Value>>,
    /// The call of a result.
    pub(super) tool_use_id: Option<String>,
    /// The text of a result, or blocks, or one block: a line stands for each that is no text.
    #[schema(no_recursion, value_type = Option<Content<Block>>)]
    pub(super) content: Option<ContentOrPart<Block>>,
    /// Whether a result reports that the tool failed. The prompt contains this.
    pub(super) is_error: Option<bool>,
    /// The tool of a `tool_reference`.
    tool_name: Option<String>,
    /// The tools that a search has found: blocks `tool_reference`.
    #[schema(value_type = Option<Vec<Value>>)]
    tool_references: Option<Vec<Block>>,
    /// The data of an image or a document, or the address of a `search_result`.
    source: Option<TextOr<Data>>,
    /// The title of a document or of a page.
    title: Option<String>,
    /// Words about a document.
    context: Option<String>,
    /// The address of a page.
    url: Option<String>,
    /// A file of a container.
    file_id: Option<String>,
    /// What a command has printed.
    stdout: Option<String>,
    /// What a command has printed as errors.
    stderr: Option<String>,
    /// The exit code of a command.
    return_code: Option<Value>,
    /// The changed lines of a file.
    lines: Option<Vec<String>>,
    /// Why a server's tool has failed.
    error_code: Option<String>,
    /// The same in words.
    error_message: Option<String>,
}

/// The data of a block.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
struct Data {
    /// `base64`, `text`, `content`, `url` or `file`.
    r#type: Option<String>,
    media_type: Option<String>,
    /// A text, or base64.
    data: Option<String>,
    /// The address of an image, where the server allows its host.
    url: Option<String>,
    /// The text of the type `content`, or its blocks.
    #[schema(no_recursion, value_type = Option<Content<Block>>)]
    content: Option<ContentOrPart<Block>>,
}

impl Block {
    /// The text of a part of a result, of this type. A line stands for a block without words.
    pub(super) fn part(self, kind: &str, at: &str, tools: &Tools) -> Result<String, ApiError> {
        match kind {
            "text" => needed(self.text, at, "text"),
            // The list of tools stays as it is, and with it the start of the prompt.
            "tool_reference" => {
                let name = needed(self.tool_name, at, "tool_name")?;
                Ok(reference(&name, tools.get(&name)))
            }
            kind => {
                let line = self.placeholder(kind);
                Ok(self.words(at, tools)?.unwrap_or(line))
            }
        }
    }

    /// The words of a block, if it has any: those that another server has written are in fields of many names.
    pub(super) fn words(self, at: &str, tools: &Tools) -> Result<Option<String>, ApiError> {
        let (address, data) = match self.source {
            Some(TextOr::Text(address)) => (Some(address), None),
            Some(TextOr::Object(data)) => (None, Some(data)),
            None => (None, None),
        };
        let mut words = Vec::new();
        words.extend(self.url.or(address));
        words.extend(self.text);
        if let Some(Data { r#type, data, content, .. }) = data {
            words.extend(data.filter(|_| r#type.as_deref() == Some("text")));
            words.extend(content.map(|content| text(content.0, &format!("{at}.source.content"), tools)).transpose()?);
        }
        words.extend(self.content.map(|content| text(content.0, &format!("{at}.content"), tools)).transpose()?);
        words.extend([self.stdout, self.stderr].into_iter().flatten());
        words.extend(self.return_code.map(|code| format!("exit code {code}")));
        words.extend(self.lines.map(|lines| lines.join("\n")));
        if let Some(found) = self.tool_references {
            words.push(text(Content::Parts(found), &format!("{at}.tool_references"), tools)?);
        }
        if let Some(code) = self.error_code {
            let message = self.error_message.map(|message| format!(": {message}")).unwrap_or_default();
            words.push(format!("{FAILED}{code}{message}"));
        }
        // The title of a page that is not shown is in its line.
        let title = self.title.filter(|_| !words.is_empty());
        let context = self.context.filter(|_| !words.is_empty());
        let mut words: Vec<String> = title.into_iter().chain(context).chain(words).collect();
        let is_empty = words.is_empty();
        words.retain(|words| !words.is_empty());
        Ok((!is_empty).then(|| words.join("\n")))
    }

    /// The line that stands for a block of this type, which has no words.
    pub(super) fn placeholder(&self, kind: &str) -> String {
        let media_type = match &self.source {
            Some(TextOr::Object(Data { media_type, .. })) => media_type.as_deref(),
            _ => None,
        };
        let name = self.title.as_deref().or(self.file_id.as_deref());
        placeholder(kind, media_type.map(shortened), name.map(shortened))
    }
}

impl Block {
    /// Reads an image of the path `at`.
    pub(super) fn image(self, at: &str, images: &mut Images) -> Result<(), ApiError> {
        let Some(TextOr::Object(Data { r#type, data, url, .. })) = self.source else {
            return Err(ApiError::param(format!("{at}.source"), "an image needs the field source"));
        };
        let missing =
            |field: &str| ApiError::param(format!("{at}.source.{field}"), format!("the source needs {field}"));
        match r#type.as_deref() {
            Some("base64") => images.base64(format!("{at}.source.data"), data.ok_or_else(|| missing("data"))?),
            Some("url") => images.url(format!("{at}.source.url"), url.ok_or_else(|| missing("url"))?, None),
            Some("file") => {
                let message = "this server keeps no files; send the image in base64";
                Err(ApiError::param(format!("{at}.source.type"), message).with_code("unsupported"))
            }
            _ => Err(ApiError::param(format!("{at}.source.type"), "the source of an image is base64 or url")),
        }
    }
}

/// What a content says that is a tool's result: texts, images that the model reads, and lines for other blocks.
pub(super) fn said(content: Content<Block>, at: &str, tools: &Tools, images: &mut Images) -> Result<Said, ApiError> {
    let mut said = Said::default();
    for (kind, block, at) in blocks(content, at)? {
        if kind == IMAGE && images.are_read() {
            block.image(&at, images)?;
            said.image();
        } else {
            said.push(&block.part(&kind, &at, tools)?);
        }
    }
    Ok(said)
}

/// The type of blocks that are images.
pub(super) const IMAGE: &str = "image";

/// Before the text of a tool that has failed: templates have no place for that.
pub(super) const FAILED: &str = "Error: ";

/// The text that stands for a reference to a tool: its definition.
fn reference(name: &str, tool: Option<&Tool>) -> String {
    match tool {
        Some(tool) => format!("You can call this tool now: {}", tool.definition()),
        None => format!("There is no tool {:?}.", shortened(name)),
    }
}

/// The text of a result's content.
pub(super) fn text(content: Content<Block>, at: &str, tools: &Tools) -> Result<String, ApiError> {
    let parts = blocks(content, at)?.into_iter().map(|(kind, block, at)| block.part(&kind, &at, tools));
    Ok(parts.collect::<Result<Vec<_>, _>>()?.join("\n"))
}

/// The blocks of a content, with their types and paths. A text is one block.
pub(super) fn blocks(content: Content<Block>, at: &str) -> Result<Vec<(String, Block, String)>, ApiError> {
    let blocks = match content {
        Content::Text(text) => {
            let block = Block { text: Some(text), ..Block::default() };
            return Ok(vec![("text".to_owned(), block, at.to_owned())]);
        }
        Content::Parts(blocks) => blocks,
    };
    let block = |(index, mut block): (usize, Block)| {
        let at = format!("{at}[{index}]");
        match block.r#type.take() {
            Some(kind) => Ok((kind, block, at)),
            None => Err(ApiError::param(format!("{at}.type"), "a block needs a type, such as text")),
        }
    };
    blocks.into_iter().enumerate().map(block).collect()
}

pub(super) fn needed<T>(value: Option<T>, at: &str, field: &str) -> Result<T, ApiError> {
    value.ok_or_else(|| ApiError::param(format!("{at}.{field}"), format!("the block needs the field {field}")))
}
