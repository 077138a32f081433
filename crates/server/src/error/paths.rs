//! The caller's names of what the engine refuses.

use axum::http::StatusCode;
use gristmill_engine::{EngineError, ErrorKind, TokenList};

use super::ApiError;
use super::overflow::Overflow;

/// The paths of what the engine checks, in the caller's request.
#[derive(Debug, Clone)]
pub(crate) struct Paths {
    /// The prompt, or the list of prompts, or the conversation.
    pub(crate) prompt: &'static str,
    pub(crate) max_tokens: &'static str,
    pub(crate) repetition_penalty: &'static str,
    pub(crate) logprobs: &'static str,
    pub(crate) grammar: GrammarPath,
    /// The interface's words for a prompt that is longer than the context.
    pub(crate) overflow: Overflow,
}

/// The path of a grammar in the caller's request.
#[derive(Debug, Clone)]
pub(crate) enum GrammarPath {
    /// The field with the grammar.
    Field(String),
    /// The schemas of all tools.
    Tools,
}

impl Paths {
    /// Paths of an interface that names everything but the prompt as OpenAI's chats do.
    pub(crate) fn new(prompt: &'static str) -> Paths {
        Paths {
            prompt,
            max_tokens: "max_tokens",
            repetition_penalty: "repetition_penalty",
            logprobs: "logprobs",
            grammar: GrammarPath::Field("response_format".to_owned()),
            overflow: Overflow::OpenAi,
        }
    }

    /// An error of the engine, with the path of the wrong field.
    pub(crate) fn error(&self, error: EngineError) -> ApiError {
        self.error_of_prompt(None, error)
    }

    /// An error of reserving places for `n` choices of each prompt.
    pub(crate) fn error_of_places(&self, n: usize, error: EngineError) -> ApiError {
        match error {
            EngineError::Busy { asked, places } if asked > places => {
                let message = format!(
                    "the request needs {asked} completions, but at most {places} can run or wait; request fewer"
                );
                self.of_count(n, ApiError::new(StatusCode::BAD_REQUEST, message))
            }
            error => self.error(error),
        }
    }

    /// An error about the number of completions, with the path of the field that sets it if the request is wrong.
    pub(crate) fn of_count(&self, n: usize, error: ApiError) -> ApiError {
        let param = if n > 1 { "n" } else { self.prompt };
        match error.status {
            StatusCode::BAD_REQUEST => ApiError { param: Some(param.to_owned()), ..error },
            _ => error,
        }
    }

    /// The same as [`Self::error`], about the prompt of an index.
    pub(crate) fn error_of_prompt(&self, index: Option<usize>, error: EngineError) -> ApiError {
        let message = error.to_string();
        let own = ApiError::new(status(error.kind()), message.clone());
        let bad = |param: &str| ApiError::param(param, message.clone());
        let prompt = || bad(&index.map_or(self.prompt.to_owned(), |index| format!("{}[{index}]", self.prompt)));
        match error {
            EngineError::Template(_) | EngineError::NoTemplate => prompt(),
            EngineError::NoImages { .. } => ApiError { param: prompt().param, ..own.with_code("unsupported") },
            EngineError::ImageTemplate { .. } | EngineError::ImageToken { .. } => prompt(),
            EngineError::OwnTemplate(_) => bad("chat_template"),
            EngineError::EmptyPrompt | EngineError::Token { .. } => prompt(),
            EngineError::Model(gristmill_engine::Error::Tokenizer(_)) => prompt(),
            EngineError::PromptTooLong { tokens, exact, context } => {
                let error = self.overflow.error(self.prompt, (tokens, exact), context);
                ApiError { param: error.param.and(prompt().param), ..error }
            }
            EngineError::NoInputs => bad("input"),
            EngineError::NoPooling => bad("model").with_code("unsupported"),
            EngineError::Sampling { what: "repeat_penalty", value, rule } => {
                let name = self.repetition_penalty;
                ApiError::param(name, format!("{name} is {value}; it must be {rule}"))
            }
            EngineError::Sampling { what, .. } => bad(what),
            EngineError::EmptyBreaker | EngineError::BreakersWithoutText | EngineError::Breakers(_) => {
                bad("dry_sequence_breakers")
            }
            EngineError::LogitBias { .. } | EngineError::LogitBiasToken { .. } | EngineError::LogitBiasTwice(_) => {
                bad("logit_bias")
            }
            EngineError::NoAllowedTokens => bad("allowed_token_ids"),
            EngineError::NamedToken { list: TokenList::Stop, .. } => bad("stop_token_ids"),
            EngineError::NamedToken { list: TokenList::Allowed, .. } => bad("allowed_token_ids"),
            EngineError::NamedToken { list: TokenList::Banned, .. } => bad("bad_words"),
            EngineError::NoTokens => bad(self.max_tokens),
            EngineError::MinTokens { .. } => bad("min_tokens"),
            EngineError::Logprobs { .. } => bad(self.logprobs),
            EngineError::NoTools | EngineError::UnknownTool(_) => bad("tool_choice"),
            EngineError::Schema { path, problem } => {
                let keyword = path.rsplit_once('/').map(|(_, keyword)| format!("the schema's {keyword:?}"));
                let what = keyword.unwrap_or_else(|| "the schema".to_owned());
                ApiError::param(self.grammar.of_pointer(&path), format!("{what}: {problem}"))
            }
            EngineError::NotContinued => prompt(),
            EngineError::Grammar(_) => bad(&self.grammar.of_pointer("")),
            // The request is valid, but its text cannot continue.
            EngineError::GrammarStuck => ApiError { status: StatusCode::UNPROCESSABLE_ENTITY, ..own },
            EngineError::Busy { .. } => own.with_code("queue_full").retry_after(1),
            EngineError::Draining => own.with_code("shutting_down").retry_after(1),
            _ => own,
        }
    }
}

fn status(kind: ErrorKind) -> StatusCode {
    match kind {
        ErrorKind::BadRequest => StatusCode::BAD_REQUEST,
        ErrorKind::Busy => StatusCode::TOO_MANY_REQUESTS,
        ErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl GrammarPath {
    /// The path of what a JSON pointer into the grammar's schema names.
    fn of_pointer(&self, pointer: &str) -> String {
        match self {
            GrammarPath::Field(field) => joined(field, pointer),
            GrammarPath::Tools => "tools".to_owned(),
        }
    }
}

/// The path of what a JSON pointer within a field names.
pub(crate) fn joined(field: &str, pointer: &str) -> String {
    pointer.split('/').skip(1).fold(field.to_owned(), |path, name| match name.parse::<usize>() {
        Ok(index) => format!("{path}[{index}]"),
        Err(_) => format!("{path}.{}", name.replace("~1", "/").replace("~0", "~")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_become_paths() {
        let field = GrammarPath::Field("guided_json".to_owned());
        assert_eq!(field.of_pointer(""), "guided_json");
        assert_eq!(field.of_pointer("/properties/a~1b/anyOf/2"), "guided_json.properties.a/b.anyOf[2]");
        assert_eq!(GrammarPath::Tools.of_pointer("/anyOf/1"), "tools");
    }
}
