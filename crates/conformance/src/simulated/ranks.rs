//! Simulated devices that sum with each other: in the order of ranks, between threads. A group that fails ends its work as NCCL
//! does, with arbitrary values.

use super::{Copies, POISON, Queue, Simulator, Work, pointer};
use gristmill_collective::{Collective, Threads, threads};
use gristmill_gpu::{GroupMember, RankLink};
use gristmill_kernels::Result;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// The ranks of each named group that have not joined yet; `None` before the first joins.
static GROUPS: Mutex<Vec<Option<HashMap<usize, Threads>>>> = Mutex::new(Vec::new());

/// A sum or a gather, which ends on each device when all have come.
#[derive(Clone, Debug)]
pub(super) struct Exchange {
    ranks: Arc<Ranks>,
    from: u64,
    to: u64,
    values: usize,
    is_sum: bool,
}

#[derive(Debug)]
struct Ranks {
    group: Threads,
    failure: OnceLock<String>,
    /// When values of others arrive.
    copies: Mutex<Copies>,
    sums: Arc<AtomicUsize>,
    is_wrong: bool,
}

impl Exchange {
    pub(super) fn run(&self) {
        let Self { ranks, from, to, values, is_sum } = self;
        let size = ranks.group.size();
        let mut own = vec![0.0_f32; *values];
        // SAFETY: a part of a region, which lives as long as its buffers; nothing else uses it meanwhile.
        unsafe { pointer(*from).copy_to_nonoverlapping(own.as_mut_ptr().cast(), size_of_val(&own[..])) };
        let mut all = if *is_sum { own.clone() } else { vec![0.0; size * values] };
        let bytes = size_of_val(&all[..]);
        // SAFETY: as above; the target has room for all.
        unsafe { pointer(*to).write_bytes(POISON, bytes) };
        Copies::next(&ranks.copies).delay();
        let outcome = if *is_sum { ranks.group.all_reduce(&mut all) } else { ranks.group.all_gather(&own, &mut all) };
        ranks.sums.fetch_add(usize::from(*is_sum), Ordering::Relaxed);
        match outcome {
            Ok(()) if ranks.is_wrong => {}
            // SAFETY: as above.
            Ok(()) => unsafe { pointer(*to).copy_from_nonoverlapping(all.as_ptr().cast(), bytes) },
            Err(lost) => drop(ranks.failure.set(lost.to_string())),
        }
    }
}

/// A device that has joined a group.
#[derive(Debug)]
struct Member {
    ranks: Arc<Ranks>,
    queue: Arc<Queue>,
}

impl Member {
    fn exchange(&self, from: u64, to: u64, values: usize, is_sum: bool) -> Result<()> {
        self.queue.run(Work::Exchange(Exchange { ranks: Arc::clone(&self.ranks), from, to, values, is_sum }))
    }
}

impl RankLink for Simulator {
    fn name_group(&self) -> Result<Vec<u8>> {
        if let Some(reason) = &*self.refuses_ranks.lock().unwrap_or_else(PoisonError::into_inner) {
            return Err(self.error("sums over devices", reason));
        }
        let mut groups = GROUPS.lock().unwrap_or_else(PoisonError::into_inner);
        groups.push(None);
        Ok((groups.len() - 1).to_ne_bytes().to_vec())
    }

    fn join(&self, group: &[u8], rank: usize, size: usize, deadline: Duration) -> Result<Box<dyn GroupMember>> {
        let unknown = || self.error("joining a group", "it has no name of the simulator");
        let number = group.try_into().map(usize::from_ne_bytes).map_err(|_| unknown())?;
        let own = {
            let mut groups = GROUPS.lock().unwrap_or_else(PoisonError::into_inner);
            let group = groups.get_mut(number).ok_or_else(unknown)?;
            group.get_or_insert_with(|| threads(size, deadline).into_iter().enumerate().collect()).remove(&rank)
        };
        let group = own.ok_or_else(|| self.error("joining a group", format!("rank {rank} has joined")))?;
        group.all_reduce(&mut []).map_err(|lost| self.error("joining a group", lost))?;
        let copies = *self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        let is_wrong = self.sums_wrongly.load(Ordering::Relaxed);
        let ranks = Ranks {
            group,
            failure: OnceLock::new(),
            copies: Mutex::new(copies),
            sums: Arc::clone(&self.sums),
            is_wrong,
        };
        Ok(Box::new(Member { ranks: Arc::new(ranks), queue: Arc::clone(&self.queue) }))
    }
}

impl GroupMember for Member {
    fn library(&self) -> String {
        "the simulator".to_owned()
    }

    fn all_reduce(&self, address: u64, values: usize) -> Result<()> {
        self.exchange(address, address, values, true)
    }

    fn all_gather(&self, from: u64, to: u64, values: usize) -> Result<()> {
        self.exchange(from, to, values, false)
    }

    fn check(&self) -> Result<()> {
        self.ranks.failure.get().map_or(Ok(()), |reason| Err(self.queue.error("a sum", reason)))
    }

    fn abort(&self, reason: &str) {
        self.ranks.group.abort(reason);
    }
}
