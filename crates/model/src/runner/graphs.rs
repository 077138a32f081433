//! Captured forward passes of a runner.
//!
//! # Graphs
//!
//! A step of up to 256 tokens (24 in a model with slots, `Backend::largest_captured`) is padded to one of 34 sizes
//! (`Vendor::batch_bucket`). The second step of a shape is captured into a CUDA graph; later steps replay the graph.
//! Padding tokens have the id `u32::MAX`: their embedding is zero, they access no cache, and the router gives them no
//! expert. A graph's kernels depend on that bucket, on `Placement::runs` and on the bucket of
//! `Placement::context_columns`. Positions, slots and block tables are read from the device. If all rows of a step are
//! greedy and nothing changes their logits, the graph includes the sampling.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use gristmill_kernels::Backend;
use gristmill_kernels::ops::Graph;

use super::StepShape;
use crate::error::Result;

/// Tokens of the longest forward pass that is captured. Prompts have any length, and their time is not bound by
/// launches.
const LARGEST_CAPTURED: usize = 256;

/// Tokens of the largest step that is padded and captured on a backend.
pub(super) fn largest_captured(backend: &Backend) -> usize {
    LARGEST_CAPTURED.min(backend.offload().largest_captured())
}
/// Captured passes that a runner keeps; the least recently used one is replaced. A decode step has 34 sizes on CUDA,
/// each for short and for long contexts; steps with parts of prompts have more.
const MOST: usize = 256;

/// Captured forward passes, which read and write the runner's buffers.
#[derive(Debug, Default)]
pub(super) struct Graphs {
    by_shape: HashMap<StepShape, Entry>,
    /// Passes so far.
    passes: u64,
    /// Whether the device captures nothing.
    unavailable: bool,
    usage: GraphUsage,
}

#[derive(Debug)]
struct Entry {
    /// `None` after the first pass of a shape.
    graph: Option<Box<dyn Graph>>,
    last_pass: u64,
}

/// The captured forward passes of a runner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GraphUsage {
    /// Captures so far.
    pub captures: usize,
    /// Device memory that was free before captures and their first replays and not after, in bytes.
    pub bytes: u64,
    /// Time that captures took.
    pub time: Duration,
}

impl Graphs {
    /// Graphs of passes that no device can capture.
    pub(super) fn unavailable() -> Self {
        Self { unavailable: true, ..Self::default() }
    }

    pub(super) fn usage(&self) -> GraphUsage {
        self.usage
    }

    /// Runs a pass. The first pass of a shape is not captured; the second is captured, and later ones replay it. A
    /// shape that occurs once costs no capture.
    pub(super) fn run(
        &mut self,
        backend: &Backend,
        shape: StepShape,
        pass: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        if self.unavailable || shape.has_pictures || shape.tokens > largest_captured(backend) {
            return pass();
        }
        self.passes += 1;
        let last_pass = self.passes;
        match self.by_shape.get_mut(&shape) {
            Some(entry) => {
                entry.last_pass = last_pass;
                match &entry.graph {
                    Some(graph) => Ok(graph.replay()?),
                    None => self.capture(backend, shape, pass),
                }
            }
            None => {
                pass()?;
                self.make_place();
                self.by_shape.insert(shape, Entry { graph: None, last_pass });
                Ok(())
            }
        }
    }

    /// Captures and replays a pass, or runs it where the device captures nothing.
    fn capture(&mut self, backend: &Backend, shape: StepShape, pass: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        let free = backend.free_memory()?;
        let begin = Instant::now();
        let mut outcome = Ok(());
        let graph = backend.capture(&mut || {
            outcome = pass();
            Ok(())
        })?;
        outcome?;
        let Some(graph) = graph else {
            self.unavailable = true;
            self.by_shape.clear();
            return pass();
        };
        graph.replay()?;
        let taken = free.zip(backend.free_memory()?).map_or(0, |(before, after)| before.saturating_sub(after));
        self.usage.captures += 1;
        self.usage.bytes += taken;
        self.usage.time += begin.elapsed();
        self.by_shape.entry(shape).and_modify(|entry| entry.graph = Some(graph));
        Ok(())
    }

    fn make_place(&mut self) {
        if self.by_shape.len() < MOST {
            return;
        }
        let oldest = self.by_shape.iter().min_by_key(|(_, entry)| entry.last_pass).map(|(shape, _)| *shape);
        oldest.and_then(|shape| self.by_shape.remove(&shape));
    }
}
