//! `gemma4v`: the tower of Gemma 4. Patches have a table of positions for columns and one for rows, and RoPE by both; blocks of
//! patches are averaged. In the E models, products have ranges to which their inputs and outputs are clamped.
//!
//! `gemma4uv`: Gemma 4 12B has no tower. A patch has the pixels of a whole token, and norms are all that is around its product.

use gristmill_kernels::ops::GateKind;

use crate::error::{Error, Result};
use crate::family::read::KeyReader;
use crate::tower::spec::{PatchRope, Positions, STANDARD, Step, TABLE, TowerSpec};

/// Patches of a side of a block, without a key.
const MERGE: usize = 3;

/// The base of RoPE, which has no key.
const BASE: f32 = 100.0;

/// Positions of a side that are supported.
const MAX_POSITIONS: u64 = 1 << 16;

/// The projector of the model without layers.
const UNIFIED: &str = "gemma4uv";

/// The weights of its patches.
const PATCHES: &str = "v.patch_embd.weight";

/// Added to the variance in its norms of patches, which have no key.
const PATCH_EPS: f32 = 1e-5;

/// From rows to the text model.
const PROJECTION: &str = "mm.input_projection";

pub(crate) fn spec(file: &KeyReader) -> Result<TowerSpec> {
    if file.projector()? == UNIFIED {
        return unified(file);
    }
    // Files state no activation, or another.
    let tower = file.tower_with(GateKind::NormalTanh)?;
    let merge = file.optional_merge("projector.scale_factor")?.unwrap_or(MERGE);
    let out = file.rows_of(&format!("{PROJECTION}.weight"))?;
    let mut steps = vec![Step::Join, Step::Pool { scale: (tower.width as f32).sqrt() }];
    if STANDARD.iter().all(|name| file.tensor(name)) {
        steps.push(Step::Standardise);
    }
    steps.extend([Step::PlainNorm, Step::Linear { name: PROJECTION.to_owned(), out, bias: false }]);
    Ok(TowerSpec {
        positions: Positions::ColumnsAndRows { len: positions(file)? },
        rope: Some(PatchRope::ColumnsThenRows { base: BASE }),
        scale: 1.0,
        is_centred: true,
        steps,
        out,
        merge,
        ..tower
    })
}

fn unified(file: &KeyReader) -> Result<TowerSpec> {
    let out = file.rows_of(&format!("{PROJECTION}.weight"))?;
    Ok(TowerSpec {
        patch: file.patch_side_of(PATCHES)?,
        patch_norms: Some(PATCH_EPS),
        positions: Positions::ColumnsAndRows { len: positions(file)? },
        steps: vec![Step::PlainNorm, Step::Linear { name: PROJECTION.to_owned(), out, bias: false }],
        out,
        ..file.tower_without_layers(file.rows_of(PATCHES)?)?
    })
}

/// Rows of each table of positions.
fn positions(file: &KeyReader) -> Result<usize> {
    let shape = file.shape_of(TABLE);
    match shape.as_deref() {
        Some(&[_, len, 2]) if (1..=MAX_POSITIONS).contains(&len) => Ok(len as usize),
        found => Err(Error::Value {
            key: TABLE.to_owned(),
            found: format!("the shape {found:?}"),
            rule: format!("must be two tables of at most {MAX_POSITIONS} rows"),
        }),
    }
}
