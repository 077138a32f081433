//! Kernels compiled before the first request: the steps of a runner go once through a device that only notes launches.

use std::sync::Arc;

use gristmill_kernels::Backend;
use gristmill_kernels::kv::BatchRuns;
use gristmill_kernels::ops::Argmax;

use crate::error::Result;
use crate::limits::Limits;
use crate::load::Progress;
use crate::model::Model;
use crate::plan::Plan;
use crate::program::run::{PassOutputs, forward, predict};
use crate::program::scratch::{ImageEnds, PictureRows, Scratch};
use crate::state::{Reuse, State};
use crate::tower::walk;

impl Model {
    /// Compiles the kernels that runners and engines with these limits need, on a GPU. Kernels that this machine has
    /// never compiled are compiled several at a time; without this call each is compiled at its first use. `progress`
    /// gets the number of kernels that were compiled, and is not called if this machine has all of them. It blocks until all are. On a CPU this does nothing.
    ///
    /// # Errors
    /// The errors of [`crate::Runner::new`], and [`crate::Error::Kernel`] if a kernel does not compile.
    pub fn make_ready(&self, limits: &Limits, mut progress: impl FnMut(Progress)) -> Result<()> {
        let mut walked = Ok(());
        let mut walk = |backend: &Backend| {
            walked = self.walk(limits, backend);
            Ok(())
        };
        let ready = self.backend.make_ready(&mut walk, &mut |done, total| {
            progress(Progress { done: done as u64, total: total as u64 });
        });
        walked?;
        Ok(ready?)
    }

    /// Runs steps of all sizes that a runner pads to, and of some sizes between.
    fn walk(&self, limits: &Limits, backend: &Backend) -> Result<()> {
        let (spec, most, rows) = (&self.own, limits.batch_tokens, limits.rows());
        let plan = Plan::loaded(self.parts_of_plan(), limits, self.precision, backend, Reuse::Prefixes)?;
        plan.check()?;
        let rotaries = self.weights.rotaries(spec, plan.context, backend)?;
        let mut state = State::new(backend, spec, limits, plan.context, Reuse::Prefixes)?;
        let mut scratch = Scratch::new(backend, &self.program.slots, self.precision, [most, rows, 0])?;
        let bucket = |n| backend.batch_bucket(n);
        let contexts = state.context_kinds(backend);
        // The runs and the context of steps of a size. Only the form of attention depends on the context, and it changes where
        // the number of tokens has doubled: a power of two is on either side.
        let kinds = |tokens: usize, runs: &[BatchRuns]| -> Vec<(BatchRuns, usize)> {
            let first = if tokens.is_power_of_two() || tokens == most { 0 } else { contexts.len() - 1 };
            contexts[first..].iter().flat_map(|&context| runs.iter().map(move |&runs| (runs, context))).collect()
        };
        // Only the output matrix depends on the number of rows, so all numbers of rows are combined with the largest
        // number of tokens.
        let by_tokens = sizes(most, bucket).map(|tokens| (tokens, rows.min(tokens)));
        for (tokens, rows) in by_tokens.chain(sizes(rows, bucket).map(|rows| (most, rows))) {
            // Hidden states come on the way to logits.
            let outputs = PassOutputs::Logits { rows };
            // A decode step has other kernels than a step of as many tokens with a part of a prompt.
            let is_decode = tokens <= bucket(limits.sequences);
            for (runs, context) in kinds(tokens, &ALL_RUNS[..1 + usize::from(is_decode)]) {
                state.suppose(runs, context);
                forward(backend, self, &rotaries, &mut state, &scratch, tokens, outputs, &mut |_, _| Ok(()))?;
            }
        }
        if !self.program.heads.is_empty() {
            for tokens in sizes(limits.sequences.min(rows).min(most), bucket) {
                for (runs, context) in kinds(tokens, &[BatchRuns::Single]) {
                    state.suppose(runs, context);
                    predict(backend, self, &self.program.heads, &rotaries, &mut state, &scratch, tokens)?;
                }
            }
        }
        if let Some(tower) = self.tower() {
            let all = tower.info.most_patches(plan.context, &limits.images);
            let of_token = tower.spec().merge.pow(2);
            let whole = |n: usize| n.next_multiple_of(of_token).min(all);
            walk(tower, backend, all, sizes(all, |n| n.next_multiple_of(of_token)).map(whole))?;
            // A step with a picture, and those after it.
            let width = spec.hidden * tower.spec().levels();
            let row = Arc::new(backend.alloc::<f32>(width, "a row of a picture")?);
            scratch.axes = self.weights.axes(spec, &rotaries, most, backend)?;
            scratch.axes.iter_mut().for_each(|axes| axes.is_on = true);
            if spec.has_whole_images() {
                let last = backend.alloc::<u32>(most, "the ends of images")?;
                scratch.ends = Some(ImageEnds { last, is_on: true });
            }
            for tokens in sizes(most, bucket).filter(|&tokens| tokens.is_power_of_two() || tokens == most) {
                let levels = tower.spec().levels();
                scratch.pictures = vec![PictureRows { rows: row.clone(), first: 0, at: 0, tokens: 1, levels }];
                for (runs, context) in kinds(tokens, &ALL_RUNS) {
                    state.suppose(runs, context);
                    let outputs = PassOutputs::Logits { rows: 1 };
                    forward(backend, self, &rotaries, &mut state, &scratch, tokens, outputs, &mut |_, _| Ok(()))?;
                }
            }
        }
        let mut sampled = backend.alloc::<u32>(rows, "sampled tokens")?;
        let (logits, out) = (scratch.rows(self.program.logits), sampled.view_mut(rows, 1)?);
        Ok(backend.run(Argmax { x: logits.view(rows, spec.vocab)?, out })?)
    }
}

/// The sizes up to `most` that are padded to, up to 256; beyond that the multiples of [`TILE`], from 4,096 on those in steps of
/// 1/128; and `most`. A device chooses kernels by the rounds of blocks that their tiles take, so a larger step can have a kernel that
/// neither a smaller nor a still larger one has: of Qwen3-30B-A3B on an H200, powers of two missed five kernels of steps between 257
/// and 1,360 tokens, and the first such step of a server waited 7 s for compilations. A step costs about 1 ms here.
fn sizes(most: usize, bucket: impl Fn(usize) -> usize) -> impl Iterator<Item = usize> {
    let padded = (1..=256).filter(move |&n| bucket(n) == n && (n <= 128 || n.is_multiple_of(TILE)));
    let more = std::iter::successors(Some(256 + TILE), |n| n.checked_add((n / 128).max(TILE).next_multiple_of(TILE)));
    padded.chain(more).take_while(move |&n| n < most).chain([most])
}

/// The runs of prompts, and of decode steps.
const ALL_RUNS: [BatchRuns; 2] = [BatchRuns::Any, BatchRuns::Single];

/// Rows of the smallest tile of products for many rows.
const TILE: usize = 16;

#[cfg(test)]
mod tests {
    use super::sizes;

    #[test]
    fn sizes_end_with_the_most() {
        let of = |most| sizes(most, |n: usize| n.next_power_of_two()).collect::<Vec<_>>();
        assert_eq!(of(1), [1]);
        assert_eq!(of(8), [1, 2, 4, 8]);
        assert_eq!(of(100), [1, 2, 4, 8, 16, 32, 64, 100]);
        assert_eq!(of(300), [1, 2, 4, 8, 16, 32, 64, 128, 256, 272, 288, 300]);
    }

    /// Any step has as many tiles as one of these.
    #[test]
    fn sizes_have_all_numbers_of_tiles() {
        for most in [257, 300, 2048, 4096, 8192] {
            let sizes: Vec<usize> = sizes(most, |n: usize| n.next_multiple_of(16)).collect();
            assert!(sizes.is_sorted_by(|a, b| a < b) && sizes.len() < 300, "{sizes:?}");
            for n in 129..=most.min(2048) {
                assert!(sizes.iter().any(|size| size.div_ceil(16) == n.div_ceil(16)), "{n} of {most}");
            }
        }
    }
}
