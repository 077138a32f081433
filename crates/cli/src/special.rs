//! Options for the special tokens of a text that is continued or measured as it is.

use clap::Args;
use gristmill_text::tokenizer::EncodeOptions;

/// How a raw text becomes tokens.
#[derive(Args, Clone, Copy)]
pub(crate) struct SpecialArgs {
    /// Do not add special tokens around a text, such as BOS. Without this option they are added as the model's file
    /// requires, unless the text contains them.
    #[arg(long)]
    no_add_special: bool,
    /// Read control tokens in the text, such as <|im_start|>, as plain text.
    #[arg(long)]
    no_parse_special: bool,
}

impl SpecialArgs {
    pub(crate) fn options(self) -> EncodeOptions {
        EncodeOptions { add_special: !self.no_add_special, parse_special: !self.no_parse_special }
    }

    /// The option that is given, if any.
    pub(crate) fn given(self) -> Option<&'static str> {
        let options = [("--no-add-special", self.no_add_special), ("--no-parse-special", self.no_parse_special)];
        options.into_iter().find_map(|(name, given)| given.then_some(name))
    }
}
