//! The options of other programs in the tables of docs/moving.md, each tried with a model: a command accepts it, or
//! refuses it by a line that names what the page has in its place.

use super::shell::Shell;
use super::tables::STORIES;

/// The page with the tables.
pub(super) const PAGE: &str = "docs/moving.md";

/// Commands that may have an option, with arguments that make them short. `serve` runs until the next server.
const COMMANDS: [(&str, &str); 4] =
    [("run", "-n 2 Once"), ("serve", ""), ("bench", "-p 4 -n 2 -r 1"), ("perplexity", "-f stories.txt --ctx 16")];

/// The model, and the options in place of which there is another model or prompt.
const MODEL: &str = "model.gguf";
const NAMES_MODEL: [&str; 4] = ["-m", "-hf", "--models-dir", "-hf ORG/REPO:Q4_K_M"];

/// What stands for the values in the tables: of one option, or of a placeholder.
const VALUES: [(&str, &str); 37] = [
    ("-m", "model.gguf"),
    ("-p", "Once"),
    ("-f", "stories.txt"),
    ("-n", "2"),
    ("-s", "1"),
    ("-c", "64"),
    ("--ctx-size", "64"),
    ("--max-model-len", "64"),
    ("-ngl", "99"),
    ("--n-gpu-layers", "99"),
    ("--tensor-parallel-size", "1"),
    ("--temp", "0.5"),
    ("--top-k", "40"),
    ("--top-p", "0.9"),
    ("--min-p", "0.05"),
    ("--repeat-penalty", "1.1"),
    ("--presence-penalty", "0.1"),
    ("--frequency-penalty", "0.1"),
    ("--seed", "1"),
    ("--logit-bias", "5=1"),
    ("--dry-multiplier", "0.8"),
    ("--dry-base", "1.75 --dry-multiplier 0.8"),
    ("--host", "127.0.0.1"),
    ("--port", "8080"),
    ("--alias", "other"),
    ("--grammar", "word.gbnf"),
    ("--grammar-file", "word.gbnf"),
    ("-j", "'{\"type\":\"boolean\"}'"),
    ("--api-key-file", "keys.txt"),
    ("--chat-template-file", "template.jinja"),
    ("--chat-template", "template.jinja"),
    ("--rope-scaling", "yarn"),
    ("--lora", "x"),
    ("ORG/REPO:Q4_K_M", "Qwen/Qwen3-0.6B-GGUF"),
    ("M", "model.gguf"),
    ("D", "models"),
    ("N", "2"),
];

/// Options that take what a machine may lack: they are parsed only.
const PARSED: [&str; 8] =
    ["-mg", "-cmoe", "-ncmoe", "-md", "--ssl-key-file", "--ssl-cert-file", "--gpu-memory-utilization", "-ot"];

/// Files that options name.
pub(super) const FILES: [(&str, &str); 3] = [
    ("word.gbnf", "root ::= \"a\" | \"b\"\n"),
    ("keys.txt", "someone: 0123456789abcdef0123456789abcdef\n"),
    ("template.jinja", "{{ messages[0].content }}"),
];

/// Files of this repository that options name.
pub(super) const COPIES: [(&str, &str); 3] =
    [("model.gguf", STORIES), ("models/one.gguf", STORIES), ("stories.txt", "training/sample_prompts.txt")];

/// An option as the page has it, and the codes of the cell next to it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Foreign {
    code: String,
    instead: Vec<String>,
}

/// The options in the first cells of the tables of a page.
pub(super) fn options(page: &str) -> Vec<Foreign> {
    let mut found = Vec::new();
    for line in page.lines().filter(|line| line.starts_with("| `")) {
        let line = line.replace("\\|", "/");
        let mut cells = line.trim_matches('|').split(" | ").map(codes);
        let (left, instead) = (cells.next().unwrap_or_default(), cells.next().unwrap_or_default());
        let is_option = |code: &String| code.starts_with('-');
        found.extend(left.into_iter().filter(is_option).map(|code| Foreign { code, instead: instead.clone() }));
    }
    found
}

fn codes(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

impl Foreign {
    pub(super) fn code(&self) -> &str {
        &self.code
    }

    /// The option with values.
    fn words(&self) -> Vec<String> {
        let value = |name: &str| VALUES.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        let typed: Vec<&str> = self.code.split_whitespace().collect();
        let mut words = Vec::new();
        for (at, word) in typed.iter().enumerate() {
            let of_option = (at > 0).then(|| value(typed[at - 1])).flatten().filter(|_| word.len() == 1);
            words.push(of_option.or_else(|| value(word).filter(|_| at > 0)).unwrap_or_else(|| (*word).to_owned()));
        }
        if let [option] = &typed[..] {
            words.extend(value(option));
        }
        words
    }

    /// The command lines to try.
    fn lines(&self) -> Vec<String> {
        let words = self.words().join(" ");
        let option = self.code.split_whitespace().next().unwrap_or_default();
        let model = if NAMES_MODEL.contains(&option) { "" } else { MODEL };
        let line = |(command, others): (&str, &str)| {
            // A second value of an option is an error.
            let others = match option {
                "-p" | "-f" if command == "run" => "-n 2",
                "-n" if command == "run" => "Once",
                _ => others,
            };
            let line = ["gristmill", command, model, &words, others].join(" ");
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        COMMANDS.map(line).to_vec()
    }

    /// Tries the option. Returns a line for the report, or what is wrong.
    pub(super) fn run(&self, shell: &mut Shell) -> Result<String, String> {
        let option = self.code.split_whitespace().next().unwrap_or_default();
        let mut refusals = Vec::new();
        for line in self.lines() {
            let line = if PARSED.contains(&option) { format!("{line} --help") } else { line };
            let ran = match line.ends_with("--help") {
                true => shell.finish(&line),
                false => shell.run(&line),
            };
            match ran {
                Ok(_) => return Ok(format!("- `{}`: `{line}`\n", self.code)),
                Err(error) => refusals.push(error),
            }
        }
        let names =
            |line: &str| self.instead.iter().flat_map(|code| code.split_whitespace()).any(|word| line.contains(word));
        // The parser's line about an unknown option names it, and nothing in its place.
        let is_of_page = |line: &&str| line.starts_with("error: ") && !line.contains("unexpected argument");
        let refusal = |error: &String| error.lines().find(is_of_page).map(str::to_owned);
        let mut lines = refusals.iter().filter_map(refusal);
        match lines.find(|line| self.instead.is_empty() || names(line)) {
            Some(line) => Ok(format!("- `{}`: {line}\n", self.code)),
            None => Err(format!("no command accepts it, or names one of {:?}: {refusals:#?}", self.instead)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_the_page_have_values() {
        let page = std::fs::read_to_string(crate::root().join(PAGE)).expect("the page");
        let options = options(&page);
        assert!(options.len() > 90, "only {} options were found", options.len());
        for option in &options {
            let placeholder = |word: &String| word.len() == 1 && word.bytes().all(|byte| byte.is_ascii_uppercase());
            let words = option.words();
            let is_left = |word: &&String| placeholder(word) && !["S", "T", "K", "F"].contains(&word.as_str());
            assert!(!words.iter().any(|word| is_left(&word)), "{words:?}");
        }
        for (name, _) in VALUES {
            assert!(page.contains(name), "the page has no {name}");
        }
        for option in PARSED {
            assert!(options.iter().any(|found| found.code.starts_with(option)), "the page has no {option}");
        }
    }

    #[test]
    fn options_become_command_lines() {
        let found = options("| `-c N`, `--offline` | `--ctx N`, or \\| | x |\n| `run` | `-n` | |\n");
        let [ctx, offline] = &found[..] else { panic!("{found:?}") };
        assert_eq!((ctx.code.as_str(), &ctx.instead[..]), ("-c N", &["--ctx N".to_owned()][..]));
        assert_eq!(ctx.lines()[0], "gristmill run model.gguf -c 64 -n 2 Once");
        assert_eq!(offline.lines()[1], "gristmill serve model.gguf --offline");
        let named = options("| `-hf ORG/REPO:Q4_K_M` | the same | |");
        assert_eq!(named[0].lines()[0], "gristmill run -hf Qwen/Qwen3-0.6B-GGUF -n 2 Once");
    }
}
