//! The hidden states of a forward pass.

use super::{Logits, Runner};
use crate::error::{Error, Result};

impl Logits<'_> {
    /// Copies the hidden states that the batch requests to host memory, one after another in the batch's order: rows of
    /// [`ModelSpec::hidden`](crate::spec::ModelSpec::hidden) elements, which the output matrix is multiplied
    /// with.
    ///
    /// # Errors
    /// [`Error::NotFinite`]; [`Error::Kernel`] if the device refuses.
    pub fn hidden(&mut self) -> Result<Vec<f32>> {
        let out = self.all_hidden()?;
        let width = self.runner.model.spec.hidden;
        match out.iter().position(|x| !x.is_finite()) {
            Some(at) => Err(self.runner.not_finite_hidden(at / width)),
            None => Ok(out),
        }
    }

    /// The same as [`Self::hidden`], whether or not they are finite.
    pub fn all_hidden(&mut self) -> Result<Vec<f32>> {
        let Runner { model, scratch, places, hidden_rows, .. } = &*self.runner;
        let width = model.spec.hidden;
        let mut out = vec![0.0; hidden_rows.len() * width];
        let _exclusive = model.backend.exclusive();
        let hidden = scratch.rows(model.program.hidden);
        let all = hidden.view(1, places.len() * width)?;
        let mut rest = &mut out[..];
        // Neighbouring rows at once.
        for rows in hidden_rows.chunk_by(|row, next| row + 1 == *next) {
            let (part, behind) = rest.split_at_mut(rows.len() * width);
            let start = rows[0] as usize * width;
            model.backend.download(all.columns(start..start + part.len())?, part)?;
            rest = behind;
        }
        Ok(out)
    }
}

impl Runner {
    /// Why a row of the last forward pass's hidden states is not finite.
    pub fn not_finite_hidden(&mut self, row: usize) -> Error {
        self.not_finite_token(self.hidden_rows.get(row).copied())
    }
}
