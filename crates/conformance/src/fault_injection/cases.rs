//! Cases of the op suite that run in checked mode, and what they see.

use super::calls::Call;
use crate::families;
use crate::ops::{self};
use crate::simulated::{Simulator, order};
use crate::suite::Suite;
use gpu_sim::{Language, Mode};
use gristmill_cuda::family::Family;
use gristmill_cuda::{Choice, Cuda, Options};
use gristmill_kernels::Backend;
use gristmill_kernels::act::Precision;
use gristmill_kernels::format::Format;
use gristmill_metal::Metal;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// To what products are limited, or the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Only {
    /// To nothing.
    Any,
    /// To kernels of a family, and what it takes.
    Family(Family),
    /// To weights and activations.
    These(Format, Precision),
    /// A deterministic backend.
    Deterministic,
}

impl Only {
    pub(super) fn options(self) -> Options {
        match self {
            Self::Family(family) => Options { choice: Choice::Family(family) },
            Self::Deterministic => Options { choice: Choice::Deterministic },
            _ => Options::default(),
        }
    }

    pub(super) fn limited(self, suite: Suite) -> Suite {
        match self {
            Self::Any | Self::Deterministic => suite,
            Self::Family(family) => families::limited(suite, family),
            Self::These(format, precision) => suite.multiplying(vec![format], precision),
        }
    }
}

/// Some cases of a part of the suite.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cases {
    pub(super) language: Language,
    pub(super) part: &'static str,
    pub(super) only: Only,
    /// One in N, by this seed.
    pub(super) one_in: usize,
    pub(super) seed: u64,
}

/// Runs cases in checked mode, with some sources replaced; the devices, and the suite's message if it failed.
pub(super) fn run(cases: Cases, instead: &[(&'static str, String)]) -> (Vec<Arc<Simulator>>, Option<String>) {
    let simulators = Mutex::new(Vec::new());
    let make = |threads| -> gristmill_kernels::Result<Backend> {
        let simulator = Simulator::with(cases.language, order(threads), Mode::Checked, instead.to_vec());
        simulators.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&simulator));
        Ok(match cases.language {
            Language::Cuda => Cuda::backend(simulator, cases.only.options())?,
            Language::Metal => Metal::backend(simulator, gristmill_metal::Options::default())?,
        })
    };
    let suite = cases.only.limited(Suite::new(&make, cases.seed).expect("a simulator").one_in(cases.one_in));
    let panic = catch_unwind(AssertUnwindSafe(|| ops::part(cases.part).expect("a part")(&suite))).err();
    let message = panic.map(|panic| {
        let message = panic.downcast_ref::<String>().cloned();
        message.or_else(|| panic.downcast_ref::<&str>().map(|&message| message.to_owned())).unwrap_or_default()
    });
    (simulators.into_inner().unwrap_or_else(PoisonError::into_inner), message)
}

/// Sources and lines that some cases reach.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) cases: Cases,
    /// Sources, with their includes.
    pub(super) files: BTreeSet<&'static str>,
    /// Lines at which threads waited.
    pub(super) lines: BTreeSet<(String, u32)>,
    pub(super) time: Duration,
}

impl Seen {
    /// Looks at cases in which nothing is changed.
    ///
    /// # Errors
    /// Something is noticed.
    pub(super) fn new(cases: Cases) -> Result<Self, String> {
        let begin = Instant::now();
        let (simulators, noticed) = run(cases, &[]);
        let time = begin.elapsed();
        match noticed {
            Some(message) => Err(format!("nothing is changed, but {} notices: {message}", cases.part)),
            None => {
                let files = simulators.iter().flat_map(|simulator| simulator.files()).collect();
                let lines = simulators.iter().flat_map(|simulator| simulator.passed()).collect();
                Ok(Self { cases, files, lines, time })
            }
        }
    }

    pub(super) fn comes_to(&self, file: &str, call: &Call) -> bool {
        self.files.contains(file) && (!call.is_reported() || self.lines.contains(&(file.to_owned(), call.line as u32)))
    }
}
