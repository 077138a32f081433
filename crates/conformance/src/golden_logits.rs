//! Logits of the tiny golden models: what transformers computes, and how far a runner's are from it.

use std::sync::Arc;

use gristmill_engine::{Batch, Limits, Model, Outputs, Runner, SequenceId};
use gristmill_files::gguf::{Array, GgufFile, Value};

use crate::golden::models_folder;

/// Token sequences, and the logits of each position.
#[derive(Debug)]
pub struct Golden {
    /// The NMSE that is allowed.
    pub tolerance: f64,
    /// The tokens of each sequence.
    pub sequences: Vec<Vec<u32>>,
    logits: Vec<Vec<Vec<f32>>>,
}

impl Golden {
    /// Reads the golden logits of a model.
    ///
    /// # Panics
    /// If its file is not there, or is no such file.
    pub fn read(name: &str) -> Golden {
        let file = GgufFile::open(models_folder().join(format!("{name}.logits.gguf"))).unwrap();
        let tolerance = file.metadata().required::<f32>("golden.tolerance").unwrap().into();
        let (mut sequences, mut logits) = (Vec::new(), Vec::new());
        while let Some(Value::Array(tokens)) = file.metadata().value(&format!("golden.tokens.{}", sequences.len())) {
            let tokens: Vec<u32> = Array::integers(tokens).unwrap().map(|t| t.try_into().unwrap()).collect();
            let tensor = file.tensor(&format!("logits.{}", sequences.len())).unwrap();
            let mut values = vec![0.0; tensor.elements() as usize];
            tensor.format.decode(file.data(tensor), &mut values).unwrap();
            let rows: Vec<Vec<f32>> = values.chunks(tensor.shape[0] as usize).map(<[f32]>::to_vec).collect();
            assert_eq!(rows.len(), tokens.len());
            sequences.push(tokens);
            logits.push(rows);
        }
        assert_eq!(sequences.len(), 3);
        Golden { tolerance, sequences, logits }
    }
}

/// A model with a runner for the golden sequences.
#[derive(Debug)]
pub struct Run<'a> {
    golden: &'a Golden,
    /// The runner.
    pub runner: Runner,
    ids: Vec<SequenceId>,
}

impl<'a> Run<'a> {
    /// A runner that can have all sequences at once.
    ///
    /// # Panics
    /// If it does not start.
    pub fn new(golden: &'a Golden, model: &Arc<Model>) -> Run<'a> {
        let tokens = golden.sequences.iter().map(Vec::len).sum();
        let limits = Limits {
            context: Some(64),
            sequences: golden.sequences.len(),
            batch_tokens: tokens,
            output_rows: Some(tokens),
            ..Limits::default()
        };
        let mut runner = Runner::new(model.clone(), limits).unwrap();
        let ids = golden.sequences.iter().map(|_| runner.open_sequence().unwrap()).collect();
        Run { golden, runner, ids }
    }

    /// Appends the next tokens of some sequences: pairs of a sequence and how many.
    ///
    /// # Panics
    /// If the pass fails.
    pub fn step(&mut self, parts: &[(usize, usize)]) -> Nmse {
        let mut batch = Batch::new();
        let mut expected = Vec::new();
        for &(sequence, count) in parts {
            let start = self.runner.sequence_len(self.ids[sequence]).unwrap();
            let tokens = &self.golden.sequences[sequence][start..start + count];
            batch.push(self.ids[sequence], tokens, Outputs::All);
            expected.extend(self.golden.logits[sequence][start..start + count].concat());
        }
        let found = self.runner.forward(&batch).unwrap().to_vec().unwrap();
        Nmse::of(&found, &expected)
    }
}

/// The squared error and the squared expected values, whose ratio is the normalised mean squared error.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nmse {
    error: f64,
    expected: f64,
}

impl Nmse {
    /// Of these values.
    ///
    /// # Panics
    /// If there are not as many.
    pub fn of(found: &[f32], expected: &[f32]) -> Nmse {
        assert_eq!(found.len(), expected.len());
        let mut sum = Nmse::default();
        for (&found, &expected) in found.iter().zip(expected) {
            sum.error += (f64::from(found) - f64::from(expected)).powi(2);
            sum.expected += f64::from(expected).powi(2);
        }
        sum
    }

    /// Of both.
    pub fn and(self, other: Nmse) -> Nmse {
        Nmse { error: self.error + other.error, expected: self.expected + other.expected }
    }

    /// The normalised mean squared error.
    pub fn value(self) -> f64 {
        self.error / self.expected
    }
}

/// The NMSE of prefill, of decode after it, and of batches of several sequences at different lengths.
pub fn compare(golden: &Golden, model: &Arc<Model>) -> [(&'static str, f64); 3] {
    let [first, second, third] = [0, 1, 2].map(|i| golden.sequences[i].len());
    let mut run = Run::new(golden, model);
    let prefill = run.step(&[(0, 20)]);
    let decode = (20..first).map(|_| run.step(&[(0, 1)])).fold(Nmse::default(), Nmse::and);

    let mut run = Run::new(golden, model);
    let ragged = [
        run.step(&[(0, 10), (1, 3), (2, third)]),
        run.step(&[(1, 1), (0, 1)]),
        run.step(&[(1, second - 4), (0, first - 11)]),
    ];
    let ragged = ragged.into_iter().fold(Nmse::default(), Nmse::and);
    [("prefill", prefill.value()), ("decode", decode.value()), ("ragged batch", ragged.value())]
}
