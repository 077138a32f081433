//! The messages of a chat: from an editor with history on a terminal, otherwise from stdin line by line.

use std::borrow::Cow;
use std::env;
use std::fs;
use std::io::{self, BufRead, IsTerminal, Read};
use std::path::{Path, PathBuf};

use reedline::{
    FileBackedHistory, Highlighter, Prompt, PromptEditMode, PromptHistorySearch, Reedline, Signal, StyledText,
};

use crate::console;
use crate::continuation::{Continuations, JoinedHistory, continued};
use crate::failure::Failure;
use crate::verbosity::Verbosity;

/// Messages in the history.
const HISTORY_LENGTH: usize = 1_000;

/// A source of messages of one or several lines.
pub(crate) enum Input {
    /// A terminal.
    Editor(Box<Reedline>, Continuations),
    /// A pipe or a file.
    Pipe,
}

impl Input {
    /// An editor if stdin and stdout are a terminal. Without a writable history file the history lasts for one chat.
    pub(crate) fn open(log: &Verbosity) -> Input {
        if !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
            return Input::Pipe;
        }
        let continuations = Continuations::default();
        let inner = history().unwrap_or_else(|reason| {
            log.detail(format_args!("the history is not kept: {reason}"));
            FileBackedHistory::default()
        });
        let editor = Reedline::create()
            .with_history(Box::new(JoinedHistory { inner, continuations: continuations.clone() }))
            .with_highlighter(Box::new(Plain))
            .with_validator(Box::new(continuations.clone()))
            .with_ansi_colors(console::styles_allowed())
            // Windows consoles send a paste as keys.
            .use_bracketed_paste(cfg!(not(windows)));
        Input::Editor(Box::new(editor), continuations)
    }

    /// Whether messages are typed.
    pub(crate) fn interactive(&self) -> bool {
        matches!(self, Input::Editor(..))
    }

    /// The next message; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<String>, Failure> {
        match self {
            Input::Editor(editor, continuations) => loop {
                continuations.clear();
                match editor.read_line(&Arrow) {
                    Ok(Signal::Success(message)) => return Ok(Some(continuations.join(&message))),
                    Ok(Signal::CtrlD) => return Ok(None),
                    Ok(_) => console::note(format_args!("(Ctrl-D or /quit ends)")),
                    Err(error) => return Err(Failure::new(format!("cannot read from the terminal: {error}"))),
                }
            },
            Input::Pipe => read_message(&mut io::stdin().lock()),
        }
    }
}

/// Reads a line and the lines that continue it.
fn read_message(input: &mut impl BufRead) -> Result<Option<String>, Failure> {
    let mut message = None::<String>;
    loop {
        let mut bytes = Vec::new();
        let room = console::LONGEST_PROMPT.saturating_sub(message.as_ref().map_or(0, |message| message.len() as u64));
        let read = input.by_ref().take(room + 1).read_until(b'\n', &mut bytes);
        if read.map_err(|error| Failure::new(format!("cannot read stdin: {error}")))? == 0 {
            return Ok(message);
        }
        if bytes.len() as u64 > room {
            let most = console::bytes(console::LONGEST_PROMPT);
            return Err(Failure::new(format!("stdin: a message is too long (found more than {most}); shorten it")));
        }
        let line = console::utf8(bytes, "stdin")?;
        let line = line.trim_end_matches(['\n', '\r']);
        let message = message.get_or_insert_default();
        match continued(line) {
            Some(line) => {
                message.push_str(line);
                message.push('\n');
            }
            None => {
                message.push_str(line);
                return Ok(Some(std::mem::take(message)));
            }
        }
    }
}

/// The history file, in the user's data directory.
fn history() -> Result<FileBackedHistory, String> {
    let path = data_dir().ok_or("there is no home directory")?.join("gristmill").join("history");
    check_writable(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    FileBackedHistory::with_file(HISTORY_LENGTH, path).map_err(|error| error.to_string())
}

fn check_writable(path: &Path) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::OpenOptions::new().create(true).append(true).open(path).map(drop)
}

/// The platform's folder for a user's data.
fn data_dir() -> Option<PathBuf> {
    let set = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if cfg!(windows) {
        return set("APPDATA");
    }
    let home = || set("HOME");
    match cfg!(target_os = "macos") {
        true => home().map(|home| home.join("Library/Application Support")),
        false => set("XDG_DATA_HOME").or_else(|| home().map(|home| home.join(".local/share"))),
    }
}

/// Typed text in the terminal's own colour, which can be read on any background.
struct Plain;

impl Highlighter for Plain {
    fn highlight(&self, line: &str, _: usize) -> StyledText {
        let mut text = StyledText::new();
        text.push((Default::default(), line.to_owned()));
        text
    }
}

/// The prompt: `> `.
struct Arrow;

impl Prompt for Arrow {
    fn render_prompt_left(&self) -> Cow<'_, str> {
        Cow::Borrowed("> ")
    }
    fn render_prompt_right(&self) -> Cow<'_, str> {
        Cow::Borrowed("")
    }
    fn render_prompt_indicator(&self, _: PromptEditMode) -> Cow<'_, str> {
        Cow::Borrowed("")
    }
    fn render_prompt_multiline_indicator(&self) -> Cow<'_, str> {
        Cow::Borrowed("  ")
    }
    fn render_prompt_history_search_indicator(&self, search: PromptHistorySearch) -> Cow<'_, str> {
        Cow::Owned(format!("(search: {}) ", search.term))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_is_split_into_messages() {
        let mut input = &b"one\n\ntwo\\\r\n  three\\\\\nfour\\"[..];
        let messages: Vec<String> = std::iter::from_fn(|| read_message(&mut input).unwrap()).collect();
        assert_eq!(messages, ["one", "", "two\n  three\\\\", "four\n"]);
    }
}
