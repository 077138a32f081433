//! Runs a model: state and intermediate results of several sequences, one forward pass at a time.

mod draft;
mod graphs;
mod hidden;
mod logits;
mod pass;
mod pictures;
mod positions;
mod replay;
mod routing;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use draft::DraftOrder;
pub(crate) use draft::MOST_DRAFTS;
pub use graphs::GraphUsage;
pub use logits::{Logits, SampledTokens};
pub(crate) use positions::Grid;
pub use routing::RoutingTrace;

use gristmill_collective::{Collective, Repeat, threads};
use gristmill_kernels::ops::Rotary;
use gristmill_kernels::tensor::Buffer;

use crate::batch::Batch;
use crate::error::Result;
use crate::limits::Limits;
use crate::model::Model;
use crate::plan::Plan;
use crate::program::run::PassOutputs;
use crate::program::scratch::{ImageEnds, Scratch};
use crate::ranks::{Call, DEADLINE, RankGroup, Team, watch};
use crate::state::{KvListener, KvUsage, PlacementKind, Reuse, SequenceId, State, Uploaded};
use crate::tower::Encoder;
use draft::Drafts;
use graphs::Graphs;
use positions::Grids;

/// Runs a model. Several runners may share one [`Model`], on threads of their own too; each has its own sequences.
#[derive(Debug)]
pub struct Runner {
    model: Arc<Model>,
    limits: Limits,
    plan: Plan,
    /// RoPE of each layer, for contexts of this length.
    rotaries: Vec<Arc<Rotary>>,
    state: State,
    scratch: Scratch,
    /// The model's tower.
    encoder: Option<Encoder>,
    /// The pictures of the sequences, in a model whose tokens have several positions.
    grids: Grids,
    /// Token ids sampled by the sampler.
    sampled: Buffer<u32>,
    /// How many of the last forward pass's rows have one.
    sampled_rows: usize,
    /// Tokens that prediction heads draft.
    drafts: Drafts,
    /// Sequence and position of each token of the last batch.
    places: Vec<(SequenceId, u32)>,
    /// Tokens of the last batch whose logits were computed.
    output_rows: Vec<u32>,
    /// These on the device.
    uploaded_rows: Uploaded,
    /// Tokens of the last batch whose hidden states are requested.
    hidden_rows: Vec<u32>,
    /// The last forward pass.
    last: Option<StepShape>,
    /// Tokens of the last forward pass, padding included.
    last_tokens: usize,
    /// See [`Self::expert_counts`].
    expert_counts: Option<Vec<Vec<u32>>>,
    graphs: Graphs,
    /// The other ranks of a model that is split over devices.
    team: Option<Team>,
    /// Looks after the sums of the device.
    watch: Option<Repeat>,
}

/// The properties of a batch on which the operations of a forward pass depend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct StepShape {
    /// Tokens, padding included.
    tokens: usize,
    /// Rows of logits with their padding.
    outputs: PassOutputs,
    /// Whether the pass samples the most likely token of each row.
    argmax: bool,
    kind: PassKind,
    /// See [`PlacementKind`].
    step: PlacementKind,
    /// Whether rows of pictures are copied: such a pass is not captured.
    has_pictures: bool,
    /// Whether tokens have several positions.
    has_axes: bool,
}

/// What a pass computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum PassKind {
    /// The model.
    Forward,
    /// The model with forced experts.
    Forced,
    /// A step of the prediction heads from this one on.
    Draft(usize),
    /// States of fixed size, from kept inputs.
    Replay,
}

impl Runner {
    /// Allocates for all that the limits allow.
    ///
    /// # Errors
    /// [`Error::Limit`](crate::Error::Limit) for a limit that is 0 or beyond the model,
    /// [`Error::Memory`](crate::Error::Memory) if it does not fit.
    pub fn new(model: Arc<Model>, limits: Limits) -> Result<Self> {
        Self::with(model, limits, Reuse::Prefixes)
    }

    /// A runner whose sequences may start with what others have computed, or never do.
    pub fn with(model: Arc<Model>, limits: Limits, reuse: Reuse) -> Result<Self> {
        if let Some(group) = model.group.clone() {
            return Self::of_first_process(model, group, limits, reuse);
        }
        if model.other_ranks.is_empty() {
            return Self::of_rank(model, limits, reuse);
        }
        let mut runners = Self::of_ranks(&model, limits, reuse)?;
        let collectives =
            threads(runners.len(), DEADLINE).into_iter().map(|rank| Arc::new(rank) as Arc<dyn Collective>);
        let collectives: Vec<_> = collectives.collect();
        for (runner, collective) in runners.iter_mut().zip(&collectives) {
            runner.join(collective)?;
        }
        let others = runners.split_off(1);
        let mut runner = runners.remove(0);
        runner.team = Some(Team::start(collectives, others)?);
        Ok(runner)
    }

    /// The runner of rank 0 of several processes.
    fn of_first_process(model: Arc<Model>, group: Arc<RankGroup>, limits: Limits, reuse: Reuse) -> Result<Self> {
        group.start(limits, reuse)?;
        // From here on the team ends the runners of the other ranks.
        let team = Team::of_processes(group.clone());
        let mut runner = Self::of_process(model, &group, limits, reuse)
            .inspect_err(|error| group.collective().abort(&error.to_string()))?;
        runner.team = Some(team);
        Ok(runner)
    }

    /// The runner of this process, with the longest context that all ranks have room for.
    pub(crate) fn of_process(model: Arc<Model>, group: &RankGroup, limits: Limits, reuse: Reuse) -> Result<Self> {
        let plan = Plan::loaded(model.parts_of_plan(), &limits, model.precision, &model.backend, reuse)?;
        let limits = Limits { context: Some(group.least(plan.context)?), ..limits };
        let limits = if group.collective().rank() == 0 { limits } else { model.of_other_rank(limits) };
        let mut runner = Self::of_rank(model, limits, reuse)?;
        runner.join(group.collective())?;
        Ok(runner)
    }

    /// Sums over ranks from now on.
    fn join(&mut self, collective: &Arc<dyn Collective>) -> Result<()> {
        self.scratch.ranks = Some(collective.clone());
        // Layers in a row exchange rows through host memory.
        self.scratch.sums_on_device = self.model.sums.is_on_device() && !self.model.is_in_a_row();
        if self.scratch.sums_on_device {
            self.watch = Some(watch(collective.clone(), self.model.backend.clone())?);
        } else {
            // Sums are in host memory, which a graph does not have.
            self.graphs = Graphs::unavailable();
        }
        Ok(())
    }

    /// The runners of all ranks, with the longest context that all have room for.
    fn of_ranks(model: &Arc<Model>, limits: Limits, reuse: Reuse) -> Result<Vec<Self>> {
        let models = || std::iter::once(model).chain(&model.other_ranks);
        let plan = |model: &Arc<Model>| {
            Plan::loaded(model.parts_of_plan(), &limits, model.precision, &model.backend, reuse)
                .map(|plan| plan.context)
        };
        let contexts = models().map(plan).collect::<Result<Vec<_>>>()?;
        let limits = Limits { context: contexts.into_iter().min(), ..limits };
        let others = model.of_other_rank(limits);
        let limits = std::iter::once(limits).chain(std::iter::repeat(others));
        models().zip(limits).map(|(model, limits)| Self::of_rank(model.clone(), limits, reuse)).collect()
    }

    /// The runner of a device.
    fn of_rank(model: Arc<Model>, limits: Limits, reuse: Reuse) -> Result<Self> {
        // A plan for fewer tokens may have left more memory to slots.
        let plan = model.freeing_slots(|| {
            let plan = Plan::loaded(model.parts_of_plan(), &limits, model.precision, &model.backend, reuse)?;
            plan.check().map(|()| plan)
        })?;
        let backend = &*model.backend;
        let spec = &model.own;
        let tokens = limits.batch_tokens;
        let rows = limits.rows();
        let (rotaries, state, scratch, sampled, drafts) = model.freeing_slots(|| {
            let _exclusive = backend.exclusive();
            let sizes = [tokens, rows, limits.kept_tokens(backend)];
            Ok((
                model.weights.rotaries(spec, plan.context, backend)?,
                State::new(backend, spec, &limits, plan.context, reuse)?,
                Scratch::new(backend, &model.program.slots, model.precision, sizes)?,
                backend.alloc::<u32>(rows, "sampled tokens")?,
                Drafts::new(&model, rows)?,
            ))
        })?;
        let encoder = model.tower().cloned().map(|tower| Encoder::of_context(tower, plan.context, &limits.images));
        let mut scratch = scratch;
        if model.reads_images() {
            let _exclusive = backend.exclusive();
            if spec.has_whole_images() {
                let last = backend.alloc::<u32>(tokens, "the ends of images")?;
                scratch.ends = Some(ImageEnds { last, is_on: false });
            }
            scratch.axes = model.weights.axes(spec, &rotaries, tokens, backend)?;
        }
        Ok(Self {
            model,
            limits,
            plan,
            rotaries,
            state,
            scratch,
            encoder,
            grids: Grids::default(),
            sampled,
            sampled_rows: 0,
            drafts,
            places: Vec::new(),
            output_rows: Vec::new(),
            uploaded_rows: Uploaded::default(),
            hidden_rows: Vec::new(),
            last: None,
            last_tokens: 0,
            expert_counts: None,
            graphs: Graphs::default(),
            team: None,
            watch: None,
        })
    }

    /// The model.
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// The limits as they were given.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The memory that this runner takes.
    pub fn plan(&self) -> Plan {
        self.plan
    }

    /// Tiles of pictures that the tower has encoded. Rows of pictures that come again are kept.
    pub fn encoded_tiles(&self) -> usize {
        self.encoder.as_ref().map_or(0, Encoder::encoded)
    }

    /// Its captured forward passes.
    pub fn graphs(&self) -> GraphUsage {
        self.graphs.usage()
    }

    /// Tokens that one sequence may have.
    pub fn context(&self) -> usize {
        self.state.context()
    }

    /// Sends a call to the other ranks, before it is made here.
    fn lead(&mut self, call: impl FnOnce() -> Call) -> Result<()> {
        self.team.as_mut().map_or(Ok(()), |team| team.send(call()))
    }

    /// Makes a call on all ranks.
    fn on_ranks<T>(&mut self, call: impl FnOnce() -> Call, own: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.lead(call)?;
        let outcome = own(self);
        self.team.iter_mut().for_each(|team| team.note(&outcome));
        outcome
    }

    /// Makes a call with sums on all ranks. Sums of devices are matched by their order, and a device returns before it has run them. So the
    /// next step, which can be another runner's, waits until each rank has submitted this one.
    fn step_on_ranks<T>(&mut self, call: impl FnOnce() -> Call, own: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let outcome = self.on_ranks(call, own);
        let submitted = if self.team.is_some() { self.await_submission() } else { Ok(()) };
        outcome.and_then(|outcome| submitted.map(|()| outcome))
    }

    /// Waits until all ranks have submitted a step, if ranks are threads; another process has one runner.
    pub(crate) fn await_submission(&self) -> Result<()> {
        let ranks = self.scratch.ranks.as_ref();
        let ranks = ranks.filter(|_| self.scratch.sums_on_device && self.model.group.is_none());
        Ok(ranks.map_or(Ok(()), |ranks| ranks.all_reduce(&mut []))?)
    }

    /// The lengths of the sequences of a batch.
    pub(crate) fn lengths(&self, batch: &Batch) -> Result<Vec<usize>> {
        batch.parts.iter().map(|&(id, _)| self.state.len(id)).collect()
    }

    /// Turns [`Self::expert_counts`] on or off. While on, the device waits for the host after each layer, and
    /// [`Self::forward`] fails at the first layer whose output is not finite. A model whose layers are split counts nothing.
    pub fn count_experts(&mut self, on: bool) {
        // A lost rank is the error of the next pass.
        drop(self.lead(|| Call::CountExperts { is_on: on }));
        self.team.iter_mut().for_each(|team| team.note(&Ok(())));
        // Ranks with some of the layers would not stop at the same one.
        self.expert_counts = (on && !self.model.is_in_a_row()).then(Vec::new);
    }

    /// The choices of the routers in the last forward pass: for each layer, the (token, slot) pairs of each expert;
    /// empty for a layer without experts, and for all layers unless [`Self::count_experts`] is on.
    pub fn expert_counts(&self) -> &[Vec<u32>] {
        self.expert_counts.as_deref().unwrap_or_default()
    }

    /// Opens an empty sequence.
    ///
    /// # Errors
    /// [`Error::OutOfSequences`](crate::Error::OutOfSequences).
    pub fn open_sequence(&mut self) -> Result<SequenceId> {
        self.on_ranks(|| Call::Open, |own| own.state.open())
    }

    /// Opens a sequence of a tenant with the longest prefix of `tokens` that the tenant's prefix cache has
    /// ([`Self::keep_prefix`], [`Self::retire_sequence`]). Returns the length of this prefix. In a model with states of
    /// fixed size, a prefix ends where a sequence ended, or where it had a [`Self::next_checkpoint`]. In other models with
    /// prediction heads, it is shortened by one or two tokens, whose hidden states the heads need.
    ///
    /// # Errors
    /// [`Error::OutOfSequences`](crate::Error::OutOfSequences).
    pub fn open_sequence_with(&mut self, tenant: u64, tokens: &[u32]) -> Result<(SequenceId, usize)> {
        let call = || Call::OpenWith { tenant, tokens: tokens.to_vec() };
        self.on_ranks(call, |own| own.state.open_with(tenant, tokens))
    }

    /// Offers the state of a sequence, whose tokens start with `tokens`, to sequences that start alike, in blocks of
    /// [`KV_BLOCK`](gristmill_kernels::kv::KV_BLOCK) tokens. It is kept until its memory is needed.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`](crate::Error::UnknownSequence).
    pub fn keep_prefix(&mut self, sequence: SequenceId, tokens: &[u32]) -> Result<()> {
        let call = || Call::KeepPrefix { sequence, tokens: tokens.to_vec() };
        self.on_ranks(call, |own| own.state.keep(sequence, tokens))
    }

    /// Keeps the prefix as [`Self::keep_prefix`] does, with the last block if it is not full, and closes the sequence.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`](crate::Error::UnknownSequence).
    pub fn retire_sequence(&mut self, sequence: SequenceId, tokens: &[u32]) -> Result<()> {
        let call = || Call::Retire { sequence, tokens: tokens.to_vec() };
        self.on_ranks(call, |own| own.retire(sequence, tokens))
    }

    fn retire(&mut self, sequence: SequenceId, tokens: &[u32]) -> Result<()> {
        if self.has_fixed_size() {
            // The prefix cache gets the state after the text, without draft tokens.
            self.state.truncate(sequence, self.state.checkpoint(sequence, tokens.len())?)?;
            self.replay_if(self.state.is_due(sequence)?)?;
        }
        self.grids.forget(sequence);
        self.state.retire(sequence, tokens)
    }

    /// Removes from the prefix cache what [`Self::keep_prefix`] added of a sequence's tokens.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`](crate::Error::UnknownSequence).
    pub fn evict_prefix(&mut self, sequence: SequenceId) -> Result<()> {
        self.on_ranks(|| Call::EvictPrefix { sequence }, |own| own.state.evict_prefix(sequence))
    }

    /// The listener gets each change of the prefix cache from now on. It replaces an earlier listener.
    pub fn listen(&mut self, listener: KvListener) {
        self.state.listen(listener);
    }

    /// Removes a tenant's entries from the prefix cache, except blocks that open sequences use.
    pub fn evict_tenant(&mut self, tenant: u64) {
        // A lost rank is the error of the next pass.
        drop(self.lead(|| Call::EvictTenant { tenant }));
        self.state.evict_tenant(tenant);
    }

    /// Opens a sequence with the same tokens as another, which are neither computed nor copied again.
    ///
    /// # Errors
    /// [`Error::OutOfSequences`](crate::Error::OutOfSequences),
    /// [`Error::UnknownSequence`](crate::Error::UnknownSequence).
    pub fn fork_sequence(&mut self, sequence: SequenceId) -> Result<SequenceId> {
        self.on_ranks(|| Call::Fork { sequence }, |own| own.fork(sequence))
    }

    fn fork(&mut self, sequence: SequenceId) -> Result<SequenceId> {
        self.replay_if(self.state.is_due(sequence)?)?;
        let fork = self.state.fork(sequence)?;
        self.grids.fork(sequence, fork);
        Ok(fork)
    }

    /// Closes a sequence and frees its state.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`](crate::Error::UnknownSequence).
    pub fn close_sequence(&mut self, sequence: SequenceId) -> Result<()> {
        self.on_ranks(
            || Call::Close { sequence },
            |own| {
                own.grids.forget(sequence);
                own.state.close(sequence)
            },
        )
    }

    /// The contents of the KV cache.
    pub fn kv_usage(&self) -> KvUsage {
        self.state.usage()
    }

    /// Tokens that a sequence has.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`](crate::Error::UnknownSequence).
    pub fn sequence_len(&self, sequence: SequenceId) -> Result<usize> {
        self.state.len(sequence)
    }

    /// The least length above 0 to which a sequence can be truncated. Layers with a window keep little more than the
    /// window; at a shorter length, they lack keys and values that the next token sees.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`](crate::Error::UnknownSequence).
    pub fn shortest(&self, sequence: SequenceId) -> Result<usize> {
        self.state.shortest(sequence)
    }

    /// Shortens a sequence to its first `len` tokens; a shorter sequence stays as it is. Models whose layers have
    /// neither windows nor states of fixed size allow any length, all models allow 0.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`](crate::Error::UnknownSequence); [`Error::Forgotten`](crate::Error::Forgotten) for a
    /// length below [`Self::shortest`] that is not 0; [`Error::NoCheckpoint`](crate::Error::NoCheckpoint) for one that
    /// [`Self::checkpoint`] does not return.
    pub fn truncate(&mut self, sequence: SequenceId, len: usize) -> Result<()> {
        self.on_ranks(
            || Call::Truncate { sequence, len },
            |own| {
                own.state.truncate(sequence, len)?;
                own.grids.truncate(sequence, len);
                own.learn_hidden(sequence)
            },
        )
    }

    /// The greatest length, up to `len`, to which a sequence can be truncated; what follows it must be read again.
    /// Layers with a state of fixed size have that of the whole sequence, that before its last batch, and those within a
    /// batch of up to [`Limits::rollback_tokens`].
    ///
    /// # Errors
    /// [`Error::UnknownSequence`](crate::Error::UnknownSequence).
    pub fn checkpoint(&self, sequence: SequenceId, len: usize) -> Result<usize> {
        self.state.checkpoint(sequence, len)
    }

    /// The length at which a batch must end so that the prefix cache gets the state of a sequence there: layers with a
    /// state of fixed size have only the states of the last batches. `None` if there is no such length, as in all other
    /// models. A longer batch is correct, but sequences with the same prefix must compute it again.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`](crate::Error::UnknownSequence).
    pub fn next_checkpoint(&self, sequence: SequenceId) -> Result<Option<usize>> {
        self.state.next_checkpoint(sequence)
    }

    /// Plans a [`Self::next_checkpoint`] near `len` tokens, of which the sequence will have as many.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`](crate::Error::UnknownSequence).
    pub fn plan_checkpoint(&mut self, sequence: SequenceId, len: usize) -> Result<()> {
        let call = || Call::PlanCheckpoint { sequence, len };
        self.on_ranks(call, |own| own.state.plan_checkpoint(sequence, len))
    }

    /// The length of the start that the prefix cache will have of a sequence's first `len` tokens.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`](crate::Error::UnknownSequence).
    pub fn leaves(&self, sequence: SequenceId, len: usize) -> Result<usize> {
        self.state.leaves(sequence, len)
    }

    /// Whether there are layers whose state has a fixed size.
    pub fn has_fixed_size(&self) -> bool {
        self.state.has_fixed_size()
    }

    /// Tokens of the KV cache's blocks that these sequences have, in the terms of [`kv_usage`](Self::kv_usage). A block
    /// that several of them share counts once.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`](crate::Error::UnknownSequence).
    pub fn kv_tokens(&self, sequences: &[SequenceId]) -> Result<usize> {
        self.state.tokens_of(sequences)
    }

    /// Whether the KV cache has blocks for all these sequences to grow to these lengths.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`](crate::Error::UnknownSequence).
    pub fn fits(&self, lengths: &[(SequenceId, usize)]) -> Result<bool> {
        self.state.fits(lengths)
    }
}
