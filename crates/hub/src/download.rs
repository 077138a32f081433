//! One file from the hub into a partial file: pieces, connections, patience.

use std::io::Read;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::http::{Client, Reply, Url};
use crate::partial::{Partial, Writer};
use crate::{Error, Event, Options, Progress, Sum};

/// Bytes of one read, which a killed process loses for each connection.
const READ: usize = 128 << 10;
/// Requests in a row that bring nothing, before the download fails.
const ATTEMPTS: u32 = 6;
/// The longest that the hub may ask to wait.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// A file to be downloaded.
pub(crate) struct Download<'a> {
    pub(crate) client: &'a Client,
    pub(crate) options: &'a Options,
    pub(crate) progress: Progress<'a>,
    pub(crate) repo: &'a str,
    /// The path within the repository.
    pub(crate) file: &'a str,
    pub(crate) commit: &'a str,
    pub(crate) sum: &'a Sum,
    pub(crate) size: u64,
    /// The address at the hub.
    pub(crate) url: Url,
}

/// State that the connections of a download share.
struct Shared {
    /// Where the hub's redirects led, until that address refuses.
    target: Mutex<Option<Url>>,
    /// Pieces that nobody has started, the first last.
    queue: Mutex<Vec<usize>>,
    failed: AtomicBool,
}

/// How a request ended.
enum Fetched {
    /// The rest of a piece was requested, and came.
    Piece,
    /// The server ignores ranges: all missing bytes came.
    Whole,
}

impl Download<'_> {
    /// Downloads all that is missing.
    pub(crate) fn run(&self, partial: &Partial) -> Result<(), Error> {
        let mut queue = partial.missing();
        queue.reverse();
        let Some(first) = queue.pop() else { return Ok(()) };
        let shared = Shared { target: Mutex::new(None), queue: Mutex::new(queue), failed: AtomicBool::new(false) };
        // The first request finds out whether the server knows ranges, and where the hub leads to.
        match self.patiently(partial, first, &shared, true)? {
            Fetched::Whole => return Ok(()),
            Fetched::Piece => {}
        }
        let connections = self.options.connections.max(1).min(lock(&shared.queue).len());
        let worker = || self.work(partial, &shared);
        thread::scope(|scope| {
            let workers: Vec<_> = (0..connections).map(|_| scope.spawn(worker)).collect();
            let mut outcome = Ok(());
            for worker in workers {
                let ended = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                outcome = outcome.and(ended);
            }
            outcome
        })
    }

    /// Downloads pieces until all are done, or another connection has failed.
    fn work(&self, partial: &Partial, shared: &Shared) -> Result<(), Error> {
        while !shared.failed.load(Ordering::Relaxed) {
            let Some(piece) = lock(&shared.queue).pop() else { break };
            if let Err(error) = self.patiently(partial, piece, shared, false) {
                shared.failed.store(true, Ordering::Relaxed);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Asks again after errors that may pass, as long as each few requests bring something.
    fn patiently(&self, partial: &Partial, piece: usize, shared: &Shared, first: bool) -> Result<Fetched, Error> {
        let mut writer = partial.writer()?;
        let mut attempt = 0;
        loop {
            let mut new = 0;
            let error = match self.fetch(partial, piece, &mut writer, shared, first, &mut new) {
                Ok(fetched) => return Ok(fetched),
                Err(error) => error,
            };
            attempt = if new > 0 { 1 } else { attempt + 1 };
            let wait = match pause(&error, attempt, self.options.patience) {
                Some(wait) if !shared.failed.load(Ordering::Relaxed) => wait,
                _ => return Err(error),
            };
            (self.progress)(Event::Retry { error: &error, wait });
            thread::sleep(wait);
        }
    }

    /// Asks once for the rest of a piece.
    fn fetch(
        &self,
        partial: &Partial,
        piece: usize,
        writer: &mut Writer,
        shared: &Shared,
        first: bool,
        new: &mut u64,
    ) -> Result<Fetched, Error> {
        // A whole file that was cut may have brought more than this piece.
        let piece = if first { partial.missing().first().copied().unwrap_or(piece) } else { piece };
        let rest = partial.rest(piece);
        if rest.is_empty() {
            return Ok(Fetched::Piece);
        }
        let reply = self.ask((rest.start, rest.end - 1), shared)?;
        let url = reply.url.to_string();
        let cut = |reason: String| Error::Connection { url: url.clone(), reason };
        let (whole, start, end) = match reply.status {
            416 => return Err(Error::Range { file: self.file.to_owned(), start: rest.start, end: rest.end - 1 }),
            206 => {
                let range = reply.range().ok_or_else(|| cut("a partial reply without its range".to_owned()))?;
                if range.0 != rest.start || range.1 >= rest.end || range.1 < range.0 {
                    return Err(cut(format!("bytes {} to {} instead of the requested ones", range.0, range.1)));
                }
                self.check_size(range.2)?;
                (false, rest.start, range.1 + 1)
            }
            _ if first => {
                self.check_size(reply.length())?;
                (true, 0, self.size)
            }
            _ => return Err(Error::Fickle { file: self.file.to_owned() }),
        };
        self.copy(reply, start, end, writer, shared, new).map_err(|stopped| stopped.unwrap_or_else(cut))?;
        match whole {
            true => Ok(Fetched::Whole),
            // A server may send fewer bytes than were requested.
            false if end < rest.end => Err(cut("fewer bytes than requested".to_owned())),
            false => Ok(Fetched::Piece),
        }
    }

    /// Writes the bytes of a reply, which are those from `start` to `end`. Fails with an error of the disk, or with the
    /// reason why the bytes ended.
    fn copy(
        &self,
        reply: Reply,
        start: u64,
        end: u64,
        writer: &mut Writer,
        shared: &Shared,
        new: &mut u64,
    ) -> Result<(), Stopped> {
        let mut body = reply.into_body();
        let mut buffer = vec![0; READ];
        let mut at = start;
        while at < end && !shared.failed.load(Ordering::Relaxed) {
            let most = buffer.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
            match body.read(&mut buffer[..most]) {
                Ok(0) => return Err(Stopped::Cut(format!("the connection ended after {at} of {end} bytes"))),
                Ok(count) => {
                    let written = writer.write(at, &buffer[..count]).map_err(Stopped::Failed)?;
                    at += count as u64;
                    *new += written;
                    (self.progress)(Event::Bytes(written));
                }
                Err(error) => return Err(Stopped::Cut(error.to_string())),
            }
        }
        match at < end {
            true => Err(Stopped::Cut("another connection failed".to_owned())),
            false => Ok(()),
        }
    }

    /// Sends a request, to where the hub led before, or to the hub.
    fn ask(&self, range: (u64, u64), shared: &Shared) -> Result<Reply, Error> {
        let known = lock(&shared.target).clone();
        if let Some(target) = known {
            match self.client.get(&target, Some(range), self.repo) {
                // A signed address is good for some time only.
                Err(
                    Error::Unauthorized { .. } | Error::Forbidden { .. } | Error::Gated { .. } | Error::NotFound { .. },
                ) => {
                    *lock(&shared.target) = None;
                }
                asked => return asked,
            }
        }
        let reply = self.client.get(&self.url, Some(range), self.repo)?;
        let changed = |found: &str, listed: &str| Error::Changed {
            file: self.file.to_owned(),
            found: found.to_owned(),
            listed: listed.to_owned(),
        };
        if let Some(commit) = reply.of_hub("x-repo-commit").filter(|commit| *commit != self.commit) {
            return Err(changed(commit, self.commit));
        }
        if let Some(tag) = reply.of_hub("x-linked-etag").map(|tag| tag.trim_start_matches("W/").trim_matches('"'))
            && !tag.eq_ignore_ascii_case(self.sum.digits())
        {
            return Err(changed(tag, self.sum.digits()));
        }
        *lock(&shared.target) = Some(reply.url.clone());
        Ok(reply)
    }

    fn check_size(&self, found: Option<u64>) -> Result<(), Error> {
        match found {
            Some(found) if found != self.size => Err(Error::Changed {
                file: self.file.to_owned(),
                found: format!("{found} bytes"),
                listed: format!("{} bytes", self.size),
            }),
            _ => Ok(()),
        }
    }
}

/// The time until a request is repeated after this error, the `attempt`th in a row (from 1); `None` to give up.
pub(crate) fn pause(error: &Error, attempt: u32, patience: Duration) -> Option<Duration> {
    let wait = match error {
        Error::Busy { wait: Some(wait), .. } => *wait,
        error if error.is_transient() => patience * 2_u32.pow(attempt.clamp(1, ATTEMPTS) - 1),
        _ => return None,
    };
    (attempt < ATTEMPTS && wait <= LONGEST_WAIT).then_some(wait)
}

/// Why the bytes of a reply ended early.
enum Stopped {
    Failed(Error),
    Cut(String),
}

impl Stopped {
    fn unwrap_or_else(self, cut: impl FnOnce(String) -> Error) -> Error {
        match self {
            Stopped::Failed(error) => error,
            Stopped::Cut(reason) => cut(reason),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
