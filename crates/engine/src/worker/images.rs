//! Images of prompts. The tower computes an image in parts, one in each step, so that other sequences go on meanwhile.

use super::Worker;
use crate::model::Result;
use crate::schedule::Pending;

/// Parts of a tower's pass in a step: a layer is one.
const PARTS: usize = 1;

impl Worker {
    /// The chunks of a step, without prompts whose images the tower has not computed. It computes a part of one of them: of the
    /// prompt that started first.
    ///
    /// # Errors
    /// The device has failed. Any other failure ends the request of the image.
    pub(super) fn with_images(&mut self, mut chunks: Vec<Pending>) -> Result<Vec<Pending>> {
        let waiting = chunks.iter().filter(|chunk| !self.has_images(chunk)).min_by_key(|chunk| chunk.priority);
        let Some(Pending { slot, positions, .. }) = waiting.cloned() else { return Ok(chunks) };
        if let Some(running) = &self.slots[slot] {
            match self.runner.encode_images(running.job.numbered.spans(), positions, PARTS) {
                Err(error) if error.is_of_device() => return Err(error),
                Err(error) => self.fail([slot], error),
                Ok(()) => {}
            }
        }
        chunks.retain(|chunk| self.slots[chunk.slot].is_some() && self.has_images(chunk));
        Ok(chunks)
    }

    fn has_images(&self, chunk: &Pending) -> bool {
        let spans = self.slots[chunk.slot].as_ref().map_or(&[][..], |running| running.job.numbered.spans());
        chunk.decodes || self.runner.has_images(spans, &chunk.positions)
    }
}
