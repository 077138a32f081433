//! Checks a file against the table, and counts what loading it will take.

use std::collections::HashSet;

use gristmill_kernels::weight::Role;

use super::table::{Make, Wanted, assemble, find};
use crate::error::{Error, Result};
use crate::gguf::{GgufFile, TensorInfo};
use crate::model::spec::ModelSpec;

/// What loading a model will take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WeightBytes {
    /// Read from the file.
    pub(crate) file: u64,
    /// Read from the file's map while the model runs; the system may drop these pages and read them again.
    pub(crate) mapped: u64,
    /// Prepared in memory.
    pub(crate) prepared: u64,
}

/// Prepared weights are in tiles of this many rows; the last may be partly empty.
const TILE_ROWS: u64 = gristmill_kernels::cpu::layout::ROWS as u64;

/// Checks that the file has every tensor in its shape, and none besides, and counts bytes.
pub(crate) fn survey(file: &GgufFile, spec: &ModelSpec) -> Result<WeightBytes> {
    let mut survey = Survey { file, seen: HashSet::new(), bytes: WeightBytes::default() };
    assemble(spec, &mut survey)?;
    match file.tensors().iter().find(|tensor| !survey.seen.contains(&tensor.name)) {
        None => Ok(survey.bytes),
        Some(tensor) => Err(Error::UnusedTensor { name: tensor.name.clone(), architecture: spec.architecture.clone() }),
    }
}

struct Survey<'a> {
    file: &'a GgufFile,
    seen: HashSet<String>,
    bytes: WeightBytes,
}

impl Survey<'_> {
    fn see(&mut self, wanted: &Wanted) -> Result<&TensorInfo> {
        let tensor = find(self.file, wanted)?;
        self.seen.insert(tensor.name.clone());
        // No sum of these overflows: the tensors of a file do not overlap, and each is used at most twice.
        self.bytes.file += tensor.bytes;
        Ok(tensor)
    }
}

impl Make for Survey<'_> {
    type Matrix = ();
    type Vector = ();

    fn matrix(&mut self, role: Role, tensors: &[Wanted]) -> Result<()> {
        for wanted in tensors {
            let (bytes, rows) = {
                let tensor = self.see(wanted)?;
                (tensor.bytes, wanted.shape.get(1).copied().unwrap_or(1).max(1))
            };
            match role {
                Role::Table => self.bytes.mapped += bytes,
                _ => self.bytes.prepared += bytes / rows * rows.next_multiple_of(TILE_ROWS),
            }
        }
        Ok(())
    }

    fn vector(&mut self, tensors: &[Wanted]) -> Result<()> {
        for wanted in tensors {
            self.bytes.prepared += self.see(wanted)?.elements() * size_of::<f32>() as u64;
        }
        Ok(())
    }
}
