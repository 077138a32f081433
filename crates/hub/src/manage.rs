//! The contents of the cache, and their removal.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use gristmill_files::gguf::FileKind;

use crate::cache::{Folder, files, kind, name_of, repo_of};
use crate::pick::{choices, choose, named};
use crate::reference::{MAIN, Pick, Reference};
use crate::{Cache, Error, folder, tag_of};

/// The ending of files that no program has finished.
const INCOMPLETE: &str = ".incomplete";

/// A model in the cache, as GGUF files or as a folder, or GGUF files that are no language model.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CachedModel {
    /// The name by which [`Cache::find`] finds it.
    pub reference: Reference,
    /// What it is.
    pub kind: FileKind,
    /// The files, of a split model in order, of a folder `config.json` first.
    pub files: Vec<PathBuf>,
    /// Bytes of all files.
    pub size: u64,
    /// The quantisation in the name of the file, if there is one.
    pub tag: Option<String>,
    /// The last time that any of the files was read, as far as the file system notes it.
    pub last_used: Option<SystemTime>,
}

impl CachedModel {
    /// Whether a name means this model: without a tag or file, all of the repository.
    pub fn is_named(&self, name: &Reference) -> bool {
        let own = &self.reference;
        let pick = match &name.pick {
            Pick::Usual => true,
            Pick::Tag(tag) => self.tag.as_ref().is_some_and(|own| own.eq_ignore_ascii_case(tag)),
            Pick::File(file) => self.files.iter().any(|path| path.ends_with(file)),
        };
        own.repo == name.repo && (name.revision == MAIN || own.revision == name.revision) && pick
    }
}

/// The outcome of a removal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Removed {
    /// Files of snapshots.
    pub files: usize,
    /// Bytes that are free again.
    pub bytes: u64,
}

impl Cache {
    /// All models in the cache, and the other GGUF files, by name.
    ///
    /// # Errors
    /// If the cache cannot be read. A cache that does not exist is empty.
    pub fn models(&self) -> Result<Vec<CachedModel>, Error> {
        let mut found = Vec::new();
        for name in names(self.root())? {
            let Some(repo) = repo_of(&name) else { continue };
            let folder = self.folder(&repo);
            for commit in names(&folder.path.join("snapshots"))? {
                found.extend(folder.models(&repo, &commit)?);
            }
        }
        found.sort_by_key(|model| model.reference.to_string());
        Ok(found)
    }

    /// Removes a model from the cache, or without a tag or file the whole repository, and frees the contents that no
    /// snapshot needs any more. With the revision `main`, the model goes from all revisions.
    ///
    /// # Errors
    /// If there is no such model, a process is downloading it, or files cannot be removed.
    pub fn remove(&self, reference: &Reference) -> Result<Removed, Error> {
        let missing = || Error::NotCached { wanted: reference.to_string(), cache: self.root().to_owned() };
        let folder = self.folder(&reference.repo);
        if !folder.path.is_dir() {
            return Err(missing());
        }
        let commits = match reference.revision.as_str() {
            MAIN => names(&folder.path.join("snapshots"))?,
            revision => vec![folder.commit(revision)?.ok_or_else(missing)?],
        };
        let mut removed = Removed::default();
        for commit in &commits {
            let snapshot = folder.snapshot(commit);
            let all = files(&snapshot)?;
            let chosen = match &reference.pick {
                Pick::Usual => all.iter().collect(),
                Pick::File(path) => named(&all, path).map(|choice| choice.files).unwrap_or_default(),
                Pick::Tag(_) => match choose(&all, reference, &mut |file| Ok(kind(&snapshot, file))) {
                    Ok(picked) => picked.model.files,
                    Err(error @ Error::Ambiguous { .. }) => return Err(error),
                    Err(_) => Vec::new(),
                },
            };
            for path in &chosen.iter().map(|file| snapshot.join(&file.path)).collect::<Vec<_>>() {
                removed.bytes += own_bytes(path);
                fs::remove_file(path).map_err(Error::io(path))?;
                removed.files += 1;
            }
        }
        let partial = folder.has_partial()?;
        if removed.files == 0 && !(partial && reference.pick == Pick::Usual) {
            return Err(missing());
        }
        removed.bytes += folder.sweep(&reference.pick)?;
        Ok(removed)
    }
}

impl Folder {
    /// The models of one snapshot. Their names have the revision if it is not `main`, and the file where the tag does
    /// not tell models apart.
    fn models(&self, repo: &str, commit: &str) -> Result<Vec<CachedModel>, Error> {
        let snapshot = self.snapshot(commit);
        if !snapshot.is_dir() {
            return Ok(Vec::new());
        }
        let all = files(&snapshot)?;
        let folder = folder::whole(&all, &snapshot).filter(|_| choices(&all).is_empty());
        let revision = self.revision(commit)?.unwrap_or_else(|| commit.to_owned());
        let name = |pick: Pick| Reference { repo: repo.to_owned(), pick, revision: revision.clone() };
        let judge = |file: &_| kind(&snapshot, file);
        let found = choices(&all).into_iter().map(|model| {
            let kind = model.files.first().and_then(|file| judge(file)).unwrap_or(model.kind);
            let tag = tag_of(model.path());
            let by_tag = tag.clone().filter(|_| kind == FileKind::LanguageModel).map(|tag| name(Pick::Tag(tag)));
            let is_found = |name: &Reference| {
                let found = choose(&all, name, &mut |file| Ok(judge(file)));
                found.is_ok_and(|found| found.model.path() == model.path())
            };
            let by_tag = by_tag.filter(is_found);
            let files: Vec<PathBuf> = model.files.iter().map(|file| snapshot.join(&file.path)).collect();
            let reference = by_tag.unwrap_or_else(|| name(Pick::File(model.path().to_owned())));
            CachedModel { kind, reference, size: model.size(), last_used: last_used(&files), files, tag }
        });
        let folder = folder.map(|files| CachedModel {
            reference: name(Pick::Usual),
            kind: FileKind::LanguageModel,
            size: files.iter().map(|file| fs::metadata(file).map_or(0, |data| data.len())).sum(),
            last_used: last_used(&files),
            files,
            tag: None,
        });
        Ok(found.chain(folder).collect())
    }

    /// A branch or tag of this commit; `main` before others.
    fn revision(&self, commit: &str) -> Result<Option<String>, Error> {
        let found: Vec<String> =
            self.refs()?.into_iter().filter(|(_, of)| of == commit).map(|(name, _)| name).collect();
        Ok(found.iter().find(|name| *name == MAIN).or(found.first()).cloned())
    }

    /// Branches and tags with their commits.
    fn refs(&self) -> Result<BTreeMap<String, String>, Error> {
        let refs = self.path.join("refs");
        if !refs.is_dir() {
            return Ok(BTreeMap::new());
        }
        let commit = |name: String| Some((name.clone(), self.commit(&name).ok()??));
        Ok(files(&refs)?.into_iter().filter_map(|file| commit(file.path)).collect())
    }

    fn has_partial(&self) -> Result<bool, Error> {
        Ok(names(&self.path.join("blobs"))?.iter().any(|name| name.ends_with(INCOMPLETE)))
    }

    /// Removes contents without a file, empty snapshots and their references; the whole folder if it is empty. Returns
    /// the bytes of the contents.
    fn sweep(&self, pick: &Pick) -> Result<u64, Error> {
        let mut needed = BTreeSet::new();
        for commit in names(&self.path.join("snapshots"))? {
            let snapshot = self.snapshot(&commit);
            remove_empty(&snapshot)?;
            if snapshot.is_dir() {
                targets(&snapshot, &mut needed)?;
            }
        }
        let mut bytes = 0;
        for name in names(&self.path.join("blobs"))? {
            // Partial files have no snapshot yet: they go with the whole repository.
            let partial = name.ends_with(INCOMPLETE);
            if needed.contains(&name) || (partial && *pick != Pick::Usual) {
                continue;
            }
            let sha256 = name.split('.').next().unwrap_or(&name);
            let Some(_lock) = self.try_lock(sha256)? else {
                return Err(Error::Locked { path: self.blob(&name) });
            };
            let path = self.blob(&name);
            bytes += crate::bytes::allocated(&path);
            fs::remove_file(&path).map_err(Error::io(&path))?;
        }
        for (name, commit) in self.refs_of_missing()? {
            let path = self.path.join("refs").join(name);
            debug_assert!(!self.snapshot(&commit).exists());
            fs::remove_file(&path).map_err(Error::io(&path))?;
        }
        let left = ["blobs", "snapshots"]
            .iter()
            .try_fold(0, |sum, part| names(&self.path.join(part)).map(|names| sum + names.len()))?;
        if left == 0 {
            fs::remove_dir_all(&self.path).map_err(Error::io(&self.path))?;
            self.remove_locks();
        }
        Ok(bytes)
    }

    fn refs_of_missing(&self) -> Result<Vec<(String, String)>, Error> {
        let gone = |commit: &str| !self.snapshot(commit).is_dir();
        Ok(self.refs()?.into_iter().filter(|(_, commit)| gone(commit)).collect())
    }
}

/// The last time that any of the files was read.
fn last_used(files: &[PathBuf]) -> Option<SystemTime> {
    files.iter().filter_map(|file| fs::metadata(file).and_then(|data| data.accessed()).ok()).max()
}

/// Bytes of a file itself: none of a link.
fn own_bytes(path: &Path) -> u64 {
    fs::symlink_metadata(path).map_or(0, |data| if data.is_file() { data.len() } else { 0 })
}

/// Names of the contents that links in a folder lead to.
fn targets(folder: &Path, found: &mut BTreeSet<String>) -> Result<(), Error> {
    for name in names(folder)? {
        let path = folder.join(name);
        match fs::read_link(&path) {
            Ok(target) => drop(found.insert(name_of(&target))),
            Err(_) if path.is_dir() => targets(&path, found)?,
            Err(_) => {}
        }
    }
    Ok(())
}

/// Removes a folder and the folders in it, if there are no files.
fn remove_empty(folder: &Path) -> Result<(), Error> {
    let is_folder = |path: &Path| fs::symlink_metadata(path).is_ok_and(|data| data.is_dir());
    if !is_folder(folder) {
        return Ok(());
    }
    for name in names(folder)? {
        remove_empty(&folder.join(name))?;
    }
    if names(folder)?.is_empty() {
        fs::remove_dir(folder).map_err(Error::io(folder))?;
    }
    Ok(())
}

/// Names in a folder, in order; none of a folder that does not exist.
fn names(folder: &Path) -> Result<Vec<String>, Error> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::io(folder)(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry.map_err(Error::io(folder))?.file_name().into_string());
    }
    names.sort();
    Ok(names)
}
