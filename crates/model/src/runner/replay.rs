//! States of fixed size after a rollback: see `state::rollback`.

use super::{PassKind, Runner, StepShape};
use crate::error::Result;
use crate::program::run::{PassOutputs, replay};
use crate::state::PlacementKind;

impl Runner {
    /// Computes all states that are due, if `needed`, from the inputs that the last forward pass kept.
    pub(super) fn replay_if(&mut self, needed: bool) -> Result<()> {
        if !needed {
            return Ok(());
        }
        let model = self.model.clone();
        let tokens = self.last_tokens;
        let backend = &*model.backend;
        let _exclusive = backend.exclusive();
        // The last forward pass cannot be run again: its runs are overwritten.
        self.last = None;
        let outputs = PassOutputs::None;
        let argmax = false;
        let kind = PassKind::Replay;
        let step = PlacementKind::NONE;
        let (has_pictures, has_axes) = (false, false);
        let shape = StepShape { tokens, outputs, argmax, kind, step, has_pictures, has_axes };
        while self.state.needs_replay() {
            let replayed = self.state.place_replay(backend, tokens)?;
            let Self { rotaries, state, scratch, graphs, .. } = &mut *self;
            graphs.run(backend, shape, &mut || replay(backend, &model, rotaries, state, scratch, tokens))?;
            self.state.finish_replay(replayed);
        }
        Ok(())
    }
}
