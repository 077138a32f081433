//! Draft tokens of the prediction heads.
//!
//! # Prediction heads
//!
//! In `program/build/heads.rs`, `state/heads.rs`, `runner/draft.rs`. A head is one more layer, built by the same
//! functions. Its input is the embedding of a token and the hidden state of the token before it. The head's row of a
//! token is in the same blocks, slots and positions as the token's keys and values. So the row depends on no later
//! token, and forks, truncation and the prefix cache treat it like keys and values. A text's first token has no hidden
//! state before it; its row is visible only to itself (`AttentionOptions::first`). Each forward pass writes the rows of
//! its tokens: it runs the head up to the node that writes the cache, without attention, MLP and logits. The hidden
//! state of a sequence's last token is kept as a state of fixed size with two slots; a convolution with the taps 1 and
//! 0 gives each token the hidden state before it. `Runner::draft` runs the whole head for one token of each sequence.
//! Then the head's output and its most likely token are the input of the next step, and both stay on the device.
//! Whether heads read normalised rows, and whether they form a chain, is data of the model (`HeadInputs`). Heads that
//! form no chain read the model's rows, each one token further back than the head before it. Draft rows are overwritten
//! when the tokens are read. In a model without other states of fixed size, a sequence that starts with cached blocks
//! computes the last cached token again (or two, if the last is alone in its block), because its hidden state is not
//! cached. The second head of a chain reads the outputs of the first, so a forward pass runs the whole first head, and
//! a sequence has a hidden state for each head, as states of fixed size with checkpoints and replays. When they draft,
//! each head drafts its token and the last one all further ones. In each step the heads also compute the rows that
//! later heads need, the last head first. A file of heads alone is joined to the model's file (`model/src/heads.rs`,
//! `files/src/gguf/joined.rs`); the rest of gristmill sees one file. *The logits of the model are the same bits with
//! and without heads. A sequence whose rows are incomplete gets no drafts; the prefix cache marks its blocks.*

use std::cmp::Reverse;
use std::collections::HashSet;

use gristmill_kernels::ops::{Argmax, CopyRows};
use gristmill_kernels::tensor::Buffer;

use super::{PassKind, Runner, StepShape};
use crate::error::Result;
use crate::model::Model;
use crate::program::run::{PassOutputs, predict};
use crate::ranks::{Call, DraftCall};
use crate::state::SequenceId;

/// The most tokens that are drafted for a sequence at once.
pub(crate) const MOST_DRAFTS: usize = 16;

/// A sequence whose next tokens are drafted.
#[derive(Clone, Copy, Debug)]
pub struct DraftOrder<'a> {
    /// The sequence.
    pub sequence: SequenceId,
    /// The tokens of the sequence in this runner, then the token that follows them.
    pub text: &'a [u32],
    /// The most tokens to draft.
    pub count: usize,
}

/// Draft tokens on the device.
#[derive(Debug)]
pub(super) struct Drafts {
    /// Of one step: one for each sequence.
    step: Buffer<u32>,
    /// Of all steps.
    all: Buffer<u32>,
}

impl Drafts {
    /// For `rows` sequences at once; nothing without prediction heads.
    pub(super) fn new(model: &Model, rows: usize) -> Result<Self> {
        let rows = if model.prediction_heads() > 0 { rows } else { 0 };
        let alloc = |tokens| model.backend.alloc::<u32>(tokens, "draft tokens");
        Ok(Self { step: alloc(rows)?, all: alloc(rows.saturating_mul(MOST_DRAFTS))? })
    }
}

/// An order that can be carried out.
struct Job {
    order: usize,
    sequence: SequenceId,
    /// The position of the token that follows the sequence's.
    position: usize,
    token: u32,
    count: usize,
}

impl Runner {
    /// For each order, the tokens that follow `text` most likely, according to the prediction heads. The first is the most
    /// likely one after `text`; each further one is the most likely one after those before it. The first head drafts the
    /// first token, the second head the second one, and so on; the last head drafts all further ones, if heads are chained
    /// ([`HeadInputs`](crate::spec::HeadInputs)). Fewer than `count` if the context or the KV cache ends, and at most
    /// [`Model::most_drafts`]. None without loaded heads, and none for a sequence that lacks what a head
    /// needs: one that was truncated to a length before its last batch, until it is truncated to 0.
    ///
    /// The sequences stay as they are. The logits, the choices of the routers and the hidden states of the last forward
    /// pass are lost. Sampled tokens stay ([`Batch::push_sampled`](crate::Batch::push_sampled)).
    ///
    /// # Errors
    /// [`Error::UnknownSequence`](crate::Error::UnknownSequence); [`Error::Kernel`](crate::Error::Kernel) if the device
    /// refuses.
    pub fn draft(&mut self, orders: &[DraftOrder<'_>]) -> Result<Vec<Vec<u32>>> {
        let orders = self.draft_calls(orders)?;
        self.drafted(&orders, |own| {
            let model = own.model.clone();
            model.freeing_slots(|| own.draft_once(&orders))
        })
    }

    /// Drafts on all ranks: each has the heads, and finds the same tokens.
    fn drafted<T>(&mut self, orders: &[DraftCall], own: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let ranks = self.team.is_some().then(|| self.model.clone());
        let _step = ranks.as_ref().map(|model| model.step_on_ranks());
        self.step_on_ranks(|| Call::Draft { orders: orders.to_vec() }, own)
    }

    fn draft_calls(&self, orders: &[DraftOrder<'_>]) -> Result<Vec<DraftCall>> {
        let call = |&DraftOrder { sequence, text, count }: &DraftOrder<'_>| {
            Ok(DraftCall { sequence, token: text.get(self.state.len(sequence)?).copied(), count })
        };
        orders.iter().map(call).collect()
    }

    pub(crate) fn draft_once(&mut self, orders: &[DraftCall]) -> Result<Vec<Vec<u32>>> {
        self.replay_if(self.state.needs_replay())?;
        let mut drafts = vec![Vec::new(); orders.len()];
        let mut jobs = self.jobs(orders)?;
        // The rows of the sequences that get most tokens come first, so that each step has the first rows of the last.
        jobs.sort_by_key(|job| Reverse(job.count));
        let model = self.model.clone();
        let _exclusive = model.backend.exclusive();
        for jobs in jobs.chunks_mut(self.limits.rows().min(self.limits.batch_tokens)) {
            let reserved = self.reserve(jobs);
            let drafted = reserved.and_then(|()| self.chain(jobs, &mut |_| Ok(())));
            jobs.iter().try_for_each(|job| self.state.release_drafts(job.sequence))?;
            for (job, tokens) in jobs.iter().zip(drafted?) {
                drafts[job.order] = tokens;
            }
        }
        Ok(drafts)
    }

    /// The logits from which [`Self::draft`] takes the tokens of one order, for tests: a row for each token.
    #[doc(hidden)]
    pub fn draft_logits(&mut self, order: DraftOrder<'_>) -> Result<Vec<f32>> {
        let orders = self.draft_calls(&[order])?;
        self.drafted(&orders, |own| own.draft_logits_once(&orders))
    }

    fn draft_logits_once(&mut self, orders: &[DraftCall]) -> Result<Vec<f32>> {
        self.replay_if(self.state.needs_replay())?;
        let mut jobs = self.jobs(orders)?;
        let model = self.model.clone();
        let mut all = Vec::new();
        let _exclusive = model.backend.exclusive();
        self.reserve(&mut jobs)?;
        let mut row = vec![0.0; model.spec.vocab];
        self.chain(&jobs, &mut |logits| {
            model.backend.download(logits.view(1, row.len())?, &mut row)?;
            all.extend_from_slice(&row);
            Ok(())
        })?;
        jobs.iter().try_for_each(|job| self.state.release_drafts(job.sequence))?;
        Ok(all)
    }

    /// The orders of sequences whose tokens have all rows of the heads, each sequence once.
    fn jobs(&self, orders: &[DraftCall]) -> Result<Vec<Job>> {
        let (mut jobs, mut met) = (Vec::new(), HashSet::new());
        for (order, &DraftCall { sequence, token, count }) in orders.iter().enumerate() {
            let position = self.state.len(sequence)?;
            let count = count.min(self.model.most_drafts()).min(self.state.context() - position);
            let is_known = self.state.predicting(sequence, 0)?.is_some();
            let token = token.filter(|&token| (token as usize) < self.model.spec.vocab);
            if let Some(token) = token
                && is_known
                && count > 0
                && met.insert(sequence)
            {
                jobs.push(Job { order, sequence, position, token, count });
            }
        }
        Ok(jobs)
    }

    /// Takes the blocks for draft tokens; a job for which there are too few gets no tokens.
    fn reserve(&mut self, jobs: &mut [Job]) -> Result<()> {
        for job in jobs.iter_mut() {
            if !self.state.reserve_drafts(&self.model.backend, job.sequence, job.count)? {
                job.count = 0;
            }
        }
        jobs.sort_by_key(|job| Reverse(job.count));
        Ok(())
    }

    /// Drafts the tokens of all jobs, one of each job in a step. `inspect` gets the logits of each step.
    fn chain(&mut self, jobs: &[Job], inspect: &mut dyn FnMut(&Buffer<f32>) -> Result<()>) -> Result<Vec<Vec<u32>>> {
        let model = self.model.clone();
        let backend = &*model.backend;
        let width = model.spec.hidden;
        let rows_at = |step: usize| jobs.iter().take_while(|job| job.count > step).count();
        let steps = jobs.first().map_or(0, |job| job.count);
        let all = rows_at(0);
        let heads = &model.program.heads;
        if heads.is_empty() || steps == 0 {
            return Ok(vec![Vec::new(); jobs.len()]);
        }
        // What the last forward pass left is overwritten.
        self.last = None;
        let tokens: Vec<u32> = jobs[..all].iter().map(|job| job.token).collect();
        backend.upload(&tokens, &mut self.scratch.tokens)?;
        // Each token has logits.
        self.uploaded_rows.bring(backend, &(0..all as u32).collect::<Vec<_>>(), &mut self.scratch.output_rows)?;
        for (at, head) in heads.iter().enumerate() {
            let mut previous = self.scratch.rows_mut(head.previous);
            for (row, job) in jobs[..all].iter().enumerate() {
                let Some(x) = self.state.predicting(job.sequence, at)? else { continue };
                backend.run(CopyRows { x, out: previous.view_mut_at(row * width, 1, width)? })?;
            }
        }
        self.scratch.ends.iter_mut().for_each(|ends| ends.is_on = false);
        for step in 0..steps {
            let rows = rows_at(step);
            // A context is far below 2^32.
            let place = |job: &Job| (job.sequence, (job.position + step) as u32);
            let places: Vec<_> = jobs[..rows].iter().map(place).collect();
            let placed = self.state.place_drafts(backend, &places)?;
            let has_axes = self.place_axes(&places, rows)?;
            // Each head drafts its token, the last one all further ones. The heads after it compute their rows of this token.
            let outputs = PassOutputs::Logits { rows };
            let first = step.min(heads.len() - 1);
            let kind = PassKind::Draft(first);
            let has_pictures = false;
            let shape = StepShape { tokens: rows, outputs, argmax: true, kind, step: placed, has_pictures, has_axes };
            let Self { rotaries, state, scratch, graphs, drafts, .. } = &mut *self;
            graphs.run(backend, shape, &mut || {
                predict(backend, &model, &heads[first..], rotaries, state, scratch, rows)?;
                let logits = scratch.rows(model.program.logits);
                let out = drafts.step.view_mut(rows, 1)?;
                Ok(backend.run(Argmax { x: logits.view(rows, model.spec.vocab)?, out })?)
            })?;
            inspect(&self.scratch.rows(model.program.logits))?;
            backend.copy(self.drafts.step.view(1, rows)?, &mut self.scratch.tokens, 0)?;
            backend.copy(self.drafts.step.view(1, rows)?, &mut self.drafts.all, step * all)?;
        }
        let mut ids = vec![0; steps * all];
        backend.download(self.drafts.all.view(1, ids.len())?, &mut ids)?;
        // A row that is not finite has no most likely token; what follows it means nothing.
        let of_job = |(row, job): (usize, &Job)| {
            let ids = (0..job.count).map(|step| ids[step * all + row]);
            ids.take_while(|&id| (id as usize) < model.spec.vocab).collect()
        };
        Ok(jobs.iter().enumerate().map(of_job).collect())
    }

    /// Keeps the hidden state of a sequence's last token if the last forward pass computed it: a sequence was truncated.
    pub(super) fn learn_hidden(&mut self, sequence: SequenceId) -> Result<()> {
        if !self.state.lacks_hidden(sequence)? {
            return Ok(());
        }
        let last = (sequence, (self.state.len(sequence)? - 1) as u32);
        let Some(row) = self.places.iter().position(|place| *place == last) else { return Ok(()) };
        let model = self.model.clone();
        let width = self.model.spec.hidden;
        let _exclusive = model.backend.exclusive();
        let Some((to, buffer)) = self.state.learn_hidden(sequence)? else { return Ok(()) };
        let hidden = self.scratch.rows(model.program.head_input);
        let x = hidden.view(1, (row + 1) * width)?.columns(row * width..(row + 1) * width)?;
        Ok(model.backend.run(CopyRows { x, out: buffer.view_mut_at(to * width, 1, width)? })?)
    }
}
