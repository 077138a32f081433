//! Ranks that are processes. Each has loaded its part of the model; rank 0 sends its calls to the others, a message each.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gristmill_collective::Collective;
use gristmill_kernels::kv::KvFormat;
use serde::{Deserialize, Serialize};

use super::call::Order;
use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::state::Reuse;

/// What rank 0 sends to the other ranks.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Message {
    /// Rank 0 has a new runner.
    Start(Start),
    Order(Order),
    /// The runner is dropped.
    End,
    /// The model is dropped.
    Quit,
}

/// The limits of a runner, without those of images, which only rank 0 encodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Start {
    context: Option<usize>,
    sequences: usize,
    kv_tokens: Option<usize>,
    batch_tokens: usize,
    output_rows: Option<usize>,
    rollback_tokens: usize,
    has_q8_cache: bool,
    reuses_prefixes: bool,
}

impl Start {
    pub(crate) fn new(limits: Limits, reuse: Reuse) -> Self {
        let Limits { context, sequences, kv_tokens, batch_tokens, output_rows, rollback_tokens, kv_format, .. } =
            limits;
        let (has_q8_cache, reuses_prefixes) = (kv_format == KvFormat::Q8_0, reuse == Reuse::Prefixes);
        Self {
            context,
            sequences,
            kv_tokens,
            batch_tokens,
            output_rows,
            rollback_tokens,
            has_q8_cache,
            reuses_prefixes,
        }
    }

    pub(crate) fn limits(&self) -> (Limits, Reuse) {
        let Self { context, sequences, kv_tokens, batch_tokens, output_rows, rollback_tokens, .. } = *self;
        let kv_format = if self.has_q8_cache { KvFormat::Q8_0 } else { KvFormat::F16 };
        let reuse = if self.reuses_prefixes { Reuse::Prefixes } else { Reuse::Nothing };
        let limits = Limits {
            context,
            sequences,
            kv_tokens,
            batch_tokens,
            output_rows,
            rollback_tokens,
            kv_format,
            ..Limits::default()
        };
        (limits, reuse)
    }
}

/// This process as a rank of a model.
#[derive(Debug)]
pub(crate) struct RankGroup {
    collective: Arc<dyn Collective>,
    /// Whether rank 0 has a runner: the others repeat the calls of one.
    has_runner: AtomicBool,
}

impl RankGroup {
    /// Joins the group, if all ranks load the same model in the same way. `facts` must be equal: names and values.
    ///
    /// # Errors
    /// A fact that differs, on each rank; a rank that is lost.
    pub(crate) fn join(collective: Arc<dyn Collective>, facts: &[(&str, String)]) -> Result<Self> {
        let own: Vec<&str> = facts.iter().flat_map(|(name, value)| [*name, value.as_str()]).collect();
        let mut bytes = own.join("\n").into_bytes();
        collective.await_broadcast(0, &mut bytes)?;
        let first = String::from_utf8_lossy(&bytes).into_owned();
        let mut first = first.lines().skip(1).step_by(2);
        for (name, value) in facts {
            let of_first = first.next().unwrap_or("nothing");
            if value != of_first {
                let rank = collective.rank();
                let reason = format!(
                    "{name}: differs (found {value} on rank {rank}, expected {of_first} as on rank 0); start all ranks with the \
                     same file, options and version"
                );
                collective.abort(&reason);
                return Err(Error::RanksDiffer(reason));
            }
        }
        collective.all_reduce(&mut [])?;
        Ok(Self { collective, has_runner: AtomicBool::new(false) })
    }

    pub(crate) fn collective(&self) -> &Arc<dyn Collective> {
        &self.collective
    }

    /// Takes the group for a runner of rank 0.
    pub(crate) fn start(&self, limits: Limits, reuse: Reuse) -> Result<()> {
        if self.has_runner.swap(true, Ordering::AcqRel) {
            let reason = "a model on several processes has one runner; drop the other one first";
            return Err(Error::Split { reason: reason.to_owned() });
        }
        self.send(&Message::Start(Start::new(limits, reuse)))
    }

    /// Ends the runner of rank 0.
    pub(crate) fn end(&self) {
        // Ranks that are lost need not be told.
        drop(self.send(&Message::End));
        self.has_runner.store(false, Ordering::Release);
    }

    pub(crate) fn send(&self, message: &Message) -> Result<()> {
        let mut bytes = rmp_serde::to_vec(message).map_err(|_| Error::RankState)?;
        Ok(self.collective.broadcast(0, &mut bytes)?)
    }

    /// The next message of rank 0, which may be idle for long.
    pub(crate) fn receive(&self) -> Result<Message> {
        let mut bytes = Vec::new();
        self.collective.await_broadcast(0, &mut bytes)?;
        rmp_serde::from_slice(&bytes).map_err(|_| Error::RankState)
    }

    /// The least of a number over all ranks, which come when they have loaded their parts.
    pub(crate) fn least(&self, own: usize) -> Result<usize> {
        let mut all = (0..self.collective.size()).map(|root| {
            let mut bytes = own.to_le_bytes().to_vec();
            self.collective.await_broadcast(root, &mut bytes)?;
            bytes.try_into().map(usize::from_le_bytes).map_err(|_| Error::RankState)
        });
        all.try_fold(own, |least, of_rank: Result<usize>| Ok(least.min(of_rank?)))
    }
}

impl Drop for RankGroup {
    fn drop(&mut self) {
        if self.collective.rank() == 0 {
            drop(self.send(&Message::Quit));
        }
    }
}
