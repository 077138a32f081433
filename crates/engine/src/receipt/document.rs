//! A receipt as it is written and read.

use std::env::consts;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use super::conditions::Conditions;
use crate::{FinishReason, Request, seed};

/// The format of receipts that this version writes and reads.
pub const FORMAT: u64 = 3;

/// The version of this build, its architecture and system: `0.1.0 (x86_64, linux)`.
pub fn build() -> String {
    format!("{} ({}, {})", env!("CARGO_PKG_VERSION"), consts::ARCH, consts::OS)
}

/// All that produces the texts of a reply again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Receipt {
    /// [`FORMAT`].
    pub format: u64,
    /// The [`build`] of the program that generated the texts.
    pub build: String,
    /// The model's [`fingerprint`](crate::gguf::GgufFile::fingerprint).
    pub model: String,
    /// The other conditions that bytes depend on.
    pub conditions: Conditions,
    /// The requests, without their seeds. Choices may share one.
    pub requests: Vec<Request>,
    /// One for each text.
    pub choices: Vec<RecordedChoice>,
}

/// One text of a reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RecordedChoice {
    /// The index of its request.
    pub request: usize,
    /// The seed of its tokens; JSON has it in quotes.
    #[serde(with = "seed")]
    pub seed: u64,
    /// Tokens generated, an end-of-generation token included.
    pub tokens: usize,
    /// Why it ended.
    pub finish_reason: FinishReason,
    /// The SHA-256 of the text as the model wrote it, with the marks around reasoning and calls: 64 hexadecimal digits.
    pub text_sha256: String,
}

/// Why a JSON value is not a receipt that this version reads.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReceiptError {
    /// Another format.
    #[error(
        "the receipt has format {0}, and this version of gristmill reads format {FORMAT}; use the build that it names"
    )]
    Format(u64),
    /// A field is missing, unknown or wrong.
    #[error("the receipt's field {field}: {problem}")]
    Field {
        /// Its path, such as `choices[2].seed`.
        field: String,
        /// The reason.
        problem: String,
    },
}

impl Receipt {
    /// Reads a receipt, which may come from anywhere. Requests are checked when they are run.
    ///
    /// # Errors
    /// [`ReceiptError`] names the field.
    pub fn read(json: &Value) -> Result<Receipt, ReceiptError> {
        let wrong = |field: String, problem: String| ReceiptError::Field { field, problem };
        // Another format may have other fields.
        if let Some(format) = json.get("format").and_then(Value::as_u64).filter(|&format| format != FORMAT) {
            return Err(ReceiptError::Format(format));
        }
        let receipt: Receipt = serde_path_to_error::deserialize(json).map_err(|error| {
            let (path, problem) = (error.path().to_string(), error.into_inner().to_string());
            // If the receipt lacks a field, only the problem names it.
            let named = problem.split('`').nth(1).filter(|_| path == ".").map(str::to_owned);
            wrong(named.unwrap_or(path), problem)
        })?;
        let requests = receipt.requests.len();
        match receipt.choices.iter().position(|choice| choice.request >= requests) {
            Some(index) => {
                let problem = format!("there are {requests} requests, which are counted from 0");
                Err(wrong(format!("choices[{index}].request"), problem))
            }
            None if receipt.choices.is_empty() => Err(wrong("choices".to_owned(), "there are none".to_owned())),
            None => Ok(receipt),
        }
    }

    /// The request of each choice, with its seed.
    pub fn requests(&self) -> impl Iterator<Item = Request> + '_ {
        self.choices.iter().filter_map(|choice| {
            let mut request = self.requests.get(choice.request)?.clone();
            request.sampling.seed = Some(choice.seed);
            Some(request)
        })
    }
}
