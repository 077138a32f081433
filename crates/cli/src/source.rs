//! Where a model comes from: a file, or the program itself.

use std::fmt::{self, Display, Formatter};
use std::path::{Path, PathBuf};

use clap::Args;
use gristmill_engine::gguf::{GgufError, GgufFile};

/// The model inside the program; `model/README.md` describes it.
static STORIES: &[u8] = include_bytes!("../model/gristmill-stories.gguf");

/// Which model.
#[derive(Args)]
pub(crate) struct ModelArg {
    /// The model: a GGUF file; of a split model, any part [default: the built-in one, which tells short stories].
    #[arg(short, long, value_name = "MODEL")]
    pub(crate) model: Option<PathBuf>,
}

impl ModelArg {
    /// The file that is named, or the built-in model.
    pub(crate) fn source(&self) -> Source<'_> {
        Source::of(self.model.as_deref())
    }
}

/// A model that is not opened yet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source<'a> {
    File(&'a Path),
    BuiltIn,
}

impl<'a> Source<'a> {
    /// A file, or the built-in model where none is named.
    pub(crate) fn of(path: Option<&'a Path>) -> Source<'a> {
        path.map_or(Source::BuiltIn, Source::File)
    }

    /// Maps the file.
    pub(crate) fn open(self) -> Result<GgufFile, GgufError> {
        match self {
            Source::File(path) => GgufFile::open(path),
            Source::BuiltIn => GgufFile::from_static(STORIES),
        }
    }
}

impl Display for Source<'_> {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        match self {
            Source::File(path) => path.display().fmt(f),
            Source::BuiltIn => f.write_str("the built-in model"),
        }
    }
}
