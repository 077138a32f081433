//! A prompt that is longer than the context, in the words by which clients recognise it.

use axum::http::StatusCode;

use super::ApiError;

/// The code of OpenAI's interfaces for a prompt that is longer than the context.
const CODE: &str = "context_length_exceeded";

/// The words of an interface. Agents compare them with patterns, and then shorten the conversation and continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overflow {
    /// The code [`CODE`], and "maximum context length is N tokens" and "reduce the length of the messages".
    OpenAi,
    /// "prompt is too long: N tokens > M maximum", as the start of the message.
    Anthropic,
}

impl Overflow {
    /// The error for a prompt in the field `at`. It has this number of tokens, or more if the number is not exact.
    pub(super) fn error(self, at: &str, (tokens, exact): (usize, bool), context: usize) -> ApiError {
        let least = if exact { "" } else { "at least " };
        match self {
            Overflow::OpenAi => {
                let message = format!(
                    "This model's maximum context length is {context} tokens, but the request has {least}{tokens} \
                     tokens in {at}; reduce the length of the {at}, or start the server with a larger context if the \
                     model and the memory allow"
                );
                ApiError::param(at, message).with_code(CODE)
            }
            Overflow::Anthropic => {
                let message = format!("prompt is too long: {least}{tokens} tokens > {context} maximum");
                ApiError::new(StatusCode::BAD_REQUEST, message)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words that published programs look for (2026-11): Claude Code's pattern of two numbers, and those of pi,
    /// opencode, litellm and pydantic-ai.
    #[test]
    fn clients_recognise_the_words() {
        let error = Overflow::Anthropic.error("messages", (9_031, true), 8_192);
        assert_eq!((&*error.message, error.param), ("prompt is too long: 9031 tokens > 8192 maximum", None));
        let error = Overflow::OpenAi.error("messages", (20_000, false), 8_192);
        for words in [
            "This model's maximum context length is 8192 tokens",
            "at least 20000 tokens",
            "reduce the length of the messages",
        ] {
            assert!(error.message.contains(words), "{words} in {}", error.message);
        }
        assert_eq!((error.param.as_deref(), error.code), (Some("messages"), Some("context_length_exceeded")));
    }
}
