//! The `gristmill` command line. One file per subcommand; each takes its own arguments and answers [`Failure`].

#![forbid(unsafe_code)]

mod console;
mod failure;
mod shell;
mod synthetic;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use failure::Failure;

/// Run quantised language models from a GGUF file.
#[derive(Parser)]
#[command(name = "gristmill", version = env!("CARGO_PKG_VERSION"), max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    Completions(shell::CompletionsArgs),
    Man(shell::ManArgs),
}

const EXAMPLES: &str = "\
gristmill runs quantised language models from a GGUF file.

  gristmill run -m model.gguf \"Why is the sky blue?\"    answer once
  gristmill chat -m model.gguf                          talk
  gristmill inspect model.gguf                          see what is in the file

gristmill --help lists everything.";

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        None => console::print_line(EXAMPLES),
        Some(Command::Completions(args)) => shell::completions(&args),
        Some(Command::Man(args)) => shell::man(&args),
    };
    failure::exit_code(outcome)
}
