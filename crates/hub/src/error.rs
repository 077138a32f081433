//! Errors of downloads and of the hub's cache.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use gristmill_files::gguf::FileKind;
use thiserror::Error;

/// An error of this crate. Addresses in messages lack their query, which may be a signature.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The name of a model is not valid.
    #[error("`{text}` is not a model of the hub: {reason}; write ORG/REPO, ORG/REPO:Q4_K_M or ORG/REPO:FILE@REVISION")]
    Reference {
        /// The name.
        text: String,
        /// The rule that the name breaks.
        reason: &'static str,
    },
    /// The token has characters that no token has.
    #[error("the token has characters that a header cannot contain; copy it again from the hub's settings")]
    Token,
    /// The address of the hub cannot be used.
    #[error("`{0}` is not the address of a hub; write https://HOST or http://HOST:PORT")]
    Endpoint(String),
    /// The CPU lacks instructions that TLS is computed with.
    #[error(
        "this CPU lacks {0}, which gristmill needs for encrypted connections; download the file with another program, \
         or name a mirror without TLS, http://HOST"
    )]
    Cpu(&'static str),
    /// The system's certificates cannot be read.
    #[error("the system has no certificates to verify the hub ({0}); install ca-certificates, or set SSL_CERT_FILE")]
    Certificates(String),
    /// A connection fails.
    #[error(
        "cannot reach {url} ({reason}); a stopped download resumes; check that this machine is online, or use a \
         cached model offline"
    )]
    Connection {
        /// The address.
        url: String,
        /// The system's or the library's reason.
        reason: String,
    },
    /// The hub requires a token: status 401.
    #[error(
        "{repo}: does not exist, or is private (401); check the name, or set HF_TOKEN to a token of \
         an account with access (https://huggingface.co/settings/tokens)"
    )]
    Unauthorized {
        /// The repository.
        repo: String,
    },
    /// The hub refuses: status 403.
    #[error(
        "{repo}: the token in HF_TOKEN may not read it (403); allow it to read gated repositories \
         (https://huggingface.co/settings/tokens), or use a token of another account"
    )]
    Forbidden {
        /// The repository.
        repo: String,
    },
    /// The owner requires an agreement before the download.
    #[error(
        "{repo}: its owner requires an agreement first; open https://huggingface.co/{repo}, agree, and set HF_TOKEN to a \
         token of the same account (https://huggingface.co/settings/tokens)"
    )]
    Gated {
        /// The repository.
        repo: String,
    },
    /// The repository, revision or file does not exist: status 404.
    #[error("{url}: not found (404); check the name and the revision of {repo}")]
    NotFound {
        /// The address.
        url: String,
        /// The repository.
        repo: String,
    },
    /// The hub is busy: status 429 or 5xx.
    #[error("{url}: the hub is busy (status {status}){}; try again later", after(.wait))]
    Busy {
        /// The address.
        url: String,
        /// The status.
        status: u16,
        /// The time that the hub asks to wait.
        wait: Option<Duration>,
    },
    /// Another status.
    #[error("{url}: unexpected status {status}; check the address of the hub")]
    Status {
        /// The address.
        url: String,
        /// The status.
        status: u16,
    },
    /// There are too many redirects, or one has no valid target.
    #[error("{url}: {reason}; check the address of the hub")]
    Redirect {
        /// The last address.
        url: String,
        /// The fault.
        reason: &'static str,
    },
    /// A reply of the hub's interface cannot be read.
    #[error("{url}: the hub's reply cannot be read ({reason}); check the address of the hub")]
    Reply {
        /// The address.
        url: String,
        /// The fault.
        reason: String,
    },
    /// A listing has a name that points outside the repository's folder.
    #[error("the hub lists the file {0:?}, which points outside the repository's folder; nothing is downloaded")]
    Path(String),
    /// The file at the server is not the listed one.
    #[error(
        "{file}: the server has {found}, but the hub listed {listed}; try again, and report it to the repository's owner"
    )]
    Changed {
        /// The file.
        file: String,
        /// The server's.
        found: String,
        /// The listing's.
        listed: String,
    },
    /// The server refuses a range of a file.
    #[error(
        "{file}: the server refuses bytes {start} to {end} (416), so its file is shorter than listed; try again later"
    )]
    Range {
        /// The file.
        file: String,
        /// The first byte.
        start: u64,
        /// The last byte.
        end: u64,
    },
    /// The server answers some range requests with the whole file, and others with the range.
    #[error("{file}: the server ignores some range requests; try again with one connection")]
    Fickle {
        /// The file.
        file: String,
    },
    /// The content has another sum than the hub lists.
    #[error("{file}: {found}, but the hub lists {listed}; the download is removed, try again")]
    Checksum {
        /// The file.
        file: String,
        /// The sum of the downloaded bytes.
        found: String,
        /// The sum in the listing.
        listed: String,
    },
    /// A file that nothing can verify.
    #[error(
        "{file}: the hub lists no sum for it, and gristmill accepts only files that it can verify; name another file"
    )]
    Unverifiable {
        /// The file.
        file: String,
    },
    /// No model is named and none is the default.
    #[error("{repo} has no single {}; name one of: {choices}", usual())]
    Choose {
        /// The repository.
        repo: String,
        /// All models with their sizes.
        choices: String,
    },
    /// The repository does not have the named model.
    #[error("{repo} has no `{wanted}`; it has: {choices}")]
    NoSuchModel {
        /// The repository.
        repo: String,
        /// The tag or file.
        wanted: String,
        /// All models with their sizes.
        choices: String,
    },
    /// The tag matches several models.
    #[error("`{wanted}` matches several models of {repo}; name a file: {choices}")]
    Ambiguous {
        /// The repository.
        repo: String,
        /// The tag.
        wanted: String,
        /// The matching models, with their sizes.
        choices: String,
    },
    /// The index of the weights of a folder is not valid.
    #[error("{path}: the index of the weights cannot be read ({reason}); report it to the repository's owner")]
    Index {
        /// The file in the cache.
        path: PathBuf,
        /// The fault.
        reason: String,
    },
    /// A repository without a model.
    #[error(
        "{repo} has no GGUF files, and is no folder that runs (config.json, tokenizer, model.safetensors); look for a \
         repository whose name ends in GGUF"
    )]
    NoModels {
        /// The repository.
        repo: String,
    },
    /// A repository whose GGUF files are all of other kinds.
    #[error("{repo} has no language model in GGUF, only {found}; look for the repository of the model")]
    NoLanguageModel {
        /// The repository.
        repo: String,
        /// The files with their kinds.
        found: String,
    },
    /// The named file is of another kind.
    #[error("{repo}: {file} is no language model (found: {kind}); name another file, or leave it out")]
    NotAModel {
        /// The repository.
        repo: String,
        /// The file.
        file: String,
        /// What it is.
        kind: FileKind,
    },
    /// A split model is incomplete.
    #[error("{repo} has {found} of {parts} parts of {file}; name another model")]
    Parts {
        /// The repository.
        repo: String,
        /// The first existing part.
        file: String,
        /// The number of existing parts.
        found: usize,
        /// Parts of the model.
        parts: usize,
    },
    /// Offline, and not in the cache.
    #[error(
        "{wanted} is not in the cache {cache}; gristmill pull {wanted} downloads it online; nothing is downloaded offline"
    )]
    Offline {
        /// The name of the model.
        wanted: String,
        /// The cache.
        cache: PathBuf,
    },
    /// Not in the cache.
    #[error("{wanted} is not in the cache {cache}; gristmill models lists the cached models")]
    NotCached {
        /// The name of the model.
        wanted: String,
        /// The cache.
        cache: PathBuf,
    },
    /// Too little free space before a download.
    #[error(
        "{path}: the download needs {} more, but {} are free; free some space, or name another folder with HF_HUB_CACHE",
        crate::bytes::bytes(*.needed), crate::bytes::bytes(*.free)
    )]
    Space {
        /// The cache.
        path: PathBuf,
        /// Bytes that are missing.
        needed: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// The disk was filled during a download.
    #[error("{path}: the disk is full; free some space and pull again, which resumes the download")]
    DiskFull {
        /// The file.
        path: PathBuf,
    },
    /// Another process downloads or removes the same file.
    #[error("{path}: another process has locked this file; try again when that process has ended")]
    Locked {
        /// The lock.
        path: PathBuf,
    },
    /// The cache cannot be read or written.
    #[error("{path}: {source}; check the folder of the cache (HF_HUB_CACHE)")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

impl Error {
    /// From an error of the system about this path.
    pub(crate) fn io(path: &std::path::Path) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_owned();
        move |source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::DiskFull { path },
            _ => Error::Io { path, source },
        }
    }

    /// Whether the same request can succeed later.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self, Error::Connection { .. } | Error::Busy { .. } | Error::Fickle { .. })
    }

    /// Whether the reference does not select one model of its repository: another one may.
    pub fn is_of_choice(&self) -> bool {
        use Error::{Ambiguous, Choose, NoLanguageModel, NoModels, NoSuchModel, NotAModel, Parts};
        matches!(
            self,
            Ambiguous { .. }
                | Choose { .. }
                | NoLanguageModel { .. }
                | NoModels { .. }
                | NoSuchModel { .. }
                | NotAModel { .. }
                | Parts { .. }
        )
    }

    /// Whether the hub was not reached, so that a cached copy can be used.
    pub fn is_of_network(&self) -> bool {
        matches!(self, Error::Connection { .. } | Error::Busy { .. })
    }
}

/// `Q4_K_M, UD-Q4_K_XL or Q8_0`.
fn usual() -> String {
    let [first @ .., last] = crate::reference::USUAL;
    format!("{} or {last}", first.join(", "))
}

fn after(wait: &Option<Duration>) -> String {
    wait.map_or(String::new(), |wait| format!(", retry after {} s", wait.as_secs()))
}
