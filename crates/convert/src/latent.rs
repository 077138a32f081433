//! The matrices of single heads of latent attention, whose rows a checkpoint has together.

use super::config::Config;
use super::error::ConvertError;
use super::keys::needed;
use super::rows::{RowOrder, RowPlan};

/// The output shape, outermost dimension first, and the output rows of a matrix of this shape. The matrix has, for each
/// head, the rows of its key, followed by the rows of its value. Takes the key rows, transposed, if `keys`, else the
/// value rows. The inner error is what the matrix should have.
///
/// # Errors
/// If settings are missing.
pub(super) fn head_matrices(
    config: &Config,
    keys: bool,
    shape: &[u64],
) -> Result<Result<(Vec<u64>, RowPlan), String>, ConvertError> {
    let setting = |name| Ok::<_, ConvertError>(needed(config, name)? as usize);
    let (heads, of_key, of_value) =
        (setting("num_attention_heads")?, setting("qk_nope_head_dim")?, setting("v_head_dim")?);
    let head = of_key.saturating_add(of_value);
    let wanted = heads.saturating_mul(head);
    let &[rows, columns] = shape else { return Ok(Err("which is not a matrix".to_owned())) };
    if rows != wanted as u64 || heads == 0 || of_key == 0 || of_value == 0 {
        return Ok(Err(format!("whose rows are not the {wanted} of {heads} heads with keys and values")));
    }
    // A tensor of a file has these elements.
    let width = columns as usize;
    Ok(Ok(match keys {
        true => {
            let order = RowOrder::Columns { head, height: of_key, width };
            let plan = RowPlan { count: heads * width, columns: of_key, order };
            (vec![heads as u64, columns, of_key as u64], plan)
        }
        false => {
            let order = RowOrder::Parts { groups: heads, group: head, parts: [(of_key, of_value), (0, 0), (0, 0)] };
            let plan = RowPlan { count: heads * of_value, columns: width, order };
            (vec![heads as u64, of_value as u64, columns], plan)
        }
    }))
}
