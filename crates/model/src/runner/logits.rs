//! The logits of a forward pass, and the tokens sampled from them.

use gristmill_kernels::PendingDownload;
use gristmill_kernels::ops::{Argmax, PADDING, Sample, Sampling};
use gristmill_kernels::tensor::Buffer;

use super::Runner;
use crate::error::Result;
use crate::model::Model;
use crate::program::scratch::Scratch;

/// Draws the most likely token of each of the first `rows` rows of logits.
pub(super) fn take_argmax(model: &Model, scratch: &Scratch, sampled: &mut Buffer<u32>, rows: usize) -> Result<()> {
    let logits = scratch.rows(model.program.logits);
    let out = sampled.view_mut(rows, 1)?;
    Ok(model.backend.run(Argmax { x: logits.view(rows, model.spec.vocab)?, out })?)
}

/// The logits of one forward pass: one row for each output of the batch, in the batch's order.
pub struct Logits<'a> {
    pub(super) runner: &'a mut Runner,
}

impl std::fmt::Debug for Logits<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Logits({} × {})", self.rows(), self.vocab())
    }
}

impl Logits<'_> {
    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.runner.output_rows.len()
    }

    /// The length of a row.
    pub fn vocab(&self) -> usize {
        self.runner.model.spec.vocab
    }

    /// Copies all rows to host memory, one after another.
    ///
    /// # Errors
    /// [`Error::NotFinite`](crate::Error::NotFinite); [`Error::Kernel`](crate::Error::Kernel) if the device refuses.
    pub fn to_vec(&mut self) -> Result<Vec<f32>> {
        let out = self.first(self.rows())?;
        let vocab = self.vocab();
        match out.iter().position(|x| !x.is_finite()) {
            Some(at) => Err(self.runner.not_finite(at / vocab)),
            None => Ok(out),
        }
    }

    /// The same as [`Self::to_vec`], of at most the first `rows` rows and whether or not they are finite.
    ///
    /// # Errors
    /// [`Error::Kernel`](crate::Error::Kernel) if the device refuses.
    pub fn first(&mut self, rows: usize) -> Result<Vec<f32>> {
        let rows = rows.min(self.rows());
        let vocab = self.vocab();
        let mut out = vec![0.0; rows * vocab];
        if rows == 0 {
            // A copy of nothing would wait for the device.
            return Ok(out);
        }
        let _exclusive = self.runner.model.backend.exclusive();
        let Runner { model, scratch, .. } = &*self.runner;
        model.backend.download(scratch.rows(model.program.logits).view(rows, vocab)?, &mut out)?;
        Ok(out)
    }

    /// Draws a token from each row, with one set of parameters for each. The rows are left penalised.
    ///
    /// # Errors
    /// [`Error::NotFinite`](crate::Error::NotFinite); [`Error::Kernel`](crate::Error::Kernel) if a parameter is out of
    /// range or their number is not that of the rows.
    pub fn sample(&mut self, parameters: &[Sampling]) -> Result<Vec<u32>> {
        let sampled = self.start_sample(parameters)?.wait()?;
        self.all_sampled(sampled)
    }

    /// The most likely token of each row, the one with the smaller id on a tie.
    ///
    /// # Errors
    /// [`Error::NotFinite`](crate::Error::NotFinite); [`Error::Kernel`](crate::Error::Kernel) if the device refuses.
    pub fn argmax(&mut self) -> Result<Vec<u32>> {
        let sampled = self.start_argmax()?.wait()?;
        self.all_sampled(sampled)
    }

    /// Starts what [`Self::argmax`] does. The next step can have these tokens before the host does:
    /// [`Batch::push_sampled`](crate::Batch::push_sampled).
    ///
    /// # Errors
    /// [`Error::Kernel`](crate::Error::Kernel) if the device refuses.
    pub fn start_argmax(&mut self) -> Result<SampledTokens> {
        let model = self.runner.model.clone();
        let _exclusive = model.backend.exclusive();
        if !self.has_argmax() {
            let (rows, Runner { scratch, sampled, .. }) = (self.rows(), &mut *self.runner);
            take_argmax(&model, scratch, sampled, rows)?;
        }
        self.start_download()
    }

    /// Whether the forward pass has sampled the most likely token of each row, and nothing else was sampled.
    fn has_argmax(&self) -> bool {
        self.runner.last.is_some_and(|shape| shape.argmax)
    }

    /// Starts what [`Self::sample`] does, as [`Self::start_argmax`] does. Sampling that the pass has done is not
    /// repeated: then [`Sampling::is_argmax`] holds for all parameters.
    ///
    /// # Errors
    /// [`Error::Kernel`](crate::Error::Kernel) if a parameter is out of range, their number is not that of the rows, or
    /// the device refuses.
    pub fn start_sample(&mut self, parameters: &[Sampling]) -> Result<SampledTokens> {
        let model = self.runner.model.clone();
        let _exclusive = model.backend.exclusive();
        if !(self.has_argmax() && parameters.iter().all(Sampling::is_argmax)) {
            let (rows, vocab) = (self.rows(), self.vocab());
            let Runner { scratch, sampled, last, .. } = &mut *self.runner;
            last.iter_mut().for_each(|shape| shape.argmax = false);
            let mut logits = scratch.rows_mut(model.program.logits);
            let out = sampled.view_mut(rows, 1)?;
            model.backend.run(Sample { logits: logits.view_mut(rows, vocab)?, parameters, out })?;
        }
        self.start_download()
    }

    fn start_download(&mut self) -> Result<SampledTokens> {
        let (rows, Runner { model, sampled, sampled_rows, .. }) = (self.rows(), &mut *self.runner);
        *sampled_rows = rows;
        Ok(SampledTokens(model.backend.start_download(sampled.view(rows, 1)?)?))
    }

    fn all_sampled(&mut self, sampled: Vec<u32>) -> Result<Vec<u32>> {
        match sampled.iter().position(|&token| token == PADDING) {
            Some(row) => Err(self.runner.not_finite(row)),
            None => Ok(sampled),
        }
    }
}

/// Sampled tokens on their way from the device.
#[derive(Debug)]
pub struct SampledTokens(PendingDownload<u32>);

impl SampledTokens {
    /// Waits for the token of each row: [`PADDING`] for a row that is not finite.
    ///
    /// # Errors
    /// [`Error::Kernel`](crate::Error::Kernel) if the device has failed.
    pub fn wait(self) -> Result<Vec<u32>> {
        Ok(self.0.wait()?)
    }
}
