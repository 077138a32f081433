//! `glm4v`: the tower of GLM-4.1V, 4.5V and 4.6V. Patches are normalised before a table of positions is added, which is resized
//! to the picture; RoPE by rows and columns. A convolution makes one token of 2 × 2 patches, and an MLP with a gate follows.

use gristmill_kernels::ops::GateKind;

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::NormKind;
use crate::tower::spec::{PatchRope, Positions, Step, TowerSpec};

/// Added to the variance of `mm.post_norm`: the default of PyTorch.
const POST_NORM_EPS: f32 = 1e-5;

pub(crate) fn spec(file: &KeyReader) -> Result<TowerSpec> {
    let tower = file.tower()?;
    let eps = tower.norm_eps;
    let rows = |name: &str| file.rows_of(&format!("{name}.weight"));
    let fc = rows("mm.model.fc")?;
    let out = rows("mm.down")?;
    let merger = "mm.patch_merger".to_owned();
    let steps = vec![
        Step::Norm { name: "v.post_ln".to_owned(), kind: NormKind::Rms, eps },
        Step::Join,
        Step::JoinedByChannel { name: merger, out: fc, bias: true, is_convolution: true },
        Step::Linear { name: "mm.model.fc".to_owned(), out: fc, bias: false },
        Step::Norm { name: "mm.post_norm".to_owned(), kind: NormKind::Layer, eps: POST_NORM_EPS },
        Step::Activation(GateKind::Normal),
        Step::SwiGlu { names: ["mm.gate", "mm.up", "mm.down"].map(str::to_owned), inner: rows("mm.gate")?, out },
    ];
    Ok(TowerSpec {
        row_norm: Some("v.norm_embd".to_owned()),
        positions: Positions::Bicubic { side: file.table_side()? },
        rope: Some(PatchRope::RowsThenColumns { base: 10_000.0 }),
        // The key has the width of the projector's MLP.
        inner: rows("v.blk.0.ffn_gate")?,
        steps,
        out,
        merge: file.optional_merge("spatial_merge_size")?.unwrap_or(2),
        ..tower
    })
}
