//! The heads of a gated delta rule, whose order in files differs from that of transformers.

use super::config::Config;
use super::error::ConvertError;
use super::family::{DeltaInput, ValueHeads};
use super::keys::needed;
use super::rows::{RowOrder, RowPlan};

/// Numbers and widths of heads. Products of two fit 64 bits.
struct Heads {
    keys: usize,
    values: usize,
    key_width: usize,
    value_width: usize,
}

/// Rows or columns that a tensor should have, as a phrase.
pub(super) type Expected = String;

impl Heads {
    fn read(config: &Config) -> Result<Heads, ConvertError> {
        const VALUES: &str = "linear_num_value_heads";
        let count = |setting| needed(config, setting).map(|count| count as usize);
        let (keys, values) = (count("linear_num_key_heads")?, count(VALUES)?);
        if keys == 0 || values == 0 || !values.is_multiple_of(keys) {
            return Err(config.wrong(VALUES, &values.into(), format!("a multiple of the {keys} key heads")));
        }
        let (key_width, value_width) = (count("linear_key_head_dim")?, count("linear_value_head_dim")?);
        Ok(Heads { keys, values, key_width, value_width })
    }
}

/// The order of the rows or columns of a tensor of this shape (outermost dimension first), or what it should have.
///
/// # Errors
/// If settings are missing or contradict each other.
pub(super) fn value_heads(
    config: &Config,
    place: ValueHeads,
    shape: &[u64],
) -> Result<Result<RowPlan, Expected>, ConvertError> {
    let Heads { keys, values, key_width, value_width } = Heads::read(config)?;
    let [outer, inner] = match *shape {
        [rows] => [rows, 1],
        [rows, columns] => [rows, columns],
        _ => return Ok(Err("which is no vector or matrix".to_owned())),
    };
    let (first, width, dim) = match place {
        ValueHeads::Single => (0, 1, outer),
        ValueHeads::Rows => (0, value_width, outer),
        ValueHeads::RowsAfterKeys => ((2 * keys).saturating_mul(key_width), value_width, outer),
        ValueHeads::Columns => (0, value_width, inner),
    };
    let wanted = first.saturating_add(values.saturating_mul(width));
    if width == 0 || dim != wanted as u64 {
        let part = if place == ValueHeads::Columns { "columns" } else { "rows" };
        return Ok(Err(format!("whose {part} are not the {wanted} of {values} value heads")));
    }
    // A tensor of a file has these elements.
    let [outer, inner] = [outer as usize, inner as usize];
    let shared = values / keys;
    Ok(Ok(match place {
        // Each row is one of `values` rows of a head's columns.
        ValueHeads::Columns => {
            let order = RowOrder::Tiled { first, keys, shared, width: 1 };
            RowPlan { count: outer * values, columns: width, order }
        }
        _ => RowPlan { count: outer, columns: inner, order: RowOrder::Tiled { first, keys, shared, width } },
    }))
}

/// The rows of these inputs of a matrix of this shape, which has those of each key head together; or what the matrix
/// should have.
///
/// # Errors
/// If settings are missing or contradict each other.
pub(super) fn key_heads(
    config: &Config,
    inputs: &[DeltaInput],
    shape: &[u64],
) -> Result<Result<RowPlan, Expected>, ConvertError> {
    let Heads { keys, values, key_width, value_width } = Heads::read(config)?;
    let of_values = (values / keys).saturating_mul(value_width);
    let group = key_width.saturating_add(of_values).saturating_mul(2);
    let wanted = keys.saturating_mul(group);
    let &[rows, columns] = shape else { return Ok(Err("which is not a matrix".to_owned())) };
    if rows != wanted as u64 {
        return Ok(Err(format!("whose rows are not the {wanted} of {keys} key heads with their value heads")));
    }
    let mut parts = [(0, 0); 3];
    for (part, input) in parts.iter_mut().zip(inputs) {
        *part = match input {
            DeltaInput::Queries => (0, key_width),
            DeltaInput::Keys => (key_width, key_width),
            DeltaInput::Values => (2 * key_width, of_values),
            DeltaInput::Gates => (2 * key_width + of_values, of_values),
        };
    }
    let count = parts.iter().map(|(_, width)| keys * width).sum();
    Ok(Ok(RowPlan { count, columns: columns as usize, order: RowOrder::Parts { groups: keys, group, parts } }))
}
