//! Models that are not one GGUF file: metadata and tensor records as in a file, and data from another place.
//!
//! # A folder is a model file
//!
//! From a folder, `convert` computes the metadata and tensor records that its GGUF file would have. The data is read on
//! demand (`files/src/gguf/made.rs`): a view of the folder's files, or bytes that are computed from them. *The engine
//! does not distinguish files and folders.*

use std::error::Error;
use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;

use gristmill_kernels::tensor::SharedBytes;

use super::error::GgufError;
use super::file::{GgufFile, TensorInfo};

/// Where the data of a model's tensors comes from. Tensors are counted in the order of their records.
pub trait TensorSource: Debug + Send + Sync {
    /// The data of a tensor in its format, if it lies somewhere as it is.
    fn mapped(&self, tensor: usize) -> Option<&[u8]>;
    /// Makes the data of a tensor in its format. Called for tensors without [`mapped`](Self::mapped) data.
    ///
    /// # Errors
    /// If the values cannot be had in that format.
    fn make(&self, tensor: usize) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>>;
    /// The data of a tensor will not be read soon.
    fn done(&self, tensor: usize);
    /// The files of the weights.
    fn paths(&self) -> Vec<PathBuf>;
    /// The size of these files in bytes.
    fn file_bytes(&self) -> u64;
    /// Passes on bytes that tell the weights from others', as [`GgufFile::fingerprint`] reads of a file.
    fn sample(&self, take: &mut dyn FnMut(&[u8]));
    /// The model that this one is apart from further tensors, if there is one.
    fn base(&self) -> Option<&GgufFile> {
        None
    }
}

/// Keeps the model open as long as the bytes are in use.
struct TensorBytes {
    file: GgufFile,
    tensor: TensorInfo,
}

impl AsRef<[u8]> for TensorBytes {
    fn as_ref(&self) -> &[u8] {
        self.file.data(&self.tensor)
    }
}

impl GgufFile {
    /// The data of a tensor of this model: a view of it where it lies, or made of what the model has instead, which takes
    /// memory until the last clone is dropped.
    ///
    /// # Errors
    /// [`GgufError::Make`] if it cannot be made. GGUF files give none, except for types with a scale of each row
    /// ([`TensorInfo::rows`]), one of which may not be finite.
    pub fn load(&self, tensor: &TensorInfo) -> Result<SharedBytes, GgufError> {
        if self.is_made(tensor)
            && let Some((source, index)) = self.source(tensor)
        {
            let made = source.make(index);
            return made.map(Into::into).map_err(|source| GgufError::Make { tensor: tensor.name.clone(), source });
        }
        if let Some(rows) = tensor.rows {
            let columns = tensor.shape.first().map_or(0, |&dim| usize::try_from(dim).unwrap_or(usize::MAX));
            let blocks = rows.blocks(self.stored(tensor), columns);
            return blocks
                .map(Into::into)
                .map_err(|source| GgufError::Make { tensor: tensor.name.clone(), source: source.into() });
        }
        let len = self.data(tensor).len();
        let owner = Arc::new(TensorBytes { file: self.clone(), tensor: tensor.clone() });
        Ok(SharedBytes::new(owner, 0..len).unwrap_or_else(|| Vec::new().into()))
    }

    /// Whether [`load`](Self::load) makes the data of this tensor, and [`data`](Self::data) is empty.
    pub fn is_made(&self, tensor: &TensorInfo) -> bool {
        tensor.rows.is_some() || self.source(tensor).is_some_and(|(source, index)| source.mapped(index).is_none())
    }
}
