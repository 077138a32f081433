//! Factors that settings state and files have in their weights.

use std::ops::Range;

use gristmill_kernels::format::Format;

use super::checkpoint::Checkpoint;
use super::error::ConvertError;
use super::family::Factor;
use super::keys::needed;
use super::rows::{RowPlan, Stored};
use super::tensors::Planner;

/// Adjacent rows with the same factors: the row after the last, and the factors. Values are multiplied by one after the other.
pub(super) type Factors = Vec<(usize, Vec<f32>)>;

/// Rows of floats, each times its factors. The products are F32.
#[derive(Clone)]
pub(super) struct Times {
    pub(super) stored: Stored,
    /// The format of the rows.
    pub(super) from: Format,
    factors: Factors,
}

impl Stored {
    /// The rows, whose format is this one, times factors. `None` if they are not floats.
    pub(super) fn times(self, from: Format, factors: Factors) -> Option<Stored> {
        let is_float = [Format::F32, Format::F16, Format::BF16].contains(&from);
        is_float.then(|| Stored::Times(Box::new(Times { stored: self, from, factors })))
    }
}

impl Times {
    /// See [`Stored::gather`].
    pub(super) fn gather(&self, checkpoint: &Checkpoint, rows: &RowPlan, some: Range<usize>, out: &mut Vec<u8>) {
        let mut gathered = Vec::new();
        self.stored.gather(checkpoint, rows, some.clone(), self.from, &mut gathered);
        out.clear();
        let mut values = vec![0.0; rows.columns];
        for (row, bytes) in some.zip(gathered.chunks_exact((rows.columns * self.from.block_bytes()).max(1))) {
            let factors = self.factors.iter().find(|(end, _)| row < *end).map(|(_, factors)| factors.as_slice());
            // Bytes of a row have its number of values.
            let _ = self.from.decode(bytes, &mut values);
            for factor in factors.unwrap_or_default() {
                values.iter_mut().for_each(|value| *value *= factor);
            }
            out.extend_from_slice(bytemuck::cast_slice(&values));
        }
    }
}

impl Planner<'_, '_> {
    /// The factors of `rows` rows.
    pub(super) fn factors(&self, factors: &[Factor], rows: usize) -> Result<Factors, ConvertError> {
        let mut parts: Factors = vec![(rows, Vec::new())];
        for factor in factors {
            let of_all = match *factor {
                Factor::One(setting) => self.config.number(setting)?,
                Factor::Of(setting, at) => {
                    let Some(list) = self.config.numbers(setting)? else { continue };
                    let found = || self.config.wrong(setting, &list.len().into(), "a factor for each matrix");
                    Some(list.get(at).copied().ok_or_else(found)?)
                }
                Factor::ScanInputs(setting) => {
                    let Some(list) = self.config.numbers(setting)? else { continue };
                    let ends = self.scan_inputs()?;
                    let before = parts.pop().unwrap_or_default().1;
                    if list.len() != ends.len() {
                        let expected = format!("a factor for each of the {} inputs", ends.len());
                        return Err(self.config.wrong(setting, &list.len().into(), expected));
                    }
                    let part = |(end, factor): (usize, f64)| (end, [&before[..], &[factor as f32]].concat());
                    parts = ends.into_iter().zip(list).map(part).collect();
                    None
                }
            };
            if let Some(factor) = of_all {
                parts.iter_mut().for_each(|(_, factors)| factors.push(factor as f32));
            }
        }
        Ok(parts)
    }

    /// The row after the last one of each input of a selective scan: the gate, values, B, C and Δ.
    fn scan_inputs(&self) -> Result<[usize; 5], ConvertError> {
        let count = |setting| needed(self.config, setting).map(|count| count as usize);
        let values = match self.config.count("mamba_d_ssm")? {
            Some(values) => values as usize,
            None => count("mamba_expand")?.saturating_mul(count("hidden_size")?),
        };
        let state = count("mamba_n_groups")?.saturating_mul(count("mamba_d_state")?);
        let mut end = 0_usize;
        Ok([values, values, state, state, count("mamba_n_heads")?].map(|rows| {
            end = end.saturating_add(rows);
            end
        }))
    }
}
