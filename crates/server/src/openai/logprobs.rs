//! Log-probabilities of tokens.

use gristmill_engine::engine::Logprob;
use serde::Serialize;
use utoipa::ToSchema;

use crate::state::App;

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
    pub(crate) fn new(app: &App, logprob: &Logprob) -> TokenLogprob {
        let top = logprob.top.iter().map(|&(token, logprob)| TokenBytes::new(app, token, logprob));
        TokenLogprob { token: TokenBytes::new(app, logprob.token, logprob.logprob), top_logprobs: top.collect() }
    }
}

impl TokenBytes {
    fn new(app: &App, token: u32, logprob: f32) -> TokenBytes {
        let bytes = app.token_bytes(token).to_vec();
        TokenBytes { token: String::from_utf8_lossy(&bytes).into_owned(), logprob, bytes }
    }
}
