//! The header of a model, from which `fit` computes: of a file, of a synthetic model, or of a model of the hub.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use gristmill_files::gguf::{FileKind, GgufFile};
use gristmill_hub::{Hub, Listing, Pick, Picked, Reference, USUAL, choices, projector, tag_of};
use gristmill_lab::synthetic::Synthetic;

use super::{FitArgs, open};
use crate::console;
use crate::failure::Failure;
use crate::hub::{self, Choices};
use crate::mmproj::{Choice, Projector};
use crate::source::Source;

/// Bytes of a file's beginning that are downloaded, until the whole header is among them.
const BEGINNINGS: [u64; 4] = [1 << 20, 8 << 20, 32 << 20, 128 << 20];

/// Bytes behind a start that no header has; more than any array of numbers.
const BEHIND: usize = 4 << 20;

/// A model without its weights.
pub(super) struct Header {
    pub(super) file: GgufFile,
    /// The name of the file.
    pub(super) name: String,
    /// What the model itself is called among the formats, if it can be run: this file or this folder.
    pub(super) own: Option<&'static str>,
    /// Formats and sizes of the hub.
    pub(super) published: Vec<(String, u64)>,
    /// The vision tower.
    pub(super) projector: Option<Projector>,
}

impl Header {
    /// Reads what the arguments name.
    pub(super) fn read(args: &FitArgs) -> Result<Header, Failure> {
        let path = Path::new(&args.model);
        let name = args.model.clone();
        if let Some(name) = hub::name(path) {
            let hub = hub::client(Choices { offline: args.offline, ..Choices::default() })?;
            return of_hub(&hub, &name.parse()?, args);
        }
        if path.exists() {
            let own = if path.is_dir() { "this folder" } else { "this file" };
            let file = Source::File(path).open(&args.log)?;
            let projector = args.mmproj.open(Source::File(path), &args.log)?;
            return Ok(Header { file, name, own: Some(own), published: Vec::new(), projector });
        }
        match Synthetic::parse(&args.model, None) {
            Ok(model) => {
                let projector = args.mmproj.open(Source::BuiltIn, &args.log)?;
                Ok(Header { file: model.preview()?, name, own: None, published: Vec::new(), projector })
            }
            Err(error) => Err(Failure::new(format!(
                "{name} is not a file or folder, and {error}; for a model of the hub, write ORG/REPO"
            ))),
        }
    }
}

/// The models of a repository. Offline, the one in the cache.
fn of_hub(hub: &Hub, reference: &Reference, args: &FitArgs) -> Result<Header, Failure> {
    let cached = || {
        let path = hub.fetch(reference, &|_| ())?.into_iter().next();
        let path = path.ok_or_else(|| Failure::new(format!("{reference} has no files; name another model")))?;
        let name = path.display().to_string();
        let projector = args.mmproj.open(Source::File(&path), &args.log)?;
        Ok(Header { file: open(&path)?, name, own: Some("this file"), published: Vec::new(), projector })
    };
    if hub.is_offline() {
        return cached();
    }
    let listing = hub.list(&reference.repo, &reference.revision)?;
    let Picked { model, others, companions, .. } = pick(hub, &listing, reference)?;
    let projector = match args.mmproj.is_given() {
        true => args.mmproj.open(Source::BuiltIn, &args.log)?,
        false => projector(&companions)
            .map(|tower| beginning(hub, reference, &listing.commit, tower, args))
            .transpose()?
            .map(|file| Projector { file, choice: Choice::Own }),
    };
    if !companions.is_empty() {
        args.log.info(format_args!("{}", hub::no_models(&companions)));
    }
    let file = beginning(hub, reference, &listing.commit, &model, args)?;
    let format = |model: &gristmill_hub::Choice| tag_of(model.path()).unwrap_or_else(|| model.path().to_owned());
    let published = [&model].into_iter().chain(&others).map(|model| (format(model), model.size())).collect();
    Ok(Header { file, name: model.path().to_owned(), own: None, published, projector })
}

/// The model that the reference means; or else a usual one, or the smallest.
fn pick<'a>(hub: &Hub, listing: &'a Listing, reference: &Reference) -> Result<Picked<'a>, Failure> {
    let mut by_size = choices(&listing.files);
    by_size.sort_by_key(|choice| (choice.rank(), choice.size()));
    let usual = USUAL.iter().map(|tag| Pick::Tag((*tag).to_owned()));
    let files = by_size.iter().map(|choice| Pick::File(choice.path().to_owned()));
    let mut failed = None;
    for pick in [reference.pick.clone()].into_iter().chain(usual).chain(files) {
        let is_named = pick == reference.pick;
        match hub.choose(listing, &Reference { pick, ..reference.clone() }, &|_| ()) {
            Ok(picked) if is_named || picked.model.kind == FileKind::LanguageModel => return Ok(picked),
            Ok(_) => {}
            Err(error) if error.is_of_choice() => drop(failed.get_or_insert(error)),
            Err(error) => return Err(error.into()),
        }
    }
    Err(match failed {
        Some(error) => error.into(),
        None => Failure::new(format!("{} has no language model in GGUF; name another repository", reference.repo)),
    })
}

/// Opens files that have only their beginnings: the rest is holes.
fn beginning(
    hub: &Hub,
    reference: &Reference,
    commit: &str,
    model: &gristmill_hub::Choice,
    args: &FitArgs,
) -> Result<GgufFile, Failure> {
    let folder = Folder::new()?;
    let mut failed = Failure::new("there is no header");
    for length in BEGINNINGS {
        let mut first = None;
        for file in &model.files {
            let name = file.path.rsplit('/').next().unwrap_or(&file.path);
            let bytes = hub.beginning(&reference.repo, commit, file, length)?;
            let path = folder.0.join(name);
            let written = File::create(&path).and_then(|mut to| {
                to.write_all(&bytes)?;
                // A header that continues behind its start must not be read: no length is as large as this.
                to.write_all(&vec![0xff; BEHIND])?;
                to.set_len(file.size)
            });
            written.map_err(|error| Failure::new(format!("{}: {error}; free some space there", path.display())))?;
            first.get_or_insert(path);
        }
        let length = console::bytes(length);
        args.log.detail(format_args!("{}: the first {length} were downloaded", model.path()));
        match open(&first.unwrap_or_default()) {
            Ok(file) => return Ok(file),
            Err(error) => failed = error,
        }
    }
    Err(failed.about(model.path()))
}

/// A folder for a moment.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Folder, Failure> {
        let path = std::env::temp_dir().join(format!("gristmill-fit-{}", std::process::id()));
        let failed = |error| Failure::new(format!("cannot make {}: {error}; set TMPDIR", path.display()));
        fs::create_dir_all(&path).map_err(failed)?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder that is left in the temporary folder does no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}
