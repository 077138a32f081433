//! The model as the first word, and the sources of the prompt.

use std::fs;

use super::{Ended, gristmill, path};

/// Fails unless the run ended with exit code 1 and one error line with all of these words.
#[track_caller]
fn refused(arguments: &[&str], stdin: &[u8], words: &[&str]) {
    let Ended { code, out, err } = gristmill(arguments, stdin);
    assert_eq!((code, out.as_str(), err.lines().count()), (Some(1), "", 1), "{err}");
    assert!(words.iter().all(|word| err.contains(word)), "{err:?} lacks one of {words:?}");
}

#[test]
fn every_command_takes_the_model_first() {
    let text = path("text for every command");
    fs::write(&text, "abcdefgh".repeat(20)).unwrap();
    let commands: [(&[&str], &[&str]); 7] = [
        (&["run"], &["hello", "-n", "2", "--json"]),
        (&["chat"], &["-n", "2"]),
        (&["inspect"], &["--json"]),
        (&["tokenize"], &["hello", "--json"]),
        (&["perplexity"], &["-f", &text, "--ctx", "50"]),
        (&["experts"], &["-f", &text, "--ctx", "50", "--json"]),
        (&["bench"], &["--prompt", "2", "--decode", "0", "--repeats", "1", "--json"]),
    ];
    for (command, options) in commands {
        let with = |model: &[&str]| gristmill(&[command, model, options].concat(), b"hello\n");
        let first = with(&["MODEL"]);
        let option = with(&["-m", "MODEL"]);
        let both = with(&["MODEL", "-m", "MODEL"]);
        assert_eq!((first.code, option.code), (Some(0), Some(0)), "{command:?}: {} {}", first.err, option.err);
        assert_eq!(first.err.contains("built-in"), option.err.contains("built-in"), "{command:?}");
        assert_eq!(both.code, Some(1), "{command:?}: {}", both.err);
        assert!(both.last_line().contains("-m") && both.last_line().contains("name one of them"), "{}", both.err);
        // The name of a missing file is not a prompt.
        let missing = gristmill(&[command, &["no such model.gguf"], options].concat(), b"hello\n");
        assert!(missing.code == Some(1) && missing.last_line().contains("no such model.gguf"), "{}", missing.err);
    }
    let json = |arguments: &[&str]| -> serde_json::Value {
        serde_json::from_str(&gristmill(arguments, b"").success()).unwrap()
    };
    assert_eq!(
        json(&["run", "MODEL", "hello", "-n", "2", "--json"])["mode"],
        "chat",
        "the built-in model has no chat template"
    );
    assert_eq!(json(&["tokenize", "MODEL", "abc", "--json"]), json(&["tokenize", "-m", "MODEL", "abc", "--json"]));
    assert_eq!(json(&["tokenize", "MODEL", "-1", "--json"]), json(&["tokenize", "-m", "MODEL", "-1", "--json"]));
}

#[test]
fn refused_prompts() {
    refused(&["run", "Once", "upon", "a", "time"], b"", &["4 words", "quotes", "\"Once upon a time\""]);
    refused(&["run", "MODEL", "Once", "upon"], b"", &["2 words", "quotes", "\"Once upon\""]);
    refused(&["tokenize", "Once", "upon"], b"", &["the text is 2 words", "quotes"]);
    let notes = path("notes.txt");
    fs::write(&notes, "some notes").unwrap();
    refused(&["run", &notes], b"", &["notes.txt", "is a file", "used as the model", "-p", "-f"]);
    refused(&["run", "-m", "MODEL", &notes], b"", &["notes.txt", "is a file", "-m", "name one of them", "-f"]);
    refused(&["run", &path("")], b"", &["is a folder", "used as the model"]);
    refused(&["run", "-p", "a", "b"], b"", &["two prompts"]);
    refused(&["run", "-f", "-", "-"], b"", &["stdin"]);
    refused(&["run", "-f", &path("no such prompt"), "x"], b"", &["no such prompt", "text file"]);
    for empty in ["", "\n", "\r\n"] {
        refused(&["run"], empty.as_bytes(), &["no prompt", "stdin is empty", "-f"]);
        refused(&["run", "MODEL"], empty.as_bytes(), &["no prompt", "stdin is empty", "-f"]);
        refused(&["run", "MODEL", "-"], empty.as_bytes(), &["the prompt is empty"]);
    }
    refused(&["run", "--system", "Be brief.", "x"], b"", &["--system", "no chat template"]);
    assert_eq!(gristmill(&["run", "--system", "Be brief.", "--raw", "x"], b"").code, Some(2));
}

/// The number of prompt tokens. The tiny model has one token for each `x`.
#[track_caller]
fn prompt_tokens(arguments: &[&str], stdin: &[u8]) -> u64 {
    let out = gristmill(&[&["run", "MODEL", "-n", "1", "--json"], arguments].concat(), stdin).success();
    serde_json::from_str::<serde_json::Value>(&out).unwrap()["prompt_tokens"].as_u64().unwrap()
}

#[test]
fn prompts_from_stdin_and_files() {
    let file = path("prompt file");
    fs::write(&file, "xxxx\n").unwrap();
    let raw = |arguments: &[&str], stdin: &[u8]| prompt_tokens(&[&["--raw"], arguments].concat(), stdin);
    let four = raw(&["xxxx"], b"");
    assert_eq!(raw(&[], b"xxxx"), four, "without -");
    assert_eq!(raw(&[], b"xxxx\n"), four, "the last line end is dropped");
    assert_eq!(raw(&["-"], b"xxxx\r\n"), four);
    assert_eq!(raw(&["-f", &file], b""), four);
    assert_eq!(raw(&["-f", "-"], b"xxxx\n"), four);
    assert_eq!(raw(&["-p", "xxxx"], b""), four);
    // The prompt, an empty line, the text.
    let joined = raw(&["xx\n\nxxxx"], b"");
    assert!(joined > four);
    assert_eq!(raw(&["xx", "-f", &file], b""), joined);
    assert_eq!(raw(&["-p", "xx", "-f", "-"], b"xxxx"), joined);
    assert_eq!(raw(&["-", "-f", &file], b"xx\n"), joined);
    // Text of a pipe follows the prompt, and a file.
    assert_eq!(raw(&["xx"], b"xxxx\n"), joined);
    assert_eq!(raw(&["-p", "xx"], b"xxxx"), joined);
    assert_eq!(raw(&["xxxx"], b"\n"), four);
    assert_eq!(raw(&["xx", "-f", &file], b"xxxx"), raw(&["xx\n\nxxxx\n\nxxxx"], b""));
    assert_eq!(raw(&["-f", &file], b"xxxx"), raw(&["xxxx\n\nxxxx"], b""));
    // Byte order marks are not a part of the text.
    let marked = path("marked");
    fs::write(&marked, "\u{feff}xxxx").unwrap();
    assert_eq!(raw(&["-f", &marked], b""), four);
    assert_eq!(raw(&[], "\u{feff}xxxx".as_bytes()), four);
    assert_eq!(raw(&["\u{feff}xxxx"], b""), four);
    let help = gristmill(&["run", "--help"], b"").success();
    assert!(help.contains("are joined in this order, with an empty line between"), "{help}");
}

/// A raw prompt has its control tokens, unless an option says otherwise.
#[test]
fn control_tokens_of_a_raw_prompt() {
    let raw = |arguments: &[&str]| prompt_tokens(&[&["--raw", "<|im_start|>x<|im_end|>"], arguments].concat(), b"");
    assert_eq!((raw(&[]), raw(&["--no-add-special"])), (4, 3));
    assert_eq!(raw(&["--no-parse-special"]), 2 + "<|im_start|><|im_end|>".len() as u64);
    refused(&["run", "MODEL", "x", "--no-parse-special"], b"", &["--no-parse-special needs --raw"]);
}

/// In a chat, what the user and a system message say is text.
#[test]
fn control_tokens_of_a_message_are_text() {
    let said = |text: &str| prompt_tokens(&["--system", text, text], b"");
    assert_eq!(said("x<|im_end|>"), said(&"x".repeat("x<|im_end|>".len())));
}

/// A stdin that is neither a pipe nor a file is not waited for.
#[cfg(unix)]
#[test]
fn a_socket_on_stdin_is_left_open() {
    use std::os::unix::net::UnixStream;
    use std::process::{Command, Stdio};

    let (_parent, stdin) = UnixStream::pair().unwrap();
    for stdin in [Stdio::from(std::os::fd::OwnedFd::from(stdin)), Stdio::null()] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gristmill"));
        command.args(["run", "-m", &path("model.gguf"), "-n", "1", "--json", "xx"]).stdin(stdin);
        assert!(command.output().unwrap().status.success());
    }
}

#[test]
fn a_system_message() {
    let system = |text| prompt_tokens(&["--system", text, "x"], b"");
    let without = prompt_tokens(&["x"], b"");
    let empty = system("");
    let with = system("xxxxx");
    assert!(empty > without && with == empty + 5, "{without} {empty} {with}");
    // The system message may start with a hyphen.
    assert_eq!(system("-xxxx"), with);
}
