//! Errors and warnings of the libraries, which have no caller to return them to, on stderr.

use std::fmt;
use std::io;
use std::time::SystemTime;

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

use crate::access_log::{LogFormat, utc};
use crate::console;
use crate::verbosity::Verbosity;

/// Prints errors from now on, and warnings unless `--quiet`. With JSON, all lines on stderr are objects.
pub(crate) fn install(format: LogFormat, verbosity: Verbosity) {
    if matches!(format, LogFormat::Json) {
        console::write_json();
    }
    let level = if verbosity.quiet { LevelFilter::ERROR } else { LevelFilter::WARN };
    let lines = tracing_subscriber::fmt().with_max_level(level).with_writer(io::stderr).with_timer(Utc);
    // A process has one subscriber, and nothing before has set one.
    let _ = match format {
        LogFormat::Text => lines.with_ansi(false).with_target(false).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).with_target(false).try_init(),
    };
}

/// The time of the access log.
struct Utc;

impl FormatTime for Utc {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        writer.write_str(&utc(SystemTime::now()))
    }
}
