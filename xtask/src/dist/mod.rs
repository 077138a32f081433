//! `dist`: builds the artifacts of a release. `targets` and `artifacts` are its tables; each kind of artifact is a file.

mod archive;
mod artifacts;
mod bare;
mod build;
mod check;
mod container;
mod deb;
mod formula;
mod install;
mod kernels;
mod pages;
mod product;
mod reproduce;
mod rpm;
mod sbom;
mod source;
mod sums;
mod targets;
mod tools;
mod tree;
mod wheel;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) use product::version;

use crate::root;
use artifacts::{ARTIFACTS, Inputs};
use build::Built;
use product::Release;
use targets::{TARGETS, Target};

/// The most bytes of a program.
const MOST_BYTES: u64 = 50_000_000;

/// What the words of the command ask for.
#[derive(Debug, PartialEq)]
struct Wanted<'a> {
    targets: Vec<&'a str>,
    only: Vec<&'a str>,
    packages_only: bool,
}

/// `dist [--target TRIPLE]... [--only ARTIFACT]... [--no-build]`, `dist list`, `dist check` and `dist reproduce [--no-build]`.
pub(crate) fn dist(words: &[&str]) -> Result<(), String> {
    match words {
        ["list"] => {
            TARGETS.iter().for_each(|target| println!("{}: {}", target.triple, target.proof));
            ARTIFACTS.iter().for_each(|artifact| println!("{}: {}", artifact.name, artifact.about));
            Ok(())
        }
        ["check"] => check::check(&Release::current()?, &out()?),
        ["reproduce", words @ ..] => reproduce::reproduce(&wanted(words)?),
        words => make(&wanted(words)?),
    }
}

fn wanted<'a>(words: &[&'a str]) -> Result<Wanted<'a>, String> {
    let mut wanted = Wanted { targets: Vec::new(), only: Vec::new(), packages_only: false };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().copied().ok_or_else(|| format!("dist: {word} has no value; see cargo xtask"));
        match *word {
            "--target" => wanted.targets.push(value()?),
            "--only" => wanted.only.push(value()?),
            "--no-build" => wanted.packages_only = true,
            other => return Err(format!("dist: unknown option {other}; see cargo xtask")),
        }
    }
    for only in &wanted.only {
        if !ARTIFACTS.iter().any(|artifact| artifact.name == *only) {
            return Err(format!("--only: is no artifact (found {only}); see cargo xtask dist list"));
        }
    }
    Ok(wanted)
}

fn make(wanted: &Wanted) -> Result<(), String> {
    make_in(wanted, &out()?, &root().join("target/dist/stage"))
}

/// Makes the artifacts in a folder, with another for files in between.
fn make_in(wanted: &Wanted, out: &Path, stage: &Path) -> Result<(), String> {
    let release = Release::current()?;
    let targets: Vec<Target> = match &wanted.targets[..] {
        [] => TARGETS.into_iter().filter(|target| target.is_default).collect(),
        names => names.iter().map(|name| Target::named(name)).collect::<Result<_, _>>()?,
    };
    tools::install()?;
    let built = targets.into_iter().map(|target| match wanted.packages_only {
        true => Ok(Built::new(target)),
        false => build::build(&release, target),
    });
    let built = built.collect::<Result<Vec<Built>, String>>()?;
    built.iter().try_for_each(check_size)?;
    fs::create_dir_all(out).map_err(|error| format!("{}: {error}", out.display()))?;
    let inputs = Inputs { release: &release, built: &built, out, stage };
    for artifact in &ARTIFACTS {
        if (wanted.only.is_empty() && artifact.is_default) || wanted.only.contains(&artifact.name) {
            println!("{}: {}", artifact.name, artifact.about);
            (artifact.make)(&inputs)?;
        }
    }
    println!("{}:", out.display());
    sums::all(out)?.into_iter().for_each(|(name, sum)| println!("  {sum}  {name}"));
    built.iter().for_each(|built| println!("{}: {}", built.target.triple, built.target.proof));
    Ok(())
}

fn check_size(built: &Built) -> Result<(), String> {
    let program = built.program();
    let bytes = fs::metadata(&program).map_err(|error| format!("{}: {error}", program.display()))?.len();
    if bytes > MOST_BYTES {
        return Err(format!(
            "{}: is too large (found {bytes} bytes, expected at most {MOST_BYTES})",
            program.display()
        ));
    }
    println!("{}: {bytes} bytes", program.display());
    Ok(())
}

/// The folder of the artifacts.
fn out() -> Result<PathBuf, String> {
    Ok(root().join("target/dist").join(Release::current()?.version))
}

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    run_with(&[], program, arguments)
}

fn run_in(folder: &Path, program: &str, arguments: &[&str]) -> Result<(), String> {
    finish(command(program, arguments).current_dir(folder))
}

/// Runs a line of a shell in a folder.
fn sh_in(folder: &Path, line: &str) -> Result<(), String> {
    run_in(folder, "bash", &["-euo", "pipefail", "-c", line])
}

fn run_with(environment: &[(&str, &str)], program: &str, arguments: &[&str]) -> Result<(), String> {
    finish(command(program, arguments).envs(environment.iter().copied()))
}

fn command(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("env");
    command.arg(format!("PATH={}", tools::path())).arg(program).args(arguments).current_dir(root());
    // Times and names have one form everywhere.
    command.env("LC_ALL", "C.UTF-8").env("TZ", "UTC");
    command
}

fn finish(command: &mut Command) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{command:?}: failed, {status}")),
        Err(error) => Err(format!("{command:?}: cannot be started: {error}")),
    }
}

#[cfg(test)]
mod tests;
