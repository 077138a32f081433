//! The description of a tower that is not loaded.

use gristmill_files::gguf::GgufFile;
use gristmill_kernels::Backend;
use gristmill_kernels::act::Precision;
use gristmill_kernels::kv::KV_BLOCK;
use gristmill_vision::{Limits as ImageLimits, Processor};

use super::spec::TowerSpec;
use super::{build, keys};
use crate::error::{Error, Result};
use crate::family;
use crate::program::Program;
use crate::spec::ModelSpec;
use crate::weights::{self, WeightShapes};

/// The most bytes of rows that are kept for pictures that come again.
pub(super) const KEPT_BYTES: usize = 256 << 20;

/// A tower, read from an `mmproj` file and checked against its tensors; no weight is loaded.
#[derive(Debug)]
pub struct TowerInfo {
    pub(super) spec: TowerSpec,
    pub(super) processor: Processor,
    pub(crate) program: Program,
    /// The sizes of the weights.
    pub(crate) weights: WeightShapes,
}

impl TowerInfo {
    /// Reads and checks all but the weights' values, for a text model.
    ///
    /// # Errors
    /// An [`Error`] that says what is wrong with the file.
    pub fn read(file: &GgufFile, text: &ModelSpec) -> Result<Self> {
        let spec = family::tower(file)?;
        let processor = keys::processor(file, &spec)?;
        let out = spec.out;
        let levels = spec.levels() - 1;
        if (out, levels) != (text.hidden, text.picture_layers) {
            return Err(Error::TowerWidth {
                found: out,
                levels,
                expected: text.hidden,
                expected_levels: text.picture_layers,
            });
        }
        let program = build::build(&spec);
        let leaves_out = |name: &str| spec.leaves_out(name);
        let weights = weights::survey(file, &leaves_out, &spec.projector, &program.tensors)?;
        Ok(Self { spec, processor, program, weights })
    }

    /// Patches of the largest tile of images within limits, in a context of this many tokens.
    pub(crate) fn most_patches(&self, context: usize, images: &ImageLimits) -> usize {
        let of_token = self.spec.merge * self.spec.merge;
        let most = self.processor.most_patches_of(images).min(context.saturating_mul(of_token));
        most.max(1).next_multiple_of(of_token)
    }

    /// Bytes that a tile of this number of patches takes while the tower reads it.
    pub(super) fn picture_bytes(&self, patches: usize, precision: Precision, backend: &Backend) -> u64 {
        let Self { spec, program, .. } = self;
        let tokens = patches / (spec.merge * spec.merge);
        let rows = (tokens * spec.out * spec.levels() * size_of::<f32>()) as u64;
        let cache = backend.kv_bytes(spec.cache(), patches.div_ceil(KV_BLOCK));
        [program.slots.bytes(precision, patches, tokens), cache, rows].into_iter().fold(0, u64::saturating_add)
    }

    /// Bytes that a runner takes for pictures within limits, in a context of this many tokens: the pass of the largest tile, and
    /// the rows that are kept.
    pub(crate) fn runner_bytes(
        &self,
        context: usize,
        images: &ImageLimits,
        precision: Precision,
        backend: &Backend,
    ) -> u64 {
        let pass = self.picture_bytes(self.most_patches(context, images), precision, backend);
        pass.saturating_add(self.kept_bytes(context) as u64)
    }

    /// The most bytes of rows that a runner keeps: those of a context.
    pub(super) fn kept_bytes(&self, context: usize) -> usize {
        context.saturating_mul(self.spec.out * self.spec.levels() * size_of::<f32>()).min(KEPT_BYTES)
    }
}
