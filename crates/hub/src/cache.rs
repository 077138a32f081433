//! The cache that programs of the hub share.
//!
//! ```text
//! models--ORG--REPO/blobs/SUM                       contents, by their SHA-256 or the SHA-1 of Git
//! models--ORG--REPO/refs/REVISION                   the commit of a branch or tag
//! models--ORG--REPO/snapshots/COMMIT/PATH           links to the contents
//! .locks/models--ORG--REPO/SUM.lock                 held while a content is written
//! ```
//!
//! The layout is that of huggingface_hub: <https://huggingface.co/docs/huggingface_hub/guides/manage-cache>.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

use gristmill_files::gguf::FileKind;

use crate::Error;
use crate::folder;
use crate::listing::RemoteFile;
use crate::pick::{Picked, choose};
use crate::reference::{MAIN, Pick, Reference, USUAL, is_commit, is_path};

/// How often a lock of another process is tried.
const SOON: Duration = Duration::from_millis(100);

/// A cache of the hub.
#[derive(Clone, Debug)]
pub struct Cache {
    root: PathBuf,
}

/// The folder of one repository.
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
    locks: PathBuf,
}

impl Cache {
    /// The cache in this folder, which need not exist.
    pub fn new(root: impl Into<PathBuf>) -> Cache {
        Cache { root: root.into() }
    }

    /// The folder of the cache.
    pub fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn folder(&self, repo: &str) -> Folder {
        let name = format!("models--{}", repo.replace('/', "--"));
        Folder { path: self.root.join(&name), locks: self.root.join(".locks").join(name) }
    }

    /// The files of a model that is in the cache, whole.
    ///
    /// # Errors
    /// If the cache has several models that fit, or cannot be read. `None` if it has none.
    pub fn find(&self, reference: &Reference) -> Result<Option<Vec<PathBuf>>, Error> {
        let folder = self.folder(&reference.repo);
        let Some(commit) = folder.commit(&reference.revision)? else { return Ok(None) };
        let snapshot = folder.snapshot(&commit);
        let files = files(&snapshot)?;
        match choose(&files, reference, &mut |file| Ok(kind(&snapshot, file))) {
            Ok(Picked { model, .. }) => Ok(Some(model.files.iter().map(|file| snapshot.join(&file.path)).collect())),
            Err(error @ (Error::Ambiguous { .. } | Error::Choose { .. } | Error::NotAModel { .. })) => Err(error),
            Err(Error::NoModels { .. }) if reference.pick == Pick::Usual => Ok(folder::whole(&files, &snapshot)),
            Err(_) => Ok(None),
        }
    }

    /// The same, if a listing of the hub could not lead to another model: without a tag, only Q4_K_M or a folder is
    /// sure, and without the name of a file, only a name that marks no other kind.
    ///
    /// # Errors
    /// If the cache cannot be read.
    pub(crate) fn find_surely(&self, reference: &Reference) -> Result<Option<Vec<PathBuf>>, Error> {
        let sure = match reference.pick {
            Pick::Usual => Reference { pick: Pick::Tag(USUAL[0].to_owned()), ..reference.clone() },
            _ => reference.clone(),
        };
        let is_marked = |files: &Vec<PathBuf>| {
            let name = files.first().map(|path| name_of(path)).unwrap_or_default();
            FileKind::of_name(&name) != FileKind::LanguageModel
        };
        match self.find(&sure) {
            Ok(None) if reference.pick == Pick::Usual => match self.find(reference) {
                Ok(Some(files)) if folder::is_folder(&files) => Ok(Some(files)),
                _ => Ok(None),
            },
            Err(Error::Ambiguous { .. } | Error::Choose { .. }) => Ok(None),
            Ok(Some(files)) if !matches!(sure.pick, Pick::File(_)) && is_marked(&files) => Ok(None),
            found => found,
        }
    }
}

/// The kind of a file of a snapshot, by its header.
pub(crate) fn kind(snapshot: &Path, file: &RemoteFile) -> Option<FileKind> {
    // A file that cannot be read is reported when it is opened.
    FileKind::of_path(&snapshot.join(&file.path)).ok().flatten()
}

impl Folder {
    pub(crate) fn blob(&self, digits: &str) -> PathBuf {
        self.path.join("blobs").join(digits)
    }

    /// A content that is being downloaded. Other programs use this extension for their partial files, and ignore files
    /// with other names.
    pub(crate) fn partial(&self, digits: &str) -> PathBuf {
        self.path.join("blobs").join(format!("{digits}.gristmill.incomplete"))
    }

    pub(crate) fn snapshot(&self, commit: &str) -> PathBuf {
        self.path.join("snapshots").join(commit)
    }

    /// The commit of a revision, as far as the cache knows.
    pub(crate) fn commit(&self, revision: &str) -> Result<Option<String>, Error> {
        if is_commit(revision) {
            return Ok(self.snapshot(revision).is_dir().then(|| revision.to_owned()));
        }
        let path = self.path.join("refs").join(revision);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text.trim().to_owned()).filter(|commit| is_commit(commit))),
            Err(_) if !path.is_file() => Ok(None),
            Err(error) => Err(Error::io(&path)(error)),
        }
    }

    /// Notes the commit of a branch or tag.
    pub(crate) fn set_commit(&self, revision: &str, commit: &str) -> Result<(), Error> {
        if is_commit(revision) || self.commit(revision)?.as_deref() == Some(commit) {
            return Ok(());
        }
        let path = self.path.join("refs").join(revision);
        make_parent(&path)?;
        // Another program may read it at the same time: it finds the old commit or the new one.
        let new = path.with_file_name(format!(".{}.{}", name_of(&path), std::process::id()));
        fs::write(&new, commit).and_then(|()| fs::rename(&new, &path)).map_err(Error::io(&path))
    }

    /// Lets the file of a snapshot show a blob: a link, or where links fail the content itself.
    pub(crate) fn link(&self, commit: &str, file: &RemoteFile, digits: &str) -> Result<PathBuf, Error> {
        let to = self.snapshot(commit).join(&file.path);
        if fs::metadata(&to).is_ok_and(|found| found.len() == file.size) {
            return Ok(to);
        }
        make_parent(&to)?;
        match fs::remove_file(&to) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(Error::io(&to)(error)),
            _ => {}
        }
        let upwards = "../".repeat(2 + file.path.matches('/').count());
        let from = self.blob(digits);
        if symlink(&format!("{upwards}blobs/{digits}"), &to).is_err() && !to.exists() {
            fs::copy(&from, &to).map_err(Error::io(&to))?;
        }
        Ok(to)
    }

    /// Locks a content, as other programs of the hub do. If another process holds the lock, `waiting` is called once.
    pub(crate) fn lock(&self, digits: &str, waiting: impl FnOnce(&Path)) -> Result<File, Error> {
        let path = self.locks.join(format!("{digits}.lock"));
        let mut waiting = Some(waiting);
        loop {
            match self.try_lock(digits)? {
                Some(lock) => return Ok(lock),
                None => {
                    if let Some(waiting) = waiting.take() {
                        waiting(&path);
                    }
                    std::thread::sleep(SOON);
                }
            }
        }
    }

    /// Takes the lock of a content unless another process has it.
    pub(crate) fn try_lock(&self, digits: &str) -> Result<Option<File>, Error> {
        let path = self.locks.join(format!("{digits}.lock"));
        make_parent(&path)?;
        let open = File::options().create(true).truncate(false).write(true).open(&path);
        let file = open.map_err(Error::io(&path))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(Error::io(&path)(error)),
        }
    }

    /// Removes the locks of a repository that is gone.
    pub(crate) fn remove_locks(&self) {
        // An empty folder of locks costs nothing.
        let _ = fs::remove_dir_all(&self.locks);
    }
}

#[cfg(unix)]
fn symlink(from: &str, to: &Path) -> std::io::Result<()> {
    std::os::unix::fs::symlink(from, to)
}

#[cfg(windows)]
fn symlink(from: &str, to: &Path) -> std::io::Result<()> {
    std::os::windows::fs::symlink_file(from.replace('/', "\\"), to)
}

pub(crate) fn make_parent(path: &Path) -> Result<(), Error> {
    let Some(parent) = path.parent() else { return Ok(()) };
    fs::create_dir_all(parent).map_err(Error::io(parent))
}

pub(crate) fn name_of(path: &Path) -> String {
    path.file_name().map_or(String::new(), |name| name.to_string_lossy().into_owned())
}

/// The files of a snapshot whose content is there, with `/` between the parts of their paths.
pub(crate) fn files(snapshot: &Path) -> Result<Vec<RemoteFile>, Error> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let path = snapshot.join(&folder);
        for entry in fs::read_dir(&path).map_err(Error::io(&path))? {
            let entry = entry.map_err(Error::io(&path))?;
            let inner = folder.join(entry.file_name());
            let Some(name) = inner.to_str().map(|name| name.replace('\\', "/")) else { continue };
            // Follows links: one whose content is gone is no file.
            match fs::metadata(entry.path()) {
                _ if !is_path(&name) => {}
                Ok(data) if data.is_dir() && !entry.file_type().is_ok_and(|kind| kind.is_symlink()) => {
                    folders.push(inner)
                }
                Ok(data) if data.is_file() => found.push(RemoteFile { path: name, size: data.len(), sum: None }),
                _ => {}
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

/// The repository of a folder `models--ORG--REPO`.
pub(crate) fn repo_of(folder: &str) -> Option<String> {
    let (owner, name) = folder.strip_prefix("models--")?.split_once("--")?;
    let repo = format!("{owner}/{name}");
    repo.parse::<Reference>().ok().filter(|reference| reference.revision == MAIN).map(|reference| reference.repo)
}
