//! The step ahead: it is given to the device before the host has the tokens of the step before, which the device takes from
//! its own draw. So the device computes while the host makes text of tokens, and never waits for it.
//!
//! It is given where the host decides nothing between the two: each running text is decoded, and its next token is drawn
//! without regard to the last one. A text that ends meanwhile leaves the step, and its token there is dropped. A waiting
//! request that may begin is admitted after the step that is on the device, in a step that the host waits for.

use gristmill_kernels::ops::Sampling;

use super::pass::{Given, Row};
use super::{Pending, Running, Worker};
use crate::{Outputs, Result, SequenceId};

/// A text whose next token is computed ahead.
struct Next {
    slot: usize,
    sequence: SequenceId,
    /// Tokens that are known: the one behind them is drawn in this row of the step before.
    len: usize,
    row: usize,
    began: u64,
}

impl Worker {
    /// Gives the step behind a given one to the device, if nothing of it depends on the host.
    ///
    /// # Errors
    /// The device has failed.
    pub(super) fn give_ahead(&mut self, given: &mut Given) -> Result<Option<Given>> {
        let Some(texts) = self.next_texts(given) else { return Ok(None) };
        given.followed = true;
        match self.give_texts(&texts) {
            Ok(ahead) => Ok(Some(ahead)),
            Err(error) if error.is_of_device() => Err(error),
            Err(error) => {
                // The step is run again when the host has all tokens, and then fails for those whom it concerns.
                tracing::debug!(%error, "no step ahead");
                Ok(None)
            }
        }
    }

    /// The texts of the step behind a given one; `None` if the host has to decide something first.
    fn next_texts(&self, given: &Given) -> Option<Vec<Next>> {
        let runs_behind = self.runner.model().backend().runs_behind();
        if !runs_behind || self.counters.counts_experts() || self.may_admit() {
            return None;
        }
        let context = self.runner.context();
        let mut texts = Vec::new();
        for (slot, running) in self.slots.iter().enumerate() {
            let Some(Running { sequence, tokens, careful, began, job, .. }) = running else { continue };
            let completion = job.completion()?;
            let row = given.rows.iter().position(|row| row.slot == slot && row.next.is_none() && row.drafted == 0)?;
            let drafts = given.chunks.iter().any(|chunk| chunk.slot == slot && chunk.positions.end > tokens.len());
            if *careful || drafts || !completion.runs_ahead(&job.progress) {
                return None;
            }
            // The token under way is the last one, or the last that there is room for.
            if completion.left(&job.progress) > 1 && tokens.len() < context {
                texts.push(Next { slot, sequence: *sequence, len: tokens.len(), row, began: *began });
            }
        }
        let lengths: Vec<_> = texts.iter().map(|text| (text.sequence, text.len + 1)).collect();
        (!texts.is_empty() && self.runner.fits(&lengths).unwrap_or(false)).then_some(texts)
    }

    fn give_texts(&mut self, texts: &[Next]) -> Result<Given> {
        self.batch.clear();
        let mut sampling = Vec::with_capacity(texts.len());
        for &Next { slot, sequence, len, row, .. } in texts {
            self.batch.push_drawn(sequence, row, Outputs::Last);
            let completion = self.slots[slot].as_ref().and_then(|running| running.job.completion());
            sampling.extend(completion.map(|completion| completion.sampling(len + 1, false)));
        }
        if sampling.iter().all(Sampling::is_argmax) {
            self.batch.take_likeliest();
        }
        let chunk = |text: &Next| {
            let (slot, positions, began) = (text.slot, text.len..text.len + 1, text.began);
            Pending { slot, positions, all_rows: false, decodes: true, began }
        };
        let row = |text: &Next| Row { slot: text.slot, next: None, drafted: 0 };
        let mut ahead = Given::new(texts.iter().map(chunk).collect(), texts.iter().map(row).collect());
        ahead.drawn = Some(self.runner.forward(&self.batch)?.begin_sample(&sampling)?);
        self.times.forward += ahead.begun.elapsed();
        self.counters.gave_ahead();
        Ok(ahead)
    }

    /// Takes a slot's text out of the step ahead. Returns whether it took part.
    pub(super) fn leave_ahead(&mut self, slot: usize) -> bool {
        let Some(ahead) = &mut self.ahead else { return false };
        let parts = ahead.chunks.len();
        ahead.chunks.retain(|chunk| chunk.slot != slot);
        ahead.chunks.len() < parts
    }
}
