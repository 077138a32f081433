//! Draft tokens, made before a step, and what they cost.

use std::time::Duration;

use super::submit::Submitted;
use super::{Measured, Running, Worker};
use crate::draft::DraftRequest;
use crate::draft::planner::Candidate;

impl Worker {
    /// Makes draft tokens for the sequences in decode.
    pub(super) fn make_drafts(&mut self) {
        let plan = self.plan_drafts();
        self.planned = plan.iter().map(|(_, count)| count).sum();
        self.slots.iter_mut().flatten().for_each(|running| running.draft.clear());
        let request = |&(slot, count): &(usize, usize)| {
            let Running { sequence, tokens: text, job, .. } = self.slots[slot].as_ref()?;
            Some(DraftRequest { slot, sequence: *sequence, text, count, sampling: job.completion()? })
        };
        let requests: Vec<_> = plan.iter().filter(|(_, count)| *count > 0).filter_map(request).collect();
        if requests.is_empty() {
            return;
        }
        // Without draft tokens the text is the same.
        let drafts = self.drafter.make(&mut self.runner, &requests).unwrap_or_else(|error| {
            tracing::error!(%error, "making draft tokens failed");
            vec![Vec::new(); requests.len()]
        });
        let of_slots: Vec<(usize, Vec<u32>)> = requests.iter().map(|request| request.slot).zip(drafts).collect();
        for (slot, draft) in of_slots {
            self.slots[slot].iter_mut().for_each(|running| running.draft.clone_from(&draft));
        }
    }

    /// The slots that may have draft tokens in the next step, and the planned numbers of them.
    fn plan_drafts(&self) -> Vec<(usize, usize)> {
        let context = self.runner.context();
        let (mut slots, mut candidates) = (Vec::new(), Vec::new());
        for (slot, running) in self.slots.iter().enumerate() {
            let Some(Running { tokens, job, computed, .. }) = running else { continue };
            let is_next = running.as_ref().is_some_and(Running::decodes) && computed + 1 >= tokens.len();
            let most =
                job.draft_tokens(context.saturating_sub(tokens.len())).min(self.drafter.most(self.runner.model()));
            if let Some(completion) = job.completion().filter(|_| is_next && most > 0) {
                slots.push(slot);
                candidates.push(Candidate { acceptance: completion.acceptance(), most });
            }
        }
        let decoding = self.slots.iter().flatten().filter(|running| running.decodes()).count();
        let rows = self.output_rows.saturating_sub(self.slots.iter().flatten().count());
        slots.into_iter().zip(self.planner.plan(decoding, rows, &candidates)).collect()
    }

    /// Whether the next step has draft tokens, which the host makes.
    pub(super) fn will_draft(&self) -> bool {
        self.plan_drafts().iter().any(|(_, count)| *count > 0)
    }

    /// The draft tokens of a step whose time is measured: one that only decodes, and computes nothing again.
    pub(super) fn drafted(&self, step: &Submitted) -> Option<usize> {
        let mut drafted = 0;
        for chunk in &step.chunks {
            let running = self.slots[chunk.slot].as_ref().filter(|_| chunk.decodes)?;
            // In a step that was submitted before the host had the token, the token is after the text.
            let last = running.tokens.len().max(chunk.positions.start + 1);
            (last == chunk.positions.start + 1).then_some(())?;
            drafted += chunk.positions.end - last;
        }
        Some(drafted)
    }

    /// Learns from a step of this number of sequences.
    pub(super) fn measure_drafts(&mut self, drafted: Option<usize>, sequences: usize, accepted: usize, time: Duration) {
        let planned = std::mem::take(&mut self.planned);
        if let Some(drafted) = drafted.filter(|_| sequences > 0) {
            self.planner.measure(Measured { sequences, planned, drafted, accepted, time });
        }
    }
}
