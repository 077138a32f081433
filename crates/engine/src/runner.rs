//! Runs a model: state and intermediate results of several sequences, one forward pass at a time.

mod graphs;
mod hidden;
mod logits;
mod routing;

use std::collections::HashSet;
use std::iter::repeat;
use std::sync::Arc;

pub use graphs::GraphUsage;
pub use logits::Logits;
pub use routing::RoutingTrace;

use gristmill_kernels::ops::{PADDING, Rotary};
use gristmill_kernels::tensor::Buffer;

use crate::batch::Batch;
use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::model::{Inspect, Model, PassOutputs, Scratch, first_not_finite, forward};
use crate::plan::Plan;
use crate::stage::Stage;
use crate::state::{KvUsage, Reuse, SequenceId, State, Step, Uploaded};
use graphs::{Graphs, LARGEST_CAPTURED};

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
    /// Token ids drawn by the sampler.
    drawn: Buffer<u32>,
    /// Sequence and position of each token of the last batch.
    places: Vec<(SequenceId, u32)>,
    /// Tokens of the last batch whose logits were computed.
    output_rows: Vec<u32>,
    /// These on the device.
    uploaded_rows: Uploaded,
    /// Tokens of the last batch whose hidden states are asked for.
    hidden_rows: Vec<u32>,
    /// The last forward pass.
    last: Option<StepShape>,
    /// See [`Self::expert_counts`].
    expert_counts: Option<Vec<Vec<u32>>>,
    graphs: Graphs,
}

/// The properties of a batch on which the operations of a forward pass depend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct StepShape {
    /// Tokens, padding included.
    tokens: usize,
    /// Rows of logits with their padding.
    outputs: PassOutputs,
    /// See [`Step`].
    step: Step,
}

impl Runner {
    /// Allocates for all that the limits allow.
    ///
    /// # Errors
    /// [`Error::Limit`] for a limit that is 0 or beyond the model, [`Error::Memory`] if it does not fit.
    pub fn new(model: Arc<Model>, limits: Limits) -> Result<Self> {
        Self::with(model, limits, Reuse::Prefixes)
    }

    /// A runner whose sequences may begin with what others have computed, or never do.
    pub(crate) fn with(model: Arc<Model>, limits: Limits, reuse: Reuse) -> Result<Self> {
        let plan = Plan::loaded(&model.spec, &limits, model.precision, &model.backend, reuse)?;
        plan.check()?;
        let (backend, spec) = (&*model.backend, &model.spec);
        let (tokens, rows) = (limits.batch_tokens, limits.rows());
        let exclusive = backend.exclusive();
        let rotaries = model.weights.rotaries(spec, plan.context, backend)?;
        let state = State::new(backend, spec, &limits, plan.context, reuse)?;
        let scratch = Scratch::new(backend, spec, model.precision, tokens, rows)?;
        let drawn = backend.alloc::<u32>(rows, "sampled tokens")?;
        drop(exclusive);
        Ok(Self {
            model,
            limits,
            plan,
            rotaries,
            state,
            scratch,
            drawn,
            places: Vec::new(),
            output_rows: Vec::new(),
            uploaded_rows: Uploaded::default(),
            hidden_rows: Vec::new(),
            last: None,
            expert_counts: None,
            graphs: Graphs::default(),
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

    /// Its captured forward passes.
    pub fn graphs(&self) -> GraphUsage {
        self.graphs.usage()
    }

    /// Tokens that one sequence may have.
    pub fn context(&self) -> usize {
        self.state.context()
    }

    /// Turns [`Self::expert_counts`] on or off. While on, the device waits for the host after each layer, and
    /// [`Self::forward`] fails at the first layer whose output is not finite.
    pub fn count_experts(&mut self, on: bool) {
        self.expert_counts = on.then(Vec::new);
    }

    /// The choices of the routers in the last forward pass: for each layer, the (token, slot) pairs of each expert;
    /// empty for a layer without experts, and for all layers unless [`Self::count_experts`] is on.
    pub fn expert_counts(&self) -> &[Vec<u32>] {
        self.expert_counts.as_deref().unwrap_or_default()
    }

    /// Opens an empty sequence.
    ///
    /// # Errors
    /// [`Error::OutOfSequences`].
    pub fn open_sequence(&mut self) -> Result<SequenceId> {
        self.state.open()
    }

    /// Opens a sequence of a tenant that begins as `tokens` do, as far as sequences of that tenant left the same
    /// beginning ([`Self::keep_prefix`], [`Self::retire_sequence`]) and it is still there. Returns the tokens that the
    /// sequence has. A model with layers whose state has a fixed size goes on where a sequence ended, or where it had a
    /// [`Self::next_checkpoint`].
    ///
    /// # Errors
    /// [`Error::OutOfSequences`].
    pub fn open_sequence_with(&mut self, tenant: u64, tokens: &[u32]) -> Result<(SequenceId, usize)> {
        self.state.open_with(tenant, tokens)
    }

    /// Offers the state of a sequence, whose tokens begin with `tokens`, to sequences that begin alike, in blocks of
    /// [`KV_BLOCK`](gristmill_kernels::kv::KV_BLOCK) tokens. It is kept until its memory is needed.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`].
    pub fn keep_prefix(&mut self, sequence: SequenceId, tokens: &[u32]) -> Result<()> {
        self.state.keep(sequence, tokens)
    }

    /// Keeps the prefix as [`Self::keep_prefix`] does, with the last block if it is not full, and closes the sequence.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`].
    pub fn retire_sequence(&mut self, sequence: SequenceId, tokens: &[u32]) -> Result<()> {
        self.state.retire(sequence, tokens)
    }

    /// Takes back what [`Self::keep_prefix`] offered of a sequence's tokens.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`].
    pub fn forget_prefix(&mut self, sequence: SequenceId) -> Result<()> {
        self.state.forget(sequence)
    }

    /// Opens a sequence with the same tokens as another, which are neither computed nor copied again.
    ///
    /// # Errors
    /// [`Error::OutOfSequences`], [`Error::UnknownSequence`].
    pub fn fork_sequence(&mut self, sequence: SequenceId) -> Result<SequenceId> {
        self.state.fork(sequence)
    }

    /// Closes a sequence and frees its state.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`].
    pub fn close_sequence(&mut self, sequence: SequenceId) -> Result<()> {
        self.state.close(sequence)
    }

    /// The contents of the KV cache.
    pub fn kv_usage(&self) -> KvUsage {
        self.state.usage()
    }

    /// Tokens that a sequence has.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`].
    pub fn sequence_len(&self, sequence: SequenceId) -> Result<usize> {
        self.state.len(sequence)
    }

    /// The least length above 0 to which a sequence can be shortened. Layers with a window keep little more than the
    /// window; at a shorter length, they lack keys and values that the next token sees.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`].
    pub fn shortest(&self, sequence: SequenceId) -> Result<usize> {
        self.state.shortest(sequence)
    }

    /// Shortens a sequence to its first `len` tokens; a shorter sequence stays as it is. Models whose layers have
    /// neither windows nor states of fixed size allow any length, all models allow 0.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`]; [`Error::Forgotten`] for a length below [`Self::shortest`] that is not 0;
    /// [`Error::NoCheckpoint`] for one that [`Self::checkpoint`] does not return.
    pub fn truncate(&mut self, sequence: SequenceId, len: usize) -> Result<()> {
        self.state.truncate(sequence, len)
    }

    /// The greatest length, up to `len`, to which a sequence can be shortened; what follows it must be read again.
    /// Layers with a state of fixed size have that of the whole sequence and that before its last batch, and no other.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`].
    pub fn checkpoint(&self, sequence: SequenceId, len: usize) -> Result<usize> {
        self.state.checkpoint(sequence, len)
    }

    /// The length at which a batch must end so that the prefix cache gets the state of a sequence there: layers with a
    /// state of fixed size have that of the last batches alone. `None` if no such length is ahead, as in all other
    /// models. A longer batch costs others of the same beginning time, and is not wrong.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`].
    pub fn next_checkpoint(&self, sequence: SequenceId) -> Result<Option<usize>> {
        self.state.next_checkpoint(sequence)
    }

    /// Plans a [`Self::next_checkpoint`] near `len` tokens, of which the sequence will have as many.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`].
    pub(crate) fn plan_checkpoint(&mut self, sequence: SequenceId, len: usize) -> Result<()> {
        self.state.plan_checkpoint(sequence, len)
    }

    /// The length of the beginning that the prefix cache will have of a sequence's first `len` tokens.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`].
    pub(crate) fn leaves(&self, sequence: SequenceId, len: usize) -> Result<usize> {
        self.state.leaves(sequence, len)
    }

    /// Whether there are layers whose state has a fixed size.
    pub(crate) fn has_fixed_size(&self) -> bool {
        self.state.has_fixed_size()
    }

    /// Whether the KV cache has blocks for all these sequences to grow to these lengths.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`].
    pub(crate) fn fits(&self, lengths: &[(SequenceId, usize)]) -> Result<bool> {
        self.state.fits(lengths)
    }

    /// Appends the batch's tokens to their sequences and computes the logits and the hidden states that it asks for.
    ///
    /// # Errors
    /// [`Error::BatchTooLarge`], [`Error::SplitSequence`], [`Error::Token`], [`Error::ContextOverflow`],
    /// [`Error::UnknownSequence`], [`Error::OutOfBlocks`] with [`Limits::kv_tokens`], [`Error::NotFinite`] if experts
    /// are counted. All sequences are then as before.
    pub fn forward(&mut self, batch: &Batch) -> Result<Logits<'_>> {
        self.check(batch)?;
        let model = self.model.clone();
        let exclusive = model.backend.exclusive();
        let before = batch.parts.iter().map(|&(id, _)| Ok((id, self.state.len(id)?))).collect::<Result<Vec<_>>>()?;
        if let Err(error) = self.run(batch) {
            for (id, len) in before {
                self.state.truncate(id, len)?;
            }
            return Err(error);
        }
        drop(exclusive);
        Ok(Logits { runner: self })
    }

    fn check(&self, batch: &Batch) -> Result<()> {
        let room =
            [("tokens", batch.len(), self.limits.batch_tokens), ("output rows", batch.outputs(), self.limits.rows())];
        if let Some((what, found, limit)) = room.into_iter().find(|(_, found, limit)| found > limit) {
            return Err(Error::BatchTooLarge { what, found, limit });
        }
        let mut met = HashSet::new();
        let mut parts = batch.parts.chunk_by(|a, b| a.0 == b.0);
        if self.has_fixed_size() && !parts.all(|part| met.insert(part[0].0)) {
            return Err(Error::SplitSequence);
        }
        let vocab = self.model.spec.vocab;
        match batch.tokens.iter().position(|&id| id as usize >= vocab) {
            Some(index) => Err(Error::Token { id: batch.tokens[index], index, vocab }),
            None => Ok(()),
        }
    }

    fn run(&mut self, batch: &Batch) -> Result<()> {
        let backend = &*self.model.backend;
        self.expert_counts.iter_mut().for_each(Vec::clear);
        self.places.clear();
        self.last = None;
        self.output_rows.clone_from(&batch.output_rows);
        self.hidden_rows.clone_from(&batch.hidden_rows);
        for part in batch.parts.chunk_by(|a, b| a.0 == b.0) {
            let (id, tokens) = (part[0].0, part.iter().map(|(_, tokens)| tokens).sum());
            let start = self.state.len(id)?;
            self.state.append(backend, id, tokens)?;
            // A context is far below 2^32.
            self.places.extend((start..start + tokens).map(|position| (id, position as u32)));
        }
        if batch.is_empty() {
            return Ok(());
        }
        let bucket = |n| if batch.len() > LARGEST_CAPTURED { n } else { backend.batch_bucket(n) };
        let tokens = bucket(batch.len()).min(self.limits.batch_tokens);
        let rows = bucket(batch.outputs()).min(self.limits.rows());
        let outputs = match (rows, batch.hidden_rows.is_empty()) {
            (0, true) => PassOutputs::None,
            (0, false) => PassOutputs::Hidden,
            (rows, _) => PassOutputs::Logits { rows },
        };
        let padded =
            |values: &[u32], len| values.iter().copied().chain(repeat(PADDING)).take(len).collect::<Vec<u32>>();
        let step = self.state.place(backend, &self.places, tokens)?;
        backend.upload(&padded(&batch.tokens, tokens), &mut self.scratch.tokens)?;
        let output_rows = padded(&batch.output_rows, rows);
        self.uploaded_rows.bring(backend, &output_rows, &mut self.scratch.output_rows)?;
        let shape = StepShape { tokens, outputs, step };
        self.last = Some(shape);
        if self.expert_counts.is_none() {
            return self.step(shape);
        }
        self.inspected_step(shape, |_| true, &mut |_, _| Ok(()))?;
        self.expert_counts = Some(self.read_routing()?.counts());
        Ok(())
    }

    /// The forward pass, replayed if one of this shape was captured.
    fn step(&mut self, shape: StepShape) -> Result<()> {
        let StepShape { tokens, outputs, .. } = shape;
        let Self { model, rotaries, state, scratch, graphs, .. } = self;
        let mut pass = || forward(&model.backend, model, rotaries, state, scratch, tokens, outputs, &mut |_, _| Ok(()));
        graphs.run(&model.backend, shape, &mut pass)
    }

    /// A forward pass that nothing is captured of or replayed for.
    fn pass(&mut self, shape: StepShape, inspect: &mut Inspect) -> Result<()> {
        let Self { model, rotaries, state, scratch, .. } = self;
        forward(&model.backend, model, rotaries, state, scratch, shape.tokens, shape.outputs, inspect)
    }

    /// A forward pass that fails at the first stage whose output is not finite for a token that `counts` admits.
    fn inspected_step(
        &mut self,
        shape: StepShape,
        counts: impl Fn(usize) -> bool,
        inspect: &mut Inspect,
    ) -> Result<()> {
        let (model, places) = (self.model.clone(), self.places.clone());
        let sizes = [places.len(), model.spec.hidden];
        self.pass(shape, &mut |stage, scratch| match first_not_finite(&model.backend, scratch, sizes, &counts)? {
            Some(token) => Err(Error::NotFinite { stage, position: places[token].1 }),
            None => inspect(stage, scratch),
        })
    }

    /// Why a row of the last forward pass's logits is not finite.
    pub(crate) fn not_finite(&mut self, row: usize) -> Error {
        self.not_finite_token(self.output_rows[row] as usize)
    }

    /// Why the outputs of a token of the last batch are not finite. The pass runs again and writes the same keys and
    /// values to the same places; this time the residual stream of the token, and of those that it can see, is looked
    /// at between the stages.
    fn not_finite_token(&mut self, token: usize) -> Error {
        let Some(shape) = self.last else { return Error::UnknownSequence };
        let model = self.model.clone();
        let _exclusive = model.backend.exclusive();
        let (places, (sequence, position)) = (self.places.clone(), self.places[token]);
        let seen = |other: usize| other <= token && places[other].0 == sequence;
        let inspected = self.inspected_step(shape, seen, &mut |_, _| Ok(()));
        inspected.err().unwrap_or(Error::NotFinite { stage: Stage::Output, position })
    }
}
