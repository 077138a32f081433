//! Options that the command line does not have, from variables and the file.

use std::env;
use std::ffi::OsString;
use std::fmt::{self, Display, Formatter};
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};

use super::file::File;
use crate::failure::Failure;

/// The prefix of every variable.
pub(super) const PREFIX: &str = "GRISTMILL_";

/// The variable that names another file; empty for none.
pub(super) const FILE: &str = "GRISTMILL_CONFIG";

/// Commands that run no model.
pub(super) const WITHOUT: [&str; 4] = ["config", "completions", "man", "help"];

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Variable(String),
    File(PathBuf),
}

impl Display for Origin {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        match self {
            Origin::Variable(name) => f.write_str(name),
            Origin::File(path) => path.display().fmt(f),
        }
    }
}

/// A value that the environment or the file has for an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) values: Vec<String>,
    pub(super) origin: Origin,
}

/// The options of a command line after completion, with their origins.
#[derive(Debug, Default)]
pub(crate) struct Completed {
    pub(crate) arguments: Vec<OsString>,
    added: Vec<(String, Origin)>,
}

impl Completed {
    /// Where an option comes from that is not on the command line. `option` is as clap's errors name it: `--ctx <N>`.
    pub(crate) fn origin(&self, option: &str) -> Option<&Origin> {
        let name = option.split_whitespace().next()?;
        self.added.iter().find(|(long, _)| name.strip_prefix("--") == Some(long)).map(|(_, origin)| origin)
    }
}

/// Adds to the arguments after the program's name what the environment and the file set.
pub(crate) fn complete(arguments: Vec<OsString>, cli: &Command) -> Result<Completed, Failure> {
    let command = arguments.first().and_then(|name| name.to_str()).and_then(|name| cli.find_subcommand(name));
    let Some(command) = command.filter(|command| !WITHOUT.contains(&command.get_name())) else {
        return Ok(Completed { arguments, added: Vec::new() });
    };
    let file = File::of_user(cli)?;
    // Wrong usage, and --help, are the second parser's, which has everything.
    let lenient = cli.clone().mut_subcommands(|command| command.mut_args(|arg| arg.required(false)));
    let program = [OsString::from("gristmill")];
    let Ok(matches) = lenient.try_get_matches_from(program.iter().chain(&arguments)) else {
        return Ok(Completed { arguments, added: Vec::new() });
    };
    let Some((_, matches)) = matches.subcommand() else { return Ok(Completed { arguments, added: Vec::new() }) };
    let mut taken: Vec<&Arg> = command.get_arguments().filter(|arg| is_given(matches, arg)).collect();
    let mut off: Vec<&Arg> = Vec::new();
    let mut completed = Completed::default();
    // What is stronger comes first, and drops what it conflicts with.
    for level in [&variable as &dyn Fn(&Arg) -> Option<Found>, &|arg: &Arg| file.as_ref()?.find(command, arg)] {
        let before = taken.clone();
        for arg in settings(command) {
            let is_set = before.iter().chain(&off).any(|other| other.get_id() == arg.get_id());
            let dropped = is_set || before.iter().any(|other| conflict(command, arg, other));
            let Some(found) = level(arg).filter(|_| !dropped) else { continue };
            let words = words(command, arg, &found)?;
            if words.is_empty() {
                // A weaker level does not turn it on.
                off.push(arg);
            } else {
                taken.push(arg);
                completed.added.push((arg.get_long().unwrap_or_default().to_owned(), found.origin));
                completed.arguments.extend(words);
            }
        }
    }
    let (name, rest) = arguments.split_at(1);
    completed.arguments = [name, &completed.arguments[..], rest].concat();
    Ok(completed)
}

/// The options of a command that can be set: all with a name, but help.
pub(super) fn settings(command: &Command) -> impl Iterator<Item = &Arg> {
    let is_help = |arg: &Arg| matches!(arg.get_long(), Some("help" | "version"));
    command.get_arguments().filter(move |arg| arg.get_long().is_some() && !arg.is_hide_set() && !is_help(arg))
}

pub(super) fn is_given(matches: &ArgMatches, arg: &Arg) -> bool {
    let id = arg.get_id().as_str();
    matches.try_contains_id(id).unwrap_or(false) && matches.value_source(id) == Some(ValueSource::CommandLine)
}

/// Whether one of two options declares that it conflicts with the other.
pub(super) fn conflict(command: &Command, a: &Arg, b: &Arg) -> bool {
    let declares = |a: &Arg, b: &Arg| command.get_arg_conflicts_with(a).iter().any(|arg| arg.get_id() == b.get_id());
    declares(a, b) || declares(b, a)
}

/// The value of an option's variable.
pub(super) fn variable(arg: &Arg) -> Option<Found> {
    let name = variable_name(arg.get_long()?);
    let value = env::var_os(&name).filter(|value| !value.is_empty())?;
    Some(Found { values: vec![value.to_string_lossy().into_owned()], origin: Origin::Variable(name) })
}

/// `GRISTMILL_MAX_TOKENS` of `max-tokens`.
pub(super) fn variable_name(long: &str) -> String {
    format!("{PREFIX}{}", long.replace('-', "_").to_uppercase())
}

/// A value as words of the command line.
pub(super) fn words(command: &Command, arg: &Arg, found: &Found) -> Result<Vec<OsString>, Failure> {
    let long = arg.get_long().unwrap_or_default();
    let Found { values, origin } = found;
    if !arg.get_action().takes_values() {
        return match values.first().map(|value| truth(value)) {
            Some(Some(true)) => Ok(vec![format!("--{long}").into()]),
            Some(Some(false)) | None => Ok(Vec::new()),
            Some(None) => {
                let found = values.join(", ");
                Err(Failure::new(format!("{origin}: {long} is {found}, expected true or false")).into_usage())
            }
        };
    }
    if values.len() > 1 && !matches!(arg.get_action(), ArgAction::Append) {
        let count = values.len();
        return Err(Failure::new(format!("{origin}: {long} is a list of {count} values, expected one")).into_usage());
    }
    // The model of a word on the command line goes before that of the configuration.
    let has_default = command.get_arguments().any(|arg| arg.get_id() == "default_model");
    let long = if long == "model" && has_default { "default-model" } else { long };
    Ok(values.iter().map(|value| format!("--{long}={value}").into()).collect())
}

pub(super) fn truth(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Some(true),
        "false" | "0" | "no" | "off" => Some(false),
        _ => None,
    }
}

/// The file of the user, and whether a variable names it.
pub(super) fn path() -> Option<(PathBuf, bool)> {
    let set = |name: &str| env::var_os(name).map(PathBuf::from);
    if let Some(named) = set(FILE) {
        return (!named.as_os_str().is_empty()).then_some((named, true));
    }
    let absolute = |name: &str| set(name).filter(|path| path.is_absolute());
    let folder = match cfg!(windows) {
        true => absolute("APPDATA"),
        false => absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config"))),
    };
    folder.map(|folder| (folder.join("gristmill").join("config.toml"), false))
}

/// The text of a file that may be missing.
pub(super) fn text(path: &Path, must_exist: bool) -> Result<Option<String>, Failure> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        // Also a home folder that is none.
        Err(_) if !must_exist && !path.exists() => Ok(None),
        Err(error) => {
            let remedy = format!("mend it, or name another file with {FILE}");
            Err(Failure::new(format!("{}: cannot be read: {error}; {remedy}", path.display())))
        }
    }
}

/// The known name that is nearest to a mistaken one.
pub(super) fn nearest<'a>(wrong: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let distance = |name: &&str| strsim::damerau_levenshtein(wrong, name);
    known.min_by_key(distance).filter(|name| distance(name) <= 1 + name.len() / 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_named_like_options() {
        assert_eq!(variable_name("max-tokens"), "GRISTMILL_MAX_TOKENS");
        assert_eq!(["On", "0", "perhaps"].map(truth), [Some(true), Some(false), None]);
        assert_eq!(nearest("thread", ["port", "threads"].into_iter()), Some("threads"));
        assert_eq!(nearest("quantum", ["port", "host"].into_iter()), None);
    }

    /// Each option has its own variable, which differs from the variables of the file and of the key.
    #[test]
    fn every_option_has_a_variable() {
        let cli = crate::command();
        for command in cli.get_subcommands() {
            let names: Vec<String> = settings(command).filter_map(Arg::get_long).map(variable_name).collect();
            let unlike = |name: &&String| names.iter().filter(|other| other == name).count() == 1;
            assert!(names.iter().all(|name| unlike(&name) && name != FILE && name != "GRISTMILL_API_KEY"), "{names:?}");
        }
    }
}
