//! `chat`: a conversation on the terminal, or line by line from a pipe.

mod command;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::Args;
use gristmill_engine::vision::{Detail, Size};
use gristmill_engine::{Canceller, Finish, FinishReason};
use gristmill_engine::{ChatImage, Engine, EngineError, Generation, GenerationOptions};
use gristmill_text::template::{Message, Role};
use signal_hook::consts::SIGINT;

use crate::answer::{self, Asked, Printer, Show};
use crate::args::{ContextArg, DeviceArgs, GenerationSettings, SamplingArgs};
use crate::draft::Without;
use crate::failure::Failure;
use crate::input::Input;
use crate::mmproj::MmprojArg;
use crate::source::{ANSWERS, ModelArg, QuantizeArg, Source};
use crate::template::{self, TemplateArg};
use crate::verbosity::Verbosity;
use crate::{console, image, interrupt, load, recommended, run, summary};
use command::Command;

/// Chat with a model.
///
/// Ctrl-C stops the answer, Ctrl-D ends the program. /help lists the commands. A message can have several lines: paste
/// them, press Alt-Enter between them, or end a line with a backslash, which also works for lines of a pipe.
#[derive(Args)]
#[command(mut_arg("path", |path| path.help(MODEL)))]
pub(crate) struct ChatArgs {
    #[command(flatten)]
    model: ModelArg,
    #[command(flatten)]
    quantize: QuantizeArg,
    #[command(flatten)]
    mmproj: MmprojArg,
    /// The system message, which sets the model's role.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    system: Option<String>,
    /// Turn thinking off, if the chat template has a switch for it; hide it otherwise.
    #[arg(long)]
    no_think: bool,
    #[command(flatten)]
    template: TemplateArg,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    context: ContextArg,
    #[command(flatten)]
    log: Verbosity,
}

/// The help of the model, which has no default: the built-in model cannot chat.
const MODEL: &str = "The model, which must have a chat template: a GGUF file (any part of a split model), a folder of Hugging \
                     Face or MLX, or a model of the hub. ORG/REPO[:QUANT] must be in the cache (`gristmill pull`); \
                     hf:ORG/REPO[:QUANT] is downloaded if it is missing";

/// Cancels the running answer, if there is one.
type Running = Arc<Mutex<Option<Canceller>>>;

pub(crate) fn run(args: &ChatArgs) -> Result<(), Failure> {
    let mut options = args.sampling.check()?;
    let chat_template = args.template.read()?;
    let source = args.quantize.of(args.model.source()?)?;
    if matches!(source, Source::BuiltIn) {
        let next = format!("gristmill chat {ANSWERS}");
        let can =
            "continue a story with gristmill run \"Once upon a time\", or name a chat model (this one has 0.6 GB):";
        return Err(Failure::new(format!("the built-in model tells stories and cannot chat; {can} {next}")));
    }
    let drafts = args.sampling.draft.or(Without::Mtp);
    let (engine, load_time) = load::engine(source, &args.device, args.context.ctx, drafts, &args.mmproj, &args.log)?;
    let engine = template::replaced(engine, chat_template.as_deref());
    if engine.template().is_none() {
        let remedy = "pass one with --chat-template FILE, or continue a text with gristmill run --raw";
        return Err(Failure::new(format!("the model file has no chat template; {remedy}")));
    }
    options.check_bias(engine.model())?;
    options.resolve(&args.sampling, recommended::sampling(source, engine.model()), &args.log);
    let running = Running::default();
    stop_answer_on_ctrl_c(&running)?;
    let mut input = Input::open(&args.log);
    template::report(&engine, &args.log);
    if input.interactive() {
        args.log.info(format_args!("{}", summary::line(&engine)));
        args.log.info(format_args!("/help lists the commands, Ctrl-C stops an answer, Ctrl-D ends the chat"));
    }
    let no_think = args.no_think;
    let log = args.log;
    let system = args.system.clone();
    let draft = drafts.most(engine.model());
    let mut session = Session {
        engine,
        load_time,
        options,
        draft,
        no_think,
        log,
        running,
        system,
        turns: vec![],
        images: vec![],
        next: vec![],
        last: None,
    };
    while let Some(message) = input.next()? {
        if !session.take(&message)? {
            break;
        }
    }
    load::tell_slots(session.engine.model().backend(), &session.log);
    Ok(())
}

/// Ctrl-C cancels the running answer; between answers it ends the program.
fn stop_answer_on_ctrl_c(running: &Running) -> Result<(), Failure> {
    let running = running.clone();
    interrupt::on_ctrl_c(move || {
        let answer = running.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        match answer {
            Some(answer) => answer.cancel(),
            None => interrupt::end(SIGINT),
        }
    })
}

/// A conversation.
struct Session {
    engine: Engine,
    load_time: Duration,
    options: GenerationSettings,
    /// Draft tokens of a step, at most.
    draft: usize,
    no_think: bool,
    log: Verbosity,
    running: Running,
    system: Option<String>,
    /// Messages after the system message: user and assistant alternate.
    turns: Vec<Message>,
    /// The images of the turns.
    images: Vec<ChatImage>,
    /// The images of the next message.
    next: Vec<ChatImage>,
    last: Option<Finish>,
}

impl Session {
    /// Runs a command or answers a message. Returns false at the end of the conversation.
    fn take(&mut self, message: &str) -> Result<bool, Failure> {
        match Command::of(message) {
            None if message.trim().is_empty() => {}
            None => self.answer(message.trim_end())?,
            Some(Command::End) => return Ok(false),
            Some(Command::Help) => console::note(format_args!("{}", command::help())),
            Some(Command::Stats) => self.stats(),
            Some(Command::Image(path)) => self.add_image(path),
            Some(Command::Reset) => {
                self.clear();
                console::note(format_args!("the conversation is discarded"));
            }
            Some(Command::System(text)) => {
                self.system = Some(text.to_owned()).filter(|text| !text.is_empty());
                self.clear();
                let what = if self.system.is_some() { "set" } else { "removed" };
                console::note(format_args!("the system message is {what}; the conversation starts again"));
            }
            Some(Command::Unknown(name)) => console::note(format_args!("{name} is not a command; /help lists them")),
        }
        Ok(true)
    }

    fn clear(&mut self) {
        self.turns.clear();
        self.images.clear();
        self.next.clear();
    }

    /// Reads an image for the next message.
    fn add_image(&mut self, path: &str) {
        let read = match self.engine.processor() {
            Ok(_) if path.is_empty() => Err(Failure::new("write /image FILE")),
            Ok(processor) => image::read(Path::new(image::unquoted(path)))
                .map(|picture| (ChatImage::new(processor, &picture, Detail::High), picture.size())),
            Err(error) => Err(error.into()),
        };
        match read {
            Ok((image, Size { width, height })) => {
                self.next.push(image);
                console::note(format_args!("the next message has this image of {width} × {height} pixels"));
            }
            Err(failure) => console::note(format_args!("error: {}", failure.message())),
        }
    }

    fn stats(&self) {
        let context = self.engine.context();
        let costs = run::costs(self.load_time);
        match &self.last {
            Some(finish) => {
                let used = finish.usage.prompt_tokens + finish.usage.generated_tokens;
                let rates = run::rates(finish);
                console::note(format_args!("{rates}; context {used} of {context} tokens, {costs}"));
            }
            None => console::note(format_args!("no answer yet; context {context} tokens, {costs}")),
        }
    }

    /// Answers a message. A refused message is removed again; the conversation continues.
    fn answer(&mut self, message: &str) -> Result<(), Failure> {
        let (kept, next) = (self.images.len(), self.next.clone());
        self.turns.push(Message { images: vec![0; next.len()], ..Message::new(Role::User, message) });
        self.images.append(&mut self.next);
        match self.generate() {
            Ok(answer) => self.turns.push(Message::new(Role::Assistant, answer)),
            Err(AnswerError::Refused(error)) => {
                self.turns.pop();
                self.images.truncate(kept);
                // A message that is shorter can be about the same images.
                self.next = next;
                let remedy = match error {
                    EngineError::PromptTooLong { .. } => "; /reset discards the conversation",
                    _ => "",
                };
                console::note(format_args!("error: {error}{remedy}"));
            }
            Err(AnswerError::Failed(failure)) => return Err(failure),
        }
        Ok(())
    }

    /// Prints the answer as it is generated. Returns it without its thinking, because no later turn includes thinking.
    fn generate(&mut self) -> Result<String, AnswerError> {
        let asked = Asked { system: self.system.as_deref(), turns: &self.turns, images: self.images.clone() };
        let conversation = answer::conversation(&self.engine, asked, self.no_think, None)?;
        let mut request = conversation.request(GenerationOptions::default());
        self.options.apply(&mut request, self.engine.model())?;
        request.draft = self.draft;
        let mut printer = Printer::new(conversation.parser(), if self.no_think { Show::Answer } else { Show::All });
        let generation = self.engine.generate(request)?;
        self.set_running(Some(generation.canceller()));
        let outcome = print_all(generation, &mut printer);
        self.set_running(None);
        let finish = outcome?;
        let answer = printer.finish()?.text;
        match finish {
            Some(finish) => {
                self.last = Some(finish);
                self.log.detail(format_args!("seed: {}", finish.seed));
                self.report_cut(&finish);
            }
            None => console::note(format_args!("(stopped)")),
        }
        Ok(answer)
    }

    /// Prints which limit cut an answer.
    fn report_cut(&self, finish: &Finish) {
        if self.log.quiet || finish.reason != FinishReason::Length {
            return;
        }
        let limit = answer::limit(finish, self.options.max_tokens, &self.engine);
        let remedy = if limit.is_context { "; /reset discards the conversation" } else { "" };
        console::note(format_args!("({limit}{remedy})"));
    }

    fn set_running(&self, canceller: Option<Canceller>) {
        *self.running.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = canceller;
    }
}

/// Prints the pieces as they are generated. Returns how the answer ended; `None` for a cancelled one.
fn print_all(generation: Generation, printer: &mut Printer) -> Result<Option<Finish>, AnswerError> {
    let mut finish = None;
    for piece in generation {
        let piece = piece?;
        printer.push(&piece)?;
        finish = piece.finish;
    }
    Ok(finish)
}

/// Why a message has no answer.
enum AnswerError {
    /// The engine refuses this request; the next may succeed.
    Refused(EngineError),
    /// The chat ends.
    Failed(Failure),
}

impl From<EngineError> for AnswerError {
    fn from(error: EngineError) -> AnswerError {
        match error {
            EngineError::Stopped => AnswerError::Failed(error.into()),
            error => AnswerError::Refused(error),
        }
    }
}

impl From<Failure> for AnswerError {
    fn from(failure: Failure) -> AnswerError {
        AnswerError::Failed(failure)
    }
}
