//! Guesses of the tokens that follow, before a step.

use super::{Running, Worker};
use crate::engine::draft::look_up;
use crate::engine::draft_model::Wish;

impl Worker {
    /// Guesses what follows the texts in decode.
    pub(super) fn guess(&mut self) {
        let context = self.runner.context();
        let decoding = self.slots.iter().enumerate().filter_map(|(slot, running)| Some((slot, running.as_ref()?)));
        let wishes: Vec<Wish<'_>> = decoding
            .filter(|(_, running)| running.decodes())
            .filter_map(|(slot, Running { tokens: text, job, .. })| {
                let count = job.guesses(context.saturating_sub(text.len()));
                Some(Wish { slot, text, count, completion: job.completion()? })
            })
            .collect();
        let guesses = match &mut self.draft {
            // Without guesses the text is the same.
            Some(draft) => draft.guess(&wishes).unwrap_or_else(|error| {
                tracing::error!(%error, "guessing failed");
                vec![Vec::new(); wishes.len()]
            }),
            None => wishes.iter().map(|wish| look_up(wish.text, wish.count)).collect(),
        };
        let of_slots: Vec<(usize, Vec<u32>)> = wishes.iter().map(|wish| wish.slot).zip(guesses).collect();
        self.slots.iter_mut().flatten().for_each(|running| running.guess.clear());
        for (slot, guess) in of_slots {
            self.slots[slot].iter_mut().for_each(|running| running.guess.clone_from(&guess));
        }
    }
}
