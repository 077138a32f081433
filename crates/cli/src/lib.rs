//! The `gristmill` command line: one file per subcommand, with its arguments and a function that may fail with
//! [`failure::Failure`]. The program and the Python package call [`main`]; [`library`] opens a model by the options of the
//! command line for other interfaces.

#![forbid(unsafe_code)]
// The comments of arguments are also their help, whose brackets and addresses are no links.
#![allow(rustdoc::broken_intra_doc_links, rustdoc::bare_urls)]

mod access_log;
mod answer;
mod args;
mod bench;
mod bias;
mod chat;
mod config;
mod console;
mod continuation;
mod convert;
mod doctor;
mod draft;
mod embed;
mod experts;
mod failure;
mod fit;
mod grammar;
mod habits;
mod help;
mod hub;
mod image;
mod input;
mod inspect;
mod interrupt;
mod kernels;
mod kind;
pub mod library;
mod load;
mod log;
mod mmproj;
mod numbers;
mod option_names;
mod output;
mod perplexity;
mod prompt;
mod quantize;
mod ranks;
mod recommended;
mod replay;
mod run;
mod serve;
mod settings;
mod shell;
mod source;
mod special;
mod stdin;
mod summary;
mod template;
mod tokenize;
mod verbosity;
mod wrap;

use std::ffi::OsString;
use std::io::{self, Write};
use std::sync::LazyLock;

use clap::error::{ContextKind, ContextValue};
use clap::{FromArgMatches, Parser, Subcommand};
use failure::Failure;
use gristmill_cpu::Level;
use help::command;

/// Run quantised language models: GGUF files, and folders of Hugging Face and MLX.
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
    #[command(alias = "show")]
    Inspect(inspect::InspectArgs),
    Tokenize(tokenize::TokenizeArgs),
    Embed(embed::EmbedArgs),
    Perplexity(perplexity::PerplexityArgs),
    Bench(bench::BenchArgs),
    Experts(experts::ExpertsArgs),
    Doctor(doctor::DoctorArgs),
    Kernels(kernels::KernelsArgs),
    Pull(hub::pull::PullArgs),
    Fit(fit::FitArgs),
    #[command(aliases = ["list", "ls"])]
    Models(hub::models::ModelsArgs),
    Rm(hub::rm::RmArgs),
    Convert(convert::ConvertArgs),
    Quantize(quantize::QuantizeArgs),
    Config(config::ConfigArgs),
    Completions(shell::CompletionsArgs),
    Man(shell::ManArgs),
}

/// `gristmill 0.1.0 (x86_64, CPU level avx512)`, and what the CPU has besides.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let (arch, level) = (std::env::consts::ARCH, Level::best().name());
    let besides = Level::not_chosen().map(|found| format!("; {found}")).unwrap_or_default();
    format!("{} ({arch}, CPU level {level}{besides})", env!("CARGO_PKG_VERSION"))
});

const EXAMPLES: &str = "\
gristmill runs quantised language models: GGUF files, and folders of
Hugging Face and MLX.

  gristmill run \"Once upon a time\"               a story by the built-in model
  gristmill run model.gguf \"Why is it dark?\"     answer once
  gristmill chat model.gguf                      chat
  gristmill serve model.gguf                     serve an API and a page
  gristmill inspect model.gguf                   show the file's contents
  gristmill chat hf:ORG/REPO:Q4_K_M              chat with a model of the hub

gristmill --help lists all commands.";

/// Runs the command of these arguments, which do not contain the program's name, and returns the exit code. Wrong usage and
/// signals end the process.
pub fn main(arguments: Vec<OsString>) -> u8 {
    // Before any thread starts.
    gristmill_collective::disable_multicast();
    let code = match parse(arguments) {
        Ok(command) => {
            let outcome = execute(command);
            ranks::end(outcome.as_ref().is_err_and(Failure::is_error));
            failure::exit_code(outcome)
        }
        Err(Unparsed::Failure(failure)) => failure::exit_code(Err(failure)),
        // --help or --version, on stdout.
        Err(Unparsed::Clap(text)) => failure::exit_code(text.print().map_err(Failure::output)),
    };
    // A host that is no Rust program does not flush it.
    match io::stdout().flush() {
        Err(error) if code == 0 => failure::exit_code(Err(Failure::output(error))),
        _ => code,
    }
}

/// Why there is no command to run.
enum Unparsed {
    Failure(Failure),
    Clap(clap::Error),
}

/// The command of the command line, of the environment and of the user's file.
fn parse(arguments: Vec<OsString>) -> Result<Option<Command>, Unparsed> {
    let cli = command();
    let typed = habits::translate(arguments, &cli).map_err(Unparsed::Failure)?;
    let completed = config::complete(typed, &cli).map_err(Unparsed::Failure)?;
    let words = std::iter::once("gristmill".into()).chain(completed.arguments.iter().cloned());
    match cli.try_get_matches_from(words).and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => Ok(cli.command),
        // Wrong usage, on stderr.
        Err(error) if error.use_stderr() => {
            if let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg)
                && let Some(origin) = completed.origin(option)
            {
                console::note(format_args!("{option} is set by {origin}:"));
            }
            error.exit()
        }
        Err(text) => Err(Unparsed::Clap(text)),
    }
}

fn execute(command: Option<Command>) -> Result<(), Failure> {
    match command {
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
        Some(Command::Kernels(args)) => kernels::run(&args),
        Some(Command::Pull(args)) => hub::pull::run(&args),
        Some(Command::Fit(args)) => fit::run(&args),
        Some(Command::Models(args)) => hub::models::run(&args),
        Some(Command::Rm(args)) => hub::rm::run(&args),
        Some(Command::Convert(args)) => convert::run(&args),
        Some(Command::Quantize(args)) => quantize::run(&args),
        Some(Command::Config(args)) => config::run(&args),
        Some(Command::Completions(args)) => shell::completions(&args),
        Some(Command::Man(args)) => shell::man(&args),
    }
}
