//! Statistics of an engine: counted by its worker, read by anybody.
//!
//! # The worker counts without waiting
//!
//! The worker counts without waiting, in relaxed atomics that only the worker writes. The count of experts needs the
//! routers' choices after each layer. A GPU would wait there, so it counts only on request.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use gristmill_kernels::offload::SlotUsage;
use gristmill_model::spec::ModelSpec;

use crate::KvUsage;

/// Statistics of an engine, as of its last step.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// Requests that wait for a sequence; of a request for embeddings, the inputs that have not started count as one.
    pub waiting: usize,
    /// Sequences in use: one for each request, or for each input of a request for embeddings.
    pub running: usize,
    /// The contents of the KV cache.
    pub kv: KvUsage,
    /// The number of requests in each step.
    pub step_requests: Distribution,
    /// The number of tokens in each step.
    pub step_tokens: Distribution,
    /// Steps that were submitted before the host had the tokens of the previous step.
    pub overlapped_steps: u64,
    /// Where the time of all steps went.
    pub times: Times,
    /// The tokens of each expert, by layer, while they were counted
    /// ([`Engine::count_experts`](crate::Engine::count_experts)).
    pub experts: Vec<ExpertLoad>,
    /// Experts in slots, if some are in host memory or in the model's file.
    pub slots: Option<SlotUsage>,
}

/// Where the time of steps went. What is neither `forward` nor `draw` is the engine's own work: scheduling, masks of
/// grammars, text, and delivery.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Times {
    /// All of it.
    pub steps: Duration,
    /// Forward passes; on a GPU only until the device has all of their work.
    pub forward: Duration,
    /// Drawing tokens; on a GPU from then until the device has done all.
    pub draw: Duration,
}

/// How often values of some sizes occurred.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Distribution {
    /// Bounds in ascending order, and how many values were at most this and more than the bound before.
    pub buckets: Vec<(u64, u64)>,
    /// The sum of all values.
    pub sum: u64,
}

impl Distribution {
    /// The number of all values.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }
}

/// The experts of one layer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExpertLoad {
    /// The layer, from 0.
    pub layer: usize,
    /// Tokens that each expert got.
    pub tokens: Vec<u64>,
}

impl ExpertLoad {
    /// The tokens of the busiest expert divided by the mean: 1 if all experts got equal numbers. `None` before any
    /// token.
    pub fn imbalance(&self) -> Option<f64> {
        let most = self.tokens.iter().max()?;
        let all = self.tokens.iter().sum::<u64>();
        (all > 0).then(|| *most as f64 * self.tokens.len() as f64 / all as f64)
    }
}

/// The counters of the worker. The worker never waits for a reader, who may see a step half counted.
#[derive(Debug)]
pub(super) struct Counters {
    waiting: AtomicUsize,
    running: AtomicUsize,
    /// The fields of [`KvUsage`].
    kv: [AtomicUsize; 3],
    step_requests: Tally,
    step_tokens: Tally,
    overlapped_steps: AtomicU64,
    /// The fields of [`Times`], in nanoseconds.
    times: [AtomicU64; 3],
    counts_experts: AtomicBool,
    /// For each layer its experts; none of a layer without.
    experts: Vec<Vec<AtomicU64>>,
}

impl Counters {
    /// For a model, and at most this number of requests and tokens in a step.
    pub(super) fn new(spec: &ModelSpec, requests: usize, tokens: usize) -> Counters {
        let counters = |count| (0..count).map(|_| AtomicU64::default()).collect();
        Counters {
            waiting: AtomicUsize::default(),
            running: AtomicUsize::default(),
            kv: Default::default(),
            step_requests: Tally::new(requests),
            step_tokens: Tally::new(tokens),
            overlapped_steps: AtomicU64::default(),
            times: Default::default(),
            counts_experts: AtomicBool::default(),
            experts: spec.routers().iter().map(|router| counters(router.experts)).collect(),
        }
    }

    /// Whether the next steps count the tokens of experts.
    pub(super) fn counts_experts(&self) -> bool {
        self.counts_experts.load(Ordering::Relaxed)
    }

    /// Turns that on or off.
    pub(super) fn count_experts(&self, on: bool) {
        self.counts_experts.store(on, Ordering::Relaxed);
    }

    /// Sets the numbers of requests that wait and run now.
    pub(super) fn now(&self, waiting: usize, running: usize, kv: KvUsage) {
        let KvUsage { used, cached, capacity } = kv;
        self.waiting.store(waiting, Ordering::Relaxed);
        self.running.store(running, Ordering::Relaxed);
        self.kv.iter().zip([used, cached, capacity]).for_each(|(now, value)| now.store(value, Ordering::Relaxed));
    }

    /// A step took so long.
    pub(super) fn took(&self, Times { steps, forward, draw }: Times) {
        // 2^64 ns are 584 years.
        let pairs = self.times.iter().zip([steps, forward, draw]);
        pairs.for_each(|(sum, time)| raise(sum, time.as_nanos() as u64));
    }

    /// A step of this number of requests and tokens; `experts` are the tokens that each layer's experts got, if they
    /// were counted.
    pub(super) fn step(&self, requests: usize, tokens: usize, experts: &[Vec<u32>]) {
        self.step_requests.add(requests);
        self.step_tokens.add(tokens);
        let pairs = self.experts.iter().flatten().zip(experts.iter().flatten());
        pairs.filter(|(_, new)| **new > 0).for_each(|(sum, new)| raise(sum, u64::from(*new)));
    }

    /// A step was overlapped.
    pub(super) fn count_overlapped(&self) {
        raise(&self.overlapped_steps, 1);
    }

    /// All of it; `slots` is counted by the device.
    pub(super) fn read(&self, slots: Option<SlotUsage>) -> Stats {
        let [used, cached, capacity] = self.kv.each_ref().map(|value| value.load(Ordering::Relaxed));
        let [steps, forward, draw] =
            self.times.each_ref().map(|time| Duration::from_nanos(time.load(Ordering::Relaxed)));
        let load = |(layer, experts): (usize, &Vec<AtomicU64>)| ExpertLoad {
            layer,
            tokens: experts.iter().map(|count| count.load(Ordering::Relaxed)).collect(),
        };
        let with_experts = self.experts.iter().enumerate().filter(|(_, experts)| !experts.is_empty());
        Stats {
            waiting: self.waiting.load(Ordering::Relaxed),
            running: self.running.load(Ordering::Relaxed),
            kv: KvUsage { used, cached, capacity },
            step_requests: self.step_requests.read(),
            step_tokens: self.step_tokens.read(),
            overlapped_steps: self.overlapped_steps.load(Ordering::Relaxed),
            times: Times { steps, forward, draw },
            experts: with_experts.map(load).collect(),
            slots,
        }
    }
}

/// Counts values in buckets whose bounds are powers of two.
#[derive(Debug)]
struct Tally {
    buckets: Vec<AtomicU64>,
    sum: AtomicU64,
}

impl Tally {
    /// For values up to `most`.
    fn new(most: usize) -> Tally {
        let buckets = (0..=bucket(most)).map(|_| AtomicU64::default()).collect();
        Tally { buckets, sum: AtomicU64::default() }
    }

    fn add(&self, value: usize) {
        self.buckets.get(bucket(value)).into_iter().for_each(|count| raise(count, 1));
        raise(&self.sum, value as u64);
    }

    fn read(&self) -> Distribution {
        let counts = self.buckets.iter().map(|count| count.load(Ordering::Relaxed));
        let buckets = counts.enumerate().map(|(bucket, count)| (1 << bucket, count)).collect();
        Distribution { buckets, sum: self.sum.load(Ordering::Relaxed) }
    }
}

/// The exponent of the least power of two that is not below a value.
fn bucket(value: usize) -> usize {
    value.max(1).next_power_of_two().trailing_zeros() as usize
}

/// Adds to a counter that only the worker writes.
fn raise(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_fall_into_their_buckets() {
        let tally = Tally::new(6);
        [1, 2, 3, 4, 5, 6, 6].into_iter().for_each(|value| tally.add(value));
        let found = tally.read();
        assert_eq!(found.buckets, [(1, 1), (2, 1), (4, 2), (8, 3)]);
        assert_eq!((found.count(), found.sum), (7, 27));
        assert_eq!(Tally::new(1).read().buckets, [(1, 0)]);
    }

    #[test]
    fn imbalance_is_the_busiest_over_the_mean() {
        let load = |tokens: &[u64]| ExpertLoad { layer: 0, tokens: tokens.to_vec() }.imbalance();
        assert_eq!(load(&[5, 5, 5]), Some(1.0));
        assert_eq!(load(&[0, 9, 0]), Some(3.0));
        assert_eq!(load(&[2, 1, 1, 0]), Some(2.0));
        assert_eq!((load(&[0, 0]), load(&[])), (None, None));
    }
}
