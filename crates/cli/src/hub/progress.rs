//! Downloads on stderr: a bar on a terminal, otherwise a line now and then.

use std::io::{self, IsTerminal};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use gristmill_hub::Event;
use indicatif::ProgressBar;

use crate::console;
use crate::verbosity::Verbosity;

/// The time between two lines.
const LINES: Duration = Duration::from_secs(10);

/// Endings of files that have a line before the download too. Others are small.
const WEIGHTS: [&str; 2] = [".gguf", ".safetensors"];

/// What happens after an interruption.
const RESUMES: &str = "the same command resumes the download";

/// Reports a download.
pub(super) struct Reporter {
    quiet: bool,
    terminal: bool,
    now: Mutex<Now>,
}

/// The file that is being downloaded.
struct Now {
    file: String,
    size: u64,
    /// Bytes that were there at the start, and that are there now.
    had: u64,
    done: u64,
    verified: u64,
    started: Instant,
    line: Instant,
    bar: ProgressBar,
}

impl Reporter {
    pub(super) fn new(log: &Verbosity) -> Reporter {
        let (started, bar) = (Instant::now(), ProgressBar::hidden());
        let now = Now { file: String::new(), size: 0, had: 0, done: 0, verified: 0, started, line: started, bar };
        Reporter { quiet: log.quiet, terminal: io::stderr().is_terminal(), now: Mutex::new(now) }
    }

    /// Removes the bar.
    pub(super) fn finish(&self) {
        self.now().bar.finish_and_clear();
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(super) fn event(&self, event: Event) {
        if self.quiet {
            return;
        }
        let mut now = self.now();
        match event {
            Event::Begin { file, size, had } => {
                self.begin(&mut now, file, size, had);
            }
            Event::Bytes(count) => {
                now.done += count;
                now.bar.set_position(now.done);
                if !self.terminal && now.line.elapsed() >= LINES {
                    now.line = Instant::now();
                    console::note(format_args!("{}", now.line()));
                }
            }
            Event::Verified(count) => {
                if now.verified == 0 {
                    now.bar.finish_and_clear();
                    now.bar = self.bar("verifying {wide_bar} {decimal_bytes}/{decimal_total_bytes}");
                    now.bar.set_length(now.size);
                }
                now.verified += count;
                now.bar.set_position(now.verified);
            }
            Event::End { file, sum } => {
                now.bar.finish_and_clear();
                let seconds = now.started.elapsed().as_secs_f64();
                let size = console::bytes(now.size);
                let rate = console::bytes(now.rate() as u64);
                console::note(format_args!("{file}: {size}, {} verified, {seconds:.1} s, {rate}/s", sum.method()));
            }
            Event::Retry { error, wait } => {
                let wait = wait.as_secs_f64();
                now.bar.suspend(|| console::note(format_args!("{error} (asking again in {wait:.1} s)")));
            }
            Event::Waiting(path) => {
                console::note(format_args!("another process downloads this file; waiting for {}", path.display()));
            }
            Event::Again { file } => {
                now.bar.finish_and_clear();
                console::note(format_args!(
                    "{file}: what was left of an earlier download is wrong; downloading it again"
                ));
            }
            Event::Companions(companions) => console::note(format_args!("{}", super::no_models(companions))),
            Event::Unreachable(error) => console::note(format_args!("warning: {error}; the copy in the cache is used")),
            _ => {}
        }
    }

    fn begin(&self, now: &mut Now, file: &str, size: u64, had: u64) {
        let bar = self.bar("{wide_bar} {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec}, {eta} left");
        bar.set_length(size);
        bar.set_position(had);
        bar.reset_eta();
        let started = Instant::now();
        *now = Now { file: file.to_owned(), size, had, done: had, verified: 0, started, line: started, bar };
        let whole = console::bytes(size);
        now.bar.suspend(|| match had {
            0 if !WEIGHTS.iter().any(|ending| file.to_ascii_lowercase().ends_with(ending)) => {}
            0 => console::note(format_args!("downloading {file}: {whole}; {RESUMES}")),
            had => console::note(format_args!("resuming {file}: {} of {whole} are downloaded", console::bytes(had))),
        });
    }

    /// Returns what an interrupted download has, and that it continues.
    pub(super) fn stopped(&self) {
        let now = self.now();
        now.bar.finish_and_clear();
        let [done, size] = [now.done, now.size].map(console::bytes);
        if !self.quiet && now.size > 0 {
            console::note(format_args!("stopped: {done} of {size} of {} are kept; {RESUMES}", now.file));
        }
    }

    fn bar(&self, template: &str) -> ProgressBar {
        if self.terminal { console::bar(template) } else { ProgressBar::hidden() }
    }
}

impl Now {
    /// Bytes of a second.
    fn rate(&self) -> f64 {
        (self.done - self.had) as f64 / self.started.elapsed().as_secs_f64().max(1e-3)
    }

    /// `m.gguf: 1.20 GB of 4.50 GB (27%), 35.2 MB/s, 94 s left`.
    fn line(&self) -> String {
        let done = self.done;
        let size = self.size;
        let rate = self.rate();
        let percent = 100.0 * done as f64 / size.max(1) as f64;
        let left = size.saturating_sub(done) as f64 / rate.max(1.0);
        let [done, size, rate] = [done, size, rate as u64].map(console::bytes);
        format!("{}: {done} of {size} ({percent:.0}%), {rate}/s, {left:.0} s left", self.file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_share_rate_and_time() {
        let started = Instant::now() - Duration::from_secs(10);
        let bar = ProgressBar::hidden();
        let file = "m.gguf".to_owned();
        let now =
            Now { file, size: 4_000_000_000, had: 0, done: 1_000_000_000, verified: 0, started, line: started, bar };
        let line = now.line();
        assert!(line.starts_with("m.gguf: 1.00 GB of 4.00 GB (25%), "), "{line}");
        assert!(line.ends_with("MB/s, 30 s left"), "{line}");
    }
}
