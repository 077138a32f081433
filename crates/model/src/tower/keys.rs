//! How the pictures of a tower are prepared: the keys of its file.

use gristmill_files::gguf::GgufFile;
use gristmill_vision::{Processor, ProjectorKeys};

use super::spec::TowerSpec;
use crate::error::Result;

/// The processor of an `mmproj` file with this tower.
pub(super) fn processor(file: &GgufFile, tower: &TowerSpec) -> Result<Processor> {
    let keys = file.metadata();
    let of = |name: &str| format!("clip.vision.{name}");
    let number = |name: &str| keys.optional::<u32>(&of(name));
    let colours = |name: &str| -> Result<Option<[f32; 3]>> {
        let values = keys.optional::<&[f32]>(&of(name))?;
        Ok(values.and_then(|values| <[f32; 3]>::try_from(values).ok()))
    };
    // Where patches are whole tokens, the key has the side of another patch.
    let (patch, merge) = match tower.patch_norms {
        Some(_) => (u32::try_from(tower.patch).unwrap_or(u32::MAX), Some(1)),
        None => {
            (keys.required(&of("patch_size"))?, number("spatial_merge_size")?.or(number("projector.scale_factor")?))
        }
    };
    let keys = ProjectorKeys {
        projector: tower.projector.clone(),
        patch,
        image_size: keys.required(&of("image_size"))?,
        merge,
        mean: colours("image_mean")?,
        std: colours("image_std")?,
        min_pixels: number("image_min_pixels")?,
        max_pixels: number("image_max_pixels")?,
        min_tiles: number("preproc_min_tiles")?,
        max_tiles: number("preproc_max_tiles")?,
        tile: number("preproc_image_size")?,
    };
    Ok(keys.read()?)
}
