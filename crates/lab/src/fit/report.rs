//! The answer, as lines or as JSON.

use std::fmt::Write;

use serde::Serialize;

use super::table::{Conditions, Row, SlotPlan};
use crate::units;

/// The answer.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The name of the model.
    pub model: String,
    /// Experts of a layer, and those chosen for a token.
    pub experts: Option<(usize, usize)>,
    /// The name of the device.
    pub device: String,
    /// The machine, and what is asked of it.
    #[serde(flatten)]
    pub conditions: Conditions,
    /// Whether the rate was measured now, and not given.
    pub measured: bool,
    /// The rate of reads of experts from the file, if formats that do not fit can run so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_bytes_per_second: Option<f64>,
    /// The largest first.
    pub formats: Vec<Row>,
    /// The recommended format.
    pub recommended: Option<String>,
    /// Why.
    pub reason: String,
    /// The origin of the sizes and of the bytes of a token.
    pub assumption: String,
}

impl Report {
    /// The report in lines.
    pub fn text(&self) -> String {
        let Conditions { context, memory, bandwidth, state, images, .. } = self.conditions;
        let experts = self.experts.map_or("dense".to_owned(), |(all, used)| format!("{used} of {all} experts a token"));
        let memory = memory.map_or("unknown memory".to_owned(), |memory| format!("{} of memory", units::bytes(memory)));
        let measured = if self.measured { "measured now" } else { "as given" };
        let mut out = format!("model: {}, {experts}\n", printable(&self.model));
        let _ =
            writeln!(out, "device: {}, {memory}, reads {}/s ({measured})", self.device, units::bytes(bandwidth as u64));
        let token = units::bytes(state / context.max(1) as u64);
        let _ = writeln!(out, "cache: {} for {context} tokens, {token} a token", units::bytes(state));
        if images > 0 {
            let _ = writeln!(out, "images: {} for the vision tower and the largest image", units::bytes(images));
        }
        let _ = writeln!(
            out,
            "\n{:<10} {:>10} {:>10}  {:<4} {:>8} {:>14}",
            "format",
            "file",
            "memory",
            "fits",
            "tok/s",
            format!("at {context}")
        );
        for row in &self.formats {
            let fits = if row.fits { "yes" } else { "no" };
            let [file, memory] = [row.file_bytes, row.memory_bytes].map(units::bytes);
            let _ = writeln!(
                out,
                "{:<10} {file:>10} {memory:>10}  {fits:<4} {:>8.1} {:>14.1}",
                printable(&row.format),
                row.tokens_per_second,
                row.tokens_per_second_at_context
            );
        }
        let _ = writeln!(out, "\n{}", self.reason);
        out + &self.slots() + &self.assumption + "\n"
    }

    /// The formats that do not fit, with their experts in slots.
    fn slots(&self) -> String {
        let rows = || self.formats.iter().filter_map(|row| Some((row, row.slots.as_ref()?)));
        let Some((_, SlotPlan { expected, .. })) = rows().next() else { return String::new() };
        let (mut out, place, assumption) = match self.file_bytes_per_second {
            None => {
                let heading = "\nwith experts in host memory, and those chosen last in slots on the GPU:\n";
                (heading.to_owned(), "host", SLOTS_ASSUMPTION)
            }
            Some(rate) => {
                let rate = units::bytes(rate as u64);
                let heading = "with experts in the file, which gives";
                (
                    format!("\n{heading} {rate}/s (measured now), and those used last in memory:\n"),
                    "file",
                    FILE_ASSUMPTION,
                )
            }
        };
        let _ = write!(out, "{:<10} {:>10} {:>9}", "format", place, "slots");
        for it in expected {
            let _ = write!(out, " {:>15}", it.reuse);
        }
        out += "\n";
        for (row, SlotPlan { slots, experts, host_bytes, expected }) in rows() {
            let host = units::bytes(*host_bytes);
            let slots = format!("{slots}/{experts}");
            let _ = write!(out, "{:<10} {host:>10} {slots:>9}", printable(&row.format));
            for it in expected {
                let text = format!("{:.0}% {:.1} tok/s", 100.0 * it.hits, it.tokens_per_second);
                let _ = write!(out, " {text:>15}");
            }
            out += "\n";
        }
        out + assumption
    }
}

/// The origin of the numbers of slots.
const SLOTS_ASSUMPTION: &str = "\
The columns are texts that use the same experts again as little as chance, as
Gemma 4 26B (weak), and as Qwen3-30B-A3B (strong): the share of choices in
slots, and tokens per second from the rates above, with the time of a layer that
was measured on an H100 with 16 cores (docs/benchmarks.md).

";

/// The origin of the numbers of experts in the file.
const FILE_ASSUMPTION: &str = "\
The columns are texts that use the same experts again as little as chance, as
Gemma 4 26B (weak), and as Qwen3-30B-A3B (strong): the share of choices in
memory, and tokens per second from the rates above.

";

/// A name of a file without control characters.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// The origin of the numbers, in lines. `hub` is the name of the file that was read, if sizes are the hub's.
pub fn assumption(hub: Option<&str>) -> String {
    let common = "\
tok/s is the most that the memory allows one reply, with an empty context and
with a full one: each token reads its weights and its part of the cache from
memory once. Measured rates are 55 to 90% of it on CPUs and about a quarter on
an H200 (docs/benchmarks.md), and may be above it for a model that fits into the
processor's caches. Memory is weights, cache of the context and scratch.";
    match hub {
        None => common.to_owned(),
        Some(name) => {
            format!(
                "{common}\nSizes are the hub's; the share of them that a token reads is that of {}.",
                printable(name)
            )
        }
    }
}
