//! Checks a file against the table, and counts what loading it will take.

use std::collections::HashSet;

use gristmill_files::gguf::{GgufFile, TensorInfo};
use gristmill_kernels::Backend;
use gristmill_kernels::format::Format;
use gristmill_kernels::weight::{Footprint, Role, TensorShape};

use super::outer_scale::{input_scale_of, scale_of};
use super::table::{Make, TensorSpec, assemble, find};
use crate::error::{Error, Result};
use crate::model::spec::ModelSpec;

/// A matrix of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Matrix {
    shape: TensorShape,
    role: Role,
    /// Its data is made when it is loaded, so nothing of it stays in the file's map.
    made: bool,
}

/// Shapes and bytes of the weights of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WeightShapes {
    /// Bytes that are read from the file.
    pub(crate) file: u64,
    matrices: Vec<Matrix>,
    /// Bytes of all vectors in memory.
    vectors: u64,
}

impl WeightShapes {
    /// Bytes on a backend.
    pub(crate) fn footprint(&self, backend: &Backend) -> Footprint {
        let mut all = Footprint { owned: self.vectors, mapped: 0 };
        for Matrix { shape, role, made } in &self.matrices {
            let Footprint { owned, mapped } = backend.footprint(shape, *role);
            let (owned, mapped) = if *made { (owned.saturating_add(mapped), 0) } else { (owned, mapped) };
            all.owned = all.owned.saturating_add(owned);
            all.mapped = all.mapped.saturating_add(mapped);
        }
        all
    }
}

/// Checks that the file has every tensor in its shape, and none besides but those of layers that are left out, and
/// counts bytes.
pub(crate) fn survey(file: &GgufFile, spec: &ModelSpec) -> Result<WeightShapes> {
    let mut survey = Survey { file, seen: HashSet::new(), found: WeightShapes::default() };
    assemble(spec, &mut survey)?;
    let unused = |tensor: &&TensorInfo| !(survey.seen.contains(&tensor.name) || spec.leaves_out(&tensor.name));
    match file.tensors().iter().find(unused) {
        None => Ok(survey.found),
        Some(tensor) => Err(Error::UnusedTensor { name: tensor.name.clone(), architecture: spec.architecture.clone() }),
    }
}

struct Survey<'a> {
    file: &'a GgufFile,
    seen: HashSet<String>,
    found: WeightShapes,
}

impl<'a> Survey<'a> {
    fn see(&mut self, needed: &TensorSpec) -> Result<&'a TensorInfo> {
        let tensor = find(self.file, needed)?;
        self.count(tensor);
        Ok(tensor)
    }

    fn count(&mut self, tensor: &TensorInfo) {
        // A tensor that serves twice is read once. No sum of these overflows: the tensors of a file do not overlap.
        if self.seen.insert(tensor.name.clone()) {
            self.found.file += tensor.bytes;
        }
    }
}

impl Make for Survey<'_> {
    type Matrix = ();
    type Vector = ();

    fn shape(&self, name: &str) -> Option<&[u64]> {
        self.file.tensor(name).map(|tensor| tensor.shape.as_slice())
    }

    fn matrix(&mut self, role: Role, tensors: &[TensorSpec]) -> Result<()> {
        for needed in tensors {
            let tensor = self.see(needed)?;
            let (format, made) = match scale_of(self.file, needed)? {
                None => (tensor.format, self.file.is_made(tensor)),
                Some(scale) => {
                    self.count(scale);
                    (Format::NVFP4_SCALED, true)
                }
            };
            self.seen.extend(input_scale_of(self.file, needed).map(|tensor| tensor.name.clone()));
            let (experts, rows, cols) = needed.matrix();
            self.found.matrices.push(Matrix { shape: TensorShape { format, experts, rows, cols }, role, made });
        }
        Ok(())
    }

    fn vector(&mut self, tensors: &[TensorSpec]) -> Result<()> {
        for needed in tensors {
            self.found.vectors += self.see(needed)?.elements() * size_of::<f32>() as u64;
        }
        Ok(())
    }

    fn scaled(&mut self, tensor: &TensorSpec, _factor: f32) -> Result<()> {
        self.vector(std::slice::from_ref(tensor))
    }

    fn filled(&mut self, _value: f32, len: usize) -> Result<()> {
        // A width of a head or of the residual stream, which the tensors' shapes bound.
        self.found.vectors = self.found.vectors.saturating_add((len * size_of::<f32>()) as u64);
        Ok(())
    }

    fn scalar(&mut self, tensor: &TensorSpec) -> Result<f32> {
        self.see(tensor)?;
        Ok(1.0)
    }
}
