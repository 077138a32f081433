//! Watches the pieces of a reply.

use sha2::{Digest, Sha256};

use super::document::{FORMAT, Receipt, RecordedChoice, build};
use crate::{Engine, Finish, Piece, Request};

/// Takes requests and their pieces, and gives the receipt.
#[derive(Debug)]
pub struct Recorder {
    /// Without choices.
    receipt: Receipt,
    texts: Vec<Text>,
}

/// The text of one choice so far.
#[derive(Debug)]
struct Text {
    /// The index of its request.
    request: usize,
    hash: Sha256,
    finish: Option<Finish>,
}

impl Recorder {
    /// For the choices of one reply, of which each has a request.
    pub fn new(engine: &Engine, requests: &[Request]) -> Recorder {
        let model = engine.model().fingerprint().to_owned();
        let build = build();
        let conditions = engine.conditions();
        let receipt = Receipt { format: FORMAT, build, model, conditions, requests: vec![], choices: vec![] };
        let mut recorder = Recorder { receipt, texts: Vec::new() };
        requests.iter().for_each(|request| recorder.add(request, 1));
        recorder
    }

    /// Adds choices of one request, which have seeds of their own.
    pub fn add(&mut self, request: &Request, choices: usize) {
        let mut request = request.clone();
        (request.sampling.seed, request.tenant, request.cache_key) = (None, 0, None);
        if self.receipt.requests.last() != Some(&request) {
            self.receipt.requests.push(request);
        }
        let request = self.receipt.requests.len() - 1;
        self.texts.extend((0..choices).map(|_| Text { request, hash: Sha256::new(), finish: None }));
    }

    /// Takes the next piece of a choice.
    pub fn push(&mut self, choice: usize, piece: &Piece) {
        if let Some(text) = self.texts.get_mut(choice) {
            text.hash.update(&piece.text);
            text.finish = piece.finish;
        }
    }

    /// The receipt; `None` unless all choices have ended.
    pub fn finish(self) -> Option<Receipt> {
        let choice = |Text { request, hash, finish }: Text| {
            let Finish { seed, reason: finish_reason, usage, .. } = finish?;
            let text_sha256 = format!("{:x}", hash.finalize());
            Some(RecordedChoice { request, seed, tokens: usage.generated_tokens, finish_reason, text_sha256 })
        };
        let choices = self.texts.into_iter().map(choice).collect::<Option<_>>()?;
        Some(Receipt { choices, ..self.receipt })
    }
}
