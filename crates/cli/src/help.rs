//! The command line with its help in groups, which fits the width of the terminal.

use clap::{Command, CommandFactory};

use crate::Cli;
use crate::wrap::Wrap;

/// Commands, in the order of the help.
const GROUPS: [(&str, &[&str]); 4] = [
    ("Use a model", &["run", "chat", "serve", "embed"]),
    ("Get a model", &["fit", "pull", "models", "rm", "convert", "quantize"]),
    ("Look into a model", &["inspect", "tokenize", "experts", "perplexity", "bench", "replay"]),
    ("Set up", &["doctor", "config", "completions", "man"]),
];

/// Options of several commands by their names. What is not here is a command's own, and stands first.
const OPTIONS: [(&str, &[&str]); 6] = [
    ("Model", &["model", "offline", "quantize", "chat_template"]),
    (
        "Length and sampling",
        &[
            "max_tokens",
            "ctx",
            "temperature",
            "top_k",
            "top_p",
            "min_p",
            "repeat_penalty",
            "presence_penalty",
            "frequency_penalty",
            "seed",
            "stop",
            "logit_bias",
            "dry_multiplier",
            "dry_base",
            "dry_allowed_length",
            "dry_penalty_last_n",
            "dry_sequence_breaker",
        ],
    ),
    ("Form of the answer", &["json_schema", "grammar", "regex"]),
    ("Draft tokens", &["draft", "draft_tokens", "draft_model"]),
    ("Device", &["device", "threads", "kv", "precision", "cpu_level", "deterministic"]),
    ("Output", &["json", "quiet", "verbose"]),
];

/// The groups of the options that only `serve` has.
const SERVE: [(&str, &[&str]); 2] = [
    (
        "Address and access",
        &[
            "host",
            "port",
            "keys",
            "allow_unauthenticated",
            "allow_host",
            "allow_origin",
            "no_page",
            "allow_mcp",
            "access_log",
            "log_format",
        ],
    ),
    ("Limits", &["parallel", "queue", "connections", "kv_tokens", "batch", "max_body"]),
];

/// Columns of the list of commands, and those before what a command does.
const COLUMNS: usize = 80;
const INDENT: usize = 15;

const TEMPLATE: &str = "{about-with-newline}\n{usage-heading} {usage}\n{after-help}\n\nOptions:\n{options}";

/// The whole command line.
pub(crate) fn command() -> Command {
    let command = Cli::command().mut_subcommands(grouped).help_template(TEMPLATE);
    let list = list(&command);
    command.after_help(list)
}

/// A command whose options have headings.
fn grouped(command: Command) -> Command {
    let serve = if command.get_name() == "serve" { &SERVE[..] } else { &[] };
    command.mut_args(|arg| {
        let id = arg.get_id().as_str();
        match OPTIONS.iter().chain(serve).find(|(_, ids)| ids.contains(&id) && !arg.is_positional()) {
            Some((heading, _)) => arg.help_heading(*heading),
            None => arg,
        }
    })
}

/// All commands with their first line, in groups.
fn list(command: &Command) -> String {
    let line = |name: &&str| {
        let about = command.find_subcommand(name).and_then(Command::get_about);
        let about = about.map(ToString::to_string).unwrap_or_default();
        let (mut wrap, columns) = (Wrap::default(), COLUMNS - INDENT);
        let lines = wrap.push(&about, columns) + &wrap.finish(columns);
        format!("  {name:<12} {}\n", lines.replace('\n', &format!("\n{:INDENT$}", "")))
    };
    let group =
        |(title, names): &(&str, &[&str])| format!("\n{title}:\n{}", names.iter().map(line).collect::<String>());
    let groups = GROUPS.iter().map(group).collect::<String>();
    let groups = groups.trim_start();
    format!("{groups}\nEvery option can also be set in the environment or in a file: gristmill config")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_command_is_in_one_group() {
        let command = command();
        let listed: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let known: BTreeSet<&str> = command.get_subcommands().map(Command::get_name).collect();
        assert_eq!((listed.len(), listed.into_iter().collect()), (known.len(), known));
    }

    #[test]
    fn every_listed_option_exists() {
        let command = Cli::command();
        let ids: BTreeSet<String> = command
            .get_subcommands()
            .flat_map(|command| command.get_arguments().map(|arg| arg.get_id().to_string()))
            .collect();
        for (_, names) in OPTIONS.iter().chain(&SERVE) {
            assert!(names.iter().all(|name| ids.contains(*name)), "{names:?}");
        }
    }
}
