//! The arithmetic of `fit`.

use gristmill_cuda::STAGING_BYTES;
use serde::Serialize;

use crate::slots::{Expected, FileRates, Layers, ReadRates, TokenBytes};
use crate::units;

/// Formats that are larger than Q8_0, which nobody needs for running a model.
const UNQUANTISED: [&str; 3] = ["F32", "F16", "BF16"];

/// A format of a model.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Its name.
    pub format: String,
    /// Bytes of the file.
    pub file: u64,
    /// Bytes of the loaded weights.
    pub weights: u64,
    /// Bytes of the weights that one token reads.
    pub active: u64,
    /// What of it is experts.
    pub experts: TokenBytes,
}

/// Where the experts of a model are that does not fit.
#[derive(Clone, Copy, Debug)]
pub struct Offload {
    /// Of the model.
    pub layers: Layers,
    /// Where the experts are, and how fast they are read.
    pub rates: Beyond,
}

/// Where experts are that have no slot.
#[derive(Clone, Copy, Debug)]
pub enum Beyond {
    /// In host memory, computed by the CPU for a GPU.
    Host(ReadRates),
    /// In the model's file, computed by the CPU.
    File(FileRates),
}

/// Experts in slots, for a format that does not fit.
#[derive(Clone, Debug, Serialize)]
pub struct SlotPlan {
    /// Slots of each layer.
    pub slots: usize,
    /// Experts of each layer.
    pub experts: usize,
    /// Bytes of host memory, or of the file.
    pub host_bytes: u64,
    /// By locality.
    pub expected: Vec<Expected>,
}

impl SlotPlan {
    /// `None` if the format fits without, or if what is no expert does not fit.
    pub fn new(candidate: &Candidate, conditions: &Conditions, offload: &Offload) -> Option<Self> {
        let Candidate { weights, experts, .. } = candidate;
        let Conditions { memory, state, other, .. } = *conditions;
        let all = weights.saturating_add(state).saturating_add(other);
        let free = memory.filter(|&memory| memory < all)?.checked_sub(all.saturating_sub(experts.experts))?;
        let Offload { layers, rates } = offload;
        let slots = |free| layers.slots(experts, free);
        let (slots, expected) = match rates {
            Beyond::Host(rates) => {
                let slots = slots(free.saturating_sub(STAGING_BYTES as u64));
                (slots, layers.expect(experts, slots, rates))
            }
            Beyond::File(rates) => {
                let slots = slots(free);
                // A product needs one.
                (slots, if slots > 0 { layers.expect_from_file(experts, slots, rates) } else { return None })
            }
        };
        Some(Self { slots, experts: layers.experts(), host_bytes: experts.experts, expected })
    }
}

/// The machine, and what is asked of it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Conditions {
    /// Tokens.
    pub context: usize,
    /// Free bytes; `None` if unknown.
    pub memory: Option<u64>,
    /// Bytes in a second.
    pub bandwidth: f64,
    /// Bytes of the KV cache with a full context.
    pub state: u64,
    /// Bytes of the vision tower, of the largest image in it and of the rows of images; 0 without a tower. Part of `other`.
    pub images: u64,
    /// Bytes next to the language model's weights and cache.
    pub other: u64,
    /// Tokens in a second that are fast enough.
    pub speed: f64,
}

/// A line of the table.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub format: String,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes of weights, cache and scratch.
    pub memory_bytes: u64,
    /// Bytes of weights that a token reads.
    pub bytes_per_token: u64,
    /// Whether the memory suffices.
    pub fits: bool,
    /// With an empty context.
    pub tokens_per_second: f64,
    /// With a full context.
    pub tokens_per_second_at_context: f64,
    /// If it does not fit on the GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<SlotPlan>,
}

impl Row {
    /// The line of a format.
    pub fn new(candidate: &Candidate, conditions: &Conditions, offload: Option<&Offload>) -> Row {
        let Candidate { format, file, weights, active, .. } = candidate;
        let memory = weights.saturating_add(conditions.state).saturating_add(conditions.other);
        let rate = |bytes: u64| conditions.bandwidth / bytes.max(1) as f64;
        Row {
            format: format.clone(),
            file_bytes: *file,
            memory_bytes: memory,
            bytes_per_token: *active,
            fits: conditions.memory.is_none_or(|free| memory <= free),
            tokens_per_second: rate(*active),
            tokens_per_second_at_context: rate(active.saturating_add(conditions.state)),
            slots: offload.and_then(|offload| SlotPlan::new(candidate, conditions, offload)),
        }
    }
}

/// The recommended format, with the reason. Rows are sorted, the largest first: more bits are nearer to the original.
pub fn recommend<'a>(rows: &'a [Row], conditions: &Conditions) -> (Option<&'a Row>, String) {
    let quantised = |row: &&Row| !UNQUANTISED.contains(&row.format.as_str()) && row.format != "this file";
    // Less than four bits cost quality: if Q4_K_M fits, no smaller format is recommended for its speed.
    let floor = rows.iter().find(|row| row.format == "Q4_K_M" && row.fits).map_or(0, |row| row.file_bytes);
    let fitting = || rows.iter().filter(quantised).filter(|row| row.fits && row.file_bytes >= floor);
    let speed = conditions.speed;
    if let Some(row) = fitting().find(|row| row.tokens_per_second >= speed) {
        let rate = row.tokens_per_second;
        return (
            Some(row),
            format!("use {}: the largest that fits and can reach {speed} tok/s ({rate:.1})", row.format),
        );
    }
    if let Some(row) = fitting().max_by(|a, b| a.tokens_per_second.total_cmp(&b.tokens_per_second)) {
        let rate = row.tokens_per_second;
        let format = &row.format;
        let faster = rows.iter().filter(quantised).find(|row| row.fits && row.tokens_per_second >= speed);
        let reason = match faster {
            Some(faster) => {
                format!("which can reach {rate:.1} tok/s; {} reaches {speed}, with worse answers", faster.format)
            }
            None => format!("but none that fits can reach {speed} tok/s (it: {rate:.1})"),
        };
        return (Some(row), format!("use {format}, {reason}"));
    }
    let least = rows.iter().map(|row| row.memory_bytes).min().unwrap_or(0);
    let free = units::bytes(conditions.memory.unwrap_or(0));
    let remedy = "use a smaller model, a shorter context (--ctx) or --kv q8_0";
    let least = units::bytes(least);
    (None, format!("none fits: the smallest needs {least}, but {free} are free; {remedy}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB: u64 = 1_000_000_000;

    fn conditions(memory: u64, bandwidth: u64) -> Conditions {
        let memory = Some(memory * GB);
        let bandwidth = (bandwidth * GB) as f64;
        Conditions { context: 8192, memory, bandwidth, state: GB, images: 0, other: GB / 2, speed: 10.0 }
    }

    fn rows(conditions: &Conditions) -> Vec<Row> {
        let one = |(format, size): (&str, u64)| {
            // A tenth of the weights serves a token.
            let experts = TokenBytes { active: size / 10, chosen: size / 20, experts: size / 2 };
            let candidate =
                Candidate { format: format.to_owned(), file: size, weights: size, active: size / 10, experts };
            Row::new(&candidate, conditions, None)
        };
        [("BF16", 60 * GB), ("Q8_0", 32 * GB), ("Q4_K_M", 18 * GB), ("Q2_K", 11 * GB)].map(one).to_vec()
    }

    #[test]
    fn rates_are_bytes_of_a_second_by_bytes_of_a_token() {
        let rows = rows(&conditions(20, 36));
        let q4 = &rows[2];
        assert_eq!((q4.memory_bytes, q4.fits, rows[1].fits), (19 * GB + GB / 2, true, false));
        assert!((q4.tokens_per_second - 20.0).abs() < 1e-9, "36 GB/s by 1.8 GB");
        assert!((q4.tokens_per_second_at_context - 36.0 / 2.8).abs() < 1e-9, "and 1 GB of cache");
    }

    #[test]
    fn the_largest_that_fits_and_is_fast_enough_is_recommended() {
        let take = |memory, bandwidth| {
            let conditions = conditions(memory, bandwidth);
            let rows = rows(&conditions);
            let (row, reason) = recommend(&rows, &conditions);
            (row.map(|row| row.format.clone()), reason)
        };
        assert_eq!(take(100, 100).0.as_deref(), Some("Q8_0"), "not the unquantised one");
        assert_eq!(take(100, 20).0.as_deref(), Some("Q4_K_M"), "Q8_0 would be too slow");
        let (row, reason) = take(100, 12);
        assert!(row.as_deref() == Some("Q4_K_M") && reason.contains("Q2_K reaches 10, with worse answers"), "{reason}");
        assert_eq!(take(15, 100).0.as_deref(), Some("Q2_K"));
        let (row, reason) = take(100, 5);
        assert!(row.as_deref() == Some("Q4_K_M") && reason.contains("none that fits can reach 10"), "{reason}");
        let (row, reason) = take(10, 100);
        assert!(row.is_none() && reason.contains("12.50 GB, but 10.00 GB are free"), "{reason}");
    }

    #[test]
    fn nothing_overflows() {
        let experts = TokenBytes { active: u64::MAX, chosen: u64::MAX, experts: u64::MAX };
        let huge = Candidate { format: String::new(), file: u64::MAX, weights: u64::MAX, active: u64::MAX, experts };
        let row = Row::new(&huge, &conditions(1, 1), None);
        assert!(!row.fits && row.tokens_per_second_at_context.is_finite());
        let none = Candidate { format: String::new(), file: 0, weights: 0, active: 0, experts: TokenBytes::default() };
        assert!(Row::new(&none, &conditions(1, 1), None).tokens_per_second.is_finite());
        assert!(recommend(&[], &conditions(1, 1)).0.is_none());
    }
}
