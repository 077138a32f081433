//! Whether it pays to copy missed experts to slots.
//!
//! A copy reads as many bytes of host memory as the CPU's product that it can save, and both share the memory's bandwidth. So copies
//! pay if an expert is chosen at least once more often than the expert that it replaces. Without reuse (as with random choices), they
//! only slow the CPU: 0.83 of the speed without slots, one slot of 128, Qwen3-30B-A3B, H100.

/// The mean gain of copies: how much more often a copied expert was chosen than the one that it replaced, within
/// [`TOKENS`](super::resident::TOKENS) tokens.
#[derive(Debug, Default)]
pub(super) struct Admission {
    mean: f64,
    copies: u32,
    /// Missed experts that were not copied since the last one that was.
    skipped: u32,
}

/// The gain from which on all missed experts are copied.
const PAYS: f64 = 1.0;
/// Copies before the mean counts, and copies over which it is taken.
const FEWEST: u32 = 64;
const MOST: u32 = 256;
/// Copy 1 in N missed experts while copies do not pay off, so that a change of the text is noticed.
const ONE_OF: u32 = 16;

impl Admission {
    /// Adds the gains of copies.
    pub(super) fn learn(&mut self, gains: impl IntoIterator<Item = i64>) {
        for gain in gains {
            self.copies = (self.copies + 1).min(MOST);
            self.mean += (gain as f64 - self.mean) / f64::from(self.copies);
        }
    }

    /// Whether to copy a missed expert.
    pub(super) fn admits(&mut self) -> bool {
        self.skipped += 1;
        let admits = self.copies < FEWEST || self.mean >= PAYS || self.skipped >= ONE_OF;
        if admits {
            self.skipped = 0;
        }
        admits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(admission: &mut Admission) -> usize {
        (0..1600).filter(|_| admission.admits()).count()
    }

    #[test]
    fn few_experts_are_copied_while_copies_do_not_pay() {
        let mut admission = Admission::default();
        admission.learn([-3; 63]);
        assert_eq!(admitted(&mut admission), 1600, "too few copies to know");
        admission.learn([2, -2, 1, 0]);
        assert_eq!(admitted(&mut admission), 100);
        admission.learn([4; 256]);
        assert_eq!(admitted(&mut admission), 1600, "the text has changed");
        admission.learn([0; 2000]);
        assert_eq!(admitted(&mut admission), 100);
    }
}
