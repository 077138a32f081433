//! The prompt of `run`: words, a file, both, or stdin.

use std::io::{self, IsTerminal};
use std::path::Path;

use crate::console;
use crate::failure::Failure;

/// What is read before the generation begins. `-` among the words, and as the file, is stdin; without either, stdin is
/// read if it is not a terminal.
pub(crate) fn read(words: Option<&str>, file: Option<&Path>) -> Result<String, Failure> {
    let file_is_stdin = file.is_some_and(|path| path.as_os_str() == "-");
    let words = match words {
        Some("-") if file_is_stdin => return Err(Failure::new("- and -f - both read stdin; give one of them")),
        Some("-") => Some(without_line_end(console::read_stdin()?)),
        Some(words) => Some(words.to_owned()),
        None => None,
    };
    let text = file.map(console::read_text).transpose()?.map(without_line_end);
    let prompt = match (words, text) {
        (Some(words), Some(text)) => join(&words, &text),
        (Some(prompt), None) | (None, Some(prompt)) => prompt,
        (None, None) if io::stdin().is_terminal() => {
            let ways = "write it as the last argument, in quotes, or talk with gristmill chat";
            return Err(Failure::new(format!("no prompt is given; {ways}")));
        }
        (None, None) => {
            let prompt = without_line_end(console::read_stdin()?);
            if prompt.is_empty() {
                let ways = "write it as the last argument, in quotes, or pass it on stdin (-) or in a file (-f)";
                return Err(Failure::new(format!("no prompt is given, and stdin is empty; {ways}")));
            }
            prompt
        }
    };
    if prompt.is_empty() {
        return Err(Failure::new("the prompt is empty; give at least one character"));
    }
    Ok(prompt)
}

/// An instruction and the text that it is about.
fn join(words: &str, text: &str) -> String {
    format!("{words}\n\n{text}")
}

/// Without the line end with which a file or the output of a program ends.
fn without_line_end(mut text: String) -> String {
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_end_is_dropped() {
        for (text, kept) in
            [("a", "a"), ("a\n", "a"), ("a\r\n", "a"), ("a\n\n", "a\n"), ("\n", ""), ("a\r", "a\r"), ("", "")]
        {
            assert_eq!(without_line_end(text.to_owned()), kept, "{text:?}");
        }
    }
}
