//! What happens during a download.

use std::path::Path;
use std::time::Duration;

use crate::error::Error;
use crate::pick::Choice;
use crate::sum::Sum;

/// Takes what happens during a download, from several threads.
pub type Progress<'a> = &'a (dyn Fn(Event) + Sync);

/// A step of a download.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The download of a file starts.
    Begin {
        /// The path within the repository.
        file: &'a str,
        /// Bytes of the file.
        size: u64,
        /// Bytes that an earlier download left.
        had: u64,
    },
    /// Bytes have come and are written.
    Bytes(u64),
    /// A request failed and is repeated after `wait`.
    Retry {
        /// Why it failed.
        error: &'a Error,
        /// The time until then.
        wait: Duration,
    },
    /// Another process downloads the same content, and this one waits for it.
    Waiting(&'a Path),
    /// This many more bytes of the file have been verified.
    Verified(u64),
    /// The file had been started earlier and is wrong as a whole: it is downloaded again from its start.
    Again {
        /// The path within the repository.
        file: &'a str,
    },
    /// The file is whole and verified.
    End {
        /// The path within the repository.
        file: &'a str,
        /// What verified it.
        sum: &'a Sum,
    },
    /// The repository also has these files, which are no language models.
    Companions(&'a [Choice<'a>]),
    /// The hub cannot be reached, and the copy in the cache is used.
    Unreachable(&'a Error),
}
