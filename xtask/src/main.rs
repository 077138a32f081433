//! Chores of the repository.

mod prove;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask prove mutations [--only OP] [--list] [--output FILE]
           apply each known mutation of the CPU kernels to a copy of the tree and run the op suite; one that the
           suite does not notice is a failure";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["prove", "mutations", options @ ..] => prove::mutations(options),
        _ => Err(USAGE.to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}
