//! A model of two files: one, with further tensors of another.

use std::error::Error;
use std::fmt::{self, Debug, Formatter};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::file::{GgufFile, TensorInfo};
use super::made::TensorSource;
use super::metadata::Metadata;
use super::value::Value;

/// Where the tensors of a joined model are: a file, and the tensor's record there.
struct Joined {
    model: GgufFile,
    other: GgufFile,
    tensors: Vec<TensorInfo>,
    /// Tensors of `model`, which precede those of `other`.
    own: usize,
}

impl Debug for Joined {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        write!(f, "Joined({} and {} tensors)", self.own, self.tensors.len() - self.own)
    }
}

impl Joined {
    fn tensor(&self, index: usize) -> Option<(&GgufFile, &TensorInfo)> {
        let file = if index < self.own { &self.model } else { &self.other };
        Some((file, self.tensors.get(index)?))
    }
}

impl TensorSource for Joined {
    fn mapped(&self, tensor: usize) -> Option<&[u8]> {
        let (file, tensor) = self.tensor(tensor)?;
        (!file.is_made(tensor)).then(|| file.data(tensor))
    }

    fn make(&self, tensor: usize) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> {
        let Some((file, tensor)) = self.tensor(tensor) else { return Ok(Vec::new()) };
        Ok(file.load(tensor)?.as_slice().to_vec())
    }

    fn done(&self, tensor: usize) {
        if let Some((file, tensor)) = self.tensor(tensor) {
            file.advise_done(tensor);
        }
    }

    fn paths(&self) -> Vec<PathBuf> {
        self.model.paths().chain(self.other.paths()).map(Path::to_owned).collect()
    }

    fn file_bytes(&self) -> u64 {
        self.model.file_bytes().saturating_add(self.other.file_bytes())
    }

    fn sample(&self, take: &mut dyn FnMut(&[u8])) {
        take(self.model.fingerprint().as_bytes());
    }

    fn base(&self) -> Option<&GgufFile> {
        Some(&self.model)
    }
}

impl GgufFile {
    /// This model with the tensors of `other` that `takes` admits and that this model lacks, and with other values of some
    /// keys. The fingerprint stays that of this model.
    #[must_use]
    pub fn with_tensors_of(
        &self,
        other: &GgufFile,
        takes: impl Fn(&str) -> bool,
        pairs: &[(String, Value)],
    ) -> GgufFile {
        let mut metadata = Metadata::default();
        let value = |key: &str| pairs.iter().find(|(other, _)| other == key).map(|(_, value)| value.clone());
        for (key, own) in self.metadata().iter() {
            let offset = self.metadata().offset(key).unwrap_or_default();
            metadata.push(key.to_owned(), value(key).unwrap_or_else(|| own.clone()), offset);
        }
        for (key, value) in pairs.iter().filter(|(key, _)| !self.metadata().contains(key)) {
            metadata.push(key.clone(), value.clone(), 0);
        }
        let further =
            other.tensors().iter().filter(|tensor| takes(&tensor.name) && self.tensor(&tensor.name).is_none());
        let own = self.tensors().len();
        let tensors: Vec<TensorInfo> = self.tensors().iter().chain(further).cloned().collect();
        let source = Joined { model: self.clone(), other: other.clone(), tensors: tensors.clone(), own };
        GgufFile::without_data(metadata, tensors, Vec::new(), Some(Arc::new(source)))
    }
}
