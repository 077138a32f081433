//! The file of `--save-logits`: a GGUF file with one F16 tensor for each window, vocabulary × scored tokens.
//!
//! A row holds logits less their maximum. Probabilities are the softmax of the rounded values, so a rounding by 2^-11
//! of a value has a second-order effect on a divergence.

use std::path::{Path, PathBuf};

use gristmill_files::gguf::{DataWriter, GgufFile, GgufWriter, NewFile, write_atomically};
use gristmill_kernels::format::Format;
use gristmill_transcode::encode;

use super::score;
use crate::error::LabError;

/// Key of the window size in tokens.
const CTX: &str = "gristmill.logits.context";
/// Key of the tokens of all windows.
const TOKENS: &str = "gristmill.logits.tokens";

fn tensor_name(window: usize) -> String {
    format!("window.{window}")
}

/// Writes the file; `work` passes the rows to the recorder, which fails once `stopped` returns true.
pub(super) fn save(
    path: &Path,
    vocab: usize,
    ctx: usize,
    tokens: &[u32],
    stopped: &dyn Fn() -> bool,
    work: impl FnOnce(&mut Recorder) -> Result<(), LabError>,
) -> Result<(), LabError> {
    let mut file = GgufWriter::new();
    file.set(CTX, ctx as u64)?;
    file.set(TOKENS, tokens.to_vec())?;
    for window in 0..tokens.len() / ctx {
        file.tensor(&tensor_name(window), Format::F16, &[vocab as u64, score::rows(ctx) as u64])?;
    }
    write_atomically(path, |out| {
        let shifted = Vec::new();
        let bytes = vec![0; 2 * vocab];
        let mut recorder = Recorder { out: file.begin(out)?, stopped, shifted, bytes };
        work(&mut recorder)?;
        Ok(recorder.out.finish().map(drop)?)
    })
}

/// Takes rows of logits in order.
pub(super) struct Recorder<'a> {
    out: DataWriter<&'a mut NewFile>,
    stopped: &'a dyn Fn() -> bool,
    shifted: Vec<f32>,
    bytes: Vec<u8>,
}

impl Recorder<'_> {
    pub(super) fn add(&mut self, logits: &[f32]) -> Result<(), LabError> {
        if (self.stopped)() {
            return Err(LabError::Stopped);
        }
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        self.shifted.clear();
        self.shifted.extend(logits.iter().map(|&x| x - max));
        let fits = encode(Format::F16, &self.shifted, &mut self.bytes);
        fits.ok_or(LabError::RowSize)?;
        Ok(self.out.write_chunk(&self.bytes)?)
    }
}

/// Saved logits.
pub struct Saved {
    path: PathBuf,
    file: GgufFile,
    ctx: usize,
    tokens: Vec<u32>,
    vocab: usize,
}

impl Saved {
    /// Opens a file that [`measure`](super::measure) has written.
    ///
    /// # Errors
    /// If it is another file.
    pub fn open(path: &Path) -> Result<Saved, LabError> {
        let wrong = |why: &dyn std::fmt::Display| {
            let remedy = "use a file that `gristmill perplexity --save-logits` has written";
            LabError::SavedLogits { path: path.to_owned(), reason: format!("{why}; {remedy}") }
        };
        let file = GgufFile::open(path).map_err(|error| wrong(&error))?;
        let metadata = file.metadata();
        let ctx: usize = metadata.required(CTX).map_err(|error| wrong(&error))?;
        let tokens: Vec<u32> = metadata.required(TOKENS).map_err(|error| wrong(&error))?;
        let vocab = file.tensors().first().map_or(0, |tensor| tensor.shape[0]);
        if ctx < 4 || tokens.is_empty() || !tokens.len().is_multiple_of(ctx) {
            return Err(wrong(&format_args!("{} tokens are not windows of {ctx}", tokens.len())));
        }
        for window in 0..tokens.len() / ctx {
            let name = tensor_name(window);
            let shape = [vocab, score::rows(ctx) as u64];
            match file.tensor(&name) {
                Some(tensor) if tensor.format == Format::F16 && tensor.shape == shape => {}
                Some(tensor) => {
                    let format = tensor.format;
                    let found = &tensor.shape;
                    return Err(wrong(&format_args!("{name} is {format} {found:?}, and F16 {shape:?} is expected")));
                }
                None => return Err(wrong(&format_args!("{name} is missing"))),
            }
        }
        Ok(Saved { path: path.to_owned(), file, ctx, tokens, vocab: vocab as usize })
    }

    /// The failure of a file that does not belong to the measurement.
    pub(super) fn wrong(&self, reason: String) -> LabError {
        LabError::SavedLogits { path: self.path.clone(), reason }
    }

    /// Fails unless the file belongs to these tokens.
    pub(super) fn check(&self, vocab: usize, ctx: usize, tokens: &[u32]) -> Result<(), LabError> {
        let wrong = |what: String| Err(self.wrong(what));
        if self.ctx != ctx {
            return wrong(format!("its windows have {} tokens; use --ctx {0}", self.ctx));
        }
        if self.vocab != vocab {
            let found = self.vocab;
            return wrong(format!(
                "its vocabulary has {found} tokens, the model's {vocab}; compare models of one family"
            ));
        }
        match self.tokens.iter().zip(tokens).position(|(a, b)| a != b) {
            None if self.tokens.len() == tokens.len() => Ok(()),
            None => wrong(format!(
                "it has {} tokens, but the text has {}; use the same text",
                self.tokens.len(),
                tokens.len()
            )),
            Some(at) => wrong(format!("token {at} of the text differs from the saved token; use the same text")),
        }
    }

    /// Bytes of row `index`, counted over all windows.
    fn row_bytes(&self, index: usize) -> Option<&[u8]> {
        let rows = score::rows(self.ctx);
        let data = self.file.data(self.file.tensor(&tensor_name(index / rows))?);
        data.chunks_exact(2 * self.vocab).nth(index % rows)
    }

    /// Reads row `index`, counted over all windows; `None` past the last.
    pub(super) fn row(&self, index: usize, row: &mut Vec<f32>) -> Option<()> {
        row.resize(self.vocab, 0.0);
        Format::F16.decode(self.row_bytes(index)?, row)
    }
}
