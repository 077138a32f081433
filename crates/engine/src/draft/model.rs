//! Guesses by a smaller model with the same vocabulary: speculative decoding (Leviathan et al., *Fast Inference from
//! Transformers via Speculative Decoding*, 2023).
//!
//! A draft token is accepted only if the large model samples the same token, so the text is the same as without drafts.
//! Both models sample with the same seed at the same position: if their probabilities are equal, they sample the same
//! token at any temperature.

use std::collections::HashSet;
use std::sync::Arc;

use gristmill_kernels::ops::{PADDING, Sampling};
use gristmill_text::tokenizer::Tokenizer;

use super::drafter::DraftRequest;
use crate::EngineError;
use crate::model::Result;
use crate::{Batch, Limits, Model, Outputs, Runner, SequenceId};
use gristmill_model::Reuse;

/// A model that makes draft tokens, with the state of the sequences that it follows.
#[derive(Debug)]
pub(crate) struct DraftModel {
    runner: Runner,
    /// Tokens that both models know.
    vocabulary: usize,
    batch: Batch,
    /// The sequence of each of the worker's slots, and the tokens in its state. A new sequence reuses the prefix that
    /// it shares with the slot's previous sequence.
    slots: Vec<Option<(SequenceId, Vec<u32>)>>,
}

impl DraftModel {
    /// A draft model for an engine of `model` with these limits, and this context.
    ///
    /// # Errors
    /// [`EngineError::DraftModel`] if the vocabularies differ, [`EngineError::Model`] if the memory does not suffice.
    pub(crate) fn new(
        draft: Arc<Model>,
        model: &Model,
        limits: Limits,
        context: usize,
    ) -> std::result::Result<Self, EngineError> {
        let vocabulary = same_vocabulary(draft.tokenizer()?, model.tokenizer()?).map_err(EngineError::DraftModel)?;
        let limits = Limits { context: Some(context), output_rows: None, rollback_tokens: 0, ..limits };
        let slots = (0..limits.sequences).map(|_| None).collect();
        Ok(DraftModel { runner: Runner::with(draft, limits, Reuse::Nothing)?, vocabulary, batch: Batch::new(), slots })
    }

    /// Makes draft tokens for each request; none for a sequence that is still being read.
    ///
    /// # Errors
    /// [`Error::Kernel`](crate::Error::Kernel) if the device refuses.
    pub(crate) fn make_drafts(&mut self, requests: &[DraftRequest<'_>]) -> Result<Vec<Vec<u32>>> {
        let mut drafts = vec![Vec::new(); requests.len()];
        let mut reading = self.read(requests)?;
        while !reading.is_empty() {
            let sampled = self.step(requests, &reading)?;
            let mut next = Vec::new();
            for (number, token) in sampled {
                let draft = &mut drafts[number];
                let request = &requests[number];
                if token == PADDING || token as usize >= self.vocabulary {
                    continue;
                }
                draft.push(token);
                if draft.len() < request.count {
                    next.push(Reading { number, tokens: vec![token], last: true });
                }
            }
            reading = next;
        }
        Ok(drafts)
    }

    /// Computes the tokens that are not in the state yet, as far as they fit into one batch.
    fn read(&mut self, requests: &[DraftRequest<'_>]) -> Result<Vec<Reading>> {
        let mut known = vec![0; requests.len()];
        for (known, request) in known.iter_mut().zip(requests).filter(|(_, request)| request.count > 0) {
            *known = self.align(request)?;
        }
        let mut room = self.runner.limits().batch_tokens;
        let mut reading = Vec::new();
        for number in self.with_blocks(requests)? {
            let request = &requests[number];
            let known = known[number];
            let missing = &request.text[known..];
            let tokens = missing[..missing.len().min(room)].to_vec();
            room -= tokens.len();
            if !tokens.is_empty() {
                reading.push(Reading { number, last: tokens.len() == missing.len(), tokens });
            }
        }
        Ok(reading)
    }

    /// The numbers of the requests for which there are blocks. If there are too few, slots without a request lose their
    /// state, then the last ones with a request.
    fn with_blocks(&mut self, requests: &[DraftRequest<'_>]) -> Result<Vec<usize>> {
        let mut granted: Vec<usize> = (0..requests.len()).filter(|&number| requests[number].count > 0).collect();
        if self.fits(requests, &granted)? {
            return Ok(granted);
        }
        let requested: HashSet<usize> = granted.iter().map(|&number| requests[number].slot).collect();
        for slot in (0..self.slots.len()).filter(|slot| !requested.contains(slot)) {
            self.free(slot)?;
        }
        while !self.fits(requests, &granted)?
            && let Some(last) = granted.pop()
        {
            self.free(requests[last].slot)?;
        }
        Ok(granted)
    }

    /// Whether there are blocks for the texts of some requests, and their draft tokens.
    fn fits(&self, requests: &[DraftRequest<'_>], granted: &[usize]) -> Result<bool> {
        let length = |request: &DraftRequest<'_>| {
            let (sequence, _) = self.slots[request.slot].as_ref()?;
            Some((*sequence, request.text.len() + request.count))
        };
        let lengths: Vec<_> = granted.iter().filter_map(|&number| length(&requests[number])).collect();
        self.runner.fits(&lengths)
    }

    /// Frees a slot's state.
    fn free(&mut self, slot: usize) -> Result<()> {
        match self.slots[slot].take() {
            Some((sequence, _)) => self.runner.close_sequence(sequence),
            None => Ok(()),
        }
    }

    /// Shortens a slot's state to what it shares with the text but for the text's last token, whose logits are wanted.
    /// Returns the length of that.
    fn align(&mut self, request: &DraftRequest<'_>) -> Result<usize> {
        let (sequence, tokens) = match &mut self.slots[request.slot] {
            Some(state) => state,
            free => free.insert((self.runner.open_sequence()?, Vec::new())),
        };
        let before_last = &request.text[..request.text.len().saturating_sub(1)];
        let shared = tokens.iter().zip(before_last).take_while(|(a, b)| a == b).count();
        if shared < tokens.len() {
            let known = self.runner.checkpoint(*sequence, shared)?;
            self.runner.truncate(*sequence, known)?;
            tokens.truncate(known);
        }
        Ok(tokens.len())
    }

    /// Reads tokens, and samples one for each text that is then complete.
    fn step(&mut self, requests: &[DraftRequest<'_>], reading: &[Reading]) -> Result<Vec<(usize, u32)>> {
        self.batch.clear();
        let (mut rows, mut sampling): (Vec<usize>, Vec<Sampling<'_>>) = Default::default();
        for Reading { number, tokens, last } in reading {
            let request = &requests[*number];
            let Some((sequence, known)) = &self.slots[request.slot] else { continue };
            self.batch.push(*sequence, tokens, if *last { Outputs::Last } else { Outputs::None });
            if *last {
                rows.push(*number);
                sampling.push(request.sampling.sampling_of_draft(known.len() + tokens.len()));
            }
        }
        let mut logits = self.runner.forward(&self.batch)?;
        let sampled = if rows.is_empty() { Vec::new() } else { logits.start_sample(&sampling)?.wait()? };
        for Reading { number, tokens, .. } in reading {
            if let Some((_, known)) = &mut self.slots[requests[*number].slot] {
                known.extend(tokens);
            }
        }
        Ok(rows.into_iter().zip(sampled).collect())
    }
}

/// Tokens that are to be read for a request.
struct Reading {
    /// The number of the request.
    number: usize,
    tokens: Vec<u32>,
    /// Whether the text is then whole.
    last: bool,
}

/// The number of tokens in two vocabularies, if they are the same; else what differs.
fn same_vocabulary(draft: &Tokenizer, model: &Tokenizer) -> std::result::Result<usize, String> {
    let (of_draft, of_model) = (draft.vocab_size(), model.vocab_size());
    if of_draft != of_model {
        return Err(format!("it has {of_draft} tokens, the model {of_model}"));
    }
    // A vocabulary has fewer than 2^32 tokens.
    let differs = |id: &u32| draft.token_bytes(*id).ok() != model.token_bytes(*id).ok();
    match (0..of_model as u32).find(differs) {
        None => Ok(of_model),
        Some(id) => {
            let text = |tokenizer: &Tokenizer| {
                String::from_utf8_lossy(tokenizer.token_bytes(id).unwrap_or_default()).into_owned()
            };
            Err(format!("its token {id} is {:?}, but {:?} in the model", text(draft), text(model)))
        }
    }
}
