//! `gemma3`: the tower of Gemma 3, SigLIP for pictures of one size. Blocks of patches are averaged; their matrix is stored
//! transposed.

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::NormKind;
use crate::tower::spec::{Positions, Step, TowerSpec};

/// Patches of a side of a block, without a key.
const MERGE: usize = 4;

pub(crate) fn spec(file: &KeyReader) -> Result<TowerSpec> {
    let tower = file.tower()?;
    let eps = tower.norm_eps;
    let out = file.columns_of("mm.input_projection.weight")?;
    let norm = |name: &str, kind| Step::Norm { name: name.to_owned(), kind, eps };
    let steps = vec![
        norm("v.post_ln", NormKind::Layer),
        Step::Join,
        Step::Pool { scale: 1.0 },
        norm("mm.soft_emb_norm", NormKind::Rms),
        Step::Transposed { name: "mm.input_projection".to_owned(), out },
    ];
    let merge = file.optional_merge("projector.scale_factor")?.unwrap_or(MERGE);
    Ok(TowerSpec { positions: Positions::Aligned { side: file.table_side()? }, steps, out, merge, ..tower })
}
