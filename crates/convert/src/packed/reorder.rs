//! Groups of any columns, as GPTQ's `desc_act` has them: the columns of a group become adjacent, so that their codes stay
//! codes, and the engine gathers the matrix's inputs in that order (`X.column_order`). Experts have an order each. Their
//! down matrices need no gathering: rows of gate and up, which make the inputs, are put in the order of the columns.

use std::collections::BTreeMap;
use std::sync::Arc;

use gristmill_model::column_order;

use super::integers::{Integers, joined};
use crate::checkpoint::Checkpoint;
use crate::error::ConvertError;
use crate::mlx::Target;
use crate::rows::{RowOrder, Stored};
use crate::tensors::{OutputTensor, Source};

/// Matrices of a layer that have one input. The first two of a set must be there: where the engine multiplies one of them
/// with others, all of these must have the same order.
const SETS: [&[&str]; 7] = [
    &["attn_q", "attn_k", "attn_v", "attn_gate"],
    &["attn_output"],
    &["ffn_gate", "ffn_up"],
    &["ffn_down"],
    &["ffn_gate_shexp", "ffn_up_shexp"],
    &["ffn_down_shexp"],
    &["ffn_gate_exps", "ffn_up_exps"],
];

impl Integers {
    fn rows(&self) -> usize {
        self.layout.rows
    }

    /// The columns in the order of their groups, if each group but the last has its number of columns.
    fn sorted_columns(&self) -> Option<Arc<[u32]>> {
        let order = self.order.as_ref()?;
        let mut columns: Vec<u32> = (0..order.len() as u32).collect();
        columns.sort_by_key(|&column| order[column as usize]);
        let is_whole = |(place, &column): (usize, &u32)| order[column as usize] as usize == place / self.group;
        columns.iter().enumerate().all(is_whole).then(|| columns.into())
    }
}

/// Puts the columns of matrices in the order of their groups, where all matrices with one input agree, and adds that order.
pub(crate) fn reorder(planned: &mut Vec<OutputTensor>, checkpoint: &Checkpoint) -> Result<(), ConvertError> {
    let mut sets: BTreeMap<(String, usize), Vec<usize>> = BTreeMap::new();
    for (index, tensor) in planned.iter().enumerate() {
        let Some((layer, part)) = tensor.name.strip_suffix(".weight").and_then(|name| name.rsplit_once('.')) else {
            continue;
        };
        if let Some(set) = SETS.iter().position(|set| set.contains(&part)) {
            sets.entry((layer.to_owned(), set)).or_default().push(index);
        }
    }
    for ((layer, set), matrices) in sets {
        let is_there = |start: String| planned.iter().any(|tensor| tensor.name.starts_with(&start));
        let is_whole = SETS[set].iter().take(2).all(|part| is_there(format!("{layer}.{part}.weight")));
        // The gates of a delta rule are rows of the same matrix.
        if !is_whole || set == 0 && is_there(format!("{layer}.ssm_")) {
            continue;
        }
        let Some(columns) = agreed(matrices.iter().map(|&index| &planned[index])) else { continue };
        for index in matrices {
            let tensor = &mut planned[index];
            let Source::Tensors { parts, format, .. } = &mut tensor.source else { continue };
            let mut formats = Vec::new();
            for part in parts.iter_mut() {
                let Stored::Integers(integers) = part else { continue };
                integers.columns = Some(columns.clone());
                formats.push(integers.format(checkpoint, Target::Engine)?);
            }
            let all = parts.iter().filter_map(Stored::integers).zip(formats);
            *format = joined(all, Target::Engine).unwrap_or(*format);
            let name = column_order(&tensor.name);
            let shape = vec![columns.len() as u64];
            let source = Source::Values(columns.iter().map(|&column| column as f32).collect());
            planned.push(OutputTensor { name, shape, source });
        }
    }
    reorder_experts(planned, checkpoint)
}

/// Puts the columns of each expert's down matrix in the order of their groups, and the rows of its gate and up likewise.
fn reorder_experts(planned: &mut [OutputTensor], checkpoint: &Checkpoint) -> Result<(), ConvertError> {
    const DOWN: &str = ".ffn_down_exps.weight";
    let layers: Vec<String> =
        planned.iter().filter_map(|tensor| tensor.name.strip_suffix(DOWN).map(str::to_owned)).collect();
    for layer in layers {
        let find = |part: &str| planned.iter().position(|tensor| tensor.name == format!("{layer}.{part}"));
        let matrices = ["ffn_down_exps.weight", "ffn_gate_exps.weight", "ffn_up_exps.weight"].map(find);
        let [Some(down), Some(gate), Some(up)] = matrices else { continue };
        // Biases have the rows of the folder.
        if find("ffn_gate_exps.bias").or(find("ffn_up_exps.bias")).is_some() {
            continue;
        }
        let Some(orders) = codes(&mut planned[down]).and_then(|experts| {
            experts.into_iter().map(|expert| expert.sorted_columns().filter(|_| expert.is_scattered())).collect()
        }) else {
            continue;
        };
        let orders: Vec<Arc<[u32]>> = orders;
        let fits = |tensor: &mut OutputTensor| {
            codes(tensor).is_some_and(|experts| {
                experts.len() == orders.len()
                    && experts.iter().zip(&orders).all(|(expert, order)| expert.rows() == order.len())
            })
        };
        if !fits(&mut planned[gate]) || !fits(&mut planned[up]) {
            continue;
        }
        for index in [gate, up] {
            let experts = codes(&mut planned[index]).into_iter().flatten();
            experts.zip(&orders).for_each(|(expert, order)| expert.rows = Some(order.clone()));
        }
        let mut formats = Vec::new();
        for (expert, order) in codes(&mut planned[down]).into_iter().flatten().zip(&orders) {
            expert.columns = Some(order.clone());
            formats.push(expert.format(checkpoint, Target::Engine)?);
        }
        if let Source::Tensors { parts, format, .. } = &mut planned[down].source {
            let all = parts.iter().filter_map(Stored::integers).zip(formats);
            *format = joined(all, Target::Engine).unwrap_or(*format);
        }
    }
    Ok(())
}

/// The codes of all parts of a tensor, if all are codes whose rows stay as they are.
fn codes(tensor: &mut OutputTensor) -> Option<Vec<&mut Integers>> {
    match &mut tensor.source {
        Source::Tensors { parts, rows, .. } if rows.order == RowOrder::Same => parts
            .iter_mut()
            .map(|part| match part {
                Stored::Integers(integers) => Some(&mut **integers),
                _ => None,
            })
            .collect(),
        _ => None,
    }
}

/// The order of the columns of all parts of these tensors, if they have one.
fn agreed<'a>(mut tensors: impl Iterator<Item = &'a OutputTensor> + Clone) -> Option<Arc<[u32]>> {
    let parts = |tensor: &'a OutputTensor| match &tensor.source {
        Source::Tensors { parts, rows, .. } if !matches!(rows.order, RowOrder::Columns { .. }) => parts.as_slice(),
        _ => &[],
    };
    let first = tensors.clone().find_map(|tensor| parts(tensor).first()?.integers())?;
    let is_same = |part: &Stored| part.integers().is_some_and(|integers| integers.order == first.order);
    let all = tensors.all(|tensor| !parts(tensor).is_empty() && parts(tensor).iter().all(is_same));
    first.sorted_columns().filter(|_| all)
}
