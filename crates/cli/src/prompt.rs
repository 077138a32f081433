//! The prompt of `run`: words of the command line, a file, stdin, or several of them.

use std::io::{self, IsTerminal};
use std::path::Path;

use crate::console::{self, Beginning, LONGEST_PROMPT};
use crate::failure::Failure;
use crate::stdin;

/// Reads the prompt: the words, the file and stdin in this order, with an empty line between them. `-` instead of the
/// words or of the file means stdin; otherwise stdin is last, and is read only if it is a pipe or a file. Without words
/// and file, stdin is read unless it is a terminal. Of an input that is too long only the beginning is read.
pub(crate) fn read(words: Option<&str>, file: Option<&Path>) -> Result<Beginning, Failure> {
    let stdin_is_named = [words == Some("-"), file.is_some_and(|path| path.as_os_str() == "-")];
    let parts = match (words, file) {
        _ if stdin_is_named == [true; 2] => {
            return Err(Failure::new("- and -f - both read stdin; use one of them"));
        }
        (Some(_), _) | (_, Some(_)) => {
            let words = words.map(words_or_stdin).transpose()?;
            let file = file.map(|path| console::read_beginning(path, LONGEST_PROMPT)).transpose()?;
            let piped = match stdin_is_named.contains(&true) {
                true => None,
                false => stdin::piped(LONGEST_PROMPT)?,
            };
            let (file, piped) = (file.map(without_line_end), piped.map(without_line_end));
            vec![words, file, piped.filter(|piped| !piped.text.is_empty())]
        }
        (None, None) if io::stdin().is_terminal() => {
            let ways = "write it as the last argument, in quotes, or talk with gristmill chat";
            return Err(Failure::new(format!("there is no prompt; {ways}")));
        }
        (None, None) => match words_or_stdin("-")? {
            Beginning { text, .. } if text.is_empty() => {
                let ways = "write it as the last argument, in quotes, or pass it on stdin (-) or in a file (-f)";
                return Err(Failure::new(format!("there is no prompt, and stdin is empty; {ways}")));
            }
            prompt => vec![Some(prompt)],
        },
    };
    let parts: Vec<Beginning> = parts.into_iter().flatten().collect();
    let is_cut = parts.iter().any(|part| part.is_cut);
    let text = parts.into_iter().map(|part| part.text).collect::<Vec<_>>().join("\n\n");
    if text.is_empty() {
        return Err(Failure::new("the prompt is empty; write at least one character"));
    }
    Ok(Beginning { text, is_cut })
}

/// The words; stdin for `-`.
fn words_or_stdin(words: &str) -> Result<Beginning, Failure> {
    match words {
        "-" => console::read_beginning(Path::new("-"), LONGEST_PROMPT).map(without_line_end),
        // The shell may have read it from a file: "$(cat FILE)".
        words => {
            let text = words.strip_prefix(console::BYTE_ORDER_MARK).unwrap_or(words).to_owned();
            Ok(Beginning { text, is_cut: false })
        }
    }
}

/// Removes one line end at the end, which editors and programs add.
fn without_line_end(mut beginning: Beginning) -> Beginning {
    let text = &mut beginning.text;
    if !beginning.is_cut && text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    beginning
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_end_is_dropped() {
        for (text, kept) in
            [("a", "a"), ("a\n", "a"), ("a\r\n", "a"), ("a\n\n", "a\n"), ("\n", ""), ("a\r", "a\r"), ("", "")]
        {
            let beginning = Beginning { text: text.to_owned(), is_cut: false };
            assert_eq!(without_line_end(beginning).text, kept, "{text:?}");
        }
    }
}
