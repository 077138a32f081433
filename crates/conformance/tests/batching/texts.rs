//! Texts alone and in shared batches: whether a token's logits depend on what shares its batches, on how its text is
//! split into batches, on rejected draft tokens, or on whose keys and values its text starts with.

use std::sync::Arc;

use gristmill_engine::model::Result;
use gristmill_engine::{Batch, Limits, Model, Outputs, Runner, SequenceId};
use gristmill_kernels::kv::KvFormat;
use gristmill_suite::rng::Rng;

/// Tokens of the longest wrong draft.
const GUESSES: usize = 3;

/// Texts, and how they are run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batching {
    /// Texts that run at a time.
    pub(crate) texts: usize,
    /// Tokens of each text.
    pub(crate) length: usize,
    /// Tokens that all texts start with; fewer than `length`.
    pub(crate) shared: usize,
    /// The most tokens of a text in one batch, in shared batches.
    pub(crate) chunk: usize,
    /// The format of keys and values.
    pub(crate) kv_format: KvFormat,
}

/// The findings of a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// Rows of logits that were compared.
    pub(crate) rows: usize,
    /// Rows with other bits.
    pub(crate) different: usize,
    /// Tokens whose keys and values another text had left.
    pub(crate) reused: usize,
    /// Whether sequences reuse all cached prefixes: not in a model with states of fixed size, which are stored at a few
    /// lengths.
    pub(crate) reuses: bool,
    /// Draft tokens that were computed and discarded.
    pub(crate) guessed: usize,
    /// Batches with one token of each of several texts.
    pub(crate) single: usize,
}

/// The bits of the logits of each token.
type Rows = Vec<Vec<u32>>;

/// A text that runs.
struct Open {
    text: usize,
    id: SequenceId,
    /// Tokens that its sequence has.
    at: usize,
}

/// A text's part of a batch.
struct Part {
    tokens: Vec<u32>,
    /// Number of tokens that are the text's; draft tokens follow.
    own: usize,
}

impl Batching {
    /// Texts of random tokens.
    pub(crate) fn texts(&self, vocab: usize, rng: &mut Rng) -> Vec<Vec<u32>> {
        let mut tokens = |n: usize| (0..n).map(|_| rng.below(vocab) as u32).collect::<Vec<u32>>();
        let shared = tokens(self.shared);
        (0..self.texts).map(|_| [&shared[..], &tokens(self.length - self.shared)].concat()).collect()
    }

    /// Runs random sequences, each in a batch of its own, and twice in shared batches. The second run reuses the first
    /// one's prefixes.
    ///
    /// # Errors
    /// Those of [`Runner`].
    pub(crate) fn compare(&self, model: &Arc<Model>, rng: &mut Rng) -> Result<Found> {
        let texts = self.texts(model.spec().vocab, rng);
        let alone: Vec<Rows> = texts.iter().map(|text| self.alone(model, text)).collect::<Result<_>>()?;
        // One more for the moment of a fork.
        let mut runner = self.runner(model, self.texts + 1)?;
        let spec = model.spec();
        let reuses = spec.layers.iter().all(|layer| layer.mixer.fixed_state(spec.hidden).is_empty());
        let mut found = Found { reuses, ..Found::default() };
        for _ in 0..2 {
            self.together(&mut runner, &texts, &alone, rng, &mut found)?;
        }
        Ok(found)
    }

    fn runner(&self, model: &Arc<Model>, sequences: usize) -> Result<Runner> {
        let batch_tokens = self.length.max(sequences * (self.chunk + GUESSES));
        let context = Some(self.length + GUESSES);
        let output_rows = Some(batch_tokens);
        Runner::new(
            model.clone(),
            Limits { context, sequences, batch_tokens, output_rows, kv_format: self.kv_format, ..Limits::default() },
        )
    }

    fn alone(&self, model: &Arc<Model>, text: &[u32]) -> Result<Rows> {
        let mut runner = self.runner(model, 1)?;
        let id = runner.open_sequence()?;
        Ok(forward(&mut runner, &[(id, text)])?.remove(0))
    }

    /// All texts once, in random parts. The first starts by itself, so that others find its start.
    fn together(
        &self,
        runner: &mut Runner,
        texts: &[Vec<u32>],
        alone: &[Rows],
        rng: &mut Rng,
        found: &mut Found,
    ) -> Result<()> {
        let (mut open, mut waiting): (Vec<Open>, _) = (Vec::new(), (0..texts.len()).collect::<Vec<usize>>());
        while !open.is_empty() || !waiting.is_empty() {
            let joining = if open.is_empty() { 1 } else { rng.between(1, 1 + self.texts / 2) };
            for text in waiting.split_off(waiting.len().saturating_sub(joining)) {
                let (id, at) = runner.open_sequence_with(0, &texts[text][..self.length - 1])?;
                found.reused += at;
                open.push(Open { text, id, at });
            }
            // A token of each text, as in decoding.
            let single = rng.chance(0.3);
            found.single += usize::from(single && open.len() > 1);
            let part = |own: &Open| {
                let end = runner.next_checkpoint(own.id)?.unwrap_or(self.length);
                Ok(self.part(own, &texts[own.text][..end], single, rng))
            };
            let parts: Vec<Part> = open.iter().map(part).collect::<Result<_>>()?;
            let batch: Vec<_> = open.iter().zip(&parts).map(|(own, part)| (own.id, &part.tokens[..])).collect();
            let logits = forward(runner, &batch)?;
            for ((own, part), rows) in open.iter_mut().zip(&parts).zip(logits) {
                let expected = &alone[own.text][own.at..][..part.own];
                found.rows += part.own;
                found.different += rows.iter().zip(expected).filter(|(row, expected)| row != expected).count();
                found.guessed += part.tokens.len() - part.own;
                // Behind the nearest checkpoint the text is read again.
                own.at = runner.checkpoint(own.id, own.at + part.own)?;
                runner.truncate(own.id, own.at)?;
                runner.keep_prefix(own.id, &texts[own.text][..own.at])?;
            }
            self.interrupt(runner, texts, &mut open, &mut waiting, rng)?;
            let (done, left): (Vec<_>, _) = open.into_iter().partition(|own| own.at == self.length);
            for own in done {
                runner.retire_sequence(own.id, &texts[own.text])?;
            }
            open = left;
        }
        Ok(())
    }

    /// Now and then continues with a fork of a text, or preempts one, which starts again later.
    fn interrupt(
        &self,
        runner: &mut Runner,
        texts: &[Vec<u32>],
        open: &mut Vec<Open>,
        waiting: &mut Vec<usize>,
        rng: &mut Rng,
    ) -> Result<()> {
        for own in open.iter_mut().filter(|_| rng.chance(0.1)) {
            let fork = runner.fork_sequence(own.id)?;
            runner.close_sequence(own.id)?;
            own.id = fork;
        }
        if open.len() > 1 && rng.chance(0.05) {
            let own = open.swap_remove(rng.below(open.len()));
            runner.retire_sequence(own.id, &texts[own.text][..own.at])?;
            waiting.insert(0, own.text);
        }
        Ok(())
    }

    /// The next tokens of a text's beginning, now and then with wrong draft tokens behind them.
    fn part(&self, open: &Open, text: &[u32], single: bool, rng: &mut Rng) -> Part {
        let most = if single { 1 } else { self.chunk };
        let own = rng.between(1, most.min(text.len() - open.at));
        let guesses = if !single && rng.chance(0.3) { rng.between(1, GUESSES) } else { 0 };
        let mut tokens = text[open.at..][..own].to_vec();
        tokens.extend((0..guesses).map(|_| rng.pick(text)));
        Part { tokens, own }
    }
}

/// The bits of the logits of each token that a batch adds, by sequence.
fn forward(runner: &mut Runner, parts: &[(SequenceId, &[u32])]) -> Result<Vec<Rows>> {
    let mut batch = Batch::new();
    for (id, tokens) in parts {
        batch.push(*id, tokens, Outputs::All);
    }
    let mut logits = runner.forward(&batch)?;
    let vocab = logits.vocab();
    let bits: Vec<u32> = logits.to_vec()?.into_iter().map(f32::to_bits).collect();
    let mut rows = bits.chunks(vocab).map(<[u32]>::to_vec);
    Ok(parts.iter().map(|(_, tokens)| rows.by_ref().take(tokens.len()).collect()).collect())
}
