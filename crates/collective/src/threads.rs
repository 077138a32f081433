//! Ranks that are threads of one process: tests, the simulator, and several devices of one process.

use crate::call::{ALL_GATHER, ALL_REDUCE, BROADCAST, Call, RECEIVE, SEND, floats_of, sum_in_order};
use crate::{Collective, Error};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Condition variables of some systems refuse longer waits.
const LONG: Duration = Duration::from_secs(3600);

/// The ranks of a group, one for each thread. A wait ends with an error after `deadline`.
pub fn threads(size: usize, deadline: Duration) -> Vec<Threads> {
    let group = Arc::new(Group {
        size,
        deadline,
        board: Mutex::new(Board {
            round: Round::new(size),
            mail: vec![VecDeque::new(); size * size],
            has_left: vec![false; size],
            failure: None,
        }),
        changed: Condvar::new(),
    });
    (0..size).map(|rank| Threads { rank, group: group.clone() }).collect()
}

/// A rank that is a thread. When it is dropped, calls that need it fail.
#[derive(Debug)]
pub struct Threads {
    rank: usize,
    group: Arc<Group>,
}

#[derive(Debug)]
struct Group {
    size: usize,
    deadline: Duration,
    board: Mutex<Board>,
    changed: Condvar,
}

/// What all ranks see.
#[derive(Debug)]
struct Board {
    round: Round,
    /// Values sent from a rank to a rank, at `from × size + to`.
    mail: Vec<VecDeque<Vec<f32>>>,
    has_left: Vec<bool>,
    failure: Option<Error>,
}

/// A call that all ranks make together. Invariant: the next round starts after each rank has read the parts of this one; because a
/// fast rank would otherwise replace parts that a slow rank still needs.
#[derive(Debug)]
struct Round {
    parts: Vec<Option<(Call, Arc<[u8]>)>>,
    has_read: Vec<bool>,
}

impl Round {
    fn new(size: usize) -> Self {
        Self { parts: vec![None; size], has_read: vec![false; size] }
    }

    fn is_complete(&self) -> bool {
        self.parts.iter().all(Option::is_some)
    }
}

impl Group {
    fn lock(&self) -> MutexGuard<'_, Board> {
        // A board is whole between any two statements that can panic: there are none.
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `find` returns something; if it is an error, the group has failed. `needs` is whether that takes a call of a rank.
    fn wait<T>(
        &self,
        operation: &'static str,
        deadline: Option<Duration>,
        mut find: impl FnMut(&mut Board) -> Option<Result<T, Error>>,
        needs: impl Fn(&Board, usize) -> bool,
    ) -> Result<T, Error> {
        let start = Instant::now();
        let mut board = self.lock();
        loop {
            if let Some(failure) = &board.failure {
                return Err(failure.clone());
            }
            if let Some(found) = find(&mut board) {
                self.changed.notify_all();
                return found.map_err(|error| self.fail(&mut board, error));
            }
            let missing = || (0..self.size).filter(|rank| needs(&board, *rank));
            let left = deadline.map_or(Duration::MAX, |deadline| deadline.saturating_sub(start.elapsed()));
            let error = match (missing().find(|rank| board.has_left[*rank]), missing().next()) {
                (Some(rank), _) => Error::Lost { rank, reason: "its thread ended".into() },
                (None, Some(rank)) if left.is_zero() => Error::deadline(rank, operation, self.deadline),
                _ => {
                    board = self.changed.wait_timeout(board, left.min(LONG)).unwrap_or_else(PoisonError::into_inner).0;
                    continue;
                }
            };
            return Err(self.fail(&mut board, error));
        }
    }

    /// The first failure of the group is the one of all ranks.
    fn fail(&self, board: &mut Board, error: Error) -> Error {
        let first = board.failure.get_or_insert(error).clone();
        self.changed.notify_all();
        first
    }
}

impl Threads {
    fn check(&self, rank: usize) -> Result<(), Error> {
        if rank < self.group.size { Ok(()) } else { Err(Error::Rank { rank, size: self.group.size }) }
    }

    /// The parts of all ranks for one call.
    fn exchange(&self, call: Call, deadline: Option<Duration>, part: &[u8]) -> Result<Vec<Arc<[u8]>>, Error> {
        let (group, rank) = (&*self.group, self.rank);
        let mut part = Some(Arc::from(part));
        let enter = |board: &mut Board| {
            let parts = &mut board.round.parts;
            let is_free = parts[rank].is_none();
            is_free.then(|| match parts.iter().flatten().find(|(other, _)| *other != call) {
                Some((other, _)) => Err(self.mismatch(call, other)),
                None => {
                    parts[rank] = part.take().map(|part| (call, part));
                    Ok(())
                }
            })
        };
        group.wait(call.operation, deadline, enter, |board, rank| !board.round.has_read[rank])?;
        let read = |board: &mut Board| {
            let round = &mut board.round;
            let parts =
                round.is_complete().then(|| round.parts.iter().flatten().map(|(_, part)| part.clone()).collect())?;
            round.has_read[rank] = true;
            if round.has_read.iter().all(|read| *read) {
                *round = Round::new(group.size);
            }
            Some(Ok(parts))
        };
        group.wait(call.operation, deadline, read, |board, rank| board.round.parts[rank].is_none())
    }

    fn broadcast_within(&self, deadline: Option<Duration>, root: usize, bytes: &mut Vec<u8>) -> Result<(), Error> {
        self.check(root)?;
        let part: &[u8] = if root == self.rank { bytes } else { &[] };
        let parts = self.exchange(Call { operation: BROADCAST, number: root }, deadline, part)?;
        if root != self.rank {
            *bytes = parts[root].to_vec();
        }
        Ok(())
    }

    fn mismatch(&self, found: impl ToString, expected: impl ToString) -> Error {
        Error::Mismatch { rank: self.rank, found: found.to_string(), expected: expected.to_string() }
    }
}

impl Collective for Threads {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.group.size
    }

    fn look(&self) -> Result<(), Error> {
        self.group.lock().failure.clone().map_or(Ok(()), Err)
    }

    fn all_reduce(&self, values: &mut [f32]) -> Result<(), Error> {
        let call = Call { operation: ALL_REDUCE, number: values.len() };
        let parts = self.exchange(call, Some(self.group.deadline), bytemuck::cast_slice(values))?;
        sum_in_order(values, self.rank, &parts.iter().map(|part| &**part).collect::<Vec<_>>());
        Ok(())
    }

    fn all_gather(&self, part: &[f32], all: &mut [f32]) -> Result<(), Error> {
        if all.len() != self.group.size * part.len() {
            let found = Call { operation: ALL_GATHER, number: all.len() };
            let error = self.mismatch(found, format_args!("{} × {}", self.group.size, part.len()));
            return Err(self.group.fail(&mut self.group.lock(), error));
        }
        let parts = self.exchange(
            Call { operation: ALL_GATHER, number: part.len() },
            Some(self.group.deadline),
            bytemuck::cast_slice(part),
        )?;
        for (to, value) in all.iter_mut().zip(parts.iter().flat_map(|part| floats_of(part))) {
            *to = value;
        }
        Ok(())
    }

    fn broadcast(&self, root: usize, bytes: &mut Vec<u8>) -> Result<(), Error> {
        self.broadcast_within(Some(self.group.deadline), root, bytes)
    }

    fn await_broadcast(&self, root: usize, bytes: &mut Vec<u8>) -> Result<(), Error> {
        self.broadcast_within(None, root, bytes)
    }

    fn send(&self, to: usize, values: &[f32]) -> Result<(), Error> {
        self.check(to)?;
        let mut board = self.group.lock();
        if let Some(failure) = &board.failure {
            return Err(failure.clone());
        } else if board.has_left[to] {
            return Err(self.group.fail(&mut board, Error::Lost { rank: to, reason: "its thread ended".into() }));
        }
        board.mail[self.rank * self.group.size + to].push_back(values.to_vec());
        self.group.changed.notify_all();
        Ok(())
    }

    fn receive(&self, from: usize, values: &mut [f32]) -> Result<(), Error> {
        self.check(from)?;
        let slot = from * self.group.size + self.rank;
        let take = |board: &mut Board| {
            let sent = board.mail[slot].pop_front()?;
            Some(if sent.len() == values.len() {
                values.copy_from_slice(&sent);
                Ok(())
            } else {
                let found = Call { operation: RECEIVE, number: values.len() };
                Err(self.mismatch(found, Call { operation: SEND, number: sent.len() }))
            })
        };
        self.group.wait(RECEIVE, Some(self.group.deadline), take, |_, rank| rank == from)
    }

    fn abort(&self, reason: &str) {
        self.group.fail(&mut self.group.lock(), Error::Lost { rank: self.rank, reason: reason.into() });
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.group.lock().has_left[self.rank] = true;
        self.group.changed.notify_all();
    }
}
