//! Which experts of a long batch the CPU computes while the others are copied: those of few tokens.

use crate::path::PairWords;
use gristmill_gpu::{Access, Arg, Device, Region};
use gristmill_kernels::error::Result;

/// The time of an expert on the CPU, and of each of its tokens, as shares of the time to copy it: for Qwen3-30B-A3B on 16 cores that
/// read 63 GB/s, and a link of 50 GB/s. A token's share is calculated from prompts of 128 tokens, all experts on the CPU
/// (docs/benchmarks.md).
const EXPERT: f64 = 0.75;
const TOKEN: f64 = 0.13;

/// No slot, as in the table of slots.
const ABSENT: u32 = u32::MAX;

/// The experts of a layer by who computes them.
#[derive(Debug, PartialEq)]
pub(super) struct CpuSplit {
    /// For each expert, whether the CPU computes it.
    pub(super) by_cpu: Vec<bool>,
    /// For each expert, whether it is left out of the copies: the CPU computes it, or no token has it.
    pub(super) left_out: Vec<bool>,
}

impl CpuSplit {
    /// CpuSplits the experts whose copies have not started, `rest`, so that copies and the CPU take about the same time. `tokens` has the
    /// tokens of each expert, and `started` copies are started.
    pub(super) fn new(tokens: &[u32], rest: &[usize], started: usize) -> Self {
        let mut share = Self { by_cpu: vec![false; tokens.len()], left_out: vec![false; tokens.len()] };
        let mut order: Vec<usize> = rest.to_vec();
        order.sort_by_key(|&expert| tokens[expert]);
        let (unused, used) = order.split_at(order.partition_point(|&expert| tokens[expert] == 0));
        unused.iter().for_each(|&expert| share.left_out[expert] = true);
        let mut copies = (started + used.len()) as f64;
        let mut cpu = 0.0;
        for &expert in used {
            cpu += EXPERT + TOKEN * f64::from(tokens[expert]);
            copies -= 1.0;
            if cpu > copies {
                break;
            }
            (share.by_cpu[expert], share.left_out[expert]) = (true, true);
        }
        share
    }

    /// Whether the CPU computes some.
    pub(super) fn is_shared(&self) -> bool {
        self.by_cpu.contains(&true)
    }
}

/// The tokens of each of these many experts.
pub(super) fn tokens_of(ids: impl Iterator<Item = u32>, experts: usize) -> Vec<u32> {
    let mut tokens = vec![0; experts];
    ids.for_each(|id| tokens.get_mut(id as usize).into_iter().for_each(|count| *count += 1));
    tokens
}

/// Tables as those of slots, in which only some experts are absent, and the slots of pairs by them.
#[derive(Debug, Default)]
pub(super) struct SplitTables {
    /// Those that the CPU computes, and those that are copied.
    tables: Option<[Region; 2]>,
    pub(super) pairs: PairWords,
}

impl SplitTables {
    /// Uploads the tables of a layer. `copied`: whether an expert is copied.
    pub(super) fn upload(&mut self, device: &Device, share: &CpuSplit, copied: &[bool]) -> Result<[Arg<'_>; 2]> {
        let bytes = size_of_val(copied).saturating_mul(size_of::<u32>());
        if self.tables.as_ref().is_none_or(|tables| tables[0].bytes() < bytes) {
            let table = || Region::new(device.gpu(), bytes, "a table of experts");
            self.tables = Some([table()?, table()?]);
        }
        let words = |absent: &[bool]| -> Vec<u32> { absent.iter().map(|&is| if is { ABSENT } else { 0 }).collect() };
        let Some(tables) = &self.tables else { return Ok([Arg::Null; 2]) };
        for (table, absent) in tables.iter().zip([&share.by_cpu[..], copied]) {
            device.write_region(table, bytemuck::cast_slice(&words(absent)))?;
        }
        Ok(tables.each_ref().map(|table| Arg::region(table, Access::Read)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experts_of_few_tokens_are_the_cpus_until_both_take_the_same_time() {
        let tokens = [40, 0, 2, 90, 1, 60, 3, 50];
        let share = CpuSplit::new(&tokens, &[1, 2, 3, 4, 5, 6, 7], 1);
        assert_eq!(share.by_cpu, [false, false, true, false, true, false, true, false]);
        assert_eq!(share.left_out, [false, true, true, false, true, false, true, false]);
        assert!(share.is_shared());
    }

    #[test]
    fn experts_of_many_tokens_are_copied() {
        let share = CpuSplit::new(&[100; 8], &[0, 1, 2, 3, 4, 5], 2);
        assert!(!share.is_shared() && !share.left_out.contains(&true));
        assert!(!CpuSplit::new(&[1, 0], &[], 1).is_shared());
    }

    #[test]
    fn padding_is_no_token_of_an_expert() {
        assert_eq!(tokens_of([0, 2, u32::MAX, 2].into_iter(), 3), [1, 0, 2]);
    }
}
