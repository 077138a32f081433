//! The scale of a whole tensor, or of each of its experts, that a file has next to NVFP4 weights: `X.scale` of
//! `X.weight`.
//!
//! The product is multiplied by it, so it goes into the weight's blocks when they are loaded. `X.input_scale`, for
//! activations in four bits, is ignored. A file without `X.scale` has a scale of 1.
//!
//! # A scale of a whole tensor goes into its blocks
//!
//! NVFP4 weights of GGUF files have a scale for each tensor or expert. `weights/outer_scale.rs` copies it into every
//! block when the weight is loaded (`NVFP4_SCALED`, 40 bytes instead of 36), so no operation and no kernel multiplies
//! by it. The same holds for types of ik_llama.cpp whose rows start with a scale (`format/rows.rs`): `GgufFile::load`
//! copies it into the blocks of its row, so such a tensor is computed when it is loaded, like those of a folder.

use gristmill_files::gguf::{GgufFile, TensorInfo};
use gristmill_kernels::format::{Format, nvfp4_scaled};

use super::find::find;
use crate::error::{Error, Result};
use crate::program::tensors::TensorSpec;

/// The scale that the file has next to a weight.
pub(super) fn scale_of<'a>(file: &'a GgufFile, weight: &TensorSpec) -> Result<Option<&'a TensorInfo>> {
    let (Some(name), Some(tensor)) = (weight.name.strip_suffix(".weight"), file.tensor(&weight.name)) else {
        return Ok(None);
    };
    let name = format!("{name}.scale");
    if tensor.format != Format::NVFP4 || !weight.is_scaled || file.tensor(&name).is_none() {
        return Ok(None);
    }
    let (experts, _, _) = weight.whole_matrix();
    find(file, &TensorSpec::new(name, &[experts])).map(Some)
}

/// The scale of activations next to a weight, if the file has it.
pub(super) fn input_scale_of<'a>(file: &'a GgufFile, weight: &TensorSpec) -> Option<&'a TensorInfo> {
    let name = weight.name.strip_suffix(".weight").filter(|_| weight.is_scaled)?;
    let is_scaled = file.tensor(&weight.name).is_some_and(|tensor| tensor.format == Format::NVFP4);
    file.tensor(&format!("{name}.input_scale")).filter(|_| is_scaled)
}

/// Refuses scales that are not finite.
pub(super) fn check_scales(scale: &TensorInfo, values: &[f32]) -> Result<()> {
    match values.iter().enumerate().find(|(_, value)| !value.is_finite()) {
        None => Ok(()),
        Some((element, &value)) => Err(Error::ScaleNotFinite { name: scale.name.clone(), element, value }),
    }
}

/// The blocks of all experts with their scales, of a weight with the blocks `bytes`.
///
/// # Errors
/// If a scale is not finite.
pub(super) fn with_scales(bytes: &[u8], scale: &TensorInfo, values: &[f32]) -> Result<Vec<u8>> {
    check_scales(scale, values)?;
    let blocks = bytes.len() / Format::NVFP4.block_bytes();
    let mut scaled = Vec::with_capacity(blocks * Format::NVFP4_SCALED.block_bytes());
    for (expert, &value) in bytes.chunks_exact((bytes.len() / values.len().max(1)).max(1)).zip(values) {
        nvfp4_scaled::put_blocks(expert, value, &mut scaled);
    }
    Ok(scaled)
}
