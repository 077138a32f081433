//! The file of settings: TOML, whose keys are the options' names. A section holds for the command of its name, what
//! is before the sections for all commands that have the option.

use std::path::PathBuf;

use clap::{Arg, Command};
use toml::{Table, Value};

use super::{Found, Origin, nearest, settings};
use crate::failure::Failure;

/// A file whose keys are all known.
#[derive(Debug)]
pub(super) struct File {
    pub(super) path: PathBuf,
    table: Table,
}

impl File {
    /// The file of the user, if there is one.
    pub(super) fn of_user(cli: &Command) -> Result<Option<File>, Failure> {
        let Some((path, is_named)) = super::path() else { return Ok(None) };
        let Some(text) = super::text(&path, is_named)? else { return Ok(None) };
        File::parse(path, &text, cli).map(Some)
    }

    pub(super) fn parse(path: PathBuf, text: &str, cli: &Command) -> Result<File, Failure> {
        let fail = |problem: String| Failure::new(format!("{}: {problem}", path.display())).into_usage();
        let table: Table = toml::from_str(text).map_err(|error| fail(format!("is not TOML: {error}")))?;
        for (key, value) in &table {
            match value {
                Value::Table(section) => {
                    let commands = || cli.get_subcommands().map(Command::get_name);
                    let Some(command) = cli.find_subcommand(key) else {
                        return Err(fail(format!("[{key}] is not a command{}", hint(key, commands()))));
                    };
                    for (inner, value) in section {
                        check(inner, value, &[command]).map_err(|problem| fail(format!("[{key}] {problem}")))?;
                    }
                }
                value => check(key, value, &cli.get_subcommands().collect::<Vec<_>>()).map_err(fail)?,
            }
        }
        Ok(File { path, table })
    }

    /// The value for an option of a command: its section has priority over the keys for all commands.
    pub(super) fn find(&self, command: &Command, arg: &Arg) -> Option<Found> {
        let section = self.table.get(command.get_name()).and_then(Value::as_table);
        let of = |table: &Table| {
            let (_, value) = table.iter().find(|(key, _)| Some(dashed(key).as_str()) == arg.get_long())?;
            strings(value)
        };
        let values = section.and_then(of).or_else(|| of(&self.table))?;
        Some(Found { values, origin: Origin::File(self.path.clone()) })
    }
}

/// A key as options have it: `max_tokens` and `max-tokens` are the same.
fn dashed(key: &str) -> String {
    key.replace('_', "-")
}

/// Returns what is wrong with a key of these commands.
fn check(key: &str, value: &Value, commands: &[&Command]) -> Result<(), String> {
    let known = || commands.iter().flat_map(|command| settings(command)).filter_map(Arg::get_long);
    let name = dashed(key);
    if !known().any(|long| long == name) {
        return Err(format!("{key} is not a setting{}; gristmill config lists all", hint(&name, known())));
    }
    strings(value)
        .map(drop)
        .ok_or_else(|| format!("{key} is {}, expected a value or a list of values", value.type_str()))
}

fn hint<'a>(wrong: &str, known: impl Iterator<Item = &'a str>) -> String {
    nearest(wrong, known).map_or(String::new(), |name| format!(", did you mean {name}?"))
}

/// The values of a key as the command line has them.
fn strings(value: &Value) -> Option<Vec<String>> {
    let one = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::Boolean(truth) => Some(truth.to_string()),
        _ => None,
    };
    match value {
        Value::Array(values) => values.iter().map(one).collect(),
        value => one(value).map(|value| vec![value]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<File, String> {
        match File::parse(PathBuf::from("c.toml"), text, &crate::command()) {
            Ok(file) => Ok(file),
            Err(Failure::Usage(message)) => Err(message),
            Err(other) => panic!("{other:?}"),
        }
    }

    fn value(file: &File, command: &str, long: &str) -> Option<Vec<String>> {
        let cli = crate::command();
        let command = cli.find_subcommand(command).expect(command);
        let arg = command.get_arguments().find(|arg| arg.get_long() == Some(long)).expect(long);
        file.find(command, arg).map(|found| found.values)
    }

    #[test]
    fn a_section_goes_before_the_rest() {
        let file = parse("threads = 3\nmax_tokens = -1\n[serve]\nthreads = 5\nalias = ['a', 'b']\n").expect("a file");
        let one = |text: &str| Some(vec![text.to_owned()]);
        assert_eq!((value(&file, "run", "threads"), value(&file, "serve", "threads")), (one("3"), one("5")));
        assert_eq!(value(&file, "run", "max-tokens"), one("-1"));
        assert_eq!(value(&file, "serve", "alias"), Some(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(value(&file, "run", "seed"), None);
    }

    #[test]
    fn what_is_unknown_is_named_with_what_is_near() {
        for (text, words) in [
            ("thread = 1", "c.toml: thread is not a setting, did you mean threads?"),
            ("[serve]\nprot = 1", "[serve] prot is not a setting, did you mean port?"),
            ("[run]\nport = 1", "[run] port is not a setting"),
            ("[server]\nport = 1", "[server] is not a command, did you mean serve?"),
            ("threads = 2026-01-01", "threads is datetime, expected a value"),
            ("threads", "c.toml: is not TOML"),
        ] {
            let message = parse(text).expect_err(text);
            assert!(message.contains(words), "{message}");
        }
    }
}
