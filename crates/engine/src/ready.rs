//! Kernels compiled before the first request: the steps of a runner go once through a device that only notes launches.

use gristmill_kernels::Backend;
use gristmill_kernels::ops::Argmax;

use crate::error::Result;
use crate::limits::Limits;
use crate::load::Progress;
use crate::model::{Model, PassOutputs, Scratch, forward};
use crate::plan::Plan;
use crate::state::State;

impl Model {
    /// Compiles the kernels that runners and engines with these limits need, on a GPU. Kernels that this machine has
    /// never compiled are compiled several at a time; without this call each is compiled at its first use. `progress`
    /// gets the number of kernels that are ready. On a CPU this does nothing.
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
        let (spec, most, rows) = (&self.spec, limits.batch_tokens, limits.rows());
        let plan = Plan::loaded(spec, limits, self.precision, backend)?;
        plan.check()?;
        let rotaries = self.weights.rotaries(spec, plan.context, backend)?;
        let mut state = State::new(backend, spec, limits, plan.context)?;
        let mut scratch = Scratch::new(backend, spec, self.precision, most, rows)?;
        for tokens in sizes(most) {
            for rows in sizes(rows.min(tokens)) {
                // Hidden states come on the way to logits.
                let outputs = PassOutputs::Logits { rows };
                forward(backend, self, &rotaries, &mut state, &mut scratch, tokens, outputs, &mut |_, _| Ok(()))?;
            }
        }
        let mut drawn = backend.alloc::<u32>(rows, "sampled tokens")?;
        let (x, out) = (scratch.logits.view(rows, spec.vocab)?, drawn.view_mut(rows, 1)?);
        Ok(backend.run(Argmax { x, out })?)
    }
}

/// The powers of two up to a number, and the number.
fn sizes(most: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(1_usize), |n| n.checked_mul(2)).take_while(move |&n| n < most).chain([most])
}

#[cfg(test)]
mod tests {
    use super::sizes;

    #[test]
    fn sizes_end_with_the_most() {
        assert_eq!(sizes(1).collect::<Vec<_>>(), [1]);
        assert_eq!(sizes(8).collect::<Vec<_>>(), [1, 2, 4, 8]);
        assert_eq!(sizes(100).collect::<Vec<_>>(), [1, 2, 4, 8, 16, 32, 64, 100]);
    }
}
