//! Kernels with one thing changed: what of the op suite notices it, in checked mode.

mod bugs;

pub use bugs::{BUGS, Bug};

use crate::ops::{ALL, Part};
use crate::rng::Rng;
use crate::simulated::{Simulator, order, texts};
use crate::suite::Suite;
use gpu_sim::Mode;
use gristmill_kernels::gpu::cuda::Cuda;
use gristmill_kernels::ops::Backend;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A part of the suite, by name.
fn part(name: &str) -> Part {
    let found = ALL.iter().find(|(known, _)| *known == name).map(|(_, cases)| *cases);
    found.unwrap_or_else(|| panic!("no part {name}"))
}

/// Runs a part of the suite, one in so many cases, with another text in the place of `name`: what was noticed.
///
/// # Panics
/// If the changed text does not compile: then nothing is shown.
pub fn notice(name: &'static str, text: &str, of: &str, one_in: usize) -> Option<String> {
    let make = |threads| -> gristmill_kernels::Result<Box<dyn Backend>> {
        let simulator = Simulator::with(order(threads), Mode::Checked, vec![(name, text.to_owned())]);
        Ok(Box::new(Cuda::new(simulator)?))
    };
    let suite = Suite::new(&make, Rng::fresh_seed()).expect("a simulator").one_in(one_in);
    let panic = catch_unwind(AssertUnwindSafe(|| part(of)(&suite))).err()?;
    let message = panic.downcast_ref::<String>().cloned();
    let message = message.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned())).unwrap_or_default();
    assert!(!message.contains("does not compile"), "the changed {name}: {message}");
    Some(message)
}

/// How many of the cases are run until something is noticed: one in so many, some times. By chance a bug may not show in
/// few of them; at last all are tried.
const TRIES: [usize; 6] = [1000, 1000, 1000, 1000, 12, 1];

/// The first of these parts that notices another text in the place of `name`, and what it notices.
pub fn first_notice(name: &'static str, text: &str, parts: &[&'static str]) -> Option<(&'static str, String)> {
    TRIES.iter().find_map(|&one_in| parts.iter().find_map(|&part| Some((part, notice(name, text, part, one_in)?))))
}

/// Plants a bug: what is noticed, or why it counts as missed.
///
/// # Errors
/// The text has changed, nothing is noticed, or something of another kind.
pub fn plant(bug: &Bug) -> Result<String, String> {
    let Bug { file, find, replace, part, kinds } = *bug;
    let text = texts().iter().find(|(known, _)| *known == file).map(|(_, text)| text);
    let Some(text) = text.filter(|text| text.contains(find)) else {
        return Err(format!("{file} has no {find:?} any more: plant another bug"));
    };
    let found = first_notice(file, &text.replacen(find, replace, 1), &[part]).map(|(_, message)| message);
    let first = found.as_deref().unwrap_or("nothing").lines().next().unwrap_or_default().to_owned();
    match kinds.iter().any(|kind| first.contains(&format!("({kind:?})"))) {
        true => Ok(first),
        false => Err(format!("{file}: {find:?} → {replace:?} must be {kinds:?}, was: {first}")),
    }
}

/// Why a bug counts as missed.
pub fn missed(bug: &Bug) -> Option<String> {
    plant(bug).err()
}

/// What a part of the suite runs.
#[derive(Clone, Debug)]
pub struct Runs {
    /// The part.
    pub part: &'static str,
    /// The texts that its kernels include.
    pub texts: BTreeSet<&'static str>,
    /// How long one in so many of its cases took.
    pub time: Duration,
}

/// Which texts each part of the suite runs, as seen in one in so many of its cases; the quickest part first.
pub fn runs(one_in: usize) -> Vec<Runs> {
    let mut all: Vec<Runs> = (ALL.iter())
        .filter(|(name, _)| !name.starts_with("refuse") && *name != "sample_distribution")
        .map(|&(part, cases)| {
            let simulators = Mutex::new(Vec::new());
            let make = |threads| -> gristmill_kernels::Result<Box<dyn Backend>> {
                let simulator = Simulator::new(order(threads), Mode::Fast);
                simulators.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&simulator));
                Ok(Box::new(Cuda::new(simulator)?))
            };
            let begin = Instant::now();
            let suite = Suite::new(&make, Rng::fresh_seed()).expect("a simulator").one_in(one_in);
            cases(&suite);
            let simulators = simulators.lock().unwrap_or_else(PoisonError::into_inner);
            let texts = simulators.iter().flat_map(|simulator| simulator.texts()).collect();
            Runs { part, texts, time: begin.elapsed() }
        })
        .collect();
    all.sort_by_key(|runs| runs.time);
    all
}

/// A call in a text that orders threads or memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Line, from 1.
    pub line: usize,
    /// The call.
    pub call: String,
    /// Its bytes in the text, and what stands there when it is gone.
    pub at: std::ops::Range<usize>,
    /// As above.
    pub instead: &'static str,
}

/// The words that order, and what is left of each without its order. The first that fits counts.
const WORDS: &[(&str, &str)] = &[
    ("__syncthreads_or(", "("),
    ("__syncthreads_and(", "("),
    ("__syncthreads(", ""),
    ("__syncwarp(", ""),
    ("warp_barrier(", ""),
    ("barrier(", ""),
    ("cp_async_wait<", ""),
    ("dependency_wait(", ""),
    ("named_barrier_sync(", ""),
    ("named_barrier_arrive(", ""),
    ("mbarrier_wait(", ""),
    ("fence_async(", ""),
    ("wgmma_fence(", ""),
    ("wgmma_wait<", ""),
];

/// Every call of a text that orders threads or memory; definitions of such words, and comments, are none.
pub fn orders(text: &str) -> Vec<Order> {
    let (mut found, mut begin) = (Vec::new(), 0);
    for (number, line) in (1..).zip(text.split_inclusive('\n')) {
        let code = line.split("//").next().unwrap_or_default();
        for (word, instead) in WORDS {
            for (at, _) in code.match_indices(word) {
                let part_of_a_word = |c: char| c.is_alphanumeric() || c == '_';
                let before = &code[..at];
                if before.ends_with(part_of_a_word) || before.ends_with("void ") {
                    continue;
                }
                // A call with its parentheses, which may hold others; of a vote only the word goes.
                let (mut end, mut open) = (at + word.len(), i32::from(word.ends_with('(')));
                while instead.is_empty() && !(open == 0 && code[..end].ends_with(')')) {
                    let Some(next) = code[end..].chars().next() else { break };
                    open += i32::from(next == '(') - i32::from(next == ')');
                    end += next.len_utf8();
                }
                let call = code[at..end].to_owned();
                let instead = if instead.is_empty() { "((void)0)" } else { instead };
                found.push(Order { line: number, call, at: begin + at..begin + end, instead });
            }
        }
        begin += line.len();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_found() {
        let text = "DEV void barrier() { __syncthreads(); }  // not barrier()\n    if (a) warp_barrier(); else barrier();\n\
                    cp_async_wait<N - 2>();\n if (__syncthreads_or(f(x))) mbarrier_wait(at(1), p);\n";
        let found: Vec<(usize, String, &str)> =
            orders(text).into_iter().map(|order| (order.line, text[order.at].to_owned(), order.instead)).collect();
        let nothing = "((void)0)";
        let expected = [
            (1, "__syncthreads()", nothing),
            (2, "warp_barrier()", nothing),
            (2, "barrier()", nothing),
            (3, "cp_async_wait<N - 2>()", nothing),
            (4, "__syncthreads_or(", "("),
            (4, "mbarrier_wait(at(1), p)", nothing),
        ];
        assert_eq!(found, expected.map(|(line, call, instead)| (line, call.to_owned(), instead)));
    }
}
