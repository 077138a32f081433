//! `prove guides`: runs the commands of every guide as written, with small models instead of large ones.

mod blocks;
#[cfg(test)]
mod figures;
#[cfg(test)]
mod links;
mod options;
mod shell;
mod tables;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Instant;

use super::date::date_and_commit;
use super::report;
use crate::{build, model, root, sh};
use blocks::Command;
use shell::{Hub, Shell};
use tables::{FILES, OF_THE_MACHINE, OTHERS, REPOSITORIES, Repository};

/// The pages whose commands run, in reading order.
pub(super) const GUIDES: [&str; 17] = [
    "README.md",
    "docs/install.md",
    "docs/quick-start.md",
    "docs/cli.md",
    "docs/choose.md",
    "docs/serve.md",
    "docs/serve-api.md",
    "docs/serve-operations.md",
    "docs/library.md",
    "docs/python.md",
    "docs/agents.md",
    "docs/team.md",
    "docs/moving.md",
    "docs/convert.md",
    "docs/quantize.md",
    "docs/metal.md",
    "CONTRIBUTING.md",
];

/// Which commands run.
#[derive(Debug, Default, PartialEq)]
struct Options<'a> {
    /// Guides; none for all.
    only: &'a [&'a str],
    /// Leaves out `cargo install`, which compiles for minutes. The program is then that of the tests.
    no_install: bool,
}

impl<'a> Options<'a> {
    fn parse(words: &'a [&'a str]) -> Result<Self, String> {
        match words {
            [] => Ok(Self::default()),
            ["--no-install", rest @ ..] => Ok(Self { no_install: true, ..Self::parse(rest)? }),
            ["--only", only @ ..] if !only.is_empty() => Ok(Self { only, no_install: false }),
            [word, ..] => Err(format!("prove guides: {word}: unknown option; see cargo xtask")),
        }
    }
}

/// Runs the commands, and writes the report.
pub(super) fn guides(words: &[&str]) -> Result<(), String> {
    let Options { only, no_install } = Options::parse(words)?;
    let (gristmill, standin) = (build("bin", "gristmill")?, build("example", "standin")?);
    let folder = root().join("target/prove/guides");
    let hub = Hub::start(&standin, &models(&folder, &gristmill)?)?;
    let mut page = Page { no_install, ..Page::default() };
    for guide in GUIDES.iter().filter(|guide| only.is_empty() || only.contains(guide)) {
        let name = guide.trim_end_matches(".md").replace('/', "-");
        let installed = folder.join(if no_install { "none" } else { "installed" });
        let mut shell = Shell::new(folder.join(name), &gristmill, &installed, &hub)?;
        for file in FILES.iter().filter(|file| file.page == *guide) {
            shell.copy(file.source, file.name)?;
        }
        shell.change("changed.txt")?;
        page.run(guide, &mut shell)?;
        if *guide == options::PAGE {
            page.try_options(&mut shell)?;
        }
    }
    let text = page.finish();
    report::write("guides", &text)?;
    if page.failed.is_empty() { Ok(()) } else { Err(page.failed.join("\n\n")) }
}

/// Makes the files of the repositories, and returns the words of the mock of the hub: each repository with its file.
fn models(folder: &Path, gristmill: &Path) -> Result<Vec<String>, String> {
    let small = model::fetch()?;
    let hub = folder.join("hub");
    let mut words = Vec::new();
    let _ = fs::remove_dir_all(&hub);
    fs::create_dir_all(&hub).map_err(|error| format!("cannot make {}: {error}", hub.display()))?;
    for Repository { name, file, folder } in REPOSITORIES {
        let file = hub.join(file);
        let path = file.display().to_string();
        match folder {
            Some(folder) => sh(&gristmill.display().to_string(), &["convert", "--quiet", folder, "-o", &path])?,
            None => fs::hard_link(&small, &file).map_err(|error| format!("cannot make {path}: {error}"))?,
        }
        words.extend([name.to_owned(), path]);
    }
    Ok(words)
}

/// The page under construction.
#[derive(Default)]
struct Page {
    no_install: bool,
    text: String,
    failed: Vec<String>,
    ran: usize,
    left_out: usize,
}

impl Page {
    /// Why a command does not run, if it does not.
    fn reason(&self, guide: &str, command: &str) -> Option<&'static str> {
        let other = OTHERS.iter().find(|other| other.page == guide && command.starts_with(other.start));
        let is_install = self.no_install && command.starts_with("cargo install");
        other.map(|other| other.reason).or(is_install.then_some("left out by --no-install"))
    }

    /// Runs the commands of a guide.
    fn run(&mut self, guide: &str, shell: &mut Shell) -> Result<(), String> {
        let commands = commands(guide)?;
        if commands.is_empty() {
            return Ok(());
        }
        self.text += &format!("\n## {guide}\n\n");
        for command in commands {
            let line = command.text.replace("\\\n", "").lines().collect::<Vec<_>>().join(" ");
            if let Some(reason) = self.reason(guide, &line) {
                self.left_out += 1;
                self.text += &format!("- `{line}`: NOT RUN, {reason}\n");
                continue;
            }
            eprintln!("{guide}: {line}");
            let begin = Instant::now();
            match shell.run(&command.text).and_then(|printed| compare(guide, &command, &printed)) {
                Ok(()) => {
                    self.ran += 1;
                    eprintln!("{:>8} s", begin.elapsed().as_secs());
                    self.text += &format!("- `{line}`\n");
                }
                Err(error) => {
                    self.text += &format!("- `{line}`: FAILED\n");
                    self.failed.push(format!("{guide}: {line}: {error}"));
                }
            }
        }
        shell.stop().unwrap_or_else(|error| self.failed.push(format!("{guide}: {error}")));
        Ok(())
    }

    /// Tries the options in the tables of [`options::PAGE`].
    fn try_options(&mut self, shell: &mut Shell) -> Result<(), String> {
        let text =
            fs::read_to_string(root().join(options::PAGE)).map_err(|error| format!("{}: {error}", options::PAGE))?;
        self.text += &format!("\n### Options of {}\n\n", options::PAGE);
        for (name, content) in options::FILES {
            shell.write(name, content)?;
        }
        for (name, source) in options::COPIES {
            shell.copy(source, name)?;
        }
        for option in options::options(&text) {
            match option.run(shell) {
                Ok(line) => {
                    self.ran += 1;
                    self.text += &line;
                }
                Err(error) => {
                    self.text += &format!("- `{}`: FAILED\n", option.code());
                    self.failed.push(format!("{}: {}: {error}", options::PAGE, option.code()));
                }
            }
        }
        shell.stop().unwrap_or_else(|error| self.failed.push(format!("{}: {error}", options::PAGE)));
        Ok(())
    }

    /// The whole page.
    fn finish(&self) -> String {
        let repositories = REPOSITORIES.map(|Repository { name, folder, .. }| {
            let model = folder.map_or("SmolLM2-135M-Instruct (Q4_1)".to_owned(), |folder| format!("`{folder}`"));
            format!("| all | `{name}` | {model} |\n")
        });
        let files = FILES.iter().map(|file| format!("| {} | `{}` | `{}` |\n", file.page, file.name, file.source));
        format!(
            "# Commands of the guides, {}\n\n`cargo xtask prove guides` runs every command of the guides as it is \
             written: {} ran, {} failed, {} did not run and\nsay why. A server runs until the next one or the end of \
             the page, `curl` must get a reply without an error, a chat gets two\nlines on stdin, and printed lines that \
             a guide shows must be printed. `pip install` runs dry.\n\nA stand-in of the hub \
             (`crates/hub/examples/standin.rs`) has the repositories. Models and files are:\n\n\
             | guide | name there | here |\n| --- | --- | --- |\n{}{}{}",
            date_and_commit(),
            self.ran,
            self.failed.len(),
            self.left_out,
            repositories.concat(),
            files.collect::<String>(),
            self.text
        )
    }
}

/// The commands of a guide.
fn commands(guide: &str) -> Result<Vec<Command>, String> {
    let text = fs::read_to_string(root().join(guide)).map_err(|error| format!("cannot read {guide}: {error}"))?;
    Ok(blocks::commands(&text))
}

/// Whether a command printed what its guide shows: each line, in any order, up to `[...]`.
fn compare(guide: &str, command: &Command, printed: &str) -> Result<(), String> {
    let printed: BTreeSet<&str> = printed.lines().map(str::trim).collect();
    let of_the_machine =
        |line: &str| OF_THE_MACHINE.iter().any(|(page, start)| *page == guide && line.starts_with(start));
    let is_printed = |line: &str| match line.split_once("[...]") {
        Some((start, _)) => printed.iter().any(|line| line.starts_with(start.trim_end())),
        None => printed.contains(line.trim()),
    };
    match command.prints.iter().find(|line| !of_the_machine(line) && !is_printed(line)) {
        Some(line) => Err(format!("does not print: {line}\nbut: {printed:#?}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<(&'static str, Command)> {
        let of = |guide: &&'static str| {
            let commands = commands(guide).expect("a guide");
            commands.into_iter().map(|command| (*guide, command)).collect::<Vec<_>>()
        };
        GUIDES.iter().flat_map(of).collect()
    }

    #[test]
    fn options_are_checked() {
        let only = &["README.md"][..];
        assert_eq!(Options::parse(&["--no-install", "--only", "README.md"]), Ok(Options { only, no_install: true }));
        assert!(Options::parse(&["-o", "x"]).is_err_and(|error| error.contains("-o")));
    }

    #[test]
    fn every_row_of_the_tables_is_used() {
        let all = all();
        let is_in =
            |page: &str, text: &str| all.iter().any(|(guide, command)| *guide == page && command.text.contains(text));
        for file in FILES {
            assert!(is_in(file.page, file.name), "no command of {} names {}", file.page, file.name);
            assert!(root().join(file.source).exists(), "{}", file.source);
        }
        for other in OTHERS {
            let found =
                all.iter().any(|(guide, command)| *guide == other.page && command.text.starts_with(other.start));
            assert!(found, "no command of {} begins with {}", other.page, other.start);
        }
        for (page, start) in OF_THE_MACHINE {
            let shown = |(guide, command): &(&str, Command)| {
                *guide == page && command.prints.iter().any(|line| line.starts_with(start))
            };
            assert!(all.iter().any(shown), "{page} shows no line {start}");
        }
        for Repository { name, .. } in REPOSITORIES {
            assert!(all.iter().any(|(_, command)| command.text.contains(name)), "no guide names {name}");
        }
    }

    #[test]
    fn every_page_with_commands_is_a_guide() {
        for entry in fs::read_dir(root().join("docs")).expect("the folder of the pages") {
            let name = format!("docs/{}", entry.expect("a page").file_name().to_string_lossy());
            let is_known = !name.ends_with(".md") || GUIDES.contains(&name.as_str());
            assert!(is_known || commands(&name).expect("a page").is_empty(), "{name} has commands that nothing runs");
        }
    }

    #[test]
    fn what_a_guide_shows_is_compared() {
        let command = |line: &str| Command { text: String::new(), prints: vec![line.to_owned()] };
        assert_eq!(compare("a", &command("one [...]"), "zero\none two\n"), Ok(()));
        assert!(compare("a", &command("one"), "one two\n").is_err());
        assert_eq!(compare("docs/choose.md", &command("device: x"), ""), Ok(()));
    }
}
