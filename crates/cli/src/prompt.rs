//! The prompt of `run`: words of the command line, a file, both, or stdin.

use std::io::{self, IsTerminal};
use std::path::Path;

use crate::console;
use crate::failure::Failure;

/// Reads the prompt. `-` in place of the words or of the file is stdin; without words and file, stdin is read unless it
/// is a terminal.
pub(crate) fn read(words: Option<&str>, file: Option<&Path>) -> Result<String, Failure> {
    let prompt = match (words, file) {
        (Some("-"), Some(path)) if path.as_os_str() == "-" => {
            return Err(Failure::new("- and -f - both read stdin; give one of them"));
        }
        // An instruction, and the text that it is about.
        (Some(words), Some(path)) => {
            format!("{}\n\n{}", words_or_stdin(words)?, without_line_end(console::read_text(path)?))
        }
        (Some(words), None) => words_or_stdin(words)?,
        (None, Some(path)) => without_line_end(console::read_text(path)?),
        (None, None) if io::stdin().is_terminal() => {
            let ways = "write it as the last argument, in quotes, or talk with gristmill chat";
            return Err(Failure::new(format!("no prompt is given; {ways}")));
        }
        (None, None) => match words_or_stdin("-")? {
            prompt if prompt.is_empty() => {
                let ways = "write it as the last argument, in quotes, or pass it on stdin (-) or in a file (-f)";
                return Err(Failure::new(format!("no prompt is given, and stdin is empty; {ways}")));
            }
            prompt => prompt,
        },
    };
    if prompt.is_empty() {
        return Err(Failure::new("the prompt is empty; give at least one character"));
    }
    Ok(prompt)
}

/// The words; stdin for `-`.
fn words_or_stdin(words: &str) -> Result<String, Failure> {
    if words == "-" { console::read_stdin().map(without_line_end) } else { Ok(words.to_owned()) }
}

/// Removes one line end at the end, which editors and programs add.
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
