//! The results, as a table or as JSON.

use std::fmt;

use gristmill_kernels::offload::SlotUsage;
use serde::Serialize;

use super::cost::Work;
use super::machine::Machine;
use super::measure::{LayerRouting, Ran, Workload};
use super::profile::Phase;
use crate::units;

/// All results.
#[derive(Debug, Serialize)]
pub struct Report {
    pub(crate) model: String,
    pub(crate) architecture: String,
    pub(crate) layers: usize,
    pub(crate) file_bytes: u64,
    pub(crate) device: String,
    pub(crate) threads: usize,
    #[serde(flatten)]
    pub(crate) workload: Workload,
    pub(crate) repeats: usize,
    /// Which experts passes were forced to use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) routing: Option<String>,
    pub(crate) machine: Machine,
    pub(crate) prefill: Option<Row>,
    pub(crate) decode: Option<Row>,
    /// Operations of prefill and of decode, if `--profile` is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) profile: Option<[Option<Phase>; 2]>,
}

/// Prefill or decode.
#[derive(Debug, Serialize)]
pub struct Row {
    /// Tokens of one repetition, over all sequences.
    tokens: usize,
    /// Each repetition, in order.
    seconds: Vec<f64>,
    /// Tokens per second over all sequences.
    median_tokens_per_second: f64,
    min_tokens_per_second: f64,
    max_tokens_per_second: f64,
    /// Bytes and operations of one repetition at least.
    bytes: f64,
    operations: f64,
    /// Mean number of distinct experts that a step read of a layer with experts, counted in the warm-up.
    mean_distinct_experts: Option<f64>,
    /// The share of a layer's choices that its busiest expert had in the warm-up, the mean over layers with experts. An
    /// even load is 1 / experts.
    mean_busiest_share: Option<f64>,
    /// The speed at which a repetition takes max(bytes / bandwidth, operations / rate).
    limit_tokens_per_second: f64,
    /// The median speed, as a share of the limit.
    fraction_of_limit: f64,
    /// The share of the choices that were in slots, over all repetitions, and the experts that were copied to slots in one;
    /// `None` without slots, and for prompts whose experts are copied to the device.
    slot_hits: Option<f64>,
    slot_insertions: Option<f64>,
    /// Bytes of experts that a repetition read from the file, and bytes per second while reads were in flight.
    file_bytes: Option<f64>,
    file_bytes_per_second: Option<f64>,
}

impl Row {
    /// `None` without a repetition.
    pub(crate) fn new(work: &Work, routing: &[LayerRouting], seconds: Vec<f64>, machine: &Machine) -> Option<Row> {
        let (distinct, busiest): (Vec<f64>, Vec<f64>) =
            routing.iter().filter_map(|layer| Some((layer.distinct, layer.busiest_share()?))).unzip();
        let mut sorted = seconds.clone();
        sorted.sort_by(f64::total_cmp);
        let (&fastest, &slowest) = (sorted.first()?, sorted.last()?);
        let median = (sorted[(sorted.len() - 1) / 2] + sorted[sorted.len() / 2]) / 2.0;
        let least = (work.bytes / machine.read_bytes_per_second).max(work.ops / machine.ops_per_second);
        let tokens = work.tokens as f64;
        Some(Row {
            tokens: work.tokens,
            seconds,
            median_tokens_per_second: tokens / median,
            min_tokens_per_second: tokens / slowest,
            max_tokens_per_second: tokens / fastest,
            bytes: work.bytes,
            operations: work.ops,
            mean_distinct_experts: mean(&distinct),
            mean_busiest_share: mean(&busiest),
            limit_tokens_per_second: tokens / least,
            fraction_of_limit: least / median,
            slot_hits: None,
            slot_insertions: None,
            file_bytes: None,
            file_bytes_per_second: None,
        })
    }

    /// Adds how many choices were in slots.
    pub(crate) fn with_slots(mut self, runs: &[Ran]) -> Row {
        let sum =
            |of: fn(&SlotUsage) -> u64| runs.iter().filter_map(|ran| ran.slots.as_ref()).map(of).sum::<u64>() as f64;
        let (hits, misses) = (sum(|usage| usage.hits), sum(|usage| usage.misses));
        if hits + misses > 0.0 {
            self.slot_hits = Some(hits / (hits + misses));
            self.slot_insertions = Some(sum(|usage| usage.insertions) / runs.len() as f64);
        }
        let bytes = sum(|usage| usage.read_bytes);
        let seconds = sum(|usage| usage.read_nanoseconds) / 1e9;
        if seconds > 0.0 {
            self.file_bytes = Some(bytes / runs.len() as f64);
            self.file_bytes_per_second = Some(bytes / seconds);
        }
        self
    }
}

/// `None` of no values.
fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

impl Row {
    /// Median, range and share of the limit.
    pub(crate) fn brief(&self) -> String {
        let spread = format!("{:.2} .. {:.2}", self.min_tokens_per_second, self.max_tokens_per_second);
        format!("{:>10.2} {spread:>19} {:>7.0}%", self.median_tokens_per_second, 100.0 * self.fraction_of_limit)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { model, architecture, layers, device, workload, machine, .. } = self;
        writeln!(f, "{model}")?;
        writeln!(f, "{architecture}, {layers} layers, {}, on {device}", units::bytes(self.file_bytes))?;
        writeln!(f, "{machine}")?;
        let sequences = if workload.batch == 1 { "sequence" } else { "sequences" };
        writeln!(f, "{} {sequences} at depth {}, median of {}", workload.batch, workload.depth, self.repeats)?;
        self.routing.iter().try_for_each(|routing| writeln!(f, "experts forced by --routing {routing}"))?;
        writeln!(f)?;
        let head = ["", "tok/s", "min .. max", "MB/tok", "Gop/tok", "experts", "busiest", "limit", "reached"];
        let [name, speed, spread, bytes, ops, experts, busiest, limit, reached] = head;
        write!(f, "{name:14} {speed:>9} {spread:>19} {bytes:>8} {ops:>8} {experts:>8} {busiest:>8}")?;
        writeln!(f, " {limit:>9} {reached:>8}")?;
        for (name, length, row) in
            [("prefill", workload.prompt, &self.prefill), ("decode", workload.decode, &self.decode)]
        {
            if let Some(row) = row {
                let tokens = row.tokens as f64;
                let spread = format!("{:.2} .. {:.2}", row.min_tokens_per_second, row.max_tokens_per_second);
                let experts = row.mean_distinct_experts.map_or("-".to_owned(), |n| format!("{n:.1}"));
                let busiest = row.mean_busiest_share.map_or("-".to_owned(), |share| format!("{:.1}%", 100.0 * share));
                write!(f, "{:14} {:>9.2} {spread:>19}", format!("{name} {length}"), row.median_tokens_per_second)?;
                write!(f, " {:>8.1} {:>8.2}", row.bytes / tokens / 1e6, row.operations / tokens / 1e9)?;
                write!(f, " {experts:>8} {busiest:>8}")?;
                writeln!(f, " {:>9.2} {:>7.0}%", row.limit_tokens_per_second, 100.0 * row.fraction_of_limit)?;
            }
        }
        for (name, row) in [("prefill", &self.prefill), ("decode", &self.decode)] {
            let slots = row.as_ref().and_then(|row| row.slot_hits.zip(row.slot_insertions));
            let read = row.as_ref().and_then(|row| row.file_bytes.zip(row.file_bytes_per_second));
            if let (Some((hits, insertions)), None) = (slots, read) {
                write!(f, "{name}: {:.1}% of the experts were in slots, ", 100.0 * hits)?;
                writeln!(f, "{insertions:.0} were copied there in a repetition")?;
            }
            if let Some((bytes, rate)) = read {
                let [bytes, rate] = [bytes, rate].map(|bytes| units::bytes(bytes as u64));
                let hits = 100.0 * slots.map_or(0.0, |(hits, _)| hits);
                write!(f, "{name}: {hits:.1}% of the experts were in memory, {bytes} were read from the file in a ")?;
                writeln!(f, "repetition, {rate}/s while reads were in flight")?;
            }
        }
        let names = [format!("prefill {}", workload.prompt), format!("decode {}", workload.decode)];
        for (name, phase) in names.iter().zip(self.profile.iter().flatten()) {
            if let Some(phase) = phase {
                write!(f, "\n{name}, by operation, all repetitions\n{phase}")?;
            }
        }
        Ok(())
    }
}
