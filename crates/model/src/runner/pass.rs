//! One forward pass: a batch is checked, placed and uploaded, and its pass captured or replayed.

use std::collections::HashSet;
use std::iter::repeat;
use std::ops::Range;

use gristmill_kernels::ops::PADDING;
use gristmill_vision::ImageSpan;

use super::graphs::largest_captured;
use super::logits::take_argmax;
use super::{Logits, PassKind, Runner, StepShape};
use crate::batch::{Batch, BatchImage};
use crate::error::{Error, Result};
use crate::inspect::{Inspect, first_not_finite};
use crate::program::forced::ForcedExperts;
use crate::program::run::{PassOutputs, forward};
use crate::program::scratch::{PictureRows, Scratch};
use crate::ranks::{Call, Pictures};
use crate::stage::Stage;
use crate::state::SequenceId;
use crate::tower::WantedTile;

/// The token whose per-layer inputs tokens of images have: Gemma's padding token.
const IMAGE_INPUTS: u32 = 0;

/// The images of which tokens are at these positions.
fn of_positions<'a>(spans: &'a [ImageSpan], positions: &Range<usize>) -> impl Iterator<Item = &'a ImageSpan> {
    let Range { start, end } = *positions;
    spans.iter().filter(move |span| span.start < end && start < span.start.saturating_add(span.tokens))
}

impl Runner {
    /// Appends the batch's tokens to their sequences and computes the logits and the hidden states that it requests.
    ///
    /// # Errors
    /// [`Error::BatchTooLarge`], [`Error::SplitSequence`], [`Error::Token`], [`Error::NotSampled`],
    /// [`Error::ContextOverflow`], [`Error::UnknownSequence`], [`Error::OutOfBlocks`] with
    /// [`Limits::kv_tokens`](crate::Limits::kv_tokens), [`Error::NotFinite`] if experts are counted. All sequences are
    /// then as before.
    pub fn forward(&mut self, batch: &Batch) -> Result<Logits<'_>> {
        self.forward_with(batch, None)
    }

    /// [`Self::forward`] with these experts in place of the routers' choices, of each token in the batch's order. Experts are
    /// summed up in the order of their weights. The routers of prediction heads choose for themselves.
    ///
    /// The first call allocates 4 bytes for each expert of each layer, for each token of [`Limits::batch_tokens`].
    ///
    /// # Errors
    /// The errors of [`Self::forward`]; [`Error::ForcedTokens`] and [`Error::ForcedExperts`] for experts that do not belong to the
    /// batch or the model.
    ///
    /// [`Limits::batch_tokens`]: crate::Limits::batch_tokens
    pub fn forward_forced(&mut self, batch: &Batch, experts: &[ForcedExperts]) -> Result<Logits<'_>> {
        if self.model.is_in_a_row() {
            let reason = "experts cannot be forced in a model whose layers are split; use another split, or one device";
            return Err(Error::Split { reason: reason.to_owned() });
        }
        if experts.len() != batch.len() {
            return Err(Error::ForcedTokens { found: experts.len(), tokens: batch.len() });
        }
        let routers = self.model.spec.routers();
        experts.iter().try_for_each(|experts| experts.check(&routers))?;
        self.forward_with(batch, Some(experts))
    }

    /// If memory is too little, slots for experts are freed and the pass starts again.
    fn forward_with(&mut self, batch: &Batch, experts: Option<&[ForcedExperts]>) -> Result<Logits<'_>> {
        self.check(batch)?;
        if self.team.is_some() {
            self.forward_on_ranks(batch, experts)?;
            return Ok(Logits { runner: self });
        }
        let model = self.model.clone();
        model.freeing_slots(|| self.attempt(batch, experts, |own| own.encode(batch)))?;
        Ok(Logits { runner: self })
    }

    /// The pass of another rank.
    pub(crate) fn forward_of_rank(
        &mut self,
        batch: &Batch,
        pictures: &Pictures,
        experts: Option<&[ForcedExperts]>,
    ) -> Result<()> {
        self.check(batch)?;
        self.attempt(batch, experts, |own| own.take_pictures(pictures))
    }

    /// The pass of rank 0. The other ranks get the sampled tokens, and compute no outputs.
    fn forward_on_ranks(&mut self, batch: &Batch, experts: Option<&[ForcedExperts]>) -> Result<()> {
        let batch = self.with_sampled(batch)?;
        let lengths = self.lengths(&batch)?;
        let model = self.model.clone();
        let _step = model.step_on_ranks();
        // A picture that cannot be read is an error before other ranks know of it.
        let pictures = self.encoded(&batch)?;
        let call = || {
            let (output_rows, hidden_rows, argmax) = (Vec::new(), Vec::new(), false);
            let (images, sequence_images) = (Vec::new(), Vec::new());
            let batch = Box::new(Batch { output_rows, hidden_rows, argmax, images, sequence_images, ..batch.clone() });
            Call::Forward { batch, pictures, experts: experts.map(<[_]>::to_vec), lengths }
        };
        self.step_on_ranks(call, |own| own.attempt(&batch, experts, |_| Ok(())))
    }

    /// Encodes the pictures of a batch, for all ranks.
    fn encoded(&mut self, batch: &Batch) -> Result<Pictures> {
        let model = self.model.clone();
        let _exclusive = model.backend.exclusive();
        self.encode(batch)?;
        self.pictures(batch)
    }

    /// A batch with the tokens that were sampled on the device.
    fn with_sampled(&self, batch: &Batch) -> Result<Batch> {
        let mut batch = batch.clone();
        if batch.sampled.is_empty() {
            return Ok(batch);
        }
        let model = &self.model;
        let _exclusive = model.backend.exclusive();
        let mut sampled = vec![0; self.sampled_rows];
        model.backend.download(self.sampled.view(1, self.sampled_rows)?, &mut sampled)?;
        for (at, row) in std::mem::take(&mut batch.sampled) {
            // Of a row that is not finite nothing was sampled; the caller discards what is computed of it.
            batch.tokens[at] = sampled.get(row).copied().filter(|&id| id != PADDING).unwrap_or(0);
        }
        Ok(batch)
    }

    /// Runs a batch, whose pictures `encode` puts into the scratch. After an error, all sequences are as before.
    fn attempt(
        &mut self,
        batch: &Batch,
        experts: Option<&[ForcedExperts]>,
        encode: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        self.replay_if(self.state.needs_replay())?;
        let model = self.model.clone();
        let _exclusive = model.backend.exclusive();
        let before = batch.parts.iter().map(|&(id, _)| Ok((id, self.state.len(id)?))).collect::<Result<Vec<_>>>()?;
        let outcome = encode(self).and_then(|()| self.run(batch, experts));
        if outcome.is_err() {
            for (id, len) in before {
                self.state.truncate(id, len)?;
            }
            // Nothing is known of its tokens.
            self.places.clear();
        }
        outcome
    }

    fn check(&self, batch: &Batch) -> Result<()> {
        let room =
            [("tokens", batch.len(), self.limits.batch_tokens), ("output rows", batch.outputs(), self.limits.rows())];
        if let Some((what, found, limit)) = room.into_iter().find(|(_, found, limit)| found > limit) {
            return Err(Error::BatchTooLarge { what, found, limit });
        }
        let mut met = HashSet::new();
        let mut parts = batch.parts.chunk_by(|a, b| a.0 == b.0);
        if (self.has_fixed_size() || self.model.prediction_heads() > 0) && !parts.all(|part| met.insert(part[0].0)) {
            return Err(Error::SplitSequence);
        }
        if let Some(&(_, row)) = batch.sampled.iter().find(|(_, row)| *row >= self.sampled_rows) {
            return Err(Error::NotSampled { row, rows: self.sampled_rows });
        }
        let vocab = self.model.spec.vocab;
        match batch.tokens.iter().position(|&id| id as usize >= vocab) {
            Some(index) => Err(Error::Token { id: batch.tokens[index], index, vocab }),
            None => Ok(()),
        }
    }

    /// Whether the images of a sequence's tokens at these positions need no pass of the tower before a batch with them; or are
    /// so many that their rows are not kept.
    pub fn has_images(&self, spans: &[ImageSpan], positions: &Range<usize>) -> bool {
        let Some(encoder) = &self.encoder else { return true };
        let images: Vec<&ImageSpan> = of_positions(spans, positions).collect();
        images.iter().all(|span| encoder.has_rows((&span.image, span.tile)))
            || !encoder.keeps(images.iter().map(|span| span.tokens).sum())
    }

    /// Computes up to this number of further parts (a layer is one) of a pass of the tower for images of these sequences, each
    /// with the positions of the tokens that a batch will have. The first image that lacks its rows is in the pass, with
    /// further ones while they are small. A batch with the images computes what is left.
    ///
    /// # Errors
    /// [`Error::Picture`] for a first image that the tower cannot read, [`Error::Memory`] if memory is too little for it.
    pub fn encode_images(&mut self, waiting: &[(&[ImageSpan], Range<usize>)], parts: usize) -> Result<()> {
        let Some(encoder) = &mut self.encoder else { return Ok(()) };
        let model = self.model.clone();
        let _exclusive = model.backend.exclusive();
        let spans = waiting.iter().flat_map(|(spans, positions)| of_positions(spans, positions));
        let wanted: Vec<WantedTile> = spans.map(|span| (&*span.image, span.tile)).collect();
        encoder.advance(&wanted, parts)
    }

    /// The rows of the batch's pictures, which the tower computes before anything of the sequences changes.
    fn encode(&mut self, batch: &Batch) -> Result<()> {
        self.scratch.pictures.clear();
        if let (Some(_), Some(encoder)) = (&self.scratch.axes, &self.encoder) {
            self.grids.note(batch, encoder.tower())?;
        }
        let wanted: Vec<WantedTile> = batch.images.iter().map(|image| (&*image.image, image.tile)).collect();
        for (index, &BatchImage { at, tokens, first, .. }) in batch.images.iter().enumerate() {
            let no_tower = || Error::NoTower { architecture: self.model.spec.architecture.clone() };
            let rows = self.encoder.as_mut().ok_or_else(no_tower)?.rows(&wanted[index..])?;
            let levels = 1 + self.model.spec.picture_layers;
            let of_tile = rows.len() / self.model.spec.hidden / levels;
            if first.checked_add(tokens).is_none_or(|end| end > of_tile) {
                let reason = format!(
                    "tokens {first}… of a tile (found {tokens}, expected an end at {of_tile}); use the tower's layout"
                );
                return Err(Error::Picture { reason });
            }
            if self.scratch.ends.is_some() && first + tokens < of_tile {
                let reason = format!(
                    "a step has {tokens} of {of_tile} tokens; its tokens see each other, so one step must have all of them"
                );
                return Err(Error::Picture { reason });
            }
            self.scratch.pictures.push(PictureRows { rows, first, at, tokens, levels });
        }
        Ok(())
    }

    /// Uploads the positions of tokens, if they have several that differ.
    pub(super) fn place_axes(&mut self, places: &[(SequenceId, u32)], padded: usize) -> Result<bool> {
        let Some(axes) = &mut self.scratch.axes else { return Ok(false) };
        axes.is_on = self.grids.concern(places);
        if axes.is_on {
            let mut positions = self.grids.positions(places);
            positions.iter_mut().for_each(|of_axis| of_axis.resize(padded, 0));
            axes.place(&self.model.backend, &positions)?;
        }
        Ok(axes.is_on)
    }

    /// Uploads the last position that each token sees, if the batch has images whose tokens see each other.
    fn place_ends(&mut self, padded: usize) -> Result<()> {
        let Scratch { ends: Some(ends), pictures, .. } = &mut self.scratch else { return Ok(()) };
        ends.is_on = !pictures.is_empty();
        if !ends.is_on {
            return Ok(());
        }
        let mut last: Vec<u32> = self.places.iter().map(|(_, position)| *position).collect();
        for &PictureRows { at, tokens, .. } in &*pictures {
            if let Some([of_image @ .., end]) = last.get_mut(at..at + tokens) {
                of_image.fill(*end);
            }
        }
        last.resize(padded, 0);
        Ok(self.model.backend.upload(&last, &mut ends.last)?)
    }

    fn run(&mut self, batch: &Batch, experts: Option<&[ForcedExperts]>) -> Result<()> {
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
        let bucket = |n| if batch.len() > largest_captured(backend) { n } else { backend.batch_bucket(n) };
        let tokens = bucket(batch.len()).min(self.limits.batch_tokens);
        let rows = bucket(batch.outputs()).min(self.limits.rows());
        let outputs = match (rows, batch.hidden_rows.is_empty()) {
            (0, true) => PassOutputs::None,
            (0, false) => PassOutputs::Hidden,
            (rows, _) => PassOutputs::Logits { rows },
        };
        let padded =
            |values: &[u32], len| values.iter().copied().chain(repeat(PADDING)).take(len).collect::<Vec<u32>>();
        self.last_tokens = tokens;
        let keeps = self.scratch.start_pass(tokens);
        let step = self.state.place(backend, &self.places, tokens, keeps)?;
        self.scratch.force(backend, &self.model.spec, self.limits.batch_tokens, experts, tokens)?;
        let mut ids = padded(&batch.tokens, tokens);
        if self.model.spec.layer_inputs.is_some() {
            // Inputs of layers are those of the padding token, whose embedding the image's row replaces.
            let pictures = &self.scratch.pictures;
            pictures.iter().for_each(|picture| ids[picture.at..picture.at + picture.tokens].fill(IMAGE_INPUTS));
        }
        backend.upload(&ids, &mut self.scratch.tokens)?;
        // Neighbouring rows at once.
        for run in batch.sampled.chunk_by(|(at, row), next| (at + 1, row + 1) == *next) {
            let (at, row) = run[0];
            let rows = self.sampled.view(1, row + run.len())?.columns(row..row + run.len())?;
            backend.copy(rows, &mut self.scratch.tokens, at)?;
        }
        let output_rows = padded(&batch.output_rows, rows);
        self.uploaded_rows.bring(backend, &output_rows, &mut self.scratch.output_rows)?;
        let argmax = batch.argmax && rows > 0;
        self.sampled_rows = if argmax { batch.outputs() } else { 0 };
        let kind = if experts.is_some() { PassKind::Forced } else { PassKind::Forward };
        let has_pictures = !self.scratch.pictures.is_empty();
        let places = std::mem::take(&mut self.places);
        let has_axes = self.place_axes(&places, tokens);
        self.places = places;
        let has_axes = has_axes?;
        self.place_ends(tokens)?;
        let shape = StepShape { tokens, outputs, argmax, kind, step, has_pictures, has_axes };
        self.last = Some(shape);
        if self.expert_counts.is_none() {
            return self.step(shape);
        }
        self.inspected_step(shape, |_| true, &mut |_, _| Ok(()))?;
        if argmax {
            take_argmax(&self.model, &self.scratch, &mut self.sampled, rows)?;
        }
        self.expert_counts = Some(self.read_routing()?.counts());
        Ok(())
    }

    /// The forward pass with the sampling that it includes, replayed if one of this shape was captured.
    fn step(&mut self, shape: StepShape) -> Result<()> {
        let StepShape { tokens, outputs, argmax, .. } = shape;
        let Self { model, rotaries, state, scratch, sampled, graphs, .. } = self;
        let mut pass = || {
            forward(&model.backend, model, rotaries, state, scratch, tokens, outputs, &mut |_, _| Ok(()))?;
            match outputs {
                PassOutputs::Logits { rows } if argmax => take_argmax(model, scratch, sampled, rows),
                _ => Ok(()),
            }
        };
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
        self.pass(shape, &mut |stage, scratch| {
            let residual = scratch.rows(model.program.residual);
            match first_not_finite(&model.backend, &residual, sizes, &counts)? {
                Some(token) => Err(Error::NotFinite { stage, position: places[token].1 }),
                None => inspect(stage, scratch),
            }
        })
    }

    /// Why a row of the last forward pass's logits is not finite.
    pub fn not_finite(&mut self, row: usize) -> Error {
        self.not_finite_token(self.output_rows.get(row).copied())
    }

    /// Why the outputs of a token of the last batch are not finite. The pass runs again and writes the same keys and
    /// values to the same places; this time the residual stream of the token, and of the tokens visible to it, is
    /// checked between the stages.
    pub(crate) fn not_finite_token(&mut self, token: Option<u32>) -> Error {
        if self.model.is_in_a_row() {
            // Ranks that stop at a layer of theirs would leave the others waiting.
            let position = token.and_then(|token| self.places.get(token as usize)).map_or(0, |(_, position)| *position);
            return Error::NotFinite { stage: Stage::Output, position };
        }
        let ranks = self.team.is_some().then(|| self.model.clone());
        let _step = ranks.as_ref().map(|model| model.step_on_ranks());
        if let Err(lost) = self.lead(|| Call::FindNotFinite { token }) {
            return lost;
        }
        let found = self.find_not_finite(token);
        self.team.iter_mut().for_each(|team| team.note(&Ok(())));
        found
    }

    fn find_not_finite(&mut self, token: Option<u32>) -> Error {
        let token = token.map_or(usize::MAX, |token| token as usize);
        let Some(&(sequence, position)) = self.places.get(token) else { return Error::UnknownSequence };
        let Some(shape) = self.last else { return Error::NotFinite { stage: Stage::Output, position } };
        let model = self.model.clone();
        let _exclusive = model.backend.exclusive();
        let places = self.places.clone();
        let seen = |other: usize| other <= token && places[other].0 == sequence;
        let inspected = self.inspected_step(shape, seen, &mut |_, _| Ok(()));
        inspected.err().unwrap_or(Error::NotFinite { stage: Stage::Output, position })
    }
}
