//! Draft tokens, made before a step.

use super::{Running, Worker};
use crate::engine::draft::look_up;
use crate::engine::draft_model::DraftRequest;

impl Worker {
    /// Makes draft tokens for the sequences in decode.
    pub(super) fn make_drafts(&mut self) {
        let context = self.runner.context();
        let decoding = self.slots.iter().enumerate().filter_map(|(slot, running)| Some((slot, running.as_ref()?)));
        let requests: Vec<DraftRequest<'_>> = decoding
            .filter(|(_, running)| running.decodes() && running.computed + 1 >= running.tokens.len())
            .filter_map(|(slot, Running { tokens: text, job, .. })| {
                let count = job.draft_tokens(context.saturating_sub(text.len()));
                Some(DraftRequest { slot, text, count, completion: job.completion()? })
            })
            .collect();
        let drafts = match &mut self.draft {
            // Without draft tokens the text is the same.
            Some(draft) => draft.make_drafts(&requests).unwrap_or_else(|error| {
                tracing::error!(%error, "making draft tokens failed");
                vec![Vec::new(); requests.len()]
            }),
            None => requests.iter().map(|request| look_up(request.text, request.count)).collect(),
        };
        let of_slots: Vec<(usize, Vec<u32>)> = requests.iter().map(|request| request.slot).zip(drafts).collect();
        self.slots.iter_mut().flatten().for_each(|running| running.draft.clear());
        for (slot, draft) in of_slots {
            self.slots[slot].iter_mut().for_each(|running| running.draft.clone_from(&draft));
        }
    }
}
