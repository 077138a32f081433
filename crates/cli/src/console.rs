//! Writing to stdout and stderr. A closed stdout is [`Failure::ClosedPipe`]; a closed stderr is ignored.

use std::fmt::{Arguments, Display};
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

pub(crate) use gristmill_lab::units::bytes;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use crate::access_log::utc;
use crate::failure::Failure;
use crate::wrap;

/// Editors of some systems write it at the start of a file. It is not a part of the text.
pub(crate) const BYTE_ORDER_MARK: char = '\u{feff}';

/// Writes to stdout and flushes, so that text appears as it is generated.
pub(crate) fn print(text: impl Display) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    write!(out, "{text}").and_then(|()| out.flush()).map_err(Failure::output)
}

/// Writes a line to stdout.
pub(crate) fn print_line(text: impl Display) -> Result<(), Failure> {
    print(format_args!("{text}\n"))
}

/// Writes the lines of a report to stdout; on a terminal broken between words.
pub(crate) fn print_report(text: impl Display) -> Result<(), Failure> {
    print(wrap::report(&text.to_string(), columns()))
}

/// Writes a value to stdout as indented JSON.
pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    print_line(serde_json::to_string_pretty(value)?)
}

/// Whether lines on stderr are JSON objects.
static IS_JSON: AtomicBool = AtomicBool::new(false);

/// From now on, lines on stderr are JSON objects with the fields of the log.
pub(crate) fn write_json() {
    IS_JSON.store(true, Ordering::Relaxed);
}

/// A line as an object of the log.
fn object(line: &str) -> Value {
    let levels = [("error: ", "ERROR"), ("warning: ", "WARN"), ("", "INFO")];
    let found = levels.iter().find_map(|(prefix, level)| Some((line.strip_prefix(prefix)?, level)));
    let (message, level) = found.unwrap_or((line, &"INFO"));
    json!({"timestamp": utc(SystemTime::now()), "level": level, "message": message})
}

/// Writes a line to stderr, in one write; on a terminal broken between words.
pub(crate) fn note(line: Arguments) {
    if IS_JSON.load(Ordering::Relaxed) {
        let _ = io::stderr().write_all(format!("{}\n", object(&line.to_string())).as_bytes());
        return;
    }
    let text = format!("{line}\n");
    let text = match terminal_size::terminal_size_of(io::stderr()) {
        Some((width, _)) => wrap::report(&text, usize::from(width.0)),
        None => text,
    };
    let _ = io::stderr().write_all(text.as_bytes());
}

/// The most bytes of a prompt: more than any context holds. Of an input without an end no more is read.
pub(crate) const LONGEST_PROMPT: u64 = 64 << 20;

/// The most bytes of a text that is read in windows or as a list.
pub(crate) const LONGEST_TEXT: u64 = 256 << 20;

/// The most bytes of a grammar, a schema or a list of keys.
pub(crate) const LONGEST_FORM: u64 = 16 << 20;

/// The beginning of a text, at most as many bytes as requested, and whether there is more.
pub(crate) struct Beginning {
    pub(crate) text: String,
    pub(crate) is_cut: bool,
}

/// The beginning of the text of a file; `-` is stdin.
pub(crate) fn read_beginning(path: &Path, most: u64) -> Result<Beginning, Failure> {
    let is_stdin = path.as_os_str() == "-";
    if is_stdin && io::stdin().is_terminal() {
        note(format_args!("reading the text from the terminal; end it with Ctrl-D"));
    }
    let (mut bytes, what) = match is_stdin {
        true => {
            let bytes = at_most(io::stdin().lock(), most);
            (bytes.map_err(|e| Failure::new(format!("cannot read stdin: {e}")))?, "stdin".to_owned())
        }
        false => {
            let bytes = File::open(path).and_then(|file| at_most(file, most));
            let failed = |e| Failure::new(format!("cannot read {}: {e}; name a text file", path.display()));
            (bytes.map_err(failed)?, path.display().to_string())
        }
    };
    let is_cut = bytes.len() as u64 > most;
    if is_cut {
        // The last character may be cut.
        let end = (0..=bytes.len().min(most as usize)).rev().find(|&at| bytes.get(at).is_none_or(|b| b & 0xc0 != 0x80));
        bytes.truncate(end.unwrap_or(0));
    }
    Ok(Beginning { text: utf8(bytes, what)?, is_cut })
}

/// The text of a file; `-` is stdin. A text of more than `most` bytes is refused.
pub(crate) fn read_text(path: &Path, most: u64) -> Result<String, Failure> {
    let Beginning { text, is_cut } = read_beginning(path, most)?;
    match is_cut {
        true => {
            let what = if path.as_os_str() == "-" { "stdin".to_owned() } else { path.display().to_string() };
            let most = bytes(most);
            Err(Failure::new(format!("{what}: the text is too long (found more than {most}); shorten it, or split it")))
        }
        false => Ok(text),
    }
}

/// At most one byte more than `most`.
pub(crate) fn at_most(from: impl Read, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(most + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Columns of the terminal on stdout; `usize::MAX` for a file or a pipe.
pub(crate) fn columns() -> usize {
    terminal_size::terminal_size_of(io::stdout()).map_or(usize::MAX, |(width, _)| usize::from(width.0))
}

/// Whether text may be coloured and dimmed: `NO_COLOR` (<https://no-color.org>) is not set, or empty.
pub(crate) fn styles_allowed() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// The bytes as text, without a byte order mark at its start.
pub(crate) fn utf8(bytes: Vec<u8>, what: impl Display) -> Result<String, Failure> {
    let text = String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        Failure::new(format!("{what} is not UTF-8 text (byte {at}); convert it, for example with iconv -t UTF-8"))
    })?;
    Ok(text.strip_prefix(BYTE_ORDER_MARK).map(str::to_owned).unwrap_or(text))
}

/// A progress bar on stderr, if that is a terminal.
pub(crate) fn bar(template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::no_length().with_style(style)
}

/// A readable large number: `30.5 billion`.
pub(crate) fn count(n: u64) -> String {
    match n {
        0..1_000_000 => n.to_string(),
        1_000_000..1_000_000_000 => format!("{:.1} million", n as f64 / 1e6),
        _ => format!("{:.1} billion", n as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_up_to_its_bound() {
        let path = std::env::temp_dir().join(format!("gristmill-bound-{}", std::process::id()));
        std::fs::write(&path, "abcdé").expect("a file");
        for (most, expected) in [(6, Some("abcdé")), (7, Some("abcdé")), (5, None), (4, None), (0, None)] {
            assert_eq!(read_text(&path, most).ok().as_deref(), expected, "{most}");
        }
        for (most, text) in [(5, "abcd"), (4, "abcd"), (3, "abc")] {
            let beginning = read_beginning(&path, most).expect("a text");
            assert_eq!((beginning.text.as_str(), beginning.is_cut), (text, true));
        }
        let error = read_text(&path, 5).expect_err("too long").message();
        assert!(error.contains("more than 5 B"), "{error}");
        std::fs::remove_file(&path).expect("removed");
    }

    #[cfg(unix)]
    #[test]
    fn a_file_without_an_end_is_refused() {
        assert!(read_text(Path::new("/dev/zero"), LONGEST_FORM).expect_err("endless").message().contains("too long"));
    }
}
