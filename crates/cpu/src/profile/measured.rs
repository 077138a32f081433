//! The timer around each operation.

use super::record::{Profile, Record};
use super::work::Measured;
use crate::cpu::Cpu;
use gristmill_kernels::ops::Checked;
use std::sync::Arc;
use std::time::{Duration, Instant};

impl Cpu {
    /// Measures all operations from now on.
    #[must_use]
    pub fn profiled(mut self, profile: Arc<Profile>) -> Self {
        self.pool.measure();
        self.profile = Some(profile);
        self
    }

    /// Runs an operation; measures it if there is a profile.
    pub(crate) fn measured<O: Measured, R>(&self, call: Checked<O>, run: impl FnOnce(Checked<O>) -> R) -> R {
        let Some(profile) = &self.profile else { return run(call) };
        let (weight, work) = (call.weight(), call.work());
        // Jobs of other callers between the two readings would count too, so a profile serves one caller only.
        let before = self.pool.clocks();
        let begun = Instant::now();
        let done = run(call);
        let time = begun.elapsed();
        let mut working: Vec<Duration> =
            self.pool.clocks().iter().zip(&before).map(|(after, before)| after.saturating_sub(*before)).collect();
        // The caller's thread also works outside of pool jobs, so its clock counts waiting time instead.
        if let Some(caller) = working.first_mut() {
            *caller = time.saturating_sub(*caller);
        }
        profile.add(Record { operation: O::NAME, weight, calls: 1, time, work, working });
        done
    }
}
