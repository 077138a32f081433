//! What chats and completions return of tokens on request: their ids, and their experts.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::ApiError;
use crate::models::ServedModel;
use crate::reply::Trace;

/// The traces that chats and completions can request.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
pub(crate) struct TraceFields {
    /// Return the experts that computed each token, in `gristmill.tokens` of each choice, in events of each event.
    /// Refused for a model without experts.
    experts: Option<bool>,
    /// Return the ids of the prompt's tokens in `prompt_token_ids`, and those of generated tokens in `token_ids` of each
    /// choice, in events of each event.
    return_token_ids: Option<bool>,
}

impl TraceFields {
    /// Whether the ids of tokens are requested.
    pub(crate) fn token_ids(self) -> bool {
        self.return_token_ids == Some(true)
    }

    /// Whether experts are requested.
    pub(crate) fn asked(self, model: &ServedModel) -> Result<bool, ApiError> {
        let asked = self.experts == Some(true);
        let has_experts = || model.engine.model().spec().routers().iter().any(|router| router.experts > 0);
        match asked && !has_experts() {
            true => Err(ApiError::param("experts", "this model has no experts; leave the field out")),
            false => Ok(asked),
        }
    }
}

/// The experts of the tokens of a choice, or in an event of one token.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Traces {
    tokens: Vec<TokenTrace>,
}

/// A generated token with its experts. Tokens without text, such as the last, are there too.
#[derive(Debug, Serialize, ToSchema)]
struct TokenTrace {
    id: u32,
    /// Its text, in which bytes that are not UTF-8 are U+FFFD.
    text: String,
    /// For each layer the pairs [expert, weight] that the router chose, in its order, when the model computed this
    /// token from those before it; empty for a layer without experts. Weights have four decimals.
    #[schema(value_type = Vec<Vec<Vec<f32>>>)]
    experts: Vec<Vec<(u32, f32)>>,
}

impl Traces {
    /// `None` without a trace.
    pub(crate) fn new(model: &ServedModel, traces: &[Trace]) -> Option<Traces> {
        let tokens: Vec<TokenTrace> = traces.iter().map(|trace| TokenTrace::new(model, trace)).collect();
        (!tokens.is_empty()).then_some(Traces { tokens })
    }
}

impl TokenTrace {
    fn new(model: &ServedModel, trace: &Trace) -> TokenTrace {
        let text = model.token_text(trace.token);
        let rounded = |&(expert, weight): &(u32, f32)| (expert, (weight * 1e4).round() / 1e4);
        let experts = trace.routing.iter().map(|layer| layer.iter().map(rounded).collect()).collect();
        TokenTrace { id: trace.token, text, experts }
    }
}
