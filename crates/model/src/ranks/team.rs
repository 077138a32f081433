//! The other ranks of a runner: threads that repeat its calls.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};

use gristmill_collective::{Collective, Error as Lost};

use super::call::{Call, Order};
use super::group::{Message, RankGroup};
use crate::error::{Error, Result};
use crate::runner::Runner;

/// The other ranks of rank 0's runner.
#[derive(Debug)]
pub(crate) struct Team {
    collective: Arc<dyn Collective>,
    others: Others,
    has_succeeded: bool,
    /// Whether a call was sent and rank 0 has not made it.
    is_in_call: bool,
}

#[derive(Debug)]
enum Others {
    Threads { orders: Vec<Sender<Order>>, threads: Vec<JoinHandle<()>> },
    Processes(Arc<RankGroup>),
}

impl Team {
    /// Rank 0 of a group with the runners of the other ranks, each on a thread of its own. `collectives` are all ranks.
    pub(crate) fn start(collectives: Vec<Arc<dyn Collective>>, runners: Vec<Runner>) -> Result<Self> {
        let [own, others @ ..] = collectives.as_slice() else { return Err(Error::RankState) };
        let (mut orders, mut threads) = (Vec::new(), Vec::new());
        for (collective, runner) in others.iter().zip(runners) {
            let (sender, receiver) = channel();
            let collective = collective.clone();
            let builder = thread::Builder::new().name(format!("rank {}", collective.rank()));
            let thread = builder.spawn(move || follow(receiver, runner, &*collective));
            threads.push(thread.map_err(|error| Error::Split { reason: format!("no thread for a rank ({error})") })?);
            orders.push(sender);
        }
        Ok(Self {
            collective: own.clone(),
            others: Others::Threads { orders, threads },
            has_succeeded: true,
            is_in_call: false,
        })
    }

    /// Rank 0 of a group of processes, which have their runners.
    pub(crate) fn of_processes(group: Arc<RankGroup>) -> Self {
        let collective = group.collective().clone();
        Self { collective, others: Others::Processes(group), has_succeeded: true, is_in_call: false }
    }

    /// Sends a call to the other ranks, before rank 0 makes it.
    ///
    /// # Errors
    /// A rank that is lost.
    pub(crate) fn send(&mut self, call: Call) -> Result<()> {
        let has_succeeded = std::mem::replace(&mut self.has_succeeded, true);
        self.is_in_call = true;
        let orders = match &self.others {
            Others::Threads { orders, .. } => orders,
            Others::Processes(group) => return group.send(&Message::Order(Order { call, has_succeeded })),
        };
        for (at, orders) in orders.iter().enumerate() {
            if orders.send(Order { call: call.clone(), has_succeeded }).is_err() {
                // The group has the error of the rank that failed first, if one reported it.
                self.collective.abort(&format!("rank {} ended", at + 1));
                self.collective.all_reduce(&mut [])?;
                return Err(Lost::Lost { rank: at + 1, reason: "its thread ended".to_owned() }.into());
            }
        }
        Ok(())
    }

    /// Notes what became of the last call on rank 0. Errors that other ranks need not have end the group.
    pub(crate) fn note<T>(&mut self, outcome: &Result<T>) {
        (self.has_succeeded, self.is_in_call) = (outcome.is_ok(), false);
        if let Err(error @ (Error::Kernel(_) | Error::Memory { .. })) = outcome {
            self.collective.abort(&error.to_string());
        }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        match &mut self.others {
            Others::Threads { orders, threads } => {
                // The threads end when their orders do, or in a sum that rank 0 does not reach.
                orders.clear();
                if self.is_in_call {
                    self.collective.abort("rank 0 ended");
                }
                for thread in threads.drain(..) {
                    // A rank that has panicked was noticed by the others.
                    drop(thread.join());
                }
            }
            Others::Processes(group) => group.end(),
        }
    }
}

/// Repeats calls until there are no more, or the ranks differ, which ends the group.
pub(crate) fn follow(orders: impl IntoIterator<Item = Order>, mut runner: Runner, collective: &dyn Collective) {
    let mut last = Ok(());
    for Order { call, has_succeeded } in orders {
        if last.is_ok() != has_succeeded {
            let of_rank = |is_ok: bool| if is_ok { "succeeded" } else { "failed" };
            let reason = last.err().map_or_else(String::new, |error: Error| format!(": {error}"));
            let (own, first) = (of_rank(!has_succeeded), of_rank(has_succeeded));
            return collective.abort(&format!("a call {own} here and {first} on rank 0{reason}"));
        }
        let is_step = matches!(call, Call::Forward { .. } | Call::Draft { .. });
        last = repeat(call, &mut runner);
        // Errors of the device are of one rank.
        if let Err(error @ (Error::Kernel(_) | Error::Memory { .. } | Error::RankState)) = &last {
            return collective.abort(&error.to_string());
        }
        // The group has the error.
        if is_step && runner.await_submission().is_err() {
            return;
        }
    }
}

/// Makes a call on the runner of another rank, which computes no logits.
fn repeat(call: Call, runner: &mut Runner) -> Result<()> {
    match call {
        Call::Open => runner.open_sequence().map(drop),
        Call::OpenWith { tenant, tokens } => runner.open_sequence_with(tenant, &tokens).map(drop),
        Call::KeepPrefix { sequence, tokens } => runner.keep_prefix(sequence, &tokens),
        Call::Retire { sequence, tokens } => runner.retire_sequence(sequence, &tokens),
        Call::EvictPrefix { sequence } => runner.evict_prefix(sequence),
        Call::EvictTenant { tenant } => {
            runner.evict_tenant(tenant);
            Ok(())
        }
        Call::Fork { sequence } => runner.fork_sequence(sequence).map(drop),
        Call::Close { sequence } => runner.close_sequence(sequence),
        Call::Truncate { sequence, len } => runner.truncate(sequence, len),
        Call::PlanCheckpoint { sequence, len } => runner.plan_checkpoint(sequence, len),
        Call::CountExperts { is_on } => {
            runner.count_experts(is_on);
            Ok(())
        }
        Call::Forward { batch, pictures, experts, lengths } => {
            if runner.lengths(&batch).ok() != Some(lengths) {
                return Err(Error::RankState);
            }
            runner.forward_of_rank(&batch, &pictures, experts.as_deref())
        }
        Call::Draft { orders } => runner.draft_once(&orders).map(drop),
        Call::FindNotFinite { token } => {
            runner.not_finite_token(token);
            Ok(())
        }
    }
}
