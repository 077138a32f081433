//! The program on a terminal: typed and pasted messages of a chat, and line breaks.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::hub::{Case, Faults};
use super::{gristmill, path};

/// The marks around a bracketed paste.
const PASTE: [&str; 2] = ["\x1b[200~", "\x1b[201~"];
const PASTES_ARE_BRACKETED: &str = "\x1b[?2004h";
const WHERE_IS_THE_CURSOR: &[u8] = b"\x1b[6n";
/// Longer than any wait, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// The program on its own pseudo-terminal.
struct Terminal {
    keys: File,
    shown: Arc<Mutex<Vec<u8>>>,
    /// The end of the latest awaited output.
    seen: usize,
    child: Child,
    /// Ends when all output is collected.
    reader: JoinHandle<()>,
}

impl Terminal {
    fn start(columns: u16, variables: &[(&str, &OsStr)], arguments: &[&str]) -> Terminal {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
        let master = openpt(flags).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        tcsetwinsize(&master, Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let side = || File::options().read(true).write(true).open(OsStr::from_bytes(name.as_bytes())).unwrap();
        let endless = path("endless.gguf");
        let arguments = arguments.iter().map(|&a| if a == "ENDLESS" { endless.as_str() } else { a });
        let mut command = Command::new(env!("CARGO_BIN_EXE_gristmill"));
        command.args(arguments).env("HOME", "/dev/null/home").env("TERM", "xterm-256color");
        command.env_remove("XDG_DATA_HOME").env_remove("NO_COLOR").envs(variables.iter().copied());
        let child = command.stdin(side()).stdout(side()).stderr(side()).spawn().unwrap();
        drop(command);
        let keys = File::from(master);
        let shown = Arc::default();
        let reader = Terminal::read(&keys, &shown);
        Terminal { keys, shown, seen: 0, child, reader }
    }

    /// Collects the program's output, and answers its queries for the cursor position with row 1, column 1.
    fn read(master: &File, shown: &Arc<Mutex<Vec<u8>>>) -> JoinHandle<()> {
        let (mut keys, mut master) = (master.try_clone().unwrap(), master.try_clone().unwrap());
        let shown = shown.clone();
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            let mut answered = 0;
            // At the end of the program, read fails.
            while let Ok(n @ 1..) = master.read(&mut bytes) {
                let mut shown = shown.lock().unwrap();
                shown.extend_from_slice(&bytes[..n]);
                while let Some(at) = find(&shown[answered..], WHERE_IS_THE_CURSOR) {
                    answered += at + WHERE_IS_THE_CURSOR.len();
                    keys.write_all(b"\x1b[1;1R").unwrap();
                }
            }
        })
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().unwrap()).into_owned()
    }

    /// Waits until the program shows these words after the latest awaited output.
    #[track_caller]
    fn wait(&mut self, words: &str) {
        let start = Instant::now();
        loop {
            if let Some(at) = find(&self.shown.lock().unwrap()[self.seen..], words.as_bytes()) {
                self.seen += at + words.len();
                return;
            }
            assert!(start.elapsed() < PATIENCE, "{words:?} is missing in {:?}", self.text());
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn keys(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    fn paste(&mut self, text: &str) {
        // Terminals send line ends as Enter.
        let text = text.replace('\n', "\r");
        self.keys(&format!("{}{text}{}", PASTE[0], PASTE[1]));
    }

    /// Waits for the end of the program, which must succeed. Returns the whole output.
    #[track_caller]
    fn end(mut self) -> String {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(start.elapsed() < PATIENCE, "the program does not end: {:?}", self.text());
            thread::sleep(Duration::from_millis(2));
        };
        self.reader.join().unwrap();
        let text = String::from_utf8_lossy(&self.shown.lock().unwrap()).into_owned();
        assert!(status.success(), "{text:?}");
        text
    }
}

fn find(text: &[u8], words: &[u8]) -> Option<usize> {
    text.windows(words.len()).position(|window| window == words)
}

/// A chat with `endless.gguf`, and the path of its history.
fn chat(test: &str) -> (Terminal, PathBuf) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("chat-{test}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let arguments = ["chat", "ENDLESS", "-n", "3"];
    let mut terminal = Terminal::start(80, &[("XDG_DATA_HOME", folder.as_os_str())], &arguments);
    // The first line.
    terminal.wait("endless: ");
    terminal.wait(" kB, context of 100 tokens");
    terminal.wait("/help lists the commands");
    terminal.wait(PASTES_ARE_BRACKETED);
    terminal.wait("> ");
    (terminal, folder.join("gristmill/history"))
}

/// The messages in the history.
fn messages(history: &Path) -> Vec<String> {
    fs::read_to_string(history).unwrap().lines().map(|line| line.replace("<\\n>", "\n")).collect()
}

/// The tokens of the first prompt of a chat that reads `lines` from a pipe.
fn prompt_tokens(lines: &str) -> usize {
    let input = format!("{lines}\n/stats\n");
    let err = gristmill(&["chat", &path("endless.gguf"), "-n", "3"], input.as_bytes()).err;
    let (_, told) = err.split_once("prompt ").unwrap_or_else(|| panic!("{err}"));
    told.split_once(" tokens").unwrap().0.parse().unwrap()
}

#[test]
fn a_paste_arrives_whole() {
    // A pasted backslash at the end of a line does not continue the message.
    let line = "for x in one two; do echo $x \\\n    && sleep 1; done\n";
    for (test, times) in [("short", 1), ("long", 2_000)] {
        let text = line.repeat(times);
        let (mut terminal, history) = chat(test);
        terminal.paste(&text);
        terminal.keys("\r");
        match times {
            1 => terminal.wait("truncated after 3 tokens"),
            // Far over the context, so it is refused before it is tokenised; the history has the text.
            _ => terminal.wait("the prompt has at least"),
        }
        terminal.wait("> ");
        terminal.keys("/quit\r");
        terminal.end();
        assert!(messages(&history) == [&text, "/quit"], "{test}");
    }
}

/// A paste without brackets, as from terminals that lack them, or keys typed ahead.
#[test]
fn many_keys_at_once_do_not_freeze() {
    let (mut terminal, history) = chat("keys");
    let text = "a word and another ".repeat(150);
    terminal.keys(&text);
    terminal.keys("\r/quit\r");
    terminal.end();
    assert_eq!(messages(&history), [&text, "/quit"]);
}

#[test]
fn a_message_of_several_lines() {
    let tokens = prompt_tokens("one\\\ntwo\\\nsix");
    for (test, keys) in [("backslash", "one\\\rtwo\\\rsix\r"), ("key", "one\x1b\rtwo\x1b\rsix\r")] {
        let (mut terminal, history) = chat(test);
        terminal.keys(keys);
        terminal.wait("truncated");
        terminal.wait("> ");
        terminal.keys("/stats\r");
        terminal.wait(&format!("prompt {tokens} tokens"));
        terminal.wait("> ");
        terminal.keys("/quit\r");
        terminal.end();
        assert_eq!(messages(&history), ["one\ntwo\nsix", "/stats", "/quit"], "{test}");
    }
    // The three lines from the pipe are one message of 11 bytes.
    assert_ne!(tokens, prompt_tokens("one"));
    assert_eq!(tokens, prompt_tokens("elevenbytes"));
}

/// Escape sequences for colours and dimmed text, without resets.
fn styles(text: &str) -> Vec<&str> {
    let sequences = text.split("\x1b[").skip(1).filter_map(|rest| rest.split_once('m').map(|(style, _)| style));
    sequences
        .filter(|style| style.bytes().all(|b| b.is_ascii_digit() || b == b';') && !["", "0"].contains(style))
        .collect()
}

#[test]
fn no_color() {
    for (value, coloured) in [("", true), ("1", false)] {
        let arguments = ["chat", "ENDLESS", "-n", "3"];
        let mut terminal = Terminal::start(80, &[("NO_COLOR", OsStr::new(value))], &arguments);
        terminal.wait("> ");
        terminal.keys("one\x1b\rtwo\r");
        terminal.wait("truncated");
        terminal.wait("> ");
        terminal.keys("/quit\r");
        let text = terminal.end();
        assert_eq!(!styles(&text).is_empty(), coloured, "NO_COLOR={value}: {:?}", styles(&text));
    }
}

/// What is typed has the terminal's own colour; only the prompt's arrow is coloured.
#[test]
fn typed_text_has_no_colour() {
    let (mut terminal, _) = chat("colour");
    terminal.keys("typed");
    terminal.wait("typed");
    terminal.keys("\x15/quit\r");
    let text = terminal.end();
    for (at, _) in text.match_indices("typed") {
        let before = &text[..at];
        let style = before.rsplit("\x1b[").find_map(|rest| rest.split_once('m').map(|(style, _)| style));
        assert!(style.is_none_or(|style| ["", "0", "39", "49"].contains(&style)), "{style:?} in {text:?}");
    }
}

/// Lines on stderr break between words too, and bars fit the width, with one kind of unit.
#[test]
fn lines_and_bars_on_stderr_fit() {
    let case = Case::with("bar", vec![0; 1 << 20]);
    case.hub.set(Faults { rate: Some(1_000_000), ..Faults::default() });
    let variables = [("HF_HUB_CACHE", case.cache.as_os_str()), ("HF_ENDPOINT", case.hub.endpoint.as_ref())];
    let shown = Terminal::start(60, &variables, &["pull", "org/tiny-GGUF"]).end();
    assert!(shown.contains(" left") && shown.contains(" MB") && !shown.contains("iB"), "{shown:?}");
    let run = ["run", "--seed", "7", "-n", "5", "--raw", "--device", "cpu", "Once upon a time"];
    for shown in [shown, Terminal::start(60, &[], &run).end()] {
        for line in shown.split(['\r', '\n']) {
            let mut visible = String::new();
            let mut rest = line;
            while let Some((before, escape)) = rest.split_once("\x1b[") {
                visible += before;
                rest = escape.split_once(|c: char| c.is_ascii_alphabetic()).map_or("", |(_, rest)| rest);
            }
            visible += rest;
            // A path is one word.
            assert!(visible.chars().count() <= 60 || visible.starts_with('/'), "{visible:?}");
        }
    }
}

/// What the program shows, without escape sequences.
fn visible(line: &str) -> String {
    let mut visible = String::new();
    let mut rest = line;
    while let Some((before, escape)) = rest.split_once("\x1b[") {
        visible += before;
        rest = escape.split_once(|c: char| c.is_ascii_alphabetic()).map_or("", |(_, rest)| rest);
    }
    visible + rest
}

/// No report has a line of more than 80 columns, or a word that is broken.
#[test]
fn reports_fit_80_columns() {
    let endless = path("endless.gguf");
    let fit = ["fit", "qwen3-30b-a3b", "--memory", "12", "--bandwidth", "3300", "--host-bandwidth", "83"];
    let bench = ["bench", &endless, "-p", "4", "-n", "2", "-r", "1", "--device", "cpu"];
    let requests = ["bench", &endless, "-p", "4", "-n", "2", "--requests", "2", "--device", "cpu"];
    for (arguments, is_the_same) in [
        (&fit[..], true),
        (&["config"], true),
        (&["inspect", &endless], true),
        (&["models", "--recommended"], true),
        (&bench, false),
        (&requests, false),
        (&["doctor"], false),
    ] {
        let variables = [
            ("LD_LIBRARY_PATH", OsStr::new("")),
            (
                "GRISTMILL_STOP",
                OsStr::new(
                    "[\"a word\", \"another word\", \"words that are together much longer than the line of a terminal\"]",
                ),
            ),
        ];
        let shown = Terminal::start(80, &variables, arguments).end();
        let lines: Vec<String> = shown.split(['\r', '\n']).map(|line| visible(line).trim_end().to_owned()).collect();
        let too_long = |line: &&String| line.chars().count() > 80 && line.trim().contains(' ');
        assert_eq!(lines.iter().find(too_long), None, "{arguments:?}: {shown}");
        if is_the_same {
            let piped = super::gristmill_with(&variables, arguments, b"");
            let words = |text: &str| -> Vec<String> {
                text.split_whitespace().filter(|word| *word != "#").map(str::to_owned).collect()
            };
            let both = words(&(piped.out + &piped.err));
            let missing: Vec<String> =
                words(&lines.join("\n")).into_iter().filter(|word| !both.contains(word)).collect();
            assert!(missing.is_empty(), "{arguments:?}: broken words {missing:?}: {shown}");
        }
    }
}

#[test]
fn lines_break_between_words() {
    let run = ["run", "--seed", "7", "-n", "120", "-q", "--raw", "--device", "cpu", "Once upon a time"];
    let whole = gristmill(&run, b"").success();
    assert!(whole.lines().any(|line| line.len() > 100), "{whole}");
    let shown = Terminal::start(40, &[], &run).end();
    // The prompt comes first, dimmed.
    let prompt = "Once upon a time";
    let shown = shown.strip_prefix(&format!("\x1b[2m{prompt}\x1b[0m")).unwrap_or_else(|| panic!("{shown:?}"));
    let shown = format!("{prompt}{shown}");
    let lines: Vec<&str> = shown.lines().map(|line| line.trim_end_matches('\r')).collect();
    assert!(lines.len() > 5 && lines.iter().all(|line| line.chars().count() <= 40), "{lines:?}");
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(&shown), words(&format!("{prompt}{whole}")));
}

/// Of a long prompt, the end is shown. JSON has no prompt in front.
#[test]
fn a_continued_prompt_is_shown() {
    let long = format!("{}. Once upon a time", "word ".repeat(300));
    let run = |prompt: &str, option: &str| {
        let arguments = ["run", "--seed", "7", "-n", "5", "-q", "--raw", "--device", "cpu", option, prompt];
        Terminal::start(80, &[("NO_COLOR", OsStr::new("1"))], &arguments).end()
    };
    let shown = run(&long, "--temp=0").replace("\r\n", " ");
    assert!(shown.starts_with('…') && shown.contains(" word . Once upon a time"), "{shown:?}");
    assert!((1_000..1_100).contains(&shown.chars().count()), "{shown:?}");
    assert!(run("Once upon", "--json").starts_with('{'));
}
