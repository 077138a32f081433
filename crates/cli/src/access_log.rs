//! The access log of `serve`: a line for each request, without its text.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use clap::{Args, ValueEnum};
use gristmill_server::{Log, LoggedRequest};
use gristmill_text::clock;
use serde_json::{Value, json};

use crate::console;
use crate::failure::Failure;
use crate::verbosity::Verbosity;

/// Where the log is written.
#[derive(Args)]
pub(crate) struct AccessLogArgs {
    /// Append a line for each request to FILE, or print it on stdout (-). A line has method, path, status, tokens and
    /// times, but no text of the request or reply. With --verbose, lines are also printed on stderr. SIGHUP opens the file
    /// again, so it can be renamed before.
    #[arg(long, value_name = "FILE", help_heading = "Operation")]
    access_log: Option<PathBuf>,
    /// The format of lines in the access log, and of all lines on stderr.
    #[arg(
        long,
        value_name = "FORMAT",
        default_value = "text",
        alias = "access-log-format",
        help_heading = "Operation"
    )]
    pub(crate) log_format: LogFormat,
}

/// The form of a line.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LogFormat {
    /// Plain text.
    Text,
    /// One JSON object.
    Json,
}

/// The file of the log, which can be opened again after it was renamed.
#[derive(Clone)]
pub(crate) struct LogFile {
    path: PathBuf,
    to: Arc<Mutex<Box<dyn Write + Send>>>,
}

impl AccessLogArgs {
    /// Opens the log, if one is wanted. Returns its file too, if it has one.
    pub(crate) fn open(&self, log: Verbosity) -> Result<(Option<Log>, Option<LogFile>), Failure> {
        let to: Option<Box<dyn Write + Send>> = match self.access_log.as_deref() {
            None => None,
            Some(path) if path.as_os_str() == "-" => Some(Box::new(io::stdout())),
            Some(path) => Some(Box::new(append(path)?)),
        };
        if to.is_none() && !log.verbose {
            return Ok((None, None));
        }
        let format = self.log_format;
        let to = to.map(|to| Arc::new(Mutex::new(to)));
        let path = self.access_log.clone().filter(|path| path.as_os_str() != "-");
        let file = path.zip(to.clone()).map(|(path, to)| LogFile { path, to });
        let write = move |request: &LoggedRequest| {
            log.detail(format_args!("{}", text(request)));
            if let Some(to) = &to {
                let line = match format {
                    LogFormat::Text => text(request),
                    LogFormat::Json => object(request).to_string(),
                };
                let mut to = to.lock().unwrap_or_else(PoisonError::into_inner);
                if let Err(error) = to.write_all(format!("{line}\n").as_bytes()).and_then(|()| to.flush()) {
                    console::note(format_args!("warning: the access log cannot be written: {error}"));
                }
            }
        };
        Ok((Some(Log::new(write)), file))
    }
}

impl LogFile {
    /// Opens the file again. If that fails, lines are still written to the old one.
    pub(crate) fn reopen(&self) {
        match append(&self.path) {
            Ok(file) => *self.to.lock().unwrap_or_else(PoisonError::into_inner) = Box::new(file),
            Err(failure) => tracing::error!("the access log is still the old file: {}", failure.message()),
        }
    }
}

fn append(path: &Path) -> Result<File, Failure> {
    File::options().create(true).append(true).open(path).map_err(|error| {
        Failure::new(format!("--access-log {}: {error}; name a file that can be written", path.display()))
    })
}

/// `2026-01-31T12:00:00Z POST /v1/completions 200, prompt 12 tokens (8 cached), generated 30, first 0.120 s, 1.500 s, key
/// anna, id 7f9c`.
fn text(request: &LoggedRequest) -> String {
    let LoggedRequest { method, path, status, duration, .. } = request;
    let mut line = format!("{} {method} {} {status}", utc(request.time), path.escape_debug());
    if let Some(tokens) = request.tokens {
        let (prompt, cached, generated) = (tokens.prompt, tokens.cached, tokens.generated);
        line += &format!(", prompt {prompt} tokens ({cached} cached), generated {generated}");
        line += &tokens.first.map_or(String::new(), |first| format!(", first {:.3} s", first.as_secs_f64()));
    }
    let end = if request.complete { "" } else { ", the client went away" };
    let key = request.key.as_ref().map_or(String::new(), |key| format!(", key {key}"));
    format!("{line}, {:.3} s{end}{key}, id {}", duration.as_secs_f64(), request.request_id)
}

fn object(request: &LoggedRequest) -> Value {
    let seconds = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e6;
    let mut object = json!({
        "time": utc(request.time),
        "method": request.method,
        "path": request.path,
        "status": request.status,
        "request_id": request.request_id,
        "seconds": seconds(request.duration),
        "complete": request.complete,
    });
    if let Some(key) = &request.key {
        object["key"] = key.as_str().into();
    }
    if let Some(tokens) = request.tokens {
        object["prompt_tokens"] = tokens.prompt.into();
        object["cached_tokens"] = tokens.cached.into();
        object["generated_tokens"] = tokens.generated.into();
        object["first_token_seconds"] = tokens.first.map(seconds).into();
    }
    object
}

/// A time in UTC as RFC 3339 writes it, to the second.
pub(crate) fn utc(time: SystemTime) -> String {
    clock::format(time, "%Y-%m-%dT%H:%M:%SZ")
}
