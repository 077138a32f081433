//! How the pictures of a tower are prepared: the keys of its file.

use gristmill_files::gguf::GgufFile;
use gristmill_vision::{Processor, ProjectorKeys};

use crate::error::Result;

/// The processor of an `mmproj` file.
pub(super) fn processor(file: &GgufFile, projector: &str) -> Result<Processor> {
    let keys = file.metadata();
    let of = |name: &str| format!("clip.vision.{name}");
    let number = |name: &str| keys.optional::<u32>(&of(name));
    let colours = |name: &str| -> Result<Option<[f32; 3]>> {
        let values = keys.optional::<&[f32]>(&of(name))?;
        Ok(values.and_then(|values| <[f32; 3]>::try_from(values).ok()))
    };
    let keys = ProjectorKeys {
        projector: projector.to_owned(),
        patch: keys.required(&of("patch_size"))?,
        image_size: keys.required(&of("image_size"))?,
        merge: number("spatial_merge_size")?.or(number("projector.scale_factor")?),
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
