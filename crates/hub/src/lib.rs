//! Models by name: a client of the Hugging Face hub, which keeps the cache that other programs of the hub share.
//!
//! ```no_run
//! use gristmill_hub::{Hub, Options, Reference};
//!
//! let hub = Hub::new(Options::new("cache"))?;
//! let model: Reference = "bartowski/SmolLM2-135M-Instruct-GGUF:Q4_K_M".parse()?;
//! let files = hub.fetch(&model, &|event| eprintln!("{event:?}"))?;
//! println!("{}", files[0].display());
//! # Ok::<(), gristmill_hub::Error>(())
//! ```
//!
//! [`Hub::fetch`] turns a [`Reference`] into the paths of a model's files: from the cache if they are there, otherwise
//! by a download. [`Hub::pull`] asks the hub first. A download is resumed where it stopped, takes several connections,
//! and is verified by the sum that the hub lists. Both block until the files are complete. The crate reads no environment: [`Options`] has the cache, the address and the
//! token.

#![forbid(unsafe_code)]

mod bytes;
mod cache;
mod download;
mod error;
mod event;
mod folder;
mod http;
mod listing;
mod manage;
mod options;
mod partial;
mod pick;
mod public;
mod reference;
mod sum;
mod tls;
mod token;

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use gristmill_files::gguf::FileKind;

pub use cache::Cache;
pub use error::Error;
pub use event::{Event, Progress};
pub use folder::model_path;
pub use listing::{Listing, RemoteFile};
pub use manage::{CachedModel, Removed};
pub use options::{ENDPOINT, Options};
pub use pick::{Choice, Picked, choices, choose_by_name, projector, tag_of};
pub use public::{PublicError, PublicFiles};
pub use reference::{MAIN, Pick, Reference, USUAL};
pub use sum::Sum;
pub use tls::crypto_provider;
pub use token::Token;

use bytes::allocated;
use cache::{Folder, make_parent};
use download::Download;
use http::{Client, escape};
use partial::Partial;
use pick::choose;

/// A client of a hub and its cache.
pub struct Hub {
    options: Options,
    cache: Cache,
    client: Client,
}

impl Hub {
    /// A client. It sends nothing yet.
    ///
    /// # Errors
    /// If the endpoint is no address.
    pub fn new(options: Options) -> Result<Hub, Error> {
        let client = Client::new(&options)?;
        Ok(Hub { cache: Cache::new(&options.cache), client, options })
    }

    /// The cache.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// The files of a model, in order: from the cache, without asking the hub, or by [`pull`](Self::pull).
    ///
    /// # Errors
    /// The errors of `pull`.
    pub fn fetch(&self, reference: &Reference, progress: Progress) -> Result<Vec<PathBuf>, Error> {
        match self.options.offline {
            true => self.offline(reference),
            false => match self.cache.find_surely(reference)? {
                Some(files) => Ok(files),
                None => self.pull(reference, progress),
            },
        }
    }

    /// The files of a model, in order, as the hub has them now. What the cache lacks is downloaded. If the hub cannot
    /// be reached, the model in the cache serves.
    ///
    /// # Errors
    /// If the hub refuses, lists no such model or sends other bytes than it lists; if the disk is full.
    pub fn pull(&self, reference: &Reference, progress: Progress) -> Result<Vec<PathBuf>, Error> {
        if self.options.offline {
            return self.offline(reference);
        }
        let listed = self.patiently(progress, is_busy, || self.list(&reference.repo, &reference.revision));
        let listing = match listed {
            Err(error) if error.is_of_network() => match self.cache.find(reference) {
                Ok(Some(files)) => {
                    progress(Event::Unreachable(&error));
                    return Ok(files);
                }
                _ => return Err(error),
            },
            listing => listing?,
        };
        let folder = self.cache.folder(&reference.repo);
        let download = |files: &[&RemoteFile]| {
            self.check_space(&folder, files)?;
            let file = |file: &&RemoteFile| self.file(&folder, &reference.repo, &listing.commit, file, progress);
            files.iter().map(file).collect::<Result<Vec<_>, _>>()
        };
        let paths = match self.choose(&listing, reference, progress) {
            Err(error @ Error::NoModels { .. }) if reference.pick == Pick::Usual => {
                let mut paths = download(&folder::small(&listing.files).ok_or(error)?)?;
                paths.extend(download(&folder::weights(&listing.files, &folder.snapshot(&listing.commit))?)?);
                paths
            }
            picked => {
                let Picked { model, mut companions, .. } = picked?;
                let of_model = projector(&companions).filter(|_| model.kind == FileKind::LanguageModel).cloned();
                companions.retain(|choice| Some(choice) != of_model.as_ref());
                if !companions.is_empty() {
                    progress(Event::Companions(&companions));
                }
                let paths = download(&model.files)?;
                // It is found in the folder of the model.
                of_model.iter().try_for_each(|projector| download(&projector.files).map(drop))?;
                paths
            }
        };
        folder.set_commit(&reference.revision, &listing.commit)?;
        Ok(paths)
    }

    /// The model that a reference means. The header of the file decides whether it is a language model: it is read from the
    /// cache, or its first kilobytes are downloaded.
    ///
    /// # Errors
    /// If the listing has no such model or several; if the hub refuses or cannot be reached.
    pub fn choose<'a>(
        &self,
        listing: &'a Listing,
        reference: &Reference,
        progress: Progress,
    ) -> Result<Picked<'a>, Error> {
        let folder = self.cache.folder(&reference.repo);
        let mut judge = |file: &RemoteFile| {
            let blob = file.sum.as_ref().map(|sum| folder.blob(sum.digits()));
            let cached = blob.filter(|blob| has_size(blob, file.size)).and_then(|blob| File::open(blob).ok());
            FileKind::of_beginning(&file.path, file.size, |length| match &cached {
                Some(blob) => beginning_of(blob, length).map_err(Error::io(&self.options.cache)),
                None => self.patiently(progress, Error::is_transient, || {
                    self.beginning(&reference.repo, &listing.commit, file, length)
                }),
            })
        };
        choose(&listing.files, reference, &mut judge)
    }

    /// Repeats a request after errors that may pass. A hub that is away is not asked for a listing again: the cache may
    /// serve.
    fn patiently<T>(
        &self,
        progress: Progress,
        may_pass: fn(&Error) -> bool,
        request: impl Fn() -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut attempt = 0;
        loop {
            let error = match request() {
                Err(error) if may_pass(&error) => error,
                done => return done,
            };
            attempt += 1;
            let Some(wait) = download::pause(&error, attempt, self.options.patience) else { return Err(error) };
            progress(Event::Retry { error: &error, wait });
            std::thread::sleep(wait);
        }
    }

    /// The files of a repository, as the hub lists them.
    ///
    /// # Errors
    /// If the hub refuses or its reply cannot be read.
    pub fn list(&self, repo: &str, revision: &str) -> Result<Listing, Error> {
        let revision = escape(revision, false);
        let url = self.client.url(&format!("/api/models/{}/revision/{revision}?blobs=true", escape(repo, true)))?;
        Listing::read(&self.client.text(&url, repo)?, &url.to_string())
    }

    /// Whether only the cache may be used.
    pub fn is_offline(&self) -> bool {
        self.options.offline
    }

    /// The first bytes of a file, at most `length`, which nothing verifies.
    ///
    /// # Errors
    /// If the hub refuses or cannot be reached.
    pub fn beginning(&self, repo: &str, commit: &str, file: &RemoteFile, length: u64) -> Result<Vec<u8>, Error> {
        if length.min(file.size) == 0 {
            return Ok(Vec::new());
        }
        let url = self.client.url(&resolve(repo, commit, &file.path))?;
        let reply = self.client.get(&url, Some((0, length - 1)), repo)?;
        if reply.status == 416 {
            return Err(Error::Range { file: file.path.clone(), start: 0, end: length - 1 });
        }
        let address = reply.url.to_string();
        let mut bytes = Vec::new();
        let read = reply.into_body().take(length).read_to_end(&mut bytes);
        read.map_err(|error| Error::Connection { url: address, reason: error.to_string() })?;
        Ok(bytes)
    }

    fn offline(&self, reference: &Reference) -> Result<Vec<PathBuf>, Error> {
        let missing = || Error::Offline { wanted: reference.to_string(), cache: self.options.cache.clone() };
        self.cache.find(reference)?.ok_or_else(missing)
    }

    /// A file of a snapshot, downloaded unless it is there.
    fn file(
        &self,
        folder: &Folder,
        repo: &str,
        commit: &str,
        file: &RemoteFile,
        progress: Progress,
    ) -> Result<PathBuf, Error> {
        let unverifiable = || Error::Unverifiable { file: file.path.clone() };
        let sum = file.sum.as_ref().ok_or_else(unverifiable)?;
        let blob = folder.blob(sum.digits());
        if !has_size(&blob, file.size) {
            let lock = folder.lock(sum.digits(), |path| progress(Event::Waiting(path)))?;
            if !has_size(&blob, file.size) {
                let download = Download {
                    client: &self.client,
                    options: &self.options,
                    progress,
                    repo,
                    file: &file.path,
                    commit,
                    sum,
                    size: file.size,
                    url: self.client.url(&resolve(repo, commit, &file.path))?,
                };
                download_verified(&download, &folder.partial(sum.digits()), &blob)?;
            }
            drop(lock);
        }
        folder.link(commit, file, sum.digits())
    }

    /// Fails if the disk cannot take what is missing of these files.
    fn check_space(&self, folder: &Folder, files: &[&RemoteFile]) -> Result<(), Error> {
        let missing = files.iter().map(|file| match &file.sum {
            Some(sum) if !has_size(&folder.blob(sum.digits()), file.size) => {
                // A partial file takes as much as has been written into it.
                file.size.saturating_sub(allocated(&folder.partial(sum.digits())))
            }
            _ => 0,
        });
        let needed = missing.fold(0, u64::saturating_add);
        let root = &self.options.cache;
        fs::create_dir_all(root).map_err(Error::io(root))?;
        let free = fs4::available_space(root).map_err(Error::io(root))?;
        enough(root, needed, free)
    }
}

fn is_busy(error: &Error) -> bool {
    matches!(error, Error::Busy { .. })
}

/// The first bytes of an open file.
fn beginning_of(mut file: &File, length: u64) -> std::io::Result<Vec<u8>> {
    use std::io::Seek;
    let mut bytes = Vec::new();
    file.rewind()?;
    file.take(length).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The path of a file at the hub.
fn resolve(repo: &str, commit: &str, file: &str) -> String {
    format!("/{}/resolve/{commit}/{}", escape(repo, true), escape(file, true))
}

fn enough(path: &Path, needed: u64, free: u64) -> Result<(), Error> {
    match needed > free {
        true => Err(Error::Space { path: path.to_owned(), needed, free }),
        false => Ok(()),
    }
}

/// Downloads a file, verifies it, and gives it its name. A file that was started earlier gets a second chance.
fn download_verified(download: &Download, partial: &Path, blob: &Path) -> Result<(), Error> {
    make_parent(partial)?;
    loop {
        let started = Partial::open(partial, download.size, download.options.piece)?;
        let had = started.had();
        (download.progress)(Event::Begin { file: download.file, size: download.size, had });
        download.run(&started)?;
        let found = digest(&started.finish()?, partial, download)?;
        if found == *download.sum {
            fs::rename(partial, blob).map_err(Error::io(blob))?;
            (download.progress)(Event::End { file: download.file, sum: download.sum });
            return Ok(());
        }
        fs::remove_file(partial).map_err(Error::io(partial))?;
        if had == 0 {
            let (file, [found, listed]) = (download.file.to_owned(), [&found, download.sum].map(Sum::to_string));
            return Err(Error::Checksum { file, found, listed });
        }
        (download.progress)(Event::Again { file: download.file });
    }
}

/// The sum of a file that was downloaded.
fn digest(mut file: &File, path: &Path, download: &Download) -> Result<Sum, Error> {
    use std::io::Seek;
    file.rewind().map_err(Error::io(path))?;
    let verified = |count| (download.progress)(Event::Verified(count));
    download.sum.of_content(file, download.size, verified).map_err(Error::io(path))
}

fn has_size(path: &Path, size: u64) -> bool {
    fs::metadata(path).is_ok_and(|data| data.is_file() && data.len() == size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_space_is_said_with_both_numbers() {
        assert!(enough(Path::new("/c"), 5, 5).is_ok());
        let error = enough(Path::new("/c"), 2_500_000_000, 1_000_000).expect_err("too little").to_string();
        assert!(["/c", "2.50 GB", "1.0 MB", "HF_HUB_CACHE"].iter().all(|part| error.contains(part)), "{error}");
        let full = Error::io(Path::new("/c/x"))(std::io::ErrorKind::StorageFull.into());
        assert!(full.to_string().contains("/c/x: the disk is full"), "{full}");
    }
}
