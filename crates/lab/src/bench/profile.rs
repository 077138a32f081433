//! `--profile`: where the time of prefill and decode goes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use gristmill_cpu::{Cpu, Level, Profile, Record};
use gristmill_kernels::Backend;
use serde::Serialize;

use super::machine::Machine;
use super::measure::Ran;
use crate::error::LabError;

/// A CPU whose operations are measured.
///
/// # Errors
/// If the machine lacks the level.
pub fn backend(level: Level, threads: usize, profile: Arc<Profile>) -> Result<Arc<Backend>, LabError> {
    let cpu = Cpu::new(level, threads)?;
    Ok(Arc::new(Backend::new(cpu.profiled(profile))))
}

/// The operations of all repetitions of prefill or of decode.
#[derive(Debug, Serialize)]
pub struct Phase {
    /// Wall-clock time of the forward passes.
    seconds: f64,
    /// The longest first.
    operations: Vec<Line>,
    /// Time outside of operations.
    between_seconds: f64,
    /// Share of `seconds` in which each thread worked in operations, the caller's thread first.
    working: Vec<f64>,
}

/// One operation with weights of one format and shape.
#[derive(Debug, Serialize)]
struct Line {
    operation: &'static str,
    weight: String,
    calls: usize,
    seconds: f64,
    /// Share of the phase.
    share: f64,
    bytes: f64,
    operations: f64,
    bytes_per_second: f64,
    operations_per_second: f64,
    /// The time max(bytes / bandwidth, operations / rate), as a share of `seconds`. Bytes from a cache can exceed 1.
    fraction_of_limit: f64,
    /// Share of `seconds` in which each thread worked; it waited during the rest.
    working: Vec<f64>,
}

impl Phase {
    /// `None` without a repetition.
    pub(crate) fn new(runs: &[Ran], machine: &Machine) -> Option<Phase> {
        let seconds: f64 = runs.iter().map(|ran| ran.seconds).sum();
        (!runs.is_empty()).then(|| Phase::of(seconds, runs.iter().flat_map(|ran| &ran.records), machine))
    }

    /// The operations of this time.
    pub(crate) fn of<'a>(seconds: f64, records: impl Iterator<Item = &'a Record>, machine: &Machine) -> Phase {
        let records = merge(records);
        let within: f64 = records.iter().map(|record| record.time.as_secs_f64()).sum();
        let mut worked = vec![Duration::ZERO; records.first().map_or(0, |record| record.working.len())];
        for record in &records {
            worked.iter_mut().zip(&record.working).for_each(|(sum, working)| *sum += *working);
        }
        Phase {
            seconds,
            operations: records.into_iter().map(|record| Line::new(record, seconds, machine)).collect(),
            between_seconds: (seconds - within).max(0.0),
            working: worked.iter().map(|worked| worked.as_secs_f64() / seconds).collect(),
        }
    }
}

/// Sums the records of one operation and weight; the longest first.
fn merge<'a>(records: impl Iterator<Item = &'a Record>) -> Vec<Record> {
    let mut sums: BTreeMap<(&str, &str), Record> = BTreeMap::new();
    for record in records {
        match sums.get_mut(&(record.operation, record.weight.as_str())) {
            Some(sum) => sum.add(record),
            None => {
                sums.insert((record.operation, &record.weight), record.clone());
            }
        }
    }
    let mut sums: Vec<Record> = sums.into_values().collect();
    sums.sort_by_key(|record| std::cmp::Reverse(record.time));
    sums
}

impl Line {
    fn new(record: Record, phase: f64, machine: &Machine) -> Line {
        let Record { operation, weight, calls, time, work, working } = record;
        // An operation may take less than the clock's resolution.
        let seconds = time.as_secs_f64().max(1e-9);
        let least = (work.bytes / machine.read_bytes_per_second).max(work.operations / machine.ops_per_second);
        Line {
            operation,
            weight,
            calls,
            seconds,
            share: seconds / phase,
            bytes: work.bytes,
            operations: work.operations,
            bytes_per_second: work.bytes / seconds,
            operations_per_second: work.operations / seconds,
            fraction_of_limit: least / seconds,
            working: working.iter().map(|working| working.as_secs_f64() / seconds).collect(),
        }
    }
}

/// Shares as percentages, one after another.
fn percentages(shares: &[f64]) -> String {
    shares.iter().map(|share| format!("{:4.0}%", 100.0 * share)).collect()
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = ["calls", "share", "MB/call", "Mop/call", "GB/s", "Gop/s", "reached"];
        let [calls, share, bytes, ops, byte_rate, op_rate, reached] = head;
        write!(f, "{:40} {calls:>6} {share:>6} {bytes:>8} {ops:>9} {byte_rate:>6} {op_rate:>6} {reached:>7}", "")?;
        writeln!(f, "  each thread works")?;
        for line in &self.operations {
            let calls = line.calls as f64;
            write!(f, "{:40} {calls:>6}", format!("{} {}", line.operation, line.weight))?;
            write!(f, " {:>5.1}% {:>8.3}", 100.0 * line.share, line.bytes / calls / 1e6)?;
            write!(f, " {:>9.2} {:>6.1}", line.operations / calls / 1e6, line.bytes_per_second / 1e9)?;
            write!(f, " {:>6.0} {:>6.0}%", line.operations_per_second / 1e9, 100.0 * line.fraction_of_limit)?;
            writeln!(f, " {}", percentages(&line.working))?;
        }
        writeln!(f, "{:40} {:>6} {:>5.1}%", "(between operations)", "", 100.0 * self.between_seconds / self.seconds)?;
        writeln!(f, "{:40} {:>6} {:>5.1}% {:47} {}", "all", "", 100.0, "", percentages(&self.working))
    }
}
