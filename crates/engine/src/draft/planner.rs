//! Plans how many draft tokens each sequence gets in a step, from measured times and acceptance.
//!
//! A step of S sequences generates S tokens, and one more for each accepted draft token. Draft tokens cost time: to make
//! them, and to check them in more rows. The planner ranks all draft tokens by their chance of acceptance, and takes as
//! many as maximise the expected tokens of a step divided by its measured time. If no number has a higher rate than a
//! step without draft tokens, there are none.
//!
//! Both sides are measured online. Where the plan does not measure something by itself, it is tried rarely:
//! - Without draft tokens, each sequence gets one after [`RETRY`] steps, because the text can become predictable. Each
//!   failure doubles the wait, up to [`MAX_RETRY`]: as a draft token costs less than a step, this costs less than 1.6%.
//!   After a success, which made a step faster, the next try follows after [`SOON`] steps.
//! - With draft tokens, one step in [`REFRESH`] has none, because the time of a step grows with the context.
//! - Numbers of draft tokens that were never measured are tried from one for each sequence on, doubling.
//!
//! What this costs is bounded: the time that draft tokens have cost so far, and that the next step can cost if none is
//! accepted, is at most [`BUDGET`] of the time of all steps. A number that was never measured can cost a step more, and
//! what the device needs once for a new kind of step. So the first tries follow some steps without draft tokens, and none
//! follows in a short text if captures take long.

use std::collections::HashMap;
use std::time::Duration;

use super::acceptance::Acceptance;
use super::times::Times;

/// Steps without draft tokens before the next try, at first, at most, and after a success.
const RETRY: u32 = 64;
const MAX_RETRY: u32 = 512;
const SOON: u32 = 4;
/// Steps with draft tokens before one without.
const REFRESH: u32 = 64;

/// The share of the time that draft tokens may cost, and how earlier steps fade in both times.
const BUDGET: f64 = 0.025;
const BUDGET_FADE: f64 = 1.0 - 1.0 / 1024.0;

/// The chance of acceptance before any is measured, and its weight in drafts. The same weight has the engine's history
/// in a request.
const CHANCE: f64 = 0.6;
const WEIGHT: f64 = 2.0;
const HISTORY_WEIGHT: f64 = 4.0;
/// How counts fade with each draft, in a request and in the engine's history.
const FADE: f64 = 0.95;
const HISTORY_FADE: f64 = 0.995;
/// What earlier counts of a request weigh when a try succeeds.
const AFTER_SUCCESS: f64 = 0.25;

/// A sequence that may get draft tokens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate<'a> {
    /// What is known of its request.
    pub(crate) acceptance: &'a Acceptance,
    /// The most draft tokens that it may get.
    pub(crate) most: usize,
}

/// A decode step that was measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measured {
    /// All sequences of the step.
    pub(crate) sequences: usize,
    /// Draft tokens that were planned, those that were found and checked, and those that were accepted.
    pub(crate) planned: usize,
    pub(crate) drafted: usize,
    pub(crate) accepted: usize,
    /// The time of the step, with the time to make its draft tokens.
    pub(crate) time: Duration,
}

/// Plans draft tokens.
#[derive(Debug)]
pub(crate) struct Planner {
    history: Acceptance,
    /// By [`group`].
    times: HashMap<usize, Times>,
    /// Steps since the last one with planned draft tokens, and since the last one without.
    undrafted: u32,
    drafted: u32,
    /// `undrafted` at which draft tokens are tried.
    retry: u32,
    /// Seconds of all steps, and those that draft tokens have cost more than they saved.
    elapsed: f64,
    lost: f64,
    /// Each step has as many draft tokens as requests and rows allow.
    always: bool,
}

impl Default for Planner {
    fn default() -> Self {
        let (history, times) = Default::default();
        let (undrafted, drafted, elapsed, lost) = (0, 0, 0.0, 0.0);
        Planner { history, times, undrafted, drafted, retry: RETRY, elapsed, lost, always: false }
    }
}

impl Planner {
    /// A planner that plans the most draft tokens for each step, if `always`.
    pub(crate) fn new(always: bool) -> Planner {
        Planner { always, ..Planner::default() }
    }

    /// A request starts, of which only the engine's history is known.
    pub(crate) fn start_request(&mut self) {
        self.retry = self.retry.min(RETRY);
    }

    /// The number of draft tokens of each candidate in a step of this number of sequences, `rows` at most in all.
    pub(crate) fn plan(&self, sequences: usize, rows: usize, candidates: &[Candidate<'_>]) -> Vec<usize> {
        if self.always {
            let mut left = rows;
            return candidates.iter().map(|one| take(&mut left, one.most)).collect();
        }
        let mut counts = vec![0; candidates.len()];
        let Some(times) = self.times.get(&group(sequences)) else { return counts };
        let Some(plain) = times.plain().filter(|_| self.drafted < REFRESH) else { return counts };
        let ranked = self.ranked(candidates);
        let measured = times.most() * grain(sequences);
        let best = |most: usize| best(times, plain, sequences, ranked.iter().map(|&(chance, _)| chance).take(most));
        let affordable = |number: usize| self.affords(times, plain, number.div_ceil(grain(sequences)));
        let number = [candidates.len().max(2 * measured), measured].into_iter().map(|most| best(most.min(rows)));
        match number.clone().find(|&number| affordable(number)) {
            None | Some(0) if self.is_due() => {
                counts.iter_mut().zip(candidates).take(rows).for_each(|(n, one)| *n = one.most.min(1));
                if !affordable(counts.iter().sum()) {
                    counts.fill(0);
                }
            }
            number => ranked[..number.unwrap_or(0)].iter().for_each(|&(_, candidate)| counts[candidate] += 1),
        }
        counts
    }

    /// Whether a step with this number of draft tokens, in which none is accepted, keeps within the budget.
    fn affords(&self, times: &Times, plain: f64, drafts: usize) -> bool {
        let cost = match drafts {
            0 => return true,
            drafts if drafts > times.most() => plain + times.start_up(),
            drafts => times.of(drafts).map_or(plain, |time| time - plain),
        };
        self.lost + cost <= BUDGET * (self.elapsed + plain)
    }

    /// All draft tokens that candidates may get: their chance of acceptance, and their candidate, the most likely first.
    fn ranked(&self, candidates: &[Candidate<'_>]) -> Vec<(f64, usize)> {
        let mut ranked = Vec::new();
        for (candidate, one) in candidates.iter().enumerate() {
            let (mut chance, mut prior) = (1.0, CHANCE);
            for place in 0..one.most {
                prior = self.history.chance(place, prior, WEIGHT);
                chance *= one.acceptance.chance(place, prior, HISTORY_WEIGHT);
                ranked.push((chance, candidate));
            }
        }
        // A stable sort: of a candidate, each token comes after those before it.
        ranked.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        ranked
    }

    /// Counts a draft of a request.
    pub(crate) fn count(&mut self, request: &mut Acceptance, drafted: usize, accepted: usize) {
        if self.is_due() && accepted > 0 {
            request.fade(AFTER_SUCCESS);
        }
        request.count(drafted, accepted, FADE);
        self.history.count(drafted, accepted, HISTORY_FADE);
    }

    /// Learns from a step.
    pub(crate) fn measure(&mut self, step: Measured) {
        let Measured { sequences, planned, drafted, accepted, time } = step;
        let times = self.times.entry(group(sequences)).or_default();
        times.add(drafted.div_ceil(grain(sequences)), time);
        let share = accepted as f64 / sequences as f64;
        let plain = times.plain();
        let added = plain.map_or(0.0, |plain| time.as_secs_f64() / plain - 1.0);
        let success = share > added;
        let lost = plain.filter(|_| drafted > 0).map_or(0.0, |plain| (added - share) * plain);
        (self.elapsed, self.lost) = (self.elapsed * BUDGET_FADE + time.as_secs_f64(), self.lost * BUDGET_FADE + lost);
        if planned == 0 {
            (self.undrafted, self.drafted) = (self.undrafted.saturating_add(1), 0);
        } else if drafted > 0 {
            self.retry = match (self.is_due(), success) {
                (true, false) => self.retry.saturating_mul(2).min(MAX_RETRY),
                (true, true) => SOON,
                (false, _) => RETRY,
            };
            (self.undrafted, self.drafted) = (0, self.drafted.saturating_add(1));
        }
        // Else the text had no earlier occurrence to draft from. A try then waits for one.
    }

    /// Whether draft tokens are tried.
    fn is_due(&self) -> bool {
        self.undrafted >= self.retry
    }
}

/// Takes up to this number of what is left.
fn take(left: &mut usize, most: usize) -> usize {
    let taken = most.min(*left);
    *left -= taken;
    taken
}

/// The number of draft tokens with the most expected tokens for each second, of tokens with these chances; 0 if no
/// number is better than none.
fn best(times: &Times, plain: f64, sequences: usize, chances: impl Iterator<Item = f64>) -> usize {
    let mut best = (1.0, 0);
    let mut expected = 0.0;
    for (number, chance) in (1_usize..).zip(chances) {
        expected += chance;
        let time = times.of(number.div_ceil(grain(sequences))).unwrap_or(plain);
        let gain = (1.0 + expected / sequences as f64) / (time / plain);
        if gain > best.0 {
            best = (gain, number);
        }
    }
    best.1
}

/// Steps with similar numbers of sequences are measured together: up to 8 each number, then four groups for each power
/// of two.
fn group(sequences: usize) -> usize {
    sequences.div_ceil(grain(sequences)) * grain(sequences)
}

/// Numbers of sequences, and of draft tokens in a step of them, are measured in multiples of this.
fn grain(sequences: usize) -> usize {
    sequences.max(1).next_power_of_two().div_ceil(8).max(1)
}

#[cfg(test)]
mod tests;
