//! A process as a rank.

use super::library::Library;
use super::message::{Kind, Message};
use super::peers;
use super::pulse;
use super::state::State;
use crate::call::{ALL_GATHER, ALL_REDUCE, BROADCAST, Call, RECEIVE, SEND, floats_of, sum_in_order};
use crate::{Collective, Error, Repeat};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Sums of more values are computed in slices, if there are more than two ranks.
const SLICED: usize = 4096;
/// A wait this long spins; then it sleeps between looks.
const SPIN: Duration = Duration::from_millis(5);
const NAPS: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(1));
/// How often a waiting rank looks whether the others' processes live.
const WATCH: Duration = Duration::from_millis(50);
/// How long a rank that fails tries to tell the others.
const FAREWELL: Duration = Duration::from_millis(500);

const ENDED: &str = "its process ended";

/// This process as a rank that `mpirun` started. Dropping it is [`finish`](Self::finish).
#[derive(Debug)]
pub struct Mpi {
    rank: usize,
    size: usize,
    deadline: Duration,
    /// Processes of other ranks on this machine.
    processes: Vec<Option<u32>>,
    state: Arc<Mutex<State>>,
    /// `None` if the system has no thread for it; then only the deadline finds a rank that hangs.
    pulse: Option<Repeat>,
}

impl Mpi {
    /// Joins the ranks that `mpirun` started; without `mpirun`, one rank. A wait ends with an error after `deadline`. The library is
    /// in `folder`, or where the system's loader finds it.
    ///
    /// # Errors
    /// Open MPI is missing, another MPI, or cannot start; another call of this process.
    pub fn open(folder: Option<&Path>, deadline: Duration) -> Result<Self, Error> {
        let library = Library::start(folder)?;
        let (rank, size) = (library.rank, library.size);
        let state = Arc::new(Mutex::new(State::new(library)));
        let mut this = Self { rank, size, deadline, processes: vec![None; size], state, pulse: None };
        let own = peers::name();
        let names = this.exchange(Call { operation: BROADCAST, number: size }, |_| own.as_bytes())?;
        this.processes =
            names.iter().map(|name| peers::process(&own, std::str::from_utf8(name.as_ref()?.body()).ok()?)).collect();
        this.pulse = pulse::start(&this.state);
        Ok(this)
    }

    /// Ends MPI, for which it waits for the other ranks; there are no calls after it. After a failure it does nothing: without an
    /// end of MPI, `mpirun` ends all other ranks when this process ends.
    pub fn finish(&self) {
        let state = &mut *self.lock();
        if state.failure.is_none() {
            self.tell(state, Kind::End, &[]);
            // Nobody could handle it: the process is about to end.
            let _ = state.library.finish();
            state.failure = Some(Error::Lost { rank: self.rank, reason: ENDED.into() });
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let rank = self.rank;
        (0..self.size).filter(move |other| *other != rank)
    }

    fn check(&self, rank: usize) -> Result<(), Error> {
        if rank < self.size { Ok(()) } else { Err(Error::Rank { rank, size: self.size }) }
    }

    fn mismatch(&self, found: impl ToString, expected: impl ToString) -> Error {
        Error::Mismatch { rank: self.rank, found: found.to_string(), expected: expected.to_string() }
    }

    /// Sends each rank its part of a call, and returns the parts of the others.
    fn exchange<'a>(&self, call: Call, part: impl Fn(usize) -> &'a [u8]) -> Result<Vec<Option<Message>>, Error> {
        self.others().try_for_each(|to| self.post(to, Kind::Call(call), part(to)))?;
        let take =
            |from| if from == self.rank { Ok(None) } else { self.take(from, call, Some(self.deadline)).map(Some) };
        let parts = (0..self.size).map(take).collect::<Result<_, _>>()?;
        self.flush(call.operation, Some(self.deadline))?;
        Ok(parts)
    }

    /// Keeps the buffers of messages for later ones: memory that is new to a process costs as much as copying it.
    fn recycle(&self, messages: impl IntoIterator<Item = Option<Message>>) {
        let mut state = self.lock();
        messages.into_iter().flatten().for_each(|message| state.spare.push(message.into_bytes()));
    }

    /// Waits until what was sent is no longer needed here: a long message goes on only while both ranks are in a call.
    fn flush(&self, operation: &'static str, deadline: Option<Duration>) -> Result<(), Error> {
        let to = |state: &State| state.sends.first().map_or(self.rank, |(to, _)| *to);
        self.wait(operation, deadline, to, |state| state.sends.is_empty().then_some(Ok(())))
    }

    /// Starts to send a message.
    fn post(&self, to: usize, kind: Kind, body: &[u8]) -> Result<(), Error> {
        let mut state = self.lock();
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        state.send(to, kind, body).map_err(|error| self.fail(&mut state, error))
    }

    fn broadcast_within(&self, deadline: Option<Duration>, root: usize, bytes: &mut Vec<u8>) -> Result<(), Error> {
        self.check(root)?;
        let call = Call { operation: BROADCAST, number: root };
        if root == self.rank {
            self.others().try_for_each(|to| self.post(to, Kind::Call(call), bytes))?;
            return self.flush(BROADCAST, deadline);
        }
        let message = self.take(root, call, deadline)?;
        bytes.clear();
        bytes.extend(message.body());
        self.recycle([Some(message)]);
        Ok(())
    }

    /// Waits for the next part of a rank, which must be of this call.
    fn take(&self, from: usize, call: Call, deadline: Option<Duration>) -> Result<Message, Error> {
        self.wait(
            call.operation,
            deadline,
            |_| from,
            |state| {
                let message = state.calls[from].pop_front()?;
                let is_same = message.kind == Kind::Call(call);
                Some(if is_same { Ok(message) } else { Err(self.mismatch(call, message.describe())) })
            },
        )
    }

    /// Waits until `find` returns something, for which rank `needed` must call. If that is an error, the group has failed.
    fn wait<T>(
        &self,
        operation: &'static str,
        deadline: Option<Duration>,
        needed: impl Fn(&State) -> usize,
        mut find: impl FnMut(&mut State) -> Option<Result<T, Error>>,
    ) -> Result<T, Error> {
        let start = Instant::now();
        let (mut watched, mut ended) = (Duration::ZERO, None);
        loop {
            let waited = start.elapsed();
            let mut state = self.lock();
            let received = if state.failure.is_none() { state.advance() } else { Ok(()) };
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            let found = received.map_or_else(|error| Some(Err(error)), |()| find(&mut state));
            if let Some(found) = found {
                return found.map_err(|error| self.fail(&mut state, error));
            }
            let needed = needed(&state);
            if state.has_left[needed] {
                return Err(self.fail(&mut state, Error::Lost { rank: needed, reason: ENDED.into() }));
            } else if let Some(deadline) = deadline.filter(|deadline| waited >= *deadline) {
                return Err(self.fail(&mut state, Error::deadline(needed, operation, deadline)));
            } else if waited >= watched + WATCH {
                watched = waited;
                // What it sent before may say why, so it is lost only at the second look.
                match self.ended(&state) {
                    Some(rank) if ended == Some(rank) => {
                        return Err(self.fail(&mut state, Error::Lost { rank, reason: ENDED.into() }));
                    }
                    found => ended = found,
                }
                if let Some(silent) = state.silent() {
                    return Err(self.fail(&mut state, silent));
                }
            }
            drop(state);
            pause(waited);
        }
    }

    /// A rank of this machine whose process has ended without a farewell.
    fn ended(&self, state: &State) -> Option<usize> {
        self.others().find(|rank| !state.has_left[*rank] && self.processes[*rank].is_some_and(peers::has_ended))
    }

    /// The first failure that a rank learns of is the one of all its calls. If the rank noticed it, it tells the others.
    fn fail(&self, state: &mut State, error: Error) -> Error {
        if let Some(first) = &state.failure {
            return first.clone();
        }
        state.failure = Some(error.clone());
        let (rank, reason) = match &error {
            Error::Lost { rank, reason } => (*rank, reason.clone()),
            other => (self.rank, other.to_string()),
        };
        self.tell(state, Kind::Failure { rank }, reason.as_bytes());
        error
    }

    /// Sends a last message to all ranks, if it can.
    fn tell(&self, state: &mut State, kind: Kind, body: &[u8]) {
        for to in self.others().filter(|to| !self.processes[*to].is_some_and(peers::has_ended)) {
            // A rank that cannot be told notices it by itself.
            let _ = state.send(to, kind, body);
        }
        let start = Instant::now();
        while start.elapsed() < FAREWELL && !state.sends.is_empty() && state.advance().is_ok() {
            pause(start.elapsed());
        }
    }
}

/// Leaves the core to others, the longer the wait the longer.
fn pause(waited: Duration) {
    if waited < SPIN {
        std::thread::yield_now();
    } else {
        std::thread::sleep((waited / 32).clamp(NAPS.0, NAPS.1));
    }
}

impl Collective for Mpi {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn look(&self) -> Result<(), Error> {
        // A call that waits looks itself.
        let Ok(mut state) = self.state.try_lock() else { return Ok(()) };
        if state.failure.is_none() {
            let ended = |rank| Error::Lost { rank, reason: ENDED.into() };
            let lost = |state: &State| self.ended(state).map(ended).or_else(|| state.silent());
            if let Some(error) = state.advance().err().or_else(|| lost(&state)) {
                self.fail(&mut state, error);
            }
        }
        state.failure.clone().map_or(Ok(()), Err)
    }

    fn all_reduce(&self, values: &mut [f32]) -> Result<(), Error> {
        let call = Call { operation: ALL_REDUCE, number: values.len() };
        let is_sliced = self.size > 2 && values.len() > SLICED;
        let slice = |rank: usize| -> Range<usize> {
            if is_sliced {
                values.len() * rank / self.size..values.len() * (rank + 1) / self.size
            } else {
                0..values.len()
            }
        };
        let slices: Vec<Range<usize>> = (0..self.size).map(slice).collect();
        let parts = self.exchange(call, |to| bytemuck::cast_slice(&values[slices[to].clone()]))?;
        let own = slices[self.rank].clone();
        sum_in_order(&mut values[own.clone()], self.rank, &parts.iter().map(body).collect::<Vec<_>>());
        self.recycle(parts);
        if is_sliced {
            let sums = self.exchange(call, |_| bytemuck::cast_slice(&values[own.clone()]))?;
            for rank in self.others() {
                values[slices[rank].clone()]
                    .iter_mut()
                    .zip(floats_of(body(&sums[rank])))
                    .for_each(|(to, sum)| *to = sum);
            }
            self.recycle(sums);
        }
        Ok(())
    }

    fn all_gather(&self, part: &[f32], all: &mut [f32]) -> Result<(), Error> {
        let call = Call { operation: ALL_GATHER, number: part.len() };
        if all.len() != self.size * part.len() {
            let found = Call { operation: ALL_GATHER, number: all.len() };
            let error = self.mismatch(found, format_args!("{} × {}", self.size, part.len()));
            return Err(self.fail(&mut self.lock(), error));
        }
        let parts = self.exchange(call, |_| bytemuck::cast_slice(part))?;
        for (rank, to) in all.chunks_exact_mut(part.len().max(1)).enumerate() {
            if rank == self.rank {
                to.copy_from_slice(part);
            } else {
                to.iter_mut().zip(floats_of(body(&parts[rank]))).for_each(|(to, value)| *to = value);
            }
        }
        self.recycle(parts);
        Ok(())
    }

    fn broadcast(&self, root: usize, bytes: &mut Vec<u8>) -> Result<(), Error> {
        self.broadcast_within(Some(self.deadline), root, bytes)
    }

    fn await_broadcast(&self, root: usize, bytes: &mut Vec<u8>) -> Result<(), Error> {
        self.broadcast_within(None, root, bytes)
    }

    fn send(&self, to: usize, values: &[f32]) -> Result<(), Error> {
        self.check(to)?;
        self.post(to, Kind::Sent, bytemuck::cast_slice(values))?;
        self.flush(SEND, Some(self.deadline))
    }

    fn receive(&self, from: usize, values: &mut [f32]) -> Result<(), Error> {
        self.check(from)?;
        let sent = self.wait(
            RECEIVE,
            Some(self.deadline),
            |_| from,
            |state| {
                let message = state.mail[from].pop_front()?;
                let is_same = message.body().len() == size_of_val(values);
                let call = Call { operation: RECEIVE, number: values.len() };
                Some(if is_same { Ok(message) } else { Err(self.mismatch(call, message.describe())) })
            },
        )?;
        values.iter_mut().zip(floats_of(sent.body())).for_each(|(to, value)| *to = value);
        self.recycle([Some(sent)]);
        Ok(())
    }

    fn abort(&self, reason: &str) {
        self.fail(&mut self.lock(), Error::Lost { rank: self.rank, reason: reason.into() });
    }
}

fn body(message: &Option<Message>) -> &[u8] {
    message.as_ref().map_or(&[], Message::body)
}

impl Drop for Mpi {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.abort("it panicked");
        }
        self.finish();
    }
}
