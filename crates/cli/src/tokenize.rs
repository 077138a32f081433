//! `tokenize`: the tokens of a text.

use clap::Args;
use gristmill_engine::tokenizer::EncodeOptions;
use serde::Serialize;

use crate::args;
use crate::console;
use crate::failure::Failure;
use crate::source::ModelArg;

/// Print the tokens of a text.
#[derive(Args)]
pub(crate) struct TokenizeArgs {
    #[command(flatten)]
    model: ModelArg,
    /// The text; - reads it from stdin.
    #[arg(allow_hyphen_values = true)]
    text: String,
    /// Add the tokens that the model wants around a text, such as BOS.
    #[arg(long)]
    add_special: bool,
    /// Read control tokens written in the text, such as <|im_start|>, as such.
    #[arg(long)]
    parse_special: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Token<'a> {
    id: u32,
    /// As the vocabulary writes it.
    token: &'a str,
}

pub(crate) fn run(arguments: &TokenizeArgs) -> Result<(), Failure> {
    let file = arguments.model.source().open()?;
    let tokenizer = args::tokenizer(&file)?;
    if let Some(notice) = tokenizer.notice() {
        console::note(format_args!("warning: {notice}"));
    }
    let text = if arguments.text == "-" { console::read_stdin()? } else { arguments.text.clone() };
    let options = EncodeOptions { add_special: arguments.add_special, parse_special: arguments.parse_special };
    let ids = tokenizer.encode(&text, options)?;
    let tokens = ids.iter().map(|&id| Ok(Token { id, token: tokenizer.token_text(id)? }));
    let tokens: Vec<Token> = tokens.collect::<Result<_, Failure>>()?;
    if arguments.json {
        return console::print_json(&tokens);
    }
    let lines: String = tokens.iter().map(|t| format!("{:>7}  {}\n", t.id, t.token.escape_debug())).collect();
    console::print(lines)?;
    console::note(format_args!("{} tokens", tokens.len()));
    Ok(())
}
