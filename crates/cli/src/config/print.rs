//! `config`: all settings with where they come from, or a file to start with.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use clap::{Arg, ArgAction, Args, Command};

use super::file::File;
use super::{Found, WITHOUT, settings, variable};
use crate::console;
use crate::failure::Failure;

/// Print every setting with its value and origin.
///
/// An option of a command can be set on the command line, by the variable GRISTMILL_NAME (GRISTMILL_MAX_TOKENS for
/// --max-tokens), or in a file: ~/.config/gristmill/config.toml, or the path in GRISTMILL_CONFIG. The first of these
/// applies. In the file, keys before the sections apply to every command; keys in [serve] apply only to serve. The
/// output has the format of the file.
#[derive(Args)]
pub(crate) struct ConfigArgs {
    /// Write a new file, in which every setting is a comment.
    #[arg(long)]
    init: bool,
}

pub(crate) fn run(args: &ConfigArgs) -> Result<(), Failure> {
    let cli = crate::command();
    if args.init {
        return write_template(&cli);
    }
    let file = File::of_user(&cli)?;
    let state = match (&file, super::path()) {
        (Some(file), _) => format!("the file {}", file.path.display()),
        (None, Some((path, _))) => format!("the file {}, which does not exist", path.display()),
        (None, None) => "no file".to_owned(),
    };
    let head = format!("# By precedence: the command line, variables GRISTMILL_*, {state}, defaults.\n");
    let find = |command: &Command, arg: &Arg| variable(arg).or_else(|| file.as_ref()?.find(command, arg));
    console::print_report(head + &listing(&cli, &find, Style::Values))
}

fn write_template(cli: &Command) -> Result<(), Failure> {
    let (path, _) =
        super::path().ok_or_else(|| Failure::new("there is no home folder; name a file with GRISTMILL_CONFIG"))?;
    let name = path.display();
    if path.exists() {
        return Err(Failure::new(format!("{name}: exists; edit it, or remove it first")));
    }
    let text = format!("# Settings of gristmill. Remove the # before a key to set it.\n{}", template(cli));
    let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, text));
    written.map_err(|error| Failure::new(format!("{name}: {error}; name another file with GRISTMILL_CONFIG")))?;
    console::print_line(name)
}

fn template(cli: &Command) -> String {
    listing(cli, &|_, _| None, Style::Template)
}

/// What stands next to a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    /// Its origin.
    Values,
    /// Its meaning, and all of it as a comment.
    Template,
}

/// A setting: its value in TOML if it has one, and where that comes from.
#[derive(Clone, PartialEq, Eq)]
struct Row {
    key: String,
    value: Option<String>,
    origin: String,
    help: String,
}

type Find<'a> = &'a dyn Fn(&Command, &Arg) -> Option<Found>;

/// All settings: first those that have one value in several commands, then each command's own.
fn listing(cli: &Command, find: Find, style: Style) -> String {
    let commands = || cli.get_subcommands().filter(|command| !WITHOUT.contains(&command.get_name()));
    let mut rows: BTreeMap<String, Vec<(&str, Row)>> = BTreeMap::new();
    for command in commands() {
        for arg in settings(command) {
            let row = Row::new(command, arg, find);
            rows.entry(row.key.clone()).or_default().push((command.get_name(), row));
        }
    }
    let is_common = |rows: &[(&str, Row)]| {
        let same = |a: &Row, b: &Row| (&a.value, &a.origin) == (&b.value, &b.origin);
        rows.len() > 1 && rows.iter().all(|(_, row)| same(row, &rows[0].1))
    };
    let mut out = String::new();
    rows.values().filter(|rows| is_common(rows)).for_each(|rows| rows[0].1.write(style, &mut out));
    for command in commands().map(Command::get_name) {
        let own = rows.values().filter(|rows| !is_common(rows)).flatten().filter(|(name, _)| *name == command);
        let mut section = String::new();
        own.for_each(|(_, row)| row.write(style, &mut section));
        if !section.is_empty() {
            let _ = write!(out, "\n[{command}]\n{section}");
        }
    }
    out
}

impl Row {
    fn new(command: &Command, arg: &Arg, find: Find) -> Row {
        let key = arg.get_long().unwrap_or_default().to_owned();
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let is_list = matches!(arg.get_action(), ArgAction::Append);
        let (values, origin) = match find(command, arg) {
            Some(found) => (found.values, found.origin.to_string()),
            None if !arg.get_action().takes_values() => (vec!["false".to_owned()], "default".to_owned()),
            None => {
                let values =
                    arg.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
                (values, "default".to_owned())
            }
        };
        let value = match &values[..] {
            [] => None,
            [value] if !is_list => Some(toml(value)),
            values => Some(format!("[{}]", values.iter().map(|value| toml(value)).collect::<Vec<_>>().join(", "))),
        };
        Row { key, value, origin, help }
    }

    fn write(&self, style: Style, out: &mut String) {
        let Row { key, value, origin, help } = self;
        let setting = value.as_ref().map(|value| format!("{key} = {value}"));
        let _ = match (style, setting) {
            (Style::Values, Some(setting)) => writeln!(out, "{setting:<32} # {origin}"),
            (Style::Values, None) => writeln!(out, "{:<32} # not set", format!("# {key}")),
            (Style::Template, setting) => {
                let setting = setting.unwrap_or_else(|| format!("{key} = "));
                writeln!(out, "# {}\n#{setting}", first_line(help))
            }
        };
    }
}

/// The first sentence of a help text, without line ends.
fn first_line(help: &str) -> String {
    help.lines().next().unwrap_or_default().to_owned()
}

/// A value in TOML: numbers and truth as they are, everything else in quotes.
fn toml(value: &str) -> String {
    let is_number = value.parse::<i64>().is_ok() || value.parse::<f64>().is_ok_and(f64::is_finite);
    match is_number || ["true", "false"].contains(&value) {
        true => value.to_owned(),
        false => toml::Value::String(value.to_owned()).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What --init writes is a file without settings, and with its values one that changes nothing.
    #[test]
    fn the_template_is_a_file() {
        let cli = crate::command();
        let text = template(&cli);
        File::parse("t.toml".into(), &text, &cli).expect("comments");
        let uncommented = |line: &str| match line.strip_prefix('#') {
            Some(setting) if !setting.starts_with(' ') && !setting.ends_with("= ") => setting.to_owned(),
            _ => line.to_owned(),
        };
        let whole = text.lines().map(uncommented).collect::<Vec<_>>().join("\n");
        File::parse("t.toml".into(), &whole, &cli).expect("settings");
        assert!(whole.contains("\nport = 8080\n") && whole.contains("\ndevice = \"auto\"\n"), "{whole}");
    }
}
