//! Images of prompts. The tower computes images in parts, one in each step, so that other sequences go on meanwhile.

use super::Worker;
use crate::model::Result;
use crate::schedule::Pending;

/// Parts of a tower's pass in a step: a layer is one.
const PARTS: usize = 1;

impl Worker {
    /// The chunks of a step, without prompts whose images the tower has not computed. It computes a part of a pass for them:
    /// first for the prompt that started first, and small images of the others with it.
    ///
    /// # Errors
    /// The device has failed. Any other failure ends the request of the first image.
    pub(super) fn with_images(&mut self, mut chunks: Vec<Pending>) -> Result<Vec<Pending>> {
        let mut waiting: Vec<&Pending> = chunks.iter().filter(|chunk| !self.has_images(chunk)).collect();
        waiting.sort_by_key(|chunk| chunk.priority);
        let Some(first) = waiting.first().map(|chunk| chunk.slot) else { return Ok(chunks) };
        let running =
            |chunk: &&Pending| Some((self.slots[chunk.slot].as_ref()?.job.numbered.spans(), chunk.positions.clone()));
        let images: Vec<_> = waiting.iter().filter_map(running).collect();
        match self.runner.encode_images(&images, PARTS) {
            Err(error) if error.is_of_device() => return Err(error),
            Err(error) => self.fail([first], error),
            Ok(()) => {}
        }
        chunks.retain(|chunk| self.slots[chunk.slot].is_some() && self.has_images(chunk));
        Ok(chunks)
    }

    /// Whether the tower has computed the images of a chunk.
    pub(super) fn has_images(&self, chunk: &Pending) -> bool {
        let spans = self.slots[chunk.slot].as_ref().map_or(&[][..], |running| running.job.numbered.spans());
        chunk.decodes || self.runner.has_images(spans, &chunk.positions)
    }
}
