//! `--ranks`: this process as one of several that run a model together. Rank 0 runs the command; the others load their parts of the model by
//! the same options, and then repeat the calls of rank 0 ([`gristmill_engine::Model::follow`]).

use std::sync::{Arc, Mutex, PoisonError};

use clap::ValueEnum;
use gristmill_collective::{Collective, Error, Mpi};
use gristmill_engine::Model;
use gristmill_engine::model::RANK_DEADLINE;

use crate::failure::Failure;
use crate::interrupt::Interrupt;

/// What started the processes.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum RanksArg {
    /// `mpirun` of Open MPI.
    Mpi,
}

/// MPI can be started once in a process, and is ended explicitly.
static GROUP: Mutex<Option<Arc<Mpi>>> = Mutex::new(None);

fn group() -> Option<Arc<Mpi>> {
    GROUP.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The group of this process.
pub(crate) fn join(RanksArg::Mpi: RanksArg) -> Result<Arc<Mpi>, Failure> {
    let mut group = GROUP.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(group) = &*group {
        return Ok(group.clone());
    }
    let about = |error: Error| Failure::from(error).about("--ranks mpi");
    let joined = Arc::new(Mpi::open(None, RANK_DEADLINE).map_err(about)?);
    if joined.size() == 1 {
        let remedy = "start the program with mpirun -np N of Open MPI";
        return Err(Failure::new(format!("--ranks mpi: there is one rank (found 1, expected 2 or more); {remedy}")));
    }
    Ok(group.insert(joined).clone())
}

/// Whether this process is a rank that has no command to run.
pub(crate) fn is_other(ranks: Option<RanksArg>) -> Result<bool, Failure> {
    Ok(ranks.map(join).transpose()?.is_some_and(|group| group.rank() > 0))
}

/// Repeats the calls of rank 0 if this process is another rank. The result is then the end of the command.
pub(crate) fn follow(model: &Arc<Model>) -> Result<(), Failure> {
    let Some(group) = group().filter(|group| group.rank() > 0) else { return Ok(()) };
    // mpirun passes signals to all ranks; rank 0 finishes its requests, for which it needs the others.
    let _signals = Interrupt::watch()?;
    model.follow().map_err(|error| Failure::new(format!("rank {}: {error}", group.rank())))?;
    Err(Failure::Followed)
}

/// Looks whether a rank is lost.
pub(crate) fn look() -> Result<(), Failure> {
    Ok(group().map_or(Ok(()), |group| group.look())?)
}

/// Ends the group. If the command failed here, the other ranks get an error.
pub(crate) fn end(has_failed: bool) {
    let Some(group) = group() else { return };
    if has_failed {
        group.abort("its command failed");
    }
    group.finish();
}
