//! From the name of an architecture to its family.

use gristmill_files::gguf::GgufFile;

use super::missing::missing;
use super::read::{self, KeyReader, Source};
use super::table::Read;
use super::{ARCHITECTURES, TOWERS};
use crate::error::{Error, Result};
use crate::spec::ModelSpec;
use crate::tower::TowerSpec;

/// Reads the spec of a file.
pub(crate) fn spec(source: &Source) -> Result<ModelSpec> {
    let (arch, read) = architecture(source.required("general.architecture")?)?;
    read(&KeyReader::new(source, arch))
}

/// Reads the spec of the tower in an `mmproj` file.
pub(crate) fn tower(file: &GgufFile) -> Result<TowerSpec> {
    let source = Source::new(file);
    let architecture: &str = source.required("general.architecture")?;
    if architecture != "clip" {
        return Err(Error::NotATower { architecture: architecture.to_owned() });
    }
    let projector = read::projector(&source)?;
    let unknown = || {
        let known = TOWERS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        Error::Projector { found: projector.clone(), known }
    };
    let (_, read) = TOWERS.iter().find(|(name, _)| *name == projector).ok_or_else(unknown)?;
    read(&KeyReader::new(&source, "clip"))
}

/// Fails for a file whose architecture is not supported. The rest of the file is not read.
///
/// # Errors
/// [`Error::Architecture`], and [`Error::Metadata`] without an architecture.
pub fn check_architecture(file: &GgufFile) -> Result<()> {
    architecture(file.metadata().required("general.architecture")?).map(|_| ())
}

fn architecture(name: &str) -> Result<&'static (&'static str, Read)> {
    let unknown = || Error::Architecture { found: name.to_owned(), missing: missing(name), known: names() };
    ARCHITECTURES.iter().find(|(known, _)| *known == name).ok_or_else(unknown)
}

/// The names of all supported architectures.
fn names() -> String {
    ARCHITECTURES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}
