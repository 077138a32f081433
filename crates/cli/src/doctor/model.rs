//! The built-in model on a device, compared with the same model on the reference backend. This covers the parts beyond
//! single operations, from weights in the device's memory to the steps of a runner.

use std::sync::Arc;

use gristmill_engine::{Batch, Limits, LoadOptions, Model, Outputs, Precision, Runner};
use gristmill_kernels::Backend;
use gristmill_kernels::reference::Reference;
use gristmill_text::tokenizer::EncodeOptions;

use super::finding::{Findings, Verdict};
use crate::failure::Failure;
use crate::source::built_in;

/// The input of the model.
const TEXT: &str = "Once upon a time, there was a little girl named Lily. She had a red ball and a small dog. One day, \
                    the dog took the ball and ran to the big tree. Lily was sad, but then the dog came back with the \
                    ball.";
/// Tokens of the first batch, as in prefill; the others are read one by one, as in decode.
const PREFILL: usize = 40;
/// Largest NMSE of logits (mean squared error over mean square) with exact activations.
const MAX_NMSE: f64 = 1e-5;
/// Largest relative change of the perplexity with activations of 8 bits.
const MAX_CHANGE: f64 = 0.02;

/// The text's tokens and the reference's logits.
pub(super) struct ReferenceRun {
    tokens: Vec<u32>,
    logits: Vec<f32>,
}

impl ReferenceRun {
    /// Runs the reference.
    pub(super) fn new() -> Result<Self, String> {
        let model = load(Arc::new(Reference::backend()), Precision::Exact)?;
        let tokenizer = model.tokenizer().map_err(|error| error.to_string())?;
        let tokens = tokenizer.encode(TEXT, EncodeOptions::default()).map_err(|error| error.to_string())?;
        let logits = read(model, &tokens)?;
        Ok(Self { tokens, logits })
    }

    /// Compares a device with the reference.
    pub(super) fn check(
        &self,
        name: &str,
        backend: Result<Backend, gristmill_kernels::Error>,
        findings: &mut Findings,
    ) -> Result<(), Failure> {
        let backend: Arc<Backend> = match backend {
            Ok(backend) => Arc::new(backend),
            Err(error) => return findings.add(Verdict::Bad, format_args!("{name}: model"), error),
        };
        let logits = |precision| {
            let logits = read(load(backend.clone(), precision)?, &self.tokens)?;
            let found = logits.len();
            let expected = self.logits.len();
            if found == expected { Ok(logits) } else { Err(format!("{found} logits, expected {expected}")) }
        };
        let exact = logits(Precision::Exact).and_then(|logits| self.check_logits(&logits));
        findings.result(format_args!("{name}: model, exact"), exact)?;
        let fast = logits(Precision::Fast).and_then(|logits| self.check_perplexity(&logits));
        findings.result(format_args!("{name}: model, fast"), fast)
    }

    fn check_logits(&self, logits: &[f32]) -> Result<String, String> {
        let square = |x: f32| f64::from(x).powi(2);
        let error: f64 = logits.iter().zip(&self.logits).map(|(found, expected)| square(found - expected)).sum();
        let error = error / self.logits.iter().map(|&x| square(x)).sum::<f64>();
        let found = format!("{} tokens, NMSE of logits {error:.1e} of {MAX_NMSE:.0e}", self.tokens.len());
        // False for NaN.
        if error <= MAX_NMSE { Ok(found) } else { Err(format!("{found}; models would generate nonsense")) }
    }

    fn check_perplexity(&self, logits: &[f32]) -> Result<String, String> {
        let found = perplexity(logits, &self.tokens);
        let expected = perplexity(&self.logits, &self.tokens);
        let said = format!("{} tokens, perplexity {found:.3}, expected {expected:.3}", self.tokens.len());
        if (found / expected - 1.0).abs() <= MAX_CHANGE { Ok(said) } else { Err(said) }
    }
}

fn load(backend: Arc<Backend>, precision: Precision) -> Result<Arc<Model>, String> {
    let file = built_in().map_err(|error| error.to_string())?;
    let options = LoadOptions { precision, ..LoadOptions::default() };
    Model::with_backend(file, backend, options).map(Arc::new).map_err(|error| error.to_string())
}

/// The logits of all tokens.
fn read(model: Arc<Model>, tokens: &[u32]) -> Result<Vec<f32>, String> {
    let context = Some(tokens.len());
    let output_rows = Some(PREFILL);
    let limits = Limits { context, output_rows, batch_tokens: PREFILL, ..Limits::default() };
    // On a GPU, several kernels are compiled at a time.
    model.make_ready(&limits, |_| ()).map_err(|error| error.to_string())?;
    let mut runner = Runner::new(model, limits).map_err(|error| error.to_string())?;
    let sequence = runner.open_sequence().map_err(|error| error.to_string())?;
    let (first, rest) = tokens.split_at(PREFILL.min(tokens.len()));
    let mut logits = Vec::new();
    for tokens in [first].into_iter().chain(rest.chunks(1)) {
        let mut batch = Batch::new();
        batch.push(sequence, tokens, Outputs::All);
        let rows = runner.forward(&batch).and_then(|mut rows| rows.to_vec()).map_err(|error| error.to_string())?;
        logits.extend(rows);
    }
    Ok(logits)
}

/// exp of the mean of −ln p over all tokens but the first.
fn perplexity(logits: &[f32], tokens: &[u32]) -> f64 {
    let rows = logits.chunks(logits.len() / tokens.len());
    let surprise = |(row, next): (&[f32], &u32)| {
        let most = row.iter().fold(f64::NEG_INFINITY, |most, &x| most.max(x.into()));
        let sum: f64 = row.iter().map(|&x| (f64::from(x) - most).exp()).sum();
        most + sum.ln() - f64::from(row[*next as usize])
    };
    let all = rows.zip(&tokens[1..]).map(surprise).sum::<f64>();
    (all / (tokens.len() - 1) as f64).exp()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gristmill_cpu::{Cpu, Level};

    #[test]
    fn this_cpu_is_right() {
        let reference = ReferenceRun::new().unwrap();
        assert!(reference.tokens.len() > PREFILL + 5, "{}", reference.tokens.len());
        let mut findings = Findings::default();
        reference.check("cpu", Cpu::backend(Level::best(), 2), &mut findings).unwrap_or_else(|_| panic!("stdout"));
        assert_eq!(findings.failed(), 0, "{}", findings.markdown("what"));
    }

    #[test]
    fn differences_are_found() {
        let tokens = vec![0, 1, 2];
        let logits = vec![0.0, 3.0, 1.0, 0.5, 0.0, 4.0, 1.0, 2.0, 3.0];
        let reference = ReferenceRun { tokens, logits };
        assert!(
            reference.check_logits(&reference.logits).is_ok() && reference.check_perplexity(&reference.logits).is_ok()
        );
        for at in [0, 5] {
            for wrong in [f32::NAN, f32::INFINITY, 2.0] {
                let mut logits = reference.logits.clone();
                logits[at] = wrong;
                assert!(reference.check_logits(&logits).is_err(), "{at} {wrong}");
                assert!(reference.check_perplexity(&logits).is_err(), "{at} {wrong}");
            }
        }
    }
}
