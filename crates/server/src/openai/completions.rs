//! `/v1/completions`: texts to be continued.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use gristmill_engine::Request;
use gristmill_engine::engine::{Logprob, Piece};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::finish_reason;
use super::format::{FormatFields, ResponseFormat};
use super::prompts::Prompts;
use super::settings::{MOST_LOGPROBS, POLICY, Settings, choices};
use super::usage::Usage;
use crate::access::Tenant;
use crate::body::Object;
use crate::error::{ApiError, ErrorBody};
use crate::fields;
use crate::generation::{Choice, Choices, Outcome, id};
use crate::state::{App, seconds};
use crate::stream::{self, Writer};
use crate::tokens::blocking;

/// The most prompts of a request.
const MOST_PROMPTS: usize = 1_024;
/// What OpenAI generates where `max_tokens` is left out.
const DEFAULT_TOKENS: usize = 16;

/// Texts to be continued.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CompletionRequest {
    #[serde(flatten)]
    settings: Settings,
    #[serde(flatten)]
    format: FormatFields,
    #[serde(flatten)]
    completion: CompletionFields,
}

/// What only requests for a completion have.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
struct CompletionFields {
    prompt: Prompts,
    /// The most tokens to generate, 16 by default; 0 only with `echo`.
    max_tokens: Option<usize>,
    /// The text is JSON. A keyword of a schema that is not enforced is refused with its path.
    response_format: Option<ResponseFormat>,
    /// Give the prompt back before its completion.
    echo: Option<bool>,
    /// Tell the log-probability of each token, and of so many of the likeliest; of the prompt's too with `echo`.
    #[schema(maximum = 20)]
    logprobs: Option<usize>,
}

/// The reply, or one event of a reply in events.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Completion<'a> {
    #[serde(flatten)]
    head: &'a Head,
    choices: Vec<CompletionChoice>,
    /// In the event before the last, if `stream_options.include_usage` asks for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
struct Head {
    id: String,
    /// `text_completion`.
    object: &'static str,
    /// Seconds since 1970.
    created: u64,
    model: String,
}

#[derive(Debug, Serialize, ToSchema)]
struct CompletionChoice {
    text: String,
    index: usize,
    logprobs: Option<CompletionLogprobs>,
    /// `stop` or `length`.
    finish_reason: Option<&'static str>,
}

/// Lists with one entry for each token.
#[derive(Debug, Default, Serialize, ToSchema)]
struct CompletionLogprobs {
    tokens: Vec<String>,
    /// Null for the first token of a prompt.
    token_logprobs: Vec<Option<f32>>,
    /// The likeliest tokens by their texts; null for the first token of a prompt.
    top_logprobs: Vec<Option<BTreeMap<String, f32>>>,
    /// The first character of each token in the text.
    text_offset: Vec<usize>,
}

/// Continues texts.
#[utoipa::path(
    post,
    path = "/v1/completions",
    request_body = CompletionRequest,
    responses((status = 200, content((Completion = "application/json"), (stream::StreamEvent = "text/event-stream"))), (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody))
)]
pub(crate) async fn serve(
    State(app): State<App>,
    Extension(Tenant(tenant)): Extension<Tenant>,
    Object(object): Object,
) -> Result<Response, ApiError> {
    let [settings, format] = [fields::names::<Settings>(), fields::names::<FormatFields>()];
    let known = [settings, format, fields::names::<CompletionFields>()];
    let asked = CompletionRequest {
        settings: fields::read(&object)?,
        format: fields::read(&object)?,
        completion: fields::read(&object)?,
    };
    let ignored = fields::judge(&object, &known, POLICY, app.options.strict)?;
    app.check_model(asked.settings.model.as_deref())?;
    let (streams, usage, n) = (asked.settings.streams(), asked.settings.streams_usage(), asked.settings.choices()?);
    let receipt = asked.settings.receipt();
    let shared = app.clone();
    let (requests, echoes) = blocking(move || asked.requests(&shared, tenant)).await?;
    let choices = Choices::start(&app, requests, receipt).await?;
    let header = fields::ignored_header(&ignored).into_iter().collect::<Vec<_>>();
    let head = Head { id: id("cmpl"), object: "text_completion", created: seconds(), model: app.options.name.clone() };
    let mut response = if streams {
        let offsets = vec![0; echoes.len()];
        stream::respond(&app, choices, Events { app: app.clone(), head, usage, n, offsets })
    } else {
        let (completed, outcome) = choices.collect(&app).await?;
        let pairs = completed.into_iter().zip(echoes).enumerate();
        let choices = pairs.map(|(index, (choice, echo))| CompletionChoice::new(&app, index, choice, echo)).collect();
        Json(Completion { head: &head, choices, usage: Some(Usage::new(outcome, n)) }).into_response()
    };
    response.headers_mut().extend(header);
    Ok(response)
}

/// The prompt that a choice gives back.
struct Echo {
    /// Empty unless it is asked for.
    tokens: Arc<[u32]>,
    /// Whether the generated token is left out: the engine generates one at least.
    prompt_only: bool,
}

impl CompletionRequest {
    /// One request for each choice of each prompt, and what each gives back.
    fn requests(self, app: &App, tenant: u64) -> Result<(Vec<Request>, Vec<Echo>), ApiError> {
        let CompletionRequest { settings, format, completion } = self;
        let grammar = format.grammar(completion.response_format)?;
        let CompletionFields { prompt, max_tokens, echo, logprobs, .. } = completion;
        let (n, echo) = (settings.choices()?, echo.unwrap_or(false));
        let prompts = prompt.list("prompt", MOST_PROMPTS)?;
        if settings.streams() && echo {
            return Err(ApiError::param("echo", "echo is not supported for a reply in events; leave stream out"));
        }
        let most = max_tokens.unwrap_or(DEFAULT_TOKENS);
        if most == 0 && !echo {
            return Err(ApiError::param("max_tokens", "max_tokens is 0, which needs echo; it must be at least 1"));
        }
        if let Some(asked) = logprobs.filter(|&asked| asked > MOST_LOGPROBS) {
            let message = format!("logprobs is {asked}; at most {MOST_LOGPROBS} are told");
            return Err(ApiError::param("logprobs", message));
        }
        let (mut requests, mut echoes) = (Vec::new(), Vec::new());
        for prompt in prompts {
            // Before a prompt of megabytes is copied for each choice.
            let tokens = if echo || n > 1 { app.engine.prompt_tokens(&prompt)? } else { Vec::new() };
            let tokens: Arc<[u32]> = if echo { tokens.into() } else { Arc::default() };
            let mut request = Request { tenant, grammar: grammar.clone(), ..Request::new(prompt) };
            settings.apply(&mut request, &app.options.sampling)?;
            request.max_tokens = Some(most.max(1));
            request.logprobs = logprobs;
            request.prompt_logprobs = logprobs.filter(|_| echo);
            requests.extend(choices(&request, n));
            echoes.extend((0..n).map(|_| Echo { tokens: tokens.clone(), prompt_only: most == 0 }));
        }
        Ok((requests, echoes))
    }
}

impl CompletionChoice {
    fn new(app: &App, index: usize, choice: Choice, echo: Echo) -> CompletionChoice {
        let mut text = String::new();
        let mut logprobs = CompletionLogprobs::default();
        let mut offset = 0;
        if let Some((&first, rest)) = echo.tokens.split_first() {
            text = app.text(&echo.tokens);
            if !choice.prompt_logprobs.is_empty() || rest.is_empty() {
                logprobs.push(app, &mut offset, first, None);
            }
            for logprob in &choice.prompt_logprobs {
                logprobs.push(app, &mut offset, logprob.token, Some(logprob));
            }
        }
        if !echo.prompt_only {
            text += &choice.text;
            for logprob in &choice.logprobs {
                logprobs.push(app, &mut offset, logprob.token, Some(logprob));
            }
        }
        let asked = !choice.logprobs.is_empty();
        let finish_reason = choice.finish.map(|finish| finish_reason(finish.reason, false));
        CompletionChoice { text, index, logprobs: asked.then_some(logprobs), finish_reason }
    }
}

impl CompletionLogprobs {
    /// Adds a token that begins at the character `offset`, which then moves to its end.
    fn push(&mut self, app: &App, offset: &mut usize, token: u32, logprob: Option<&Logprob>) {
        let text = app.token_text(token);
        self.text_offset.push(*offset);
        *offset += text.chars().count();
        self.tokens.push(text);
        self.token_logprobs.push(logprob.map(|logprob| logprob.logprob));
        let top = |logprob: &Logprob| {
            let mut top = BTreeMap::new();
            for &(token, value) in &logprob.top {
                // Of tokens with one text, the likeliest.
                top.entry(app.token_text(token)).or_insert(value);
            }
            top
        };
        self.top_logprobs.push(logprob.map(top));
    }
}

/// A reply in events.
struct Events {
    app: App,
    head: Head,
    /// Whether to send the usage.
    usage: bool,
    /// Choices of each prompt.
    n: usize,
    /// Characters of each choice so far.
    offsets: Vec<usize>,
}

impl Events {
    fn event(&self, choices: Vec<CompletionChoice>, usage: Option<Usage>) -> Event {
        stream::json(&Completion { head: &self.head, choices, usage })
    }
}

impl Writer for Events {
    fn begin(&mut self) -> Vec<Event> {
        Vec::new()
    }

    fn piece(&mut self, index: usize, piece: Piece) -> Vec<Event> {
        let logprobs = piece.logprob.map(|logprob| {
            let mut logprobs = CompletionLogprobs::default();
            logprobs.push(&self.app, &mut self.offsets[index], logprob.token, Some(&logprob));
            logprobs
        });
        let finish_reason = piece.finish.map(|finish| finish_reason(finish.reason, false));
        if piece.text.is_empty() && logprobs.is_none() && finish_reason.is_none() {
            return Vec::new();
        }
        vec![self.event(vec![CompletionChoice { text: piece.text, index, logprobs, finish_reason }], None)]
    }

    fn end(&mut self, outcome: Outcome) -> Vec<Event> {
        let usage = self.usage.then(|| self.event(Vec::new(), Some(Usage::new(outcome, self.n))));
        usage.into_iter().chain([Event::default().data("[DONE]")]).collect()
    }

    fn error(&mut self, error: &ApiError) -> Vec<Event> {
        vec![stream::json(&error.body())]
    }
}
