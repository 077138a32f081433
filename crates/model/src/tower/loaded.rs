//! A loaded tower.

use std::fmt;
use std::sync::Arc;

use gristmill_files::gguf::{GgufFile, TensorInfo};
use gristmill_kernels::Backend;
use gristmill_kernels::act::Precision;
use gristmill_kernels::tensor::DeviceId;
use gristmill_vision::{Patches, Processor};

use super::info::TowerInfo;
use super::spec::{Positions, STANDARD, TABLE, TowerSpec};
use crate::error::{Error, Result};
use crate::machine;
use crate::spec::ModelSpec;
use crate::weights::{self, Weights};

/// A loaded vision tower with its projector: immutable, and shared by runners.
pub struct Tower {
    file: GgufFile,
    pub(crate) info: TowerInfo,
    pub(super) weights: Weights,
    pub(super) backend: Arc<Backend>,
    pub(super) precision: Precision,
    /// The precision of attention, as in a text model.
    pub(super) attention_precision: Precision,
    /// The table of positions, a row for each place of its square.
    pub(super) table: Vec<f32>,
    /// What is subtracted from tokens, and what the difference is multiplied with.
    pub(super) standard: Option<[Vec<f32>; 2]>,
}

impl fmt::Debug for Tower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tower({} with {} layers)", self.info.spec.projector, self.info.spec.layers)
    }
}

impl Tower {
    /// Loads the tower of an `mmproj` file for a text model.
    ///
    /// # Errors
    /// An [`Error`] that says what is wrong with the file.
    pub fn load(file: GgufFile, text: &ModelSpec, backend: Arc<Backend>, precision: Precision) -> Result<Self> {
        let info = TowerInfo::read(&file, text)?;
        info.weights.check_memory(&backend, "the vision tower")?;
        let exclusive = backend.exclusive();
        let weights = weights::load(&file, &info.program.tensors, &backend, &mut |_| Ok(()))?;
        let values = |tensor: &TensorInfo| -> Result<Vec<f32>> {
            let bytes = file.load(tensor)?;
            let mut values = vec![0.0; usize::try_from(tensor.elements()).unwrap_or(0)];
            // The survey has checked the shape, so the bytes are exactly these values.
            tensor.format.decode(bytes.as_slice(), &mut values);
            Ok(values)
        };
        let table = file.tensor(TABLE).map(values).transpose()?.unwrap_or_default();
        let [bias, scale] = STANDARD.map(|name| file.tensor(name).map(values).transpose());
        let standard = bias?.zip(scale?).map(|(bias, scale)| [bias, scale]);
        drop(exclusive);
        let attention_precision = if info.spec.is_exact(&file) { Precision::Exact } else { precision };
        Ok(Self { file, info, weights, backend, precision, attention_precision, table, standard })
    }

    /// The file.
    pub fn file(&self) -> &GgufFile {
        &self.file
    }

    /// The parts of the tower.
    pub fn spec(&self) -> &TowerSpec {
        &self.info.spec
    }

    /// How pictures are prepared for the tower.
    pub fn processor(&self) -> &Processor {
        &self.info.processor
    }

    /// Tokens of a tile.
    ///
    /// # Errors
    /// [`Error::Picture`] for a tile that the tower cannot read.
    pub fn tokens(&self, tile: &Patches) -> Result<usize> {
        let TowerSpec { merge, patch, .. } = self.info.spec;
        let wrong = |reason: String| Err(Error::Picture { reason });
        let Patches { rows, columns, values } = tile;
        if *rows == 0 || *columns == 0 || !rows.is_multiple_of(merge) || !columns.is_multiple_of(merge) {
            let rule = format!("{rows} × {columns} patches (expected multiples of {merge}); resize the picture");
            return wrong(rule);
        }
        if let Positions::ColumnsAndRows { len } = self.info.spec.positions
            && *rows.max(columns) > len
        {
            return wrong(format!("{rows} × {columns} patches (expected at most {len} of a side); resize the picture"));
        }
        let expected = rows.saturating_mul(*columns).saturating_mul(3 * patch * patch);
        if values.len() != expected {
            return wrong(format!(
                "{} values of {rows} × {columns} patches (expected {expected}); use the tower's preprocessing",
                values.len()
            ));
        }
        Ok(rows * columns / (merge * merge))
    }

    /// Bytes that a tile of this number of patches takes while the tower reads it.
    pub fn picture_bytes(&self, patches: usize) -> u64 {
        self.info.picture_bytes(patches, self.precision, &self.backend)
    }

    /// Fails if too little memory is free for a tile of this number of patches.
    pub(super) fn check_memory(&self, patches: usize) -> Result<()> {
        let is_cpu = self.backend.device() == DeviceId::Cpu;
        let limit = self.backend.free_memory()?;
        let free = if is_cpu { limit.into_iter().chain(machine::available_memory()).min() } else { limit };
        match (self.picture_bytes(patches), free) {
            (needed, Some(free)) if needed > free => {
                Err(Error::Memory { what: "a picture", needed, free, remedy: "use a smaller picture, or free memory" })
            }
            _ => Ok(()),
        }
    }

    /// Bytes of the prepared weights, without the mapped file.
    pub fn prepared_bytes(&self) -> u64 {
        self.weights.owned_bytes()
    }
}
