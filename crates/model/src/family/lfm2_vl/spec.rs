//! `lfm2`: the tower of LFM2-VL, SigLIP2 with a table of positions that is resized to the picture. Blocks of 2 × 2 patches
//! become one token.

use gristmill_kernels::ops::GateKind;

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::NormKind;
use crate::tower::spec::{Positions, Step, TowerSpec};

/// Epsilon of the projector's norm, which has no key.
const PROJECTOR_EPS: f32 = 1e-5;

pub(crate) fn spec(file: &KeyReader) -> Result<TowerSpec> {
    let tower = file.tower()?;
    let (inner, out) = (file.rows_of("mm.1.weight")?, file.rows_of("mm.2.weight")?);
    let has = |name: &str| file.tensor(name);
    let mut steps =
        vec![Step::Norm { name: "v.post_ln".to_owned(), kind: NormKind::Layer, eps: tower.norm_eps }, Step::Join];
    if has("mm.input_norm.weight") {
        steps.push(Step::Norm { name: "mm.input_norm".to_owned(), kind: NormKind::Layer, eps: PROJECTOR_EPS });
    }
    steps.push(Step::Linear { name: "mm.1".to_owned(), out: inner, bias: has("mm.1.bias") });
    steps.push(Step::Activation(GateKind::Normal));
    steps.push(Step::Linear { name: "mm.2".to_owned(), out, bias: has("mm.2.bias") });
    let positions = Positions::Antialiased { side: file.table_side()? };
    Ok(TowerSpec { positions, steps, out, merge: file.merge("projector.scale_factor")?, ..tower })
}
