//! A device as far as plans depend on it.

use super::thresholds::Thresholds;
use crate::family::Family;
use crate::options::Choice;
use gristmill_gpu::Properties;

/// A device, and how a backend chooses kernels for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Card {
    /// The compute capability, 90 for 9.0.
    pub(super) architecture: u32,
    /// At least 1.
    pub(super) multiprocessors: usize,
    /// Shared memory that a block can have, in bytes.
    pub(super) shared_bytes: usize,
    /// How kernels are chosen.
    pub(crate) choice: Choice,
}

impl Card {
    pub(crate) fn new(properties: &Properties, choice: Choice) -> Self {
        Self {
            architecture: properties.architecture,
            multiprocessors: properties.multiprocessors.max(1) as usize,
            shared_bytes: properties.shared_bytes as usize,
            choice,
        }
    }

    /// Where kernels become the fastest on such a card.
    pub(super) fn thresholds(&self) -> &'static Thresholds {
        Thresholds::of(self.architecture)
    }

    /// Whether kernels of a family may multiply where they are the fastest.
    pub(crate) fn may(&self, family: Family) -> bool {
        match self.choice {
            Choice::Fastest => true,
            Choice::Deterministic => false,
            Choice::Family(own) => own == family,
        }
    }

    /// Whether the device has the instructions of a family.
    pub(super) fn runs(&self, family: Family) -> bool {
        family.runs_on(self.architecture)
    }

    /// Whether a row's result must not depend on the number of rows.
    pub(crate) fn is_deterministic(&self) -> bool {
        self.choice == Choice::Deterministic
    }
}
