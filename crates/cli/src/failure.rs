//! How a command ends that did not succeed: one sentence on stderr and exit code 1, nothing for a closed pipe, or the
//! signal that stopped it.

use std::fmt::Display;
use std::io;
use std::process::ExitCode;

use crate::console;
use crate::interrupt::{self, Interrupt};

/// Why a command did not finish.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Whoever read the output has closed it, as `head` does. Not an error.
    ClosedPipe,
    /// One sentence with the remedy, without "error:".
    Message(String),
    /// A signal stopped the command, which has cleaned up.
    Interrupted { signal: i32, message: String },
}

impl Failure {
    /// A failure with this sentence.
    pub(crate) fn new(message: impl Into<String>) -> Failure {
        Failure::Message(message.into())
    }

    /// From an error after which a signal may have stopped the command.
    pub(crate) fn stopped(interrupt: &Interrupt, error: impl Into<Failure>) -> Failure {
        match (error.into(), interrupt.signal()) {
            (Failure::Message(message), Some(signal)) => Failure::Interrupted { signal, message },
            (failure, _) => failure,
        }
    }

    /// From an error of writing to stdout.
    pub(crate) fn output(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::ClosedPipe,
            _ => Failure::new(format!("cannot write the output: {error}")),
        }
    }
}

/// Any typed error is its message.
impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::Message(error.to_string())
    }
}

/// Reports a failure and gives the exit code: 1 for an error. (Wrong usage is 2, which clap reports.) A command that a
/// signal stopped ends by that signal.
pub(crate) fn exit_code(outcome: Result<(), Failure>) -> ExitCode {
    match outcome {
        Ok(()) | Err(Failure::ClosedPipe) => ExitCode::SUCCESS,
        Err(Failure::Message(message)) => {
            console::note(format_args!("error: {}", one_line(&message)));
            ExitCode::FAILURE
        }
        Err(Failure::Interrupted { signal, message }) => {
            console::note(format_args!("error: {}", one_line(&message)));
            interrupt::end(signal)
        }
    }
}

/// Error messages are sentences, but a message of the system or of a template may have several lines.
fn one_line(message: &(impl Display + ?Sized)) -> String {
    message.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}
