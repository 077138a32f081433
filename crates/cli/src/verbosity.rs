//! How much a command writes to stderr.

use clap::Args;

use crate::console;

/// The amount of output on stderr.
#[derive(Args, Clone, Copy, Default)]
pub(crate) struct Verbosity {
    /// Print only errors to stderr.
    #[arg(short, long, help_heading = "Output")]
    pub(crate) quiet: bool,
    /// Print details to stderr: memory plan, context, threads, sampling, seed.
    #[arg(short, long, conflicts_with = "quiet", help_heading = "Output")]
    pub(crate) verbose: bool,
}

impl Verbosity {
    /// Writes a line to stderr with `--verbose`.
    pub(crate) fn detail(&self, line: std::fmt::Arguments) {
        if self.verbose {
            console::note(line);
        }
    }

    /// Writes a line to stderr unless `--quiet`.
    pub(crate) fn info(&self, line: std::fmt::Arguments) {
        if !self.quiet {
            console::note(line);
        }
    }
}
