//! How a command fails: one sentence on stderr and exit code 1 (2 after wrong usage), silently after a closed pipe, or
//! by the signal that stopped it.

use std::fmt::Display;
use std::io;

use gristmill_engine::EngineError;
use gristmill_lab::LabError;

use crate::console;
use crate::interrupt::{self, Interrupt};
use crate::option_names;

/// Why a command did not finish.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The reader closed the output, as `head` does. The exit code is 0.
    ClosedPipe,
    /// One sentence with the remedy; "error: " is added when it is printed.
    Message(String),
    /// The same, about an option whose value no model could take.
    Usage(String),
    /// The same, for too little memory: with fewer other models in it, the command may succeed.
    Memory(String),
    /// The command ended on rank 0, whose calls this process has repeated. The exit code is 0.
    Followed,
    /// A signal stopped the command; its partial file is removed.
    Interrupted { signal: i32, message: String },
}

impl Failure {
    /// A failure with this sentence.
    pub(crate) fn new(message: impl Into<String>) -> Failure {
        Failure::Message(message.into())
    }

    /// The same, as wrong usage.
    pub(crate) fn into_usage(self) -> Failure {
        match self {
            Failure::Message(message) | Failure::Memory(message) => Failure::Usage(message),
            other => other,
        }
    }

    /// The same, with what it is about before the sentence.
    pub(crate) fn about(self, what: &str) -> Failure {
        match self {
            Failure::Message(message) => Failure::Message(format!("{what}: {message}")),
            Failure::Memory(message) => Failure::Memory(format!("{what}: {message}")),
            other => other,
        }
    }

    /// The same, with a note in brackets after the sentence.
    pub(crate) fn with_note(self, note: &str) -> Failure {
        match self {
            Failure::Message(message) => Failure::Message(format!("{message} ({note})")),
            Failure::Memory(message) => Failure::Memory(format!("{message} ({note})")),
            other => other,
        }
    }

    /// Whether the exit code is not 0.
    pub(crate) fn is_error(&self) -> bool {
        !matches!(self, Failure::ClosedPipe | Failure::Followed)
    }

    /// The sentence.
    pub(crate) fn message(&self) -> String {
        match self {
            Failure::ClosedPipe => "the output is closed".to_owned(),
            Failure::Followed => "rank 0 has ended".to_owned(),
            Failure::Message(message)
            | Failure::Usage(message)
            | Failure::Memory(message)
            | Failure::Interrupted { message, .. } => one_line(message),
        }
    }

    /// From an error that a recorded signal may have caused.
    pub(crate) fn stopped(interrupt: &Interrupt, error: impl Into<Failure>) -> Failure {
        match (error.into(), interrupt.signal()) {
            (Failure::Message(message) | Failure::Memory(message), Some(signal)) => {
                Failure::Interrupted { signal, message }
            }
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

/// The message of any typed error, with the options that it is about.
impl<E: std::error::Error + 'static> From<E> for Failure {
    fn from(error: E) -> Failure {
        let message = match option_names::of(&error) {
            Some(options) => format!("{error} ({options})"),
            None => error.to_string(),
        };
        if is_memory(&error) { Failure::Memory(message) } else { Failure::Message(message) }
    }
}

/// Whether an error says that the memory does not suffice for a model.
fn is_memory(error: &(dyn std::error::Error + 'static)) -> bool {
    let model = match (error.downcast_ref(), error.downcast_ref()) {
        (Some(EngineError::Model(error)), _) | (_, Some(LabError::Model(error))) => Some(error),
        _ => error.downcast_ref(),
    };
    matches!(model, Some(gristmill_engine::Error::Memory { .. }))
}

/// Reports a failure and returns the exit code: 1 for an error, and 2 for wrong usage, as clap has it. After a signal
/// the process ends by that signal.
pub(crate) fn exit_code(outcome: Result<(), Failure>) -> u8 {
    match outcome {
        Ok(()) | Err(Failure::ClosedPipe | Failure::Followed) => 0,
        Err(Failure::Message(message) | Failure::Memory(message)) => {
            console::note(format_args!("error: {}", one_line(&message)));
            1
        }
        Err(Failure::Usage(message)) => {
            console::note(format_args!("error: {}", one_line(&message)));
            2
        }
        Err(Failure::Interrupted { signal, message }) => {
            console::note(format_args!("error: {}", one_line(&message)));
            interrupt::end(signal)
        }
    }
}

/// Joins lines: a message of the system or of a chat template may have several.
fn one_line(message: &(impl Display + ?Sized)) -> String {
    message.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}
