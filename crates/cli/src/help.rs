//! The command line with its help in groups, which fits the width of the terminal.

use clap::{Command, CommandFactory};

use crate::Cli;
use crate::wrap::Wrap;

/// Commands, in the order of the help.
const GROUPS: [(&str, &[&str]); 4] = [
    ("Use a model", &["run", "chat", "serve", "embed"]),
    ("Get a model", &["fit", "pull", "models", "rm", "convert", "quantize"]),
    ("Look into a model", &["inspect", "tokenize", "experts", "perplexity", "bench", "replay"]),
    ("Set up", &["doctor", "kernels", "config", "completions", "man"]),
];

/// Columns of the list of commands, and those before what a command does.
const COLUMNS: usize = 80;
const INDENT: usize = 15;

const TEMPLATE: &str = "{about-with-newline}\n{usage-heading} {usage}\n{after-help}\n\nOptions:\n{options}";

/// The whole command line.
pub(crate) fn command() -> Command {
    let command = Cli::command().help_template(TEMPLATE);
    let list = list(&command);
    command.after_help(list)
}

/// All commands with their first line, in groups.
fn list(command: &Command) -> String {
    let line = |name: &&str| {
        let about = command.find_subcommand(name).and_then(Command::get_about);
        let about = about.map(ToString::to_string).unwrap_or_default();
        let mut wrap = Wrap::default();
        let columns = COLUMNS - INDENT;
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
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    #[test]
    fn every_command_is_in_one_group() {
        let command = command();
        let listed: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let known: BTreeSet<&str> = command.get_subcommands().map(Command::get_name).collect();
        assert_eq!((listed.len(), listed.into_iter().collect()), (known.len(), known));
    }

    /// An option of several commands has the same heading in each, so that readers find it there.
    #[test]
    fn shared_options_have_one_heading() {
        let command = command();
        let mut headings: BTreeMap<String, BTreeSet<Option<&str>>> = BTreeMap::new();
        for command in command.get_subcommands() {
            for arg in command.get_arguments().filter(|arg| !arg.is_positional() && !arg.is_hide_set()) {
                headings.entry(arg.get_id().to_string()).or_default().insert(arg.get_help_heading());
            }
        }
        let several: Vec<_> =
            headings.iter().filter(|(id, headings)| headings.len() > 1 && !OWN.contains(&id.as_str())).collect();
        assert!(several.is_empty(), "{several:?}");
    }

    /// Options whose name means something else in another command.
    const OWN: [&str; 3] = ["batch", "connections", "name"];

    /// What only one command has comes first, without a heading.
    #[test]
    fn own_options_have_no_heading() {
        let command = command();
        let bench = command.find_subcommand("bench").expect("bench");
        let own = bench.get_arguments().filter(|arg| arg.get_help_heading().is_none() && !arg.is_positional());
        let own: Vec<&str> = own.map(|arg| arg.get_id().as_str()).collect();
        assert!(own.len() > 15 && own.contains(&"synthetic") && !own.contains(&"threads"), "{own:?}");
    }

    #[test]
    fn every_option_of_serve_is_in_a_group() {
        let command = command();
        let serve = command.find_subcommand("serve").expect("serve");
        let options = serve.get_arguments().filter(|arg| !arg.is_positional() && !arg.is_hide_set());
        let lone: Vec<_> =
            options.filter(|arg| arg.get_help_heading().is_none()).map(|arg| arg.get_id().as_str()).collect();
        assert!(lone.is_empty(), "{lone:?}");
    }
}
