//! The `gristmill` command line: one file per subcommand, with its arguments and a function that may fail with
//! [`failure::Failure`].

#![forbid(unsafe_code)]
// The comments of arguments are also their help, whose brackets and addresses are no links.
#![allow(rustdoc::broken_intra_doc_links, rustdoc::bare_urls)]

mod answer;
mod args;
mod bench;
mod bias;
mod chat;
mod console;
mod continuation;
mod convert;
mod doctor;
mod embed;
mod experts;
mod failure;
mod fit;
mod grammar;
mod hub;
mod input;
mod inspect;
mod interrupt;
mod load;
mod numbers;
mod output;
mod perplexity;
mod prompt;
mod quantize;
mod recommended;
mod replay;
mod run;
mod serve;
mod settings;
mod shell;
mod source;
mod special;
mod stdin;
mod synthetic;
mod template;
mod tokenize;
mod wrap;

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::LazyLock;

use clap::{Parser, Subcommand};
use failure::Failure;
use gristmill_cpu::Level;

/// Run quantised language models from a GGUF file.
#[derive(Parser)]
#[command(name = "gristmill", version = VERSION.as_str(), max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    Run(run::RunArgs),
    Chat(chat::ChatArgs),
    Serve(serve::ServeArgs),
    Replay(replay::ReplayArgs),
    Inspect(inspect::InspectArgs),
    Tokenize(tokenize::TokenizeArgs),
    Embed(embed::EmbedArgs),
    Perplexity(perplexity::PerplexityArgs),
    Bench(bench::BenchArgs),
    Experts(experts::ExpertsArgs),
    Doctor(doctor::DoctorArgs),
    Pull(hub::pull::PullArgs),
    Fit(fit::FitArgs),
    Models(hub::models::ModelsArgs),
    Rm(hub::rm::RmArgs),
    Convert(convert::ConvertArgs),
    Quantize(quantize::QuantizeArgs),
    Completions(shell::CompletionsArgs),
    Man(shell::ManArgs),
}

/// `gristmill 0.1.0 (x86_64, CPU level avx512)`.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let (arch, level) = (std::env::consts::ARCH, Level::best().name());
    format!("{} ({arch}, CPU level {level})", env!("CARGO_PKG_VERSION"))
});

const EXAMPLES: &str = "\
gristmill runs quantised language models from a GGUF file.

  gristmill run \"Once upon a time\"                   a story by the built-in model
  gristmill run model.gguf \"Why is the sky blue?\"    answer once
  gristmill chat model.gguf                          talk
  gristmill serve model.gguf                         serve programs, as OpenAI and Anthropic do
  gristmill inspect model.gguf                       see what is in the file
  gristmill chat -m hf:ORG/REPO:Q4_K_M               the same with a model of the hub

gristmill --help lists everything.";

fn main() -> ExitCode {
    let command = match Cli::try_parse() {
        Ok(cli) => cli.command,
        // Wrong usage, on stderr.
        Err(error) if error.use_stderr() => error.exit(),
        // --help or --version, on stdout.
        Err(text) => {
            return failure::exit_code(text.print().and_then(|()| io::stdout().flush()).map_err(Failure::output));
        }
    };
    let outcome = match command {
        None => console::print_line(EXAMPLES),
        Some(Command::Run(args)) => run::run(&args),
        Some(Command::Chat(args)) => chat::run(&args),
        Some(Command::Serve(args)) => serve::run(&args),
        Some(Command::Replay(args)) => replay::run(&args),
        Some(Command::Inspect(args)) => inspect::run(&args),
        Some(Command::Tokenize(args)) => tokenize::run(&args),
        Some(Command::Embed(args)) => embed::run(&args),
        Some(Command::Perplexity(args)) => perplexity::run(&args),
        Some(Command::Bench(args)) => bench::run(&args),
        Some(Command::Experts(args)) => experts::run(&args),
        Some(Command::Doctor(args)) => doctor::run(&args),
        Some(Command::Pull(args)) => hub::pull::run(&args),
        Some(Command::Fit(args)) => fit::run(&args),
        Some(Command::Models(args)) => hub::models::run(&args),
        Some(Command::Rm(args)) => hub::rm::run(&args),
        Some(Command::Convert(args)) => convert::run(&args),
        Some(Command::Quantize(args)) => quantize::run(&args),
        Some(Command::Completions(args)) => shell::completions(&args),
        Some(Command::Man(args)) => shell::man(&args),
    };
    failure::exit_code(outcome)
}
