//! `tokenize`: the tokens of a text.

use std::borrow::Cow;
use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::str::Utf8Chunk;

use clap::Args;
use gristmill_engine::Notice;
use gristmill_text::tokenizer::EncodeOptions;
use serde::Serialize;

use crate::failure::Failure;
use crate::source::{ModelOption, TextArgument};
use crate::verbosity::Verbosity;
use crate::{console, kind};

/// Print the tokens of a text.
///
/// The first argument is the model if it ends in .gguf, has the form ORG/REPO, or is a file or folder. Otherwise it is
/// the text.
#[derive(Args)]
pub(crate) struct TokenizeArgs {
    /// The model: a GGUF file (any part of a split model), a folder of Hugging Face or MLX, or ORG/REPO[:QUANT] of the
    /// hub [default: the built-in model].
    #[arg(value_name = "MODEL", allow_hyphen_values = true)]
    first: Option<OsString>,
    /// The text, in quotes; - reads stdin. Without a text, stdin is read unless it is a terminal.
    #[arg(value_name = "TEXT", allow_hyphen_values = true)]
    second: Option<String>,
    /// Words of a text without quotes, which is an error.
    #[arg(hide = true)]
    more: Vec<String>,
    #[command(flatten)]
    model: ModelOption,
    /// Add special tokens around the text, such as BOS, as the model's file requires, unless the text contains them.
    #[arg(long)]
    add_special: bool,
    /// Read control tokens in the text, such as <|im_start|>, as single tokens. This is the default.
    #[arg(long, overrides_with = "no_parse_special")]
    parse_special: bool,
    /// Read control tokens in the text as plain text.
    #[arg(long, overrides_with = "parse_special")]
    no_parse_special: bool,
    /// Print JSON.
    #[arg(long, help_heading = "Output")]
    json: bool,
}

const TEXT: TextArgument = TextArgument { name: "text", alternative: "pass it on stdin if it is the text" };

#[derive(Serialize)]
struct Token<'a> {
    id: u32,
    /// In the spelling of the vocabulary, which may write bytes as letters.
    token: &'a str,
    /// The text, in which bytes that are not UTF-8 by themselves are U+FFFD.
    text: Cow<'a, str>,
}

/// A token's text in one line: control characters and quotes are escaped, and bytes that are not UTF-8 as `\xNN`.
fn line(bytes: &[u8]) -> String {
    let chunk = |chunk: Utf8Chunk| {
        let broken: String = chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")).collect();
        format!("{}{broken}", chunk.valid().escape_debug())
    };
    bytes.utf8_chunks().map(chunk).collect()
}

pub(crate) fn run(arguments: &TokenizeArgs) -> Result<(), Failure> {
    let more = arguments.second.iter().chain(&arguments.more);
    let (source, text) = arguments.model.split(TEXT, arguments.first.as_deref(), more)?;
    let file = source.open(&Verbosity::default())?;
    let tokenizer = kind::tokenizer(&file)?;
    if let Some(notice) = Notice::of_tokenizer(&tokenizer) {
        console::note(format_args!("warning: {notice}"));
    }
    let text = match text {
        None if io::stdin().is_terminal() => {
            return Err(Failure::new("there is no text; write it as the last argument, in quotes"));
        }
        None | Some("-") => console::read_text(Path::new("-"), console::LONGEST_TEXT)?,
        Some(text) => text.to_owned(),
    };
    let options = EncodeOptions { add_special: arguments.add_special, parse_special: !arguments.no_parse_special };
    let ids = tokenizer.encode(&text, options)?;
    if arguments.json {
        let token = |&id: &u32| {
            let text = String::from_utf8_lossy(tokenizer.token_bytes(id)?);
            Ok(Token { id, token: tokenizer.token_text(id)?, text })
        };
        return console::print_json(&ids.iter().map(token).collect::<Result<Vec<Token>, Failure>>()?);
    }
    let one = |&id: &u32| Ok(format!("{id:>7}  \"{}\"\n", line(tokenizer.token_bytes(id)?)));
    console::print(ids.iter().map(one).collect::<Result<String, Failure>>()?)?;
    console::note(format_args!("{} tokens", ids.len()));
    Ok(())
}
