//! The program `gristmill`: see the library of this crate.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(gristmill_cli::main(std::env::args_os().skip(1).collect()))
}
