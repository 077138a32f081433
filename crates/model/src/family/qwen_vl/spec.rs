//! `qwen3vl_merger`: the tower of Qwen3-VL, and of Qwen 3.5 and 3.6. Positions are a table that is resized to the picture, and
//! RoPE by rows and columns. Blocks of 2 × 2 patches become one token. Qwen3-VL adds outputs of some layers to the first
//! layers of the text model.

use gristmill_kernels::ops::GateKind;

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::NormKind;
use crate::tower::spec::{PatchRope, Positions, Step, TowerSpec};

pub(crate) fn spec(file: &KeyReader) -> Result<TowerSpec> {
    let tower = file.tower()?;
    let eps = tower.norm_eps;
    let merger = |prefix: &str, norm_first: bool, [first, second]: [&str; 2]| -> Result<Vec<Step>> {
        let name = |part: &str| format!("{prefix}{part}");
        let (inner, out) =
            (file.rows_of(&format!("{}.weight", name(first)))?, file.rows_of(&format!("{}.weight", name(second)))?);
        let norm = Step::Norm {
            name: if norm_first { "v.post_ln".to_owned() } else { name("norm") },
            kind: NormKind::Layer,
            eps,
        };
        let steps = if norm_first { [norm, Step::Join] } else { [Step::Join, norm] };
        let products = [
            Step::Linear { name: name(first), out: inner, bias: true },
            Step::Activation(GateKind::Normal),
            Step::Linear { name: name(second), out, bias: true },
        ];
        Ok(steps.into_iter().chain(products).collect())
    };
    let layers = (0..tower.layers).filter(|layer| file.tensor(&format!("v.deepstack.{layer}.fc1.weight")));
    let deepstack = layers
        .map(|layer| Ok((layer, merger(&format!("v.deepstack.{layer}."), false, ["fc1", "fc2"])?)))
        .collect::<Result<_>>()?;
    Ok(TowerSpec {
        positions: Positions::Aligned { side: file.table_side()? },
        rope: Some(PatchRope::RowsThenColumns { base: 10_000.0 }),
        steps: merger("mm.", true, ["0", "2"])?,
        deepstack,
        out: file.rows_of("mm.2.weight")?,
        merge: file.merge("spatial_merge_size")?,
        ..tower
    })
}
