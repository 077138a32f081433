//! Log-probabilities of tokens.

use gristmill_engine::Logprob;
use serde::Serialize;
use utoipa::ToSchema;

use crate::models::ServedModel;

/// A token with its natural logarithm of a probability, before penalties and temperature.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct TokenLogprob {
    #[serde(flatten)]
    token: TokenBytes,
    top_logprobs: Vec<TokenBytes>,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
struct TokenBytes {
    /// Its text, in which bytes that are not UTF-8 are U+FFFD.
    token: String,
    logprob: f32,
    bytes: Vec<u8>,
}

impl TokenLogprob {
    pub(crate) fn new(model: &ServedModel, logprob: &Logprob) -> TokenLogprob {
        let top = logprob.top.iter().map(|&(token, logprob)| TokenBytes::new(model, token, logprob));
        TokenLogprob { token: TokenBytes::new(model, logprob.token, logprob.logprob), top_logprobs: top.collect() }
    }
}

impl TokenBytes {
    fn new(model: &ServedModel, token: u32, logprob: f32) -> TokenBytes {
        let bytes = model.token_bytes(token).to_vec();
        TokenBytes { token: String::from_utf8_lossy(&bytes).into_owned(), logprob, bytes }
    }
}
