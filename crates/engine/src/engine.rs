//! [`Engine`] serves requests: several at a time, from any thread, each as an iterator of pieces of text.
//!
//! ```text
//! generate(Request) ── prompt to tokens ──► channel ──► worker thread: schedule → forward → sample → emit
//!                                                                                                     │
//! Generation (iterator, dropping it cancels) ◄────────────────── channel of pieces ◄──────────────────┘
//! ```
//! - `request`, `prompt` and `embedding` have requests, `output` their results, `generation` the iterator, `sampling`
//!   and `logprob` parts of them, `error` the reasons for a refusal.
//! - `converse` turns a conversation into a prompt, and chooses the form in which the reply is parsed. `options` joins a
//!   prompt and the options of its generation. `reply_stream` parses the pieces of a reply.
//! - `submit` takes permits of the queue and hands requests to the worker's thread.
//! - `worker` owns the runner, on the only thread that this crate keeps; its `step()` is the whole loop. `stats` has
//!   what it counts.
//! - `dry` is a penalty on repetitions, computed from the text so far.
//! - `draft` makes draft tokens, which the model checks in one pass, and plans how many.
//! - `grammar` says which tokens may follow, where a request has a grammar.
//! - `script` chooses completions in place of the model, for tests of programs that talk to a server.
//! - `receipt` contains what reproduces a reply's texts; `seed` chooses random seeds and writes them as JSON.
//! - `fair` counts what tenants have and were given, which decides whose request starts next, `prefill_budget` how many tokens run next, `schedule` which; `job`
//!   follows one text to its end; `stop` withholds text that may be the start of a stop string, `reasoning` ends
//!   reasoning that is too long.
//!
//! # Requests from any thread, one worker
//!
//! The worker owns the runner: schedule, forward, sample, emit. Dropping a request's iterator cancels the request. *The
//! libraries have no global pool, logger, panic hook or signal hook, and print nothing. A `Notice` is a value.*

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};

use gristmill_kernels::kv::KvFormat;
use gristmill_kernels::ops::SamplingOptions;
use gristmill_kernels::tensor::DeviceId;
use gristmill_model::{Limits, Model, Notice, Plan, Runner};
use gristmill_text::grammar::Grammars;
use gristmill_text::template::Chat;
use gristmill_text::tokenizer::TokenizerError;
use gristmill_vision::{ImageSpan, Processor};

use crate::converse::ModelTemplate;
use crate::draft::planner::Planner;
use crate::draft::{DraftSource, Drafter, Drafts};
use crate::error::EngineError;
use crate::job::{Order, Permits};
use crate::options::{GenerationOptions, Required};
use crate::prompt::{Prompt, spread};
use crate::receipt::Conditions;
use crate::request::Request;
use crate::script::Script;
use crate::stats::{Counters, Stats};
use crate::worker::{Failure, Worker};

/// Runs a model for several requests at a time. Dropping it ends all generations, and blocks until its thread has ended.
///
/// The engine keeps the state of sequences in blocks of 16 tokens until their memory is needed. It computes only the
/// part of a prompt after the longest cached prefix. So each turn of a conversation costs its new messages, not its
/// whole history, and a system prompt is computed once.
#[derive(Debug)]
pub struct Engine {
    pub(crate) model: Arc<Model>,
    pub(crate) plan: Plan,
    pub(crate) kv_format: KvFormat,
    pub(crate) template: Option<ModelTemplate>,
    /// For conversations with tools, if the model has one of its own.
    pub(crate) tool_template: Option<ModelTemplate>,
    pub(crate) grammars: Grammars,
    /// What chooses completions in place of the model.
    pub(crate) script: Option<Arc<dyn Script>>,
    /// `None` only while the engine is dropped.
    pub(crate) jobs: Option<Sender<Order>>,
    pub(crate) thread: Option<JoinHandle<()>>,
    pub(crate) stop: Arc<AtomicBool>,
    /// See [`Engine::drain`].
    pub(crate) draining: Arc<AtomicBool>,
    pub(crate) failure: Failure,
    pub(crate) counters: Arc<Counters>,
    pub(crate) sequences: usize,
    /// Tokens of a prompt that a step has room for next to those of all sequences in decode.
    pub(crate) step_room: usize,
    /// Requests of a tenant that may wait.
    pub(crate) queue: usize,
    /// For the requests that run or wait.
    pub(crate) permits: Arc<Permits>,
}

impl Engine {
    /// Allocates the memory that the limits require (at least one row of logits for each sequence) and starts the
    /// engine's thread. It blocks until the memory is allocated. On a GPU, call [`Model::make_ready`] first: the first requests then do not wait for kernels to
    /// compile.
    ///
    /// # Errors
    /// [`EngineError::Model`] if the limits are out of range or do not fit into memory, [`EngineError::BatchTooSmall`].
    pub fn start(model: Arc<Model>, limits: Limits) -> Result<Engine, EngineError> {
        let source = DraftSource::of(&model);
        Engine::start_with_drafts(model, source, limits)
    }

    /// Starts an engine as [`start`](Self::start) does, whose draft tokens ([`Request::draft`]) come from this source.
    /// `start` uses prediction heads if the model has them, else lookup.
    ///
    /// # Errors
    /// The errors of [`start`](Self::start), [`EngineError::NoPredictionHeads`] and [`EngineError::DraftModel`].
    pub fn start_with_drafts(
        model: Arc<Model>,
        drafts: impl Into<Drafts>,
        limits: Limits,
    ) -> Result<Engine, EngineError> {
        let Drafts { source, always } = drafts.into();
        let Limits { batch_tokens, sequences, kv_format, .. } = limits;
        if batch_tokens < sequences {
            return Err(EngineError::BatchTooSmall { batch_tokens, sequences });
        }
        let rows = limits.rows().max(sequences);
        // A step of draft tokens has at most as many tokens as rows.
        let rollback_tokens = if rows > sequences { rows.max(limits.rollback_tokens) } else { limits.rollback_tokens };
        let limits = Limits { output_rows: Some(rows), rollback_tokens, ..limits };
        let runner = Runner::new(model.clone(), limits)?;
        let plan = runner.plan();
        let drafter = Drafter::new(source, &model, limits, plan.context)?;
        let planner = Planner::new(always);
        let (stop, draining): (Arc<AtomicBool>, Arc<AtomicBool>) = Default::default();
        let failure = Failure::default();
        let counters = Arc::new(Counters::new(model.spec(), sequences, batch_tokens));
        // There it costs nothing worth a word, and keeps no step from being ahead.
        counters.count_experts(model.backend().device() == DeviceId::Cpu && !model.backend().is_asynchronous());
        counters.now(0, 0, runner.kv_usage());
        let (jobs, inbox) = mpsc::channel();
        let worker = Worker::new(
            runner,
            (drafter, planner),
            limits,
            (stop.clone(), draining.clone()),
            failure.clone(),
            counters.clone(),
        );
        let thread = thread::Builder::new().name("gristmill-engine".to_owned()).spawn(move || worker.run(&inbox));
        let thread = Some(thread.map_err(EngineError::Thread)?);
        let template_of = |source: Option<&str>| source.map(|it| ModelTemplate::new(it, model.tokenizer().ok()));
        let (template, tool_template) = (template_of(model.template()), template_of(model.tool_template()));
        let (grammars, permits) = Default::default();
        let jobs = Some(jobs);
        let queue = usize::MAX;
        Ok(Engine {
            model,
            plan,
            kv_format,
            template,
            tool_template,
            grammars,
            script: None,
            jobs,
            thread,
            stop,
            draining,
            failure,
            counters,
            sequences,
            step_room: batch_tokens - (sequences - 1),
            queue,
            permits,
        })
    }

    /// Refuses requests of a tenant while so many of its own wait for a sequence; without this, any number may wait. So
    /// a tenant whose requests fill the queue does not keep others out of it.
    pub fn with_queue(mut self, queue: usize) -> Engine {
        self.queue = queue;
        self
    }

    /// Lets a script choose completions, for tests of programs that talk to a server.
    pub fn with_script(mut self, script: Arc<dyn Script>) -> Engine {
        self.script = Some(script);
        self
    }

    /// Replaces the model's chat templates.
    pub fn with_template(mut self, source: &str) -> Engine {
        self.tool_template = None;
        self.template = Some(ModelTemplate::new(source, self.model.tokenizer().ok()));
        self
    }

    /// The chat template, if there is one.
    pub fn template(&self) -> Option<&ModelTemplate> {
        self.template.as_ref()
    }

    /// The chat template of conversations with tools: the model's template of the name `tool_use`, or else
    /// [`template`](Self::template).
    pub fn tool_template(&self) -> Option<&ModelTemplate> {
        self.tool_template.as_ref().or(self.template())
    }

    /// The model.
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// The sampling that the model recommends ([`Model::sampling`](crate::Model::sampling)).
    pub fn sampling(&self) -> SamplingOptions {
        self.model.sampling()
    }

    /// The request for a text to be continued. Without sampling in the options, it is sampled as the model recommends.
    pub fn request(&self, prompt: impl Into<Prompt>, options: GenerationOptions) -> Request {
        Required::text(prompt.into(), self.sampling()).request(options)
    }

    /// The memory that the engine needs in addition to its model, and the context that it chose.
    pub fn plan(&self) -> Plan {
        self.plan
    }

    /// Notices of the model, its device, the context and the chat template.
    pub fn notices(&self) -> Vec<Notice> {
        let templates = self.template.iter().chain(&self.tool_template).filter_map(ModelTemplate::notice);
        self.model.notices().into_iter().chain(self.plan.notice()).chain(templates).collect()
    }

    /// Whether the engine takes requests.
    ///
    /// # Errors
    /// [`EngineError::Device`] after a failure of the device, which ended all requests; [`EngineError::Stopped`] if the
    /// engine's thread has died. Start another engine then.
    pub fn health(&self) -> Result<(), EngineError> {
        match self.failure.get() {
            Some(error) => Err(EngineError::Device(error.clone())),
            None if self.thread.as_ref().is_none_or(JoinHandle::is_finished) => Err(EngineError::Stopped),
            None => Ok(()),
        }
    }

    /// Statistics of the engine.
    pub fn stats(&self) -> Stats {
        self.counters.read(self.model.backend().offload().slot_usage())
    }

    /// Turns the counting of experts' tokens on or off, from the next step on ([`Stats::experts`]). On a CPU, where it
    /// costs next to nothing, it is on at first. On a GPU the choices of the routers are then
    /// copied to the host after each step, which the next step waits for.
    pub fn count_experts(&self, on: bool) {
        self.counters.count_experts(on);
    }

    /// Requests that run at a time.
    pub fn sequences(&self) -> usize {
        self.sequences
    }

    /// Tokens that a prompt and its completion may have together.
    pub fn context(&self) -> usize {
        self.plan.context
    }

    /// The conditions that generated bytes depend on, besides requests, model and build.
    pub fn conditions(&self) -> Conditions {
        Conditions::new(&self.model, self.kv_format, self.context())
    }

    /// The tokens of a prompt, as [`generate`](Self::generate) gives them to the model.
    ///
    /// # Errors
    /// [`EngineError::Model`] if the text cannot be tokenised, [`EngineError::EmptyPrompt`].
    pub fn tokens(&self, prompt: &Prompt) -> Result<Vec<u32>, EngineError> {
        self.tokens_at_most(prompt, usize::MAX)
    }

    /// The tokens of a text within another one. A tokenizer may put a space before a text that starts.
    ///
    /// # Errors
    /// The errors of the tokenizer.
    pub fn tokens_within(&self, text: &str) -> Result<Vec<u32>, EngineError> {
        // A character that no tokenizer joins with the text.
        let before = if text.starts_with(char::is_whitespace) { "a" } else { "\n" };
        let tokens = |text: &str| Ok(self.model.tokenizer()?.encode_rendered(text, &[], usize::MAX)?);
        match tokens(&[before, text].concat())?.strip_prefix(tokens(before)?.as_slice()) {
            Some(within) => Ok(within.to_vec()),
            None => tokens(text),
        }
    }

    pub(crate) fn tokens_at_most(&self, prompt: &Prompt, most: usize) -> Result<Vec<u32>, EngineError> {
        self.input_at_most(prompt, most).map(|(tokens, _)| tokens)
    }

    fn input_at_most(&self, prompt: &Prompt, most: usize) -> Result<(Vec<u32>, Vec<ImageSpan>), EngineError> {
        let tokens = match prompt {
            Prompt::Tokens(tokens) => tokens.clone(),
            // BOS alone is not a prompt.
            Prompt::Text { text, .. } if text.is_empty() => return Err(EngineError::EmptyPrompt),
            Prompt::Text { text, options } => self.model.tokenizer()?.encode_at_most(text, *options, most)?,
            // The template has written BOS and the control tokens itself.
            Prompt::Rendered { text, plain, images, .. } => {
                let tokens = self.model.tokenizer()?.encode_rendered(text, plain, most)?;
                if !images.is_empty() {
                    return spread(&tokens, self.image_token()?, images, most);
                }
                tokens
            }
        };
        Ok((tokens, Vec::new()))
    }

    /// What prepares images for the model.
    ///
    /// # Errors
    /// [`EngineError::NoImages`].
    pub fn processor(&self) -> Result<&Processor, EngineError> {
        let spec = self.model.spec();
        let refusal = || EngineError::NoImages { model: spec.name.as_ref().unwrap_or(&spec.architecture).clone() };
        self.model.tower().map(|tower| tower.processor()).ok_or_else(refusal)
    }

    /// The token that stands for rows of images.
    fn image_token(&self) -> Result<u32, EngineError> {
        let tokenizer = self.model.tokenizer()?;
        let token = &self.processor()?.marks.token;
        match tokenizer.encode_rendered(token, &[], usize::MAX)?.as_slice() {
            &[id] if tokenizer.is_special(id) => Ok(id),
            _ => Err(EngineError::ImageToken { token: token.clone() }),
        }
    }

    /// The tokens of a prompt that a request may have. A prompt that is far too long is refused before it is tokenised.
    ///
    /// # Errors
    /// The errors of [`tokens`](Self::tokens), and one if the prompt is empty, longer than the context, or has an
    /// unknown token.
    pub fn prompt_tokens(&self, prompt: &Prompt) -> Result<Vec<u32>, EngineError> {
        self.prompt_input(prompt).map(|(tokens, _)| tokens)
    }

    /// The tokens of [`prompt_tokens`](Self::prompt_tokens), and those of them that stand for images.
    ///
    /// # Errors
    /// The errors of [`prompt_tokens`](Self::prompt_tokens).
    pub fn prompt_input(&self, prompt: &Prompt) -> Result<(Vec<u32>, Vec<ImageSpan>), EngineError> {
        let context = self.context();
        let vocabulary = self.model.spec().vocab;
        // Up to twice the context, the error says how long the prompt is.
        let (tokens, images) = match self.input_at_most(prompt, context.saturating_mul(2)) {
            Err(EngineError::Model(crate::Error::Tokenizer(TokenizerError::TooManyTokens { at_least, .. }))) => {
                return Err(EngineError::PromptTooLong { tokens: at_least, exact: false, context });
            }
            input => input?,
        };
        match tokens.len() {
            0 => return Err(EngineError::EmptyPrompt),
            tokens if tokens > context => {
                return Err(EngineError::PromptTooLong { tokens, exact: true, context });
            }
            _ => {}
        }
        match tokens.iter().position(|&id| id as usize >= vocabulary) {
            Some(index) => Err(EngineError::Token { id: tokens[index], index, vocabulary }),
            None => Ok((tokens, images)),
        }
    }

    /// Refuses a conversation whose messages alone exceed the context, before a template works on them.
    pub(crate) fn check_length(&self, chat: &Chat) -> Result<(), EngineError> {
        // Rendering names what else a model lacks.
        let Ok(tokenizer) = self.model.tokenizer() else { return Ok(()) };
        let texts = chat.messages.iter().flat_map(|message| [Some(&message.text), message.reasoning.as_ref()]);
        let tools = chat.listed_tools().map(|tool| tool.description.as_ref());
        let tokens: usize = texts.chain(tools).flatten().map(|text| tokenizer.fewest_tokens(text)).sum();
        match self.context() {
            context if tokens > context => Err(EngineError::PromptTooLong { tokens, exact: false, context }),
            _ => Ok(()),
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Closing the channel wakes the thread if it waits for work.
        self.jobs = None;
        // A callback that holds the last engine drops it on the engine's thread, which cannot wait for itself: it ends
        // when the callback returns.
        if let Some(thread) = self.thread.take().filter(|thread| thread.thread().id() != thread::current().id()) {
            // A panic of that thread has ended its generations with an error already.
            let _ = thread.join();
        }
    }
}
