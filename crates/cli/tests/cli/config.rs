//! Settings of the environment and of the user's file.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use super::{Ended, gristmill_with, path};

/// A folder of the user with this file.
struct Home(PathBuf);

impl Home {
    fn new(name: &str, file: &str) -> Home {
        let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("config-{name}"));
        let _ = fs::remove_dir_all(&home);
        fs::create_dir_all(home.join("gristmill")).expect("a folder");
        let home = Home(home);
        if !file.is_empty() {
            fs::write(home.file(), file).expect("a file");
        }
        home
    }

    fn file(&self) -> PathBuf {
        self.0.join("gristmill").join("config.toml")
    }

    fn run(&self, variables: &[(&str, &str)], arguments: &[&str]) -> Ended {
        let folder = OsString::from(&self.0);
        let mut all: Vec<(&str, &OsStr)> = vec![("XDG_CONFIG_HOME", &folder)];
        all.extend(variables.iter().map(|(name, value)| (*name, OsStr::new(*value))));
        gristmill_with(&all, arguments, b"")
    }
}

/// Generated tokens of a reply of `run --json`.
fn generated(ended: Ended) -> u64 {
    let report: serde_json::Value = serde_json::from_str(&ended.success()).expect("JSON");
    report["generated_tokens"].as_u64().expect("a number")
}

#[test]
fn flag_variable_section_file_default() {
    let model = path("endless.gguf");
    let home = Home::new("order", &format!("model = {model:?}\nmax-tokens = 6\njson = true\n[run]\nmax_tokens = 5\n"));
    let variable = [("GRISTMILL_MAX_TOKENS", "4")];
    assert_eq!(generated(home.run(&variable, &["run", "-n", "3", "hello"])), 3);
    assert_eq!(generated(home.run(&variable, &["run", "hello"])), 4);
    assert_eq!(generated(home.run(&[], &["run", "hello"])), 5);
    fs::write(home.file(), format!("model = {model:?}\nmax-tokens = 6\njson = true\n")).expect("a file");
    assert_eq!(generated(home.run(&[], &["run", "hello"])), 6);
    // A model on the command line goes before that of the file, as a word and as an option.
    let other = path("model.gguf");
    for words in [&["inspect", &other][..], &["inspect", "-m", &other]] {
        assert!(home.run(&[("GRISTMILL_JSON", "0")], words).success().contains("architecture  qwen3moe"), "{words:?}");
    }
    // A variable that a flag contradicts is dropped.
    let quiet = [("GRISTMILL_QUIET", "1"), ("GRISTMILL_JSON", "false")];
    assert_eq!(home.run(&quiet, &["run", "hello"]).err, "");
    assert!(home.run(&quiet, &["run", "-v", "hello"]).err.contains("seed: "));
}

#[test]
fn wrong_settings_are_named_with_their_place() {
    let home = Home::new("wrong", "thread = 3\n");
    let file = home.file().display().to_string();
    let failed = home.run(&[], &["run", "hello"]);
    let line = format!("error: {file}: thread is not a setting, did you mean threads?");
    assert!(failed.code == Some(2) && failed.err.starts_with(&line), "{}", failed.err);
    fs::write(home.file(), "threads = 'many'\n").expect("a file");
    let failed = home.run(&[], &["run", "hello"]);
    assert!(failed.code == Some(2) && failed.err.contains(&format!("is set by {file}:")), "{}", failed.err);
    let failed = home.run(&[("GRISTMILL_THREADS", "none")], &["run", "hello"]);
    let words = ["is set by GRISTMILL_THREADS:", "whole number between 1 and"];
    assert!(words.iter().all(|word| failed.err.contains(word)), "{}", failed.err);
    let failed = home.run(&[("GRISTMILL_RAW", "perhaps")], &["run", "hello"]);
    assert!(failed.err.contains("GRISTMILL_RAW: raw is perhaps, expected true or false"), "{}", failed.err);
    let failed = home.run(&[("GRISTMILL_CONFIG", "/nothing/there")], &["run", "hello"]);
    assert!(failed.code == Some(1) && failed.err.starts_with("error: /nothing/there: "), "{}", failed.err);
}

#[test]
fn config_prints_where_each_value_comes_from() {
    let home = Home::new("print", "threads = 3\n[serve]\nport = 9000\n");
    let file = home.file().display().to_string();
    let text = home.run(&[("GRISTMILL_HOST", "::1")], &["config"]).success();
    let has = |setting: &str, origin: &str| {
        let is = |line: &&str| line.split_once('#').is_some_and(|(a, b)| a.trim_end() == setting && b.trim() == origin);
        assert!(text.lines().any(|line| is(&line)), "{setting} from {origin} in {text}");
    };
    has("threads = 3", &file);
    has("port = 9000", &file);
    has("host = \"::1\"", "GRISTMILL_HOST");
    has("parallel = 8", "default");
    assert!(text.contains("# seed ") && text.contains("\n[serve]\n"), "{text}");
    // The output is a file with the same settings.
    fs::write(home.file(), &text).expect("a file");
    let again = home.run(&[], &["config"]).success();
    assert!(again.contains("host = \"::1\"") && again.contains("port = 9000"), "{again}");
}

#[test]
fn a_new_file_is_written_once() {
    let home = Home::new("init", "");
    let file = home.file().display().to_string();
    assert_eq!(home.run(&[], &["config", "--init"]).success().trim(), file);
    let written = fs::read_to_string(home.file()).expect("a file");
    assert!(written.contains("\n#port = 8080\n") && !written.contains("\nport"), "{written}");
    home.run(&[], &["run", "-q", "-n", "1", "hello"]).success();
    let failed = home.run(&[], &["config", "--init"]);
    assert!(failed.code == Some(1) && failed.err.contains("config.toml: exists"), "{}", failed.err);
}
