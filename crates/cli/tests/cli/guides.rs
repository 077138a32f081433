//! Guides name options that exist: `cargo xtask prove guides` runs their commands, these tests only parse them.

#[path = "../../../../xtask/src/prove/guides/blocks.rs"]
mod blocks;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::gristmill;

/// All commands.
const COMMANDS: [&str; 21] = [
    "run",
    "chat",
    "serve",
    "replay",
    "inspect",
    "tokenize",
    "embed",
    "perplexity",
    "bench",
    "experts",
    "doctor",
    "kernels",
    "pull",
    "fit",
    "models",
    "rm",
    "convert",
    "quantize",
    "completions",
    "config",
    "man",
];

/// Pages whose running text names options of other programs.
const OTHERS: [&str; 5] =
    ["benchmarks.md", "benchmarks-history.md", "performance-notes.md", "metal.md", "threat-model.md"];

/// README.md and the pages of `docs`, with their names.
fn guides() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut paths: Vec<PathBuf> = vec![root.join("README.md")];
    let pages = fs::read_dir(root.join("docs")).expect("the pages");
    paths.extend(
        pages.map(|page| page.expect("a page").path()).filter(|path| path.extension().is_some_and(|e| e == "md")),
    );
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a page");
        (path.file_name().expect("a name").to_string_lossy().into_owned(), text)
    };
    paths.into_iter().map(read).collect()
}

/// The options of each command, as its help names them.
fn options() -> BTreeMap<&'static str, BTreeSet<String>> {
    let of = |command| {
        let help = gristmill(&[command, "--help"], b"").success();
        (command, long_options(&help).map(str::to_owned).collect())
    };
    COMMANDS.into_iter().map(of).collect()
}

/// The words `--option` of a text.
fn long_options(text: &str) -> impl Iterator<Item = &str> {
    let part_of_option = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    text.split(move |letter| !part_of_option(letter)).filter(|word| word.starts_with("--") && word.len() > 2)
}

/// With `--help` at its end a command is parsed and nothing else happens.
#[test]
fn commands_of_the_guides_are_accepted() {
    let mut count = 0;
    for (page, text) in guides() {
        for command in blocks::commands(&text) {
            for call in calls(&command.text) {
                let words: Vec<&str> = call.iter().map(String::as_str).chain(["--help"]).collect();
                let ended = gristmill(&words, b"");
                assert_eq!(ended.code, Some(0), "{page}: {}\n{}", command.text, ended.err);
                count += 1;
            }
        }
    }
    assert!(count > 30, "only {count} commands were found");
}

/// The arguments of the container in the manifest of Kubernetes, and those of the image.
#[test]
fn commands_of_deployments_are_accepted() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    let read = |name: &str| fs::read_to_string(root.join(name)).expect("a file");
    let manifest = read("kubernetes/gristmill.yaml");
    let arguments = manifest.split_once(" args:\n").expect("arguments").1.lines().map(str::trim);
    let arguments =
        arguments.take_while(|line| line.starts_with(['-', '#'])).filter_map(|line| line.strip_prefix("- "));
    let image = read("Containerfile");
    let command = image.lines().find_map(|line| line.strip_prefix("CMD ")).expect("a command");
    let command: Vec<String> = serde_json::from_str(command).expect("a list");
    for words in [arguments.collect::<Vec<_>>(), command.iter().map(String::as_str).collect()] {
        assert!(words.len() > 4 && words[0] == "serve", "{words:?}");
        let ended = gristmill(&[&words, &["--help"][..]].concat(), b"");
        assert_eq!(ended.code, Some(0), "{words:?}\n{}", ended.err);
    }
}

/// Options in running text: `--option`, or `command --option`.
#[test]
fn options_that_the_guides_name_exist() {
    let options = options();
    let (mut count, mut unknown) = (0, Vec::new());
    for (page, text) in guides().into_iter().filter(|(page, _)| !OTHERS.contains(&page.as_str())) {
        for code in inline_code(&page, &text) {
            let mut words = code.split_whitespace().skip_while(|word| *word == "gristmill");
            let first = words.next().unwrap_or_default();
            for option in long_options(code) {
                let is_known = match options.get(first) {
                    Some(known) => known.contains(option),
                    None if first.starts_with("--") => options.values().any(|known| known.contains(option)),
                    None => continue,
                };
                unknown.extend((!is_known).then(|| format!("{page}: `{code}`: {option}")));
                count += 1;
            }
        }
    }
    assert!(unknown.is_empty(), "no command has these options:\n{}", unknown.join("\n"));
    assert!(count > 60, "only {count} options were found");
}

/// The pieces of a page between backquotes. The first cells of moving.md are other programs' options.
fn inline_code<'a>(page: &str, text: &'a str) -> Vec<&'a str> {
    let is_other = |line: &str| line.starts_with("| ") && page == "moving.md";
    let of_line = move |line: &'a str| -> Vec<&'a str> {
        let line = if is_other(line) { line.split(" | ").nth(1).unwrap_or_default() } else { line };
        line.split('`').skip(1).step_by(2).collect()
    };
    text.lines().flat_map(of_line).collect()
}

/// The calls of gristmill in a command, each as its words behind the program's name.
fn calls(text: &str) -> Vec<Vec<String>> {
    let mut calls: Vec<Vec<String>> = Vec::new();
    let (mut is_call, mut may_start) = (false, true);
    for word in words(text) {
        let is_separator = ["|", "||", "&&", ";", "&", ">", ">>", "<"].contains(&word.as_str());
        match is_call && !is_separator {
            true => calls.last_mut().into_iter().for_each(|call| call.push(word.clone())),
            false => {
                is_call = may_start && (word == "gristmill" || word.ends_with("/bin/gristmill"));
                calls.extend(is_call.then(Vec::new));
                // A program follows these words: `env NAME=VALUE gristmill`, `runuser -u USER -- gristmill`.
                may_start = is_separator || word == "env" || word == "--" || word.contains('=');
            }
        }
    }
    calls
}

/// The words of a command as a shell splits them, without its variables and without a comment at its end.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut word = None::<String>;
    let mut quote = None;
    for letter in text.chars() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, _) if letter.is_whitespace() => words.extend(word.take()),
            (None, '\\') => {}
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

#[test]
fn calls_have_their_words() {
    let calls = |text| calls(text).iter().map(|call| call.join("_")).collect::<Vec<_>>();
    assert_eq!(calls("git diff | gristmill run m.gguf \"Why is it?\" > out # a comment"), ["run_m.gguf_Why is it?"]);
    assert_eq!(calls("env A=b /usr/bin/gristmill rm x && gristmill models"), ["rm_x", "models"]);
    assert_eq!(calls("install -g gristmill target/gristmill /usr/local/bin/gristmill"), [""; 0]);
    assert_eq!(calls("runuser -u gristmill -- env A=b gristmill pull x"), ["pull_x"]);
    assert_eq!(calls("gristmill serve --alias 'claude-*' \\\n  --ctx 5"), ["serve_--alias_claude-*_--ctx_5"]);
}
