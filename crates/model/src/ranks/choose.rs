//! Which split suits a model, its devices and the texts at once: from sizes and measured times.
//!
//! # The time of a step chooses the split
//!
//! A device reads its part of the weights at its measured rate, or computes at its measured rate if that takes longer. The slowest
//! device counts, and then the sums, by the measured time of sums of their size. Devices with layers in a row wait for each other, so
//! their times add up. Keys and values, launches and waits for the slowest expert are left out: they are alike in all splits.

use std::fmt::{self, Display, Formatter};
use std::sync::Arc;
use std::time::Duration;

use gristmill_collective::Collective;
use gristmill_files::gguf::GgufFile;
use gristmill_kernels::Backend;
use gristmill_kernels::ops::Rates;

use super::{RankPart, Split, Sums, check_layers};
use crate::error::{Error, Result};
use crate::info::ModelInfo;
use crate::limits::Limits;
use crate::load::LoadOptions;
use crate::plan::Plan;
use crate::program::node::Node;

/// What a CPU reads in a second, where nothing is measured. It only has to be right next to the time of sums.
const CPU_RATE: f64 = 40e9;

/// A split and the expected time of a step.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SplitEstimate {
    /// The split.
    pub split: Split,
    /// The time in which the slowest device reads or computes its part.
    pub device: Duration,
    /// The number of sums.
    pub sums: usize,
    /// Their time.
    pub sum_time: Duration,
    /// Whether each device has the memory for its part.
    pub fits: bool,
}

impl SplitEstimate {
    fn step(&self) -> Duration {
        self.device.saturating_add(self.sum_time)
    }
}

/// The split of a model for which the user has named none.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SplitChoice {
    /// The split.
    pub split: Split,
    /// Tokens of the step that was estimated: one for each sequence.
    pub tokens: usize,
    /// What was compared.
    pub estimates: Vec<SplitEstimate>,
}

impl Display for SplitChoice {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let tokens = if self.tokens == 1 { "1 token".to_owned() } else { format!("{} tokens", self.tokens) };
        write!(f, "{}; a step of {tokens} would take", self.split)?;
        for (at, estimate) in self.estimates.iter().enumerate() {
            let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
            let (step, sums) = (milliseconds(estimate.step()), milliseconds(estimate.sum_time));
            let comma = if at > 0 { "," } else { "" };
            write!(f, "{comma} {step:.2} ms with {} ({} sums {sums:.2} ms", estimate.split, estimate.sums)?;
            f.write_str(if estimate.fits { ")" } else { "; too little memory)" })?;
        }
        Ok(())
    }
}

/// Chooses the split of a model over devices, or over processes with one device each.
pub(crate) fn choose(
    file: &GgufFile,
    info: &ModelInfo,
    backends: &[Arc<Backend>],
    sums: &Sums,
    options: &LoadOptions,
    limits: &Limits,
) -> Result<SplitChoice> {
    let Some(first) = backends.first() else { return Err(Error::RankState) };
    let measured = first.rates()?;
    let cpu = CPU_RATE / backends.len() as f64;
    let rates = measured.unwrap_or(Rates { read_bytes_per_second: cpu, ops_per_second: f64::INFINITY });
    let site = Site { file, info, backends, sums, options, limits, rates };
    let has_experts = info.spec.routers().iter().any(|router| router.experts > 0);
    let candidates = has_experts.then_some(Split::Experts).into_iter().chain([Split::Tensor]);
    let mut estimates = candidates.map(|split| site.estimate(split)).collect::<Result<Vec<_>>>()?;
    let part =
        RankPart::own(backends.len(), &info.spec, &LoadOptions { split: Some(Split::Layers), ..site.part_options() });
    if estimates.iter().all(|estimate| !estimate.fits)
        && options.expert_load.is_none()
        && info.spec.heads.is_empty()
        && check_layers(&info.spec, &part).is_ok()
    {
        estimates.push(site.estimate(Split::Layers)?);
    }
    let tokens = limits.sequences;
    let fastest = estimates.iter().min_by_key(|estimate| (!estimate.fits, estimate.step()));
    let split = fastest.map_or(Split::Tensor, |estimate| estimate.split);
    Ok(SplitChoice { split, tokens, estimates })
}

/// The split of rank 0: each has measured times of its own.
pub(crate) fn agree(collective: &dyn Collective, own: Split) -> Result<Split> {
    let mut name = own.to_string().into_bytes();
    collective.await_broadcast(0, &mut name)?;
    String::from_utf8_lossy(&name).parse().map_err(|_| Error::RankState)
}

/// A model and its devices.
struct Site<'a> {
    file: &'a GgufFile,
    info: &'a ModelInfo,
    backends: &'a [Arc<Backend>],
    sums: &'a Sums,
    options: &'a LoadOptions,
    limits: &'a Limits,
    rates: Rates,
}

impl Site<'_> {
    /// The options that a rank's part depends on.
    fn part_options(&self) -> LoadOptions {
        let LoadOptions { group, expert_load, .. } = self.options;
        LoadOptions { group: group.clone(), expert_load: expert_load.clone(), ..LoadOptions::default() }
    }

    fn estimate(&self, split: Split) -> Result<SplitEstimate> {
        let options = LoadOptions { split: Some(split), ..self.part_options() };
        let own = RankPart::own(self.backends.len(), &self.info.spec, &options);
        let (mut device, mut fits, mut sums) = (Duration::ZERO, true, 0);
        for (at, backend) in self.backends.iter().enumerate() {
            let part = self.info.of_rank(self.file, own.of_rank(own.rank + at))?;
            fits &= Plan::new(&part, self.limits, self.options.precision, backend)?.check().is_ok();
            let work = part.program.work(self.file, &self.info.spec, self.limits.sequences);
            let read = work.bytes / self.rates.read_bytes_per_second;
            let seconds = read.max(work.operations / self.rates.ops_per_second);
            // A rate can be measured as 0.
            let time = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
            device = if split == Split::Layers { device.saturating_add(time) } else { device.max(time) };
            sums = part
                .program
                .parts()
                .flat_map(|part| &part.nodes)
                .filter(|node| matches!(node, Node::AllReduce { .. }))
                .count();
        }
        let bytes = self.limits.sequences.saturating_mul(self.info.spec.hidden * size_of::<f32>());
        let count = u32::try_from(sums).unwrap_or(u32::MAX);
        Ok(SplitEstimate { split, device, sums, sum_time: self.sums.time_of(bytes).saturating_mul(count), fits })
    }
}
