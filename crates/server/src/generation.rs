//! Requests on the engine, for asynchronous code.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gristmill_engine::receipt::Recorder;
use gristmill_engine::reply::ReplyEvent;
use gristmill_engine::{Canceller, EngineError, Piece, Pledge, Reservation, Wanted, check_tools};
use gristmill_engine::{GenerationOptions, Grammar, Prompt, ReplyParser, Request};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::time::timeout;

use crate::blocking::blocking;
use crate::error::{ApiError, Paths};
use crate::fields;
use crate::keys::Turn;
use crate::log::Counts;
use crate::models::ServedModel;
use crate::reply::{Choice, Reply, Step};
use crate::request::{ApiRequest, Conversation, Input};
use crate::tenant::Tenant;

/// How long the head of a reply in events may wait for its first event. Proxies and clients give up on a silent server
/// after 30 s or more.
const HEAD_WAITS: Duration = Duration::from_secs(10);

/// A piece or an error, and the index of its choice.
type Event = (usize, Result<Piece, EngineError>);

/// A request that runs on the engine. Dropping it cancels the choices that still run.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) reply: Reply,
    /// The paths of what changes nothing in the request.
    pub(crate) ignored: Vec<String>,
    /// Unbounded: a generation has no more pieces than the context has tokens, and the engine never waits for a slow
    /// client.
    pieces: UnboundedReceiver<Event>,
    cancellers: Vec<Canceller>,
    /// The first event, until it is taken.
    first: Option<Event>,
    /// Keeps the request although the server ends.
    pledge: Pledge,
    /// For the access log.
    pub(crate) counts: Counts,
    /// Choices that have not ended.
    left: usize,
    /// The places of the settings in the caller's request.
    paths: Paths,
    /// The recorder of a request that wants a receipt.
    recorder: Option<Recorder>,
    /// Counts the choices among those of its key at a time.
    turn: Option<Turn>,
}

impl Running {
    /// Starts all choices, or none.
    pub(crate) async fn start(
        model: &ServedModel,
        tenant: Tenant,
        request: ApiRequest,
        counts: Counts,
    ) -> Result<Running, ApiError> {
        let model = model.clone();
        // Templates, tokenizers and grammars take milliseconds.
        blocking(move || Running::start_blocking(&model, tenant, request, counts)).await
    }

    fn start_blocking(
        model: &ServedModel,
        tenant: Tenant,
        request: ApiRequest,
        counts: Counts,
    ) -> Result<Running, ApiError> {
        let ApiRequest { mut input, n, settings, receipt, mut ignored, paths, .. } = request;
        if let Input::Conversation(conversation) = &mut input {
            let unenforced = check_tools(&conversation.chat, &conversation.options);
            ignored.extend(conversation.release(unenforced)?);
        }
        fields::check_strict(&ignored, model.app().options.strict)?;
        let prompts = match &input {
            Input::Conversation(_) => 1,
            Input::Texts { prompts, .. } => prompts.len(),
        };
        // A request that the key's limits or the queue refuse costs no further work.
        let id = tenant.id();
        let choices = prompts.saturating_mul(n);
        let turn = tenant.turn(choices).map_err(|error| paths.of_count(n, error))?;
        let places = model.engine.reserve(id, choices).map_err(|error| paths.error_of_places(n, error))?;
        let (sender, pieces) = mpsc::unbounded_channel();
        let recorder = receipt.then(|| Recorder::new(&model.engine, &[]));
        let reply = Reply::new(n);
        let cancellers = Vec::new();
        let pledge = places.pledge();
        let running =
            Running { reply, ignored, pieces, cancellers, first: None, pledge, counts, left: 0, paths, recorder, turn };
        let cache_key = settings.cache_key.map(|key| model.app().hash((id, key)));
        let settings = GenerationOptions { draft: model.draft, tenant: id, cache_key, ..settings };
        let mut starting = Starting { model, tenant, running, places, sender, settings };
        match input {
            Input::Conversation(mut conversation) => {
                conversation.prepare_images(model)?;
                starting.conversation(*conversation)?;
            }
            Input::Texts { prompts, grammar } => starting.texts(prompts, grammar.as_ref())?,
        }
        starting.running.turn.iter_mut().for_each(Turn::start);
        Ok(starting.running)
    }

    /// Waits for the first event, or for as long as a client may wait for the head of its reply. If the server ends in
    /// this time and the request only waits, it is refused, so that a load balancer sends it elsewhere. After that it
    /// is answered.
    ///
    /// # Errors
    /// The refusal.
    pub(crate) async fn begin(&mut self) -> Result<(), ApiError> {
        match timeout(HEAD_WAITS, self.pieces.recv()).await {
            Ok(Some((_, Err(error @ EngineError::Draining)))) => return Err(self.paths.error(error)),
            Ok(event) => self.first = event,
            Err(_) => {}
        }
        self.pledge.give();
        Ok(())
    }

    /// The effect of the next token. `None` after the last of all choices.
    pub(crate) async fn next(&mut self) -> Option<Result<Step, ApiError>> {
        if self.left == 0 {
            self.reply.receipt = self.recorder.take().and_then(Recorder::finish);
            return None;
        }
        let event = match self.first.take() {
            Some(event) => Some(event),
            None => self.pieces.recv().await,
        };
        // The engine drops the sender when it stops.
        let (choice, event) = event.unwrap_or((0, Err(EngineError::Stopped)));
        Some(match event {
            Ok(piece) => {
                self.left -= usize::from(piece.finish.is_some());
                self.counts.token(&piece, choice.is_multiple_of(self.reply.n));
                self.recorder.iter_mut().for_each(|recorder| recorder.push(choice, &piece));
                Ok(self.reply.push(choice, piece))
            }
            Err(error) => {
                self.left = 0;
                self.cancel();
                self.reply.cut();
                Err(self.paths.error(error))
            }
        })
    }

    /// Waits for all choices.
    pub(crate) async fn collect(mut self) -> Result<Reply, ApiError> {
        while let Some(step) = self.next().await {
            step?;
        }
        Ok(std::mem::replace(&mut self.reply, Reply::new(0)))
    }

    fn cancel(&self) {
        self.cancellers.iter().for_each(Canceller::cancel);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.cancel();
    }
}

/// A request whose choices are being started. After an error, dropping it cancels those that were.
struct Starting<'a> {
    model: &'a ServedModel,
    tenant: Tenant,
    running: Running,
    places: Reservation,
    sender: UnboundedSender<Event>,
    settings: GenerationOptions,
}

impl Starting<'_> {
    /// Starts the reply to a conversation. Where compiling refuses the grammar of calls, the schemas at fault are not
    /// enforced.
    fn conversation(&mut self, mut conversation: Conversation) -> Result<(), ApiError> {
        loop {
            let Err(error) = self.answer(&conversation) else { return Ok(()) };
            let refused = match &error {
                EngineError::Schema { .. } | EngineError::Grammar(_) => {
                    self.model.engine.refused_tools(&conversation.chat, &conversation.options)
                }
                _ => Vec::new(),
            };
            if refused.is_empty() {
                return Err(self.running.paths.error(error));
            }
            let ignored = conversation.release(refused)?;
            fields::check_strict(&ignored, self.model.app().options.strict)?;
            self.running.ignored.extend(ignored);
        }
    }

    fn answer(&mut self, conversation: &Conversation) -> Result<(), EngineError> {
        let Conversation { chat, options, .. } = conversation;
        let conversation = self.model.engine.converse(chat.clone(), options.clone())?;
        let request = conversation.request(self.settings.clone());
        self.start_choices(request, None, || conversation.parser(), !options.parallel_calls)
    }

    /// Starts the choices of all prompts, after all of them are tokenised: the last one may be too long.
    fn texts(&mut self, prompts: Vec<Prompt>, grammar: Option<&Grammar>) -> Result<(), ApiError> {
        let several = prompts.len() > 1;
        let tokenise = |(index, prompt): (usize, &Prompt)| {
            let tokens = self.model.engine.prompt_tokens(prompt);
            tokens.map_err(|error| self.running.paths.error_of_prompt(several.then_some(index), error))
        };
        let tokens = prompts.iter().enumerate().map(tokenise).collect::<Result<Vec<_>, _>>()?;
        for (prompt, tokens) in prompts.into_iter().zip(tokens) {
            let mut request = self.model.engine.request(prompt, self.settings.clone());
            request.grammar = grammar.cloned();
            let started = self.start_choices(request, Some(tokens), ReplyParser::plain, false);
            started.map_err(|error| self.running.paths.error(error))?;
        }
        Ok(())
    }

    /// Starts the choices of one prompt, which has these tokens if they are known. With `one_call`, a choice ends after
    /// its first call, unless it has a receipt, by which the whole text is generated again.
    fn start_choices(
        &mut self,
        request: Request,
        tokens: Option<Vec<u32>>,
        parser: impl Fn() -> ReplyParser,
        one_call: bool,
    ) -> Result<(), EngineError> {
        let Starting { model, tenant, running, places, sender, .. } = self;
        let n = running.reply.n;
        let recorded = running.recorder.is_some().then(|| request.clone());
        let ends = one_call && recorded.is_none();
        let prompt = tokens.map(Prompt::Tokens).unwrap_or(request.prompt);
        let request = Request { prompt, ..request };
        let first = running.reply.choices.len();
        let now = Instant::now();
        let (watches, accepted): (Vec<_>, Vec<_>) =
            (0..n).map(|_| model.app().metrics.watch(model.metrics(), now, tenant)).unzip();
        let delivers = (first..).zip(watches).map(|(choice, mut watch)| {
            let sender = sender.clone();
            let mut until_call = ends.then(&parser);
            move |event: Result<Piece, EngineError>| {
                watch.see(&event);
                let has_call =
                    |parser: &mut ReplyParser| event.as_ref().is_ok_and(|piece| has_call(&parser.push(piece)));
                let is_complete = until_call.as_mut().is_some_and(has_call);
                match sender.send((choice, event)) {
                    Ok(()) if is_complete => Wanted::Last,
                    sent => sent.is_ok().into(),
                }
            }
        });
        let choices = model.engine.deliver_choices(request, places, delivers)?;
        accepted.iter().for_each(|accepted| accepted.set());
        if let (Some(recorder), Some(request)) = (&mut running.recorder, &recorded) {
            recorder.add(request, n);
        }
        let prompt: Arc<[u32]> = choices.prompt.into();
        running.counts.prompt(prompt.len());
        running.left += choices.cancellers.len();
        running.cancellers.extend(choices.cancellers);
        running.reply.choices.extend((0..n).map(|_| Choice::new(prompt.clone(), parser(), one_call)));
        Ok(())
    }
}

fn has_call(events: &[ReplyEvent]) -> bool {
    events.iter().any(|event| matches!(event, ReplyEvent::ToolCall(_)))
}
