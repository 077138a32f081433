//! Which cases detect a change of a kernel.

use super::bugs::Bug;
use super::calls::Call;
use super::cases::{Cases, Only, Seen, run};
use super::remembered;
use crate::families;
use crate::ops::{self, ALL};
use crate::rng::Rng;
use crate::sources;
use gpu_sim::Language;
use gristmill_cuda::family::Family;
use gristmill_kernels::act::Precision;
use gristmill_kernels::format::Format;
use std::collections::BTreeSet;
use std::iter::repeat_n;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Which cases run which source on a GPU. The suite passes them as long as nothing is changed.
#[derive(Debug)]
pub struct Map {
    language: Language,
    /// The quickest first.
    seen: Vec<Seen>,
    /// Cases of all parts were looked at.
    is_complete: bool,
}

/// Where to look for cases that run a source: the part, with the weights and activations.
const HINTS: &[(Language, &str, &str, Only)] = &[
    (Language::Cuda, "add_norm.h", "add_norm", Only::Any),
    (Language::Cuda, "add_norm.h", "add_norm_act", Only::Any),
    (Language::Cuda, "add_norm.h", "add_norms", Only::Any),
    (Language::Cuda, "attention_decode.cuh", "attention", Only::Any),
    (Language::Cuda, "attention_decode.cuh", "attention_long", Only::Deterministic),
    (Language::Cuda, "attention_latent.cu", "attention", Only::Any),
    (Language::Cuda, "attention_latent.cuh", "attention", Only::Any),
    (Language::Cuda, "attention_latent_split.cu", "attention", Only::Any),
    (Language::Cuda, "attention_neighbours.cu", "attention_long", Only::Deterministic),
    (Language::Cuda, "attention_tile.cu", "attend", Only::Any),
    (Language::Cuda, "attention_tile.cu", "attention", Only::Any),
    (Language::Cuda, "attention_tile.cu", "attention_long", Only::Any),
    (Language::Cuda, "attention_wgmma.cu", "attention", Only::Any),
    (Language::Cuda, "attention_wgmma.cu", "attention_long", Only::Any),
    (Language::Cuda, "experts.cu", "experts", Only::Any),
    (Language::Cuda, "gated_norm.h", "gated_norm", Only::Any),
    (Language::Cuda, "gated_out.cuh", "gate_up", Only::Family(Family::Int8)),
    (Language::Cuda, "gated_out.cuh", "gate_up_act", Only::Any),
    (Language::Cuda, "gated_out.cuh", "moe_gate_up", Only::Family(Family::Int8)),
    (Language::Cuda, "gemm_f32.cu", "matmul", Only::These(Format::F32, Precision::Exact)),
    (Language::Cuda, "gemm_int8_tile.cu", "gate_up", Only::Family(Family::Int8)),
    (Language::Cuda, "gemm_int8_tile.cu", "matmul", Only::Family(Family::Int8)),
    (Language::Cuda, "gemm_int8_tile.cu", "moe_gate_up", Only::Family(Family::Int8)),
    (Language::Cuda, "gemm_int8_tile.cu", "moe_matmul", Only::Family(Family::Int8)),
    (Language::Cuda, "gemm_int8_tile.cu", "moe_one_expert", Only::Family(Family::Int8)),
    (Language::Cuda, "gemm_sum.cu", "matmul", Only::Family(Family::Mma)),
    (Language::Metal, "add_norm.h", "add_norm", Only::Any),
    (Language::Metal, "experts.h", "experts", Only::Any),
    (Language::Metal, "gated_norm.h", "gated_norm", Only::Any),
];

/// Cases of a part that are run to learn which sources they run.
const LOOKS: usize = 4;

/// Cases of a part that are tried until one runs the source of a hint.
const MOST_LOOKS: usize = 100;

/// The number of parts near a call of which a round looks at more cases.
const MOST_WAYS: usize = 5;

impl Map {
    /// Looks at the cases that ran these sources in earlier runs, and at those of [`HINTS`]; at cases of all parts if some
    /// source is still without.
    ///
    /// # Errors
    /// What was noticed though nothing is changed.
    pub fn new(language: Language, wanted: &[&str]) -> Result<Self, String> {
        let mut map = Self { language, seen: Vec::new(), is_complete: false };
        let wanted: Vec<&str> = wanted.iter().copied().filter(|file| sources::has(language, file)).collect();
        let known = remembered::read().into_iter();
        let known =
            known.filter(|known| known.cases.language == language && wanted.iter().any(|file| known.runs(file)));
        map.look(&known.map(|known| known.cases).collect::<Vec<_>>())?;
        for &(_, file, part, only) in
            HINTS.iter().filter(|(known, file, ..)| *known == language && wanted.contains(file))
        {
            let is_known =
                |seen: &Seen| seen.files.contains(file) && (seen.cases.part, seen.cases.only) == (part, only);
            for _ in 0..MOST_LOOKS / LOOKS {
                if map.seen.iter().any(is_known) {
                    break;
                }
                map.look(&[(); LOOKS].map(|()| map.case(part, only)))?;
            }
        }
        if wanted.iter().any(|file| !map.seen.iter().any(|seen| seen.files.contains(file))) {
            map.complete()?;
        }
        Ok(map)
    }

    /// Looks at cases of all parts, unless that was done; with a family of CUDA's kernels alone at half as many. Returns
    /// whether it did.
    ///
    /// # Errors
    /// What was noticed though nothing is changed.
    pub fn complete(&mut self) -> Result<bool, String> {
        if self.is_complete {
            return Ok(false);
        }
        self.is_complete = true;
        let parts = ALL.iter().map(|(name, _)| *name).filter(|name| ops::is_checked(name));
        // Small products seldom take the kernels of most of these by themselves.
        let forced = Family::ALL.iter().map(|&family| Only::Family(family));
        let forced = forced.filter(|_| self.language == Language::Cuda);
        let forced = forced.flat_map(|only| families::PARTS.iter().map(move |&part| (part, only)));
        let forced = forced.flat_map(|way| repeat_n(way, LOOKS.div_ceil(2)));
        let any = parts.flat_map(|part| repeat_n((part, Only::Any), LOOKS));
        // Cases of families take longest, so they start first.
        let all: Vec<Cases> = forced.chain(any).map(|(part, only)| self.case(part, only)).collect();
        self.look(&all)?;
        Ok(true)
    }

    /// A new case.
    fn case(&self, part: &'static str, only: Only) -> Cases {
        Cases { language: self.language, part, only, one_in: 1000, seed: Rng::fresh_seed() }
    }

    /// Looks at these cases, and remembers them.
    fn look(&mut self, cases: &[Cases]) -> Result<(), String> {
        let seen = each(cases, |&cases| Seen::new(cases)).into_iter().collect::<Result<Vec<_>, _>>()?;
        self.seen.extend(seen);
        self.seen.sort_by_key(|seen| seen.time);
        remembered::add(&self.seen)
    }

    /// On which GPU.
    pub fn language(&self) -> Language {
        self.language
    }

    /// The slowest of the cases: what they are, and how long they take.
    pub fn slowest(&self) -> Option<(String, Duration)> {
        let Seen { cases: Cases { part, only, .. }, time, .. } = self.seen.last()?;
        Some((format!("{part} of {:?}, {only:?}", self.language), *time))
    }

    /// Whether some cases are known to reach a call in a source.
    pub fn comes_to(&self, file: &str, call: &Call) -> bool {
        self.seen.iter().any(|seen| seen.comes_to(file, call))
    }

    /// Looks for cases that come to calls to which none is known to come, among what comes near them, in at most so
    /// many rounds; returns how many it took.
    ///
    /// # Errors
    /// What was noticed though nothing is changed.
    pub fn look_for<'a>(
        &mut self,
        calls: impl Iterator<Item = (&'static str, &'a Call)> + Clone,
        most_rounds: usize,
    ) -> Result<usize, String> {
        let mut rounds = 0;
        while rounds < most_rounds {
            let missing =
                calls.clone().filter(|(file, call)| call.is_on(self.language, file) && !self.comes_to(file, call));
            let more: BTreeSet<_> = missing.map(|(file, call)| self.nearest(file, call)).collect();
            let more = more.into_iter().flat_map(|(file, line)| self.more(file, line)).collect::<Vec<_>>();
            if more.is_empty() {
                break;
            }
            rounds += 1;
            self.look(&more)?;
        }
        Ok(rounds)
    }

    /// For a call that no case is known to reach: its source, and the nearest line that some case reaches.
    fn nearest(&self, file: &'static str, call: &Call) -> (&'static str, Option<u32>) {
        let lines = self.seen.iter().flat_map(|seen| &seen.lines).filter(|(of, _)| of == file).map(|(_, line)| *line);
        (file, lines.min_by_key(|line| line.abs_diff(call.line as u32)))
    }

    /// More cases: of some parts that reach a line of a source, of some that run the source, and where there are none
    /// of any.
    fn more(&self, file: &'static str, line: Option<u32>) -> Vec<Cases> {
        let line = line.map(|line| (file.to_owned(), line));
        let running: Vec<&Seen> = self.seen.iter().filter(|seen| seen.files.contains(file)).collect();
        let reaching = running.iter().copied().filter(|seen| line.iter().all(|line| seen.lines.contains(line)));
        let reaching: Vec<Cases> = ways(reaching).collect();
        let others =
            if running.is_empty() { ways(self.seen.iter()).collect() } else { ways(running.into_iter()).collect() };
        [reaching, others].into_iter().flat_map(some).collect()
    }

    /// The part that notices a deleted call, and its message. The cases that reach the call come first, then more of
    /// their parts, more of all that run the source, and at last all cases of those parts.
    ///
    /// # Panics
    /// If the changed source does not compile: then nothing is shown.
    pub fn notice(&self, name: &'static str, call: &Call, source: &str) -> Option<(&'static str, String)> {
        let known = self.seen.iter().filter(|seen| seen.comes_to(name, call));
        let more = |one_in| move |way| Cases { one_in, seed: Rng::fresh_seed(), ..way };
        let again = ways(known.clone()).map(more(12)).chain(ways(known.clone()).map(more(12)));
        let running = ways(self.seen.iter().filter(|seen| seen.files.contains(name))).map(more(4));
        let all = ways(known.clone()).map(more(1));
        let cases = known.map(|seen| seen.cases).chain(again).chain(running).chain(all);
        cases.into_iter().find_map(|cases| notice(name, source, cases))
    }
}

/// One of the cases of each part and limit.
fn ways<'a>(seen: impl Iterator<Item = &'a Seen>) -> impl Iterator<Item = Cases> {
    let mut ways: Vec<Cases> = Vec::new();
    for Seen { cases, .. } in seen {
        if !ways.iter().any(|way| (way.part, way.only) == (cases.part, cases.only)) {
            ways.push(*cases);
        }
    }
    ways.into_iter()
}

/// Some of these parts, by chance, with other cases.
fn some(ways: Vec<Cases>) -> impl Iterator<Item = Cases> {
    let chosen = Rng::new(Rng::fresh_seed()).shuffled(ways.len()).into_iter().take(MOST_WAYS);
    chosen.map(move |i| Cases { seed: Rng::fresh_seed(), ..ways[i as usize] })
}

fn notice(name: &'static str, source: &str, cases: Cases) -> Option<(&'static str, String)> {
    let (_, message) = run(cases, &[(name, source.to_owned())]);
    let message = message?;
    assert!(!message.contains("does not compile"), "the changed {name}: {message}");
    Some((cases.part, message))
}

/// Does something with each, on all cores, with the results in order.
pub fn each<T: Sync, R: Send>(all: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(one) = all.get(at) else { return };
                    let result = work(one);
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((at, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Plants a bug: what is noticed, or why it counts as missed.
///
/// # Errors
/// The source has no such piece, nothing is noticed, or a fault of another kind.
pub fn plant(bug: &Bug) -> Result<String, String> {
    let Bug { language, file, find, replace, part, family, kinds } = *bug;
    let source = sources::all().iter().find(|(known, _)| *known == file).map(|(_, source)| source);
    let Some(source) = source.filter(|source| source.contains(find)) else {
        return Err(format!("{file} has no {find:?} any more: plant another bug"));
    };
    let changed = source.replacen(find, replace, 1);
    // By chance a bug may not show in few cases.
    let only = family.map_or(Only::Any, Only::Family);
    let tries = [1000, 1000, 1000, 12, 12, 1];
    let tries = tries.map(|one_in| Cases { language, part, only, one_in, seed: Rng::fresh_seed() });
    let found = tries.into_iter().find_map(|cases| notice(file, &changed, cases)).map(|(_, message)| message);
    let first = found.as_deref().unwrap_or("nothing").lines().next().unwrap_or_default().to_owned();
    match kinds.iter().any(|kind| first.contains(&format!("({kind:?})"))) {
        true => Ok(first),
        false => Err(format!("{file}: {find:?} → {replace:?} must be {kinds:?}, was: {first}")),
    }
}

/// Why a bug counts as missed.
pub fn missed(bug: &Bug) -> Option<String> {
    plant(bug).err()
}
