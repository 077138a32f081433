//! How ranks sum: on their devices, if these have a library of collectives that works, else through host memory.

use std::fmt::{self, Display, Formatter};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use gristmill_collective::{Collective, threads};
use gristmill_kernels::ops::Graph;
use gristmill_kernels::tensor::Buffer;
use gristmill_kernels::{Backend, Error as KernelError, Result as KernelResult};

use crate::error::Result;
use crate::load::LoadOptions;

use super::{DEADLINE, Split};

/// How long the first sums of devices may take together.
const TRIAL: Duration = Duration::from_secs(60);
/// Bytes of the sums that are measured.
const MEASURED: [usize; 3] = [4 << 10, 64 << 10, 8 << 20];
/// Sums of a measurement.
const REPEATS: u32 = 8;

/// How the devices of a model sum.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Sums {
    /// The devices' library of collectives with its version; `None` if sums go through host memory.
    pub library: Option<String>,
    /// Why the devices do not sum by themselves, although devices of their kind can.
    pub refusal: Option<String>,
    /// The time of a sum: bytes, and how long it took before the model was loaded.
    pub measured: Vec<(usize, Duration)>,
}

impl Sums {
    /// Sums through host memory.
    pub(crate) fn on_host(refusal: Option<String>) -> Self {
        Self { library: None, refusal, measured: Vec::new() }
    }

    /// The time of a sum of so many bytes, between those that were measured.
    pub(crate) fn time_of(&self, bytes: usize) -> Duration {
        let Some(&(_, least)) = self.measured.first() else { return Duration::ZERO };
        let above =
            self.measured.iter().position(|(size, _)| *size >= bytes).unwrap_or(self.measured.len().saturating_sub(1));
        let [Some((low, before)), Some((high, after))] =
            [above.checked_sub(1), Some(above)].map(|at| self.measured.get(at?))
        else {
            return least;
        };
        let share = bytes.saturating_sub(*low) as f64 / (high - low).max(1) as f64;
        let (before, after) = (before.as_secs_f64(), after.as_secs_f64());
        Duration::from_secs_f64(before + share * (after - before).max(0.0))
    }

    /// Joins the devices of the options' model, and measures their sums. Layers in a row have none.
    pub(crate) fn of(backends: &[Arc<Backend>], options: &LoadOptions) -> Result<Self> {
        if options.split == Some(Split::Layers) {
            return Ok(Self::on_host(None));
        }
        match (&options.group, backends) {
            (Some(group), [backend]) => join_process(backend, &**group),
            _ => Ok(join(backends)),
        }
    }

    pub(crate) fn is_on_device(&self) -> bool {
        self.library.is_some()
    }
}

impl Display for Sums {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match (&self.library, &self.refusal) {
            (Some(library), _) => write!(f, "by {library}, captured in graphs")?,
            (None, None) => f.write_str("through host memory")?,
            (None, Some(refusal)) => write!(f, "through host memory, which is slower, because {refusal}")?,
        }
        for (bytes, time) in &self.measured {
            let (size, unit) = if *bytes < 1 << 20 { (bytes >> 10, "KB") } else { (bytes >> 20, "MB") };
            write!(f, ", {size} {unit} in {:.1} µs", time.as_secs_f64() * 1e6)?;
        }
        Ok(())
    }
}

/// Joins the devices of a process, the first of which is rank 0, and tries sums. A device that is in a group stays there.
fn join(backends: &[Arc<Backend>]) -> Sums {
    let sums = join_devices(backends);
    match sums.library {
        Some(_) => sums,
        None => Sums { measured: measure_threads(backends.len()), ..sums },
    }
}

fn join_devices(backends: &[Arc<Backend>]) -> Sums {
    let Some(first) = backends.first().and_then(|backend| backend.ranks()) else { return Sums::on_host(None) };
    let size = backends.len();
    let group = match first.joined() {
        Some(_) => Vec::new(),
        None => match first.name_group() {
            Ok(group) => group,
            Err(error) => return Sums::on_host(Some(error.to_string())),
        },
    };
    let backends = backends.iter().zip(0..).map(|(backend, rank)| Member { backend, rank, size }).collect::<Vec<_>>();
    settle(&backends, try_all(&backends, &group))
}

/// Joins the device of this process with those of the others, if all have one that sums.
fn join_process(backend: &Arc<Backend>, collective: &dyn Collective) -> Result<Sums> {
    let sums = join_device(backend, collective)?;
    match sums.library {
        Some(_) => Ok(sums),
        None => Ok(Sums { measured: measure_host(collective)?, ..sums }),
    }
}

fn join_device(backend: &Arc<Backend>, collective: &dyn Collective) -> Result<Sums> {
    let (rank, size) = (collective.rank(), collective.size());
    let own = backend.ranks();
    if !all_have(collective, own.is_some())? {
        return Ok(Sums::on_host(None));
    }
    let mut named = match own.filter(|_| rank == 0).map(|own| own.name_group()) {
        None => Ok(Vec::new()),
        Some(named) => named,
    };
    let mut group = named.as_ref().cloned().unwrap_or_default();
    collective.await_broadcast(0, &mut group)?;
    let member = [Member { backend, rank, size }];
    let tried = match named.as_mut() {
        Ok(_) if group.is_empty() => Err("rank 0 has no library of collectives".to_owned()),
        Ok(_) => try_all(&member, &group),
        Err(error) => Err(error.to_string()),
    };
    let all = all_have(collective, tried.is_ok())?;
    let tried = if all { tried } else { tried.and_then(|_| Err("another rank could not join the devices".to_owned())) };
    Ok(settle(&member, tried))
}

/// Whether something holds on all ranks.
fn all_have(collective: &dyn Collective, own: bool) -> Result<bool> {
    let mut lacking = [f32::from(u8::from(!own))];
    // Ranks come when they have opened their devices.
    collective.await_broadcast(0, &mut Vec::new())?;
    collective.all_reduce(&mut lacking)?;
    Ok(lacking == [0.0])
}

/// The times of sums of threads.
fn measure_threads(ranks: usize) -> Measured {
    thread::scope(|scope| {
        let ranks = threads(ranks, TRIAL).into_iter();
        let measured =
            ranks.map(|rank| scope.spawn(move || measure_host(&rank).unwrap_or_default())).collect::<Vec<_>>();
        measured.into_iter().next().and_then(|first| first.join().ok()).unwrap_or_default()
    })
}

/// The times of sums through host memory. A sum costs as much whatever its values are.
fn measure_host(collective: &dyn Collective) -> Result<Measured> {
    let measure = |bytes: &usize| -> Result<(usize, Duration)> {
        let mut values = vec![0.0; bytes / size_of::<f32>()];
        // All ranks start together.
        collective.all_reduce(&mut values)?;
        let repeats = if *bytes < MEASURED[2] { REPEATS } else { 2 };
        let start = Instant::now();
        (0..repeats).try_for_each(|_| collective.all_reduce(&mut values))?;
        Ok((*bytes, start.elapsed() / repeats))
    };
    MEASURED.iter().map(measure).collect()
}

/// A device and its place in the group.
struct Member<'a> {
    backend: &'a Arc<Backend>,
    rank: usize,
    size: usize,
}

type Measured = Vec<(usize, Duration)>;

/// All devices leave the group if one of them failed.
fn settle(members: &[Member], tried: std::result::Result<Measured, String>) -> Sums {
    let ranks = || members.iter().filter_map(|member| member.backend.ranks());
    match tried {
        Ok(measured) => {
            let library = ranks().find_map(|ranks| ranks.joined()).map(|joined| joined.library);
            Sums { library, refusal: None, measured }
        }
        Err(refusal) => {
            ranks().for_each(|ranks| ranks.leave());
            Sums::on_host(Some(refusal))
        }
    }
}

/// Joins devices and tries sums, each device on a thread of its own, because each waits for the others.
fn try_all(members: &[Member], group: &[u8]) -> std::result::Result<Measured, String> {
    thread::scope(|scope| {
        let (sender, outcomes) = mpsc::channel();
        for member in members {
            let sender = sender.clone();
            scope.spawn(move || {
                // The receiver lives as long as the scope.
                let _ = sender.send(member.attempt(group));
            });
        }
        let until = Instant::now() + DEADLINE + TRIAL;
        let (mut measured, mut refusal) = (Vec::new(), None);
        for _ in members {
            let left = until.saturating_duration_since(Instant::now());
            let late = || Err(format!("the first sums of the devices took longer than {} s", TRIAL.as_secs()));
            match outcomes
                .recv_timeout(left)
                .map_or_else(|_| late(), |outcome| outcome.map_err(|error| error.to_string()))
            {
                Ok(own) => measured = own,
                Err(reason) => {
                    // The other devices may wait for this one.
                    members.iter().filter_map(|member| member.backend.ranks()).for_each(|ranks| ranks.abort(&reason));
                    refusal.get_or_insert(reason);
                }
            }
        }
        refusal.map_or(Ok(measured), Err)
    })
}

impl Member<'_> {
    fn attempt(&self, group: &[u8]) -> KernelResult<Measured> {
        let Self { backend, rank, size } = *self;
        let Some(ranks) = backend.ranks() else {
            return Err(self.wrong("the device has no sums with others".to_owned()));
        };
        if let Some(joined) = ranks.joined() {
            let is_same = (joined.rank, joined.size) == (rank, size);
            return if is_same {
                Ok(Vec::new())
            } else {
                Err(self.wrong("it is in another group of devices".to_owned()))
            };
        }
        ranks.join(group, rank, size, DEADLINE)?;
        let _exclusive = backend.exclusive();
        let mut values = backend.alloc::<f32>(MEASURED[2] / size_of::<f32>(), "sums over devices")?;
        MEASURED.iter().map(|&bytes| Ok((bytes, self.measure(&mut values, bytes / size_of::<f32>())?))).collect()
    }

    /// The time of a sum in a graph. The first sum of a size is checked, and the first one of a graph.
    fn measure(&self, values: &mut Buffer<f32>, count: usize) -> KernelResult<Duration> {
        let Self { backend, rank, size } = *self;
        let expected = (size * (size + 1) / 2) as f32;
        self.check(values, count, rank as f32 + 1.0, expected, |values| self.sum(values, count))?;
        let once = self.capture(values, count, 1)?;
        self.check(values, count, rank as f32 + 1.0, expected, |_| once.replay())?;
        let several = self.capture(values, count, REPEATS)?;
        backend.upload(&vec![0.0; count], values)?;
        // All devices start together.
        once.replay()?;
        backend.synchronize()?;
        let start = Instant::now();
        several.replay()?;
        backend.synchronize()?;
        Ok(start.elapsed() / REPEATS)
    }

    fn check(
        &self,
        values: &mut Buffer<f32>,
        count: usize,
        own: f32,
        expected: f32,
        sum: impl FnOnce(&mut Buffer<f32>) -> KernelResult<()>,
    ) -> KernelResult<()> {
        let mut found = vec![own; count];
        self.backend.upload(&found, values)?;
        sum(values)?;
        self.backend.download(values.view(1, count)?, &mut found)?;
        match found.iter().find(|found| **found != expected) {
            None => Ok(()),
            Some(found) => Err(self.wrong(format!("a sum is wrong (found {found}, expected {expected})"))),
        }
    }

    fn sum(&self, values: &mut Buffer<f32>, count: usize) -> KernelResult<()> {
        let values = values.view_mut(1, count)?;
        self.backend.ranks().map_or(Ok(()), |ranks| ranks.all_reduce(values))
    }

    fn capture(&self, values: &mut Buffer<f32>, count: usize, repeats: u32) -> KernelResult<Box<dyn Graph>> {
        let mut sums = || (0..repeats).try_for_each(|_| self.sum(values, count));
        let graph = self.backend.capture(&mut sums)?;
        graph.ok_or_else(|| self.wrong("sums cannot be captured".to_owned()))
    }

    fn wrong(&self, reason: String) -> KernelError {
        KernelError::Device { device: self.backend.device(), what: "sums over devices".to_owned(), reason }
    }
}
