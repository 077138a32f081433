//! Running a case on a backend and on the reference, and comparing.

use crate::dry::is_dry;
use crate::rng::Rng;
use gristmill_kernels::Backend;
use gristmill_kernels::act::Precision;
use gristmill_kernels::format::Format;
use gristmill_kernels::reference::Reference;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

/// Numbers of threads whose results must be the same bytes. To a simulated GPU each is an order of its threads.
pub const THREADS: [usize; 4] = [1, 2, 3, 7];

/// Numbers of threads, next to the first, with which a case is run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeats {
    /// None: for backends without threads.
    None,
    /// One of them, drawn for each case: among the cases of an operation each number comes up, and among runs each
    /// case meets each number.
    One,
    /// All of them.
    All,
}

/// Makes a backend with this number of threads.
pub type Make<'a> = &'a dyn Fn(usize) -> gristmill_kernels::Result<Backend>;

/// The result of a case.
#[derive(Clone, Debug, Default)]
pub struct Output {
    /// Compared by the tolerance.
    pub floats: Vec<f32>,
    /// Compared exactly.
    pub words: Vec<u32>,
}

impl From<Vec<f32>> for Output {
    fn from(floats: Vec<f32>) -> Self {
        Self { floats, words: Vec::new() }
    }
}

impl From<Vec<u32>> for Output {
    fn from(words: Vec<u32>) -> Self {
        Self { floats: Vec::new(), words }
    }
}

/// Squared normal errors of mean 1 exceed 1 + this about once in a million cases.
pub const NORMAL: f64 = 20.0;

/// The same as [`NORMAL`] for squares of products of two normals: errors that a random factor multiplies. |z₁ z₂|
/// exceeds t with a probability of about √(2 / π t) · e⁻ᵗ, which is a millionth at t = 12.3.
pub const PRODUCT: f64 = 150.0;

/// How far from the reference floats may be.
#[derive(Clone, Copy, Debug)]
pub enum Tolerance {
    /// The same bits.
    Exact,
    /// Normalised mean squared error: Σ(got − reference)² / Σ reference².
    Nmse {
        /// For many outputs.
        bound: f64,
        /// Few outputs may be unlucky: the bound for n of them is `bound · (1 + unlucky / n)`. See [`NORMAL`] and
        /// [`PRODUCT`].
        unlucky: f64,
        /// Mean square that outputs are expected to have: few outputs may all be near zero by cancellation.
        energy: f64,
    },
}

/// The largest error of one kind of case.
#[derive(Clone, Copy, Debug)]
pub struct Worst {
    /// The kind.
    pub kind: &'static str,
    /// Its normalised mean squared error.
    pub nmse: f64,
    /// The error that is allowed.
    pub bound: f64,
}

/// Formats of [`Suite::quick`]: of Q4_K_M files and of routers.
const QUICK_FORMATS: [Format; 3] = [Format::F32, Format::Q4_K, Format::Q6_K];

/// A backend under test, once for each number of threads, with the reference next to it.
pub struct Suite {
    seed: u64,
    /// One in this number of cases is run.
    one_in: usize,
    /// How a case is repeated with other numbers of threads.
    repeats: Repeats,
    /// Formats of weights that matrix operations are tested with.
    formats: Vec<Format>,
    precisions: Vec<Precision>,
    reference: Backend,
    backends: Vec<Backend>,
    /// The largest error of each kind of case, with its bound.
    worst: Mutex<BTreeMap<&'static str, (f64, f64)>>,
}

impl Suite {
    /// Makes the backends.
    ///
    /// # Errors
    /// What `make` says, for instance that the CPU has no such level.
    pub fn new(make: Make, seed: u64) -> gristmill_kernels::Result<Self> {
        let backends = THREADS.iter().map(|&threads| make(threads)).collect::<Result<_, _>>()?;
        let formats = Format::ALL.to_vec();
        let precisions = vec![Precision::Exact, Precision::Fast];
        Ok(Self {
            seed,
            one_in: 1,
            repeats: Repeats::All,
            formats,
            precisions,
            reference: Reference::backend(),
            backends,
            worst: Mutex::default(),
        })
    }

    /// Runs the cases with the formats of most models, and once: enough to find a device, driver or compiler that computes
    /// wrong results, without the kernels of all formats.
    #[must_use]
    pub fn quick(self) -> Self {
        self.of_formats(QUICK_FORMATS.to_vec()).repeated(Repeats::None)
    }

    /// Runs only one in this number of cases, other cases with each seed: for slow backends.
    #[must_use]
    pub fn one_in(mut self, one_in: usize) -> Self {
        self.one_in = one_in;
        self
    }

    /// Repeats cases with other numbers of threads as often as this says.
    #[must_use]
    pub fn repeated(mut self, repeats: Repeats) -> Self {
        self.repeats = repeats;
        self
    }

    /// Multiplies weights of these formats alone, with activations of one precision: for backends that refuse the
    /// others.
    #[must_use]
    pub fn multiplying(mut self, formats: Vec<Format>, precision: Precision) -> Self {
        (self.formats, self.precisions) = (formats, vec![precision]);
        self
    }

    /// Multiplies only weights of these formats.
    #[must_use]
    pub fn of_formats(mut self, formats: Vec<Format>) -> Self {
        self.formats = formats;
        self
    }

    /// Multiplies weights of at most `count` formats alone, which the seed draws: each format costs a test the time to
    /// compile its kernels for a simulator, and to run them.
    #[must_use]
    pub fn drawn_formats(mut self, count: usize) -> Self {
        let order = Rng::of_part(self.seed, "formats").shuffled(self.formats.len());
        let drawn = order.into_iter().take(count).map(|at| self.formats[at as usize]).collect();
        self.formats = drawn;
        self
    }

    /// Formats of weights that are multiplied.
    pub fn formats(&self) -> &[Format] {
        &self.formats
    }

    /// Precisions of activations that weights are multiplied with.
    pub fn precisions(&self) -> &[Precision] {
        &self.precisions
    }

    /// Cycles through them.
    pub fn precision(&self, turn: usize) -> Precision {
        self.precisions[turn % self.precisions.len()]
    }

    /// The cases that are run: all of them, or by chance one in N, but at least one.
    pub fn some<T>(&self, part: &str, cases: impl IntoIterator<Item = T>) -> Vec<T> {
        let rng = &mut self.rng(&format!("some of {part}"));
        let mut cases: Vec<T> = cases.into_iter().collect();
        if self.one_in > 1 && !cases.is_empty() {
            let kept = rng.below(cases.len());
            let mut at = 0..;
            cases.retain(|_| rng.chance(1.0 / self.one_in as f64) | (at.next() == Some(kept)));
        }
        cases
    }

    /// The backend with one thread.
    pub fn backend(&self) -> &Backend {
        &self.backends[0]
    }

    /// The largest error of each kind of case so far, relative to what is allowed.
    pub fn errors(&self) -> Vec<Worst> {
        let worst = self.worst.lock().unwrap_or_else(PoisonError::into_inner);
        worst.iter().map(|(&kind, &(nmse, bound))| Worst { kind, nmse, bound }).collect()
    }

    /// Random numbers of a part of the suite.
    pub fn rng(&self, part: &str) -> Rng {
        Rng::of_part(self.seed, part)
    }

    /// Fails with all that is needed to see the failure again.
    pub fn fail(&self, case: &dyn Display, why: impl Display) -> ! {
        panic!("{}, case {case}: {why}\nto repeat: seed {}", self.backend().name(), self.seed)
    }

    /// Runs a case everywhere: near the reference with one thread, and the same bytes with other numbers of threads
    /// ([`Repeats`]). Returns the result.
    pub fn check(
        &self,
        kind: &'static str,
        case: &dyn Display,
        tolerance: Tolerance,
        run: &dyn Fn(&Backend) -> Output,
    ) -> Output {
        if is_dry() {
            // It launches what there is to launch; what its zeros break is of no interest.
            let _ = catch_unwind(AssertUnwindSafe(|| run(self.backend())));
            return run(&self.reference);
        }
        let expected = run(&self.reference);
        let got = run(self.backend());
        self.compare(kind, case, tolerance, &expected, &got);
        let others = self.others(&format!("{kind} {case}"));
        for (backend, threads) in self.backends.iter().zip(THREADS).skip(1).skip(others.start).take(others.len()) {
            self.same(&format_args!("{case}, {threads} threads"), &got, &run(backend));
        }
        got
    }

    /// The numbers of threads after the first with which a case is repeated.
    fn others(&self, case: &str) -> Range<usize> {
        let others = THREADS.len() - 1;
        match self.repeats {
            Repeats::None => 0..0,
            Repeats::All => 0..others,
            Repeats::One => {
                let other = self.rng(case).below(others);
                other..other + 1
            }
        }
    }

    /// Fails unless the outputs have the same bits. NaNs are equal, because their payload is unspecified.
    pub fn same(&self, case: &dyn Display, a: &Output, b: &Output) {
        if is_dry() {
            return;
        }
        let equal = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
        if a.words != b.words {
            self.fail(case, format_args!("other words: {:?} and {:?}", head(&a.words), head(&b.words)));
        }
        let at = a.floats.iter().zip(&b.floats).position(|pair| !equal(pair));
        if let Some(i) = at {
            self.fail(case, format_args!("other bits at {i}: {} and {}", a.floats[i], b.floats[i]));
        }
        if a.floats.len() != b.floats.len() {
            self.fail(case, format_args!("{} and {} floats", a.floats.len(), b.floats.len()));
        }
    }

    /// Fails unless an output is within tolerance of the expected one.
    pub fn compare(
        &self,
        kind: &'static str,
        case: &dyn Display,
        tolerance: Tolerance,
        expected: &Output,
        got: &Output,
    ) {
        if is_dry() {
            return;
        }
        let Tolerance::Nmse { bound, unlucky, energy } = tolerance else { return self.same(case, expected, got) };
        if expected.words != got.words || expected.floats.len() != got.floats.len() {
            self.same(case, expected, got);
        }
        let (mut error, mut power, mut count) = (0.0, 0.0, 0_usize);
        for (i, (&e, &g)) in expected.floats.iter().zip(&got.floats).enumerate() {
            if e.is_finite() != g.is_finite() {
                self.fail(case, format_args!("output {i} is {g}, must be {e}"));
            }
            if e.is_finite() {
                error += (f64::from(e) - f64::from(g)).powi(2);
                power += f64::from(e).powi(2);
                count += 1;
            }
        }
        if count == 0 {
            return;
        }
        let nmse = error / power.max(energy * count as f64).max(f64::MIN_POSITIVE);
        let bound = bound * (1.0 + unlucky / count as f64);
        if let Ok(mut worst) = self.worst.lock() {
            let entry = worst.entry(kind).or_insert((nmse, bound));
            if nmse / bound > entry.0 / entry.1 {
                *entry = (nmse, bound);
            }
        }
        if nmse > bound {
            self.fail(case, format_args!("NMSE {nmse:.2e} of {count} outputs exceeds {bound:.2e}"));
        }
    }
}

fn head<T>(values: &[T]) -> &[T] {
    &values[..values.len().min(12)]
}
