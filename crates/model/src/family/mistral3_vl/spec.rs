//! `pixtral`: the tower of Pixtral, Mistral Small 3.1 and later, and Ministral 3. Patches have no table of positions, only RoPE
//! by rows and columns. Without a merger each patch is a token.

use gristmill_kernels::ops::GateKind;

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::NormKind;
use crate::tower::spec::{PatchRope, Positions, Step, TowerSpec};

pub(crate) fn spec(file: &KeyReader) -> Result<TowerSpec> {
    let tower = file.tower()?;
    let eps = tower.norm_eps;
    let merge = if file.tensor("mm.patch_merger.weight") { file.merge("spatial_merge_size")? } else { 1 };
    let has = |name: &str| file.tensor(name);
    let linear = |name: &str| -> Result<Step> {
        let (out, bias) = (file.rows_of(&format!("{name}.weight"))?, has(&format!("{name}.bias")));
        Ok(Step::Linear { name: name.to_owned(), out, bias })
    };
    let mut steps = Vec::new();
    if has("mm.input_norm.weight") {
        // The text model's epsilon, which is the tower's.
        steps.push(Step::Norm { name: "mm.input_norm".to_owned(), kind: NormKind::Rms, eps });
    }
    steps.push(Step::Join);
    if merge > 1 {
        let name = "mm.patch_merger".to_owned();
        steps.push(Step::JoinedByChannel { name, out: tower.width, bias: false, is_convolution: false });
    }
    steps.extend([linear("mm.1")?, Step::Activation(GateKind::Normal), linear("mm.2")?]);
    Ok(TowerSpec {
        positions: Positions::None,
        rope: Some(PatchRope::EvenRowsOddColumns {
            base: file.number_or_zero("vision.rope.freq_base")?.unwrap_or(10_000.0),
        }),
        pre_norm: Some("v.pre_ln".to_owned()),
        steps,
        out: file.rows_of("mm.2.weight")?,
        merge,
        ..tower
    })
}
