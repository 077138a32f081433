//! The prompt of `run`: words of the command line, a file, stdin, or several of them.

use std::io::{self, IsTerminal};
use std::path::Path;

use crate::failure::Failure;
use crate::{console, stdin};

/// Reads the prompt: the words, the file and stdin in this order, with an empty line between them. `-` instead of the
/// words or of the file means stdin; otherwise stdin is last, and is read only if it is a pipe or a file. Without words
/// and file, stdin is read unless it is a terminal.
pub(crate) fn read(words: Option<&str>, file: Option<&Path>) -> Result<String, Failure> {
    let stdin_is_named = [words == Some("-"), file.is_some_and(|path| path.as_os_str() == "-")];
    let prompt = match (words, file) {
        _ if stdin_is_named == [true; 2] => {
            return Err(Failure::new("- and -f - both read stdin; use one of them"));
        }
        (Some(_), _) | (_, Some(_)) => {
            let words = words.map(words_or_stdin).transpose()?;
            let file = file.map(|path| console::read_text(path).map(without_line_end)).transpose()?;
            let piped = match stdin_is_named.contains(&true) {
                true => None,
                false => stdin::piped()?.map(without_line_end).filter(|text| !text.is_empty()),
            };
            [words, file, piped].into_iter().flatten().collect::<Vec<_>>().join("\n\n")
        }
        (None, None) if io::stdin().is_terminal() => {
            let ways = "write it as the last argument, in quotes, or talk with gristmill chat";
            return Err(Failure::new(format!("there is no prompt; {ways}")));
        }
        (None, None) => match words_or_stdin("-")? {
            prompt if prompt.is_empty() => {
                let ways = "write it as the last argument, in quotes, or pass it on stdin (-) or in a file (-f)";
                return Err(Failure::new(format!("there is no prompt, and stdin is empty; {ways}")));
            }
            prompt => prompt,
        },
    };
    if prompt.is_empty() {
        return Err(Failure::new("the prompt is empty; write at least one character"));
    }
    Ok(prompt)
}

/// The words; stdin for `-`.
fn words_or_stdin(words: &str) -> Result<String, Failure> {
    match words {
        "-" => console::read_stdin().map(without_line_end),
        // The shell may have read it from a file: "$(cat FILE)".
        words => Ok(words.strip_prefix(console::BYTE_ORDER_MARK).unwrap_or(words).to_owned()),
    }
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
