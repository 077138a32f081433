//! `idefics3`: the tower of Idefics3, SmolVLM and SmolVLM2, SigLIP for tiles of one size. Blocks of patches become one token by one
//! matrix.

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::NormKind;
use crate::tower::spec::{Positions, Step, TowerSpec};

/// The matrix of the projector.
const PROJECTION: &str = "mm.model.fc";

pub(crate) fn spec(file: &KeyReader) -> Result<TowerSpec> {
    let tower = file.tower()?;
    let out = file.rows_of(&format!("{PROJECTION}.weight"))?;
    let steps = vec![
        Step::Norm { name: "v.post_ln".to_owned(), kind: NormKind::Layer, eps: tower.norm_eps },
        Step::Join,
        Step::Linear { name: PROJECTION.to_owned(), out, bias: false },
    ];
    let positions = Positions::Aligned { side: file.table_side()? };
    Ok(TowerSpec { positions, steps, out, merge: file.merge("projector.scale_factor")?, ..tower })
}
