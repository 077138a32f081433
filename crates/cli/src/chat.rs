//! `chat`: a conversation on the terminal, or line by line from a pipe.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::Args;
use gristmill_engine::engine::{Canceller, Finish, FinishReason};
use gristmill_engine::template::Message;
use gristmill_engine::{Chat, Engine, EngineError, Generation, Prompt, Request};
use signal_hook::consts::SIGINT;

use crate::answer::{Printer, Show};
use crate::args::{DeviceArgs, Generating, SamplingArgs, Verbosity};
use crate::failure::Failure;
use crate::lines::Lines;
use crate::source::{ModelArg, Source};
use crate::think::Thinking;
use crate::{console, interrupt, load, numbers, recommended, run};

/// Talk with a model.
///
/// Ctrl-C stops the answer, Ctrl-D ends the program. /help lists the commands. A message may have several lines: paste them,
/// press Alt-Enter between them, or end a line with a backslash, which also continues a line of a pipe.
#[derive(Args)]
pub(crate) struct ChatArgs {
    #[command(flatten)]
    model: ModelArg,
    /// The system message: who the model is to be.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    system: Option<String>,
    /// Do not let the model think before it answers, if its template knows how to ask for that; hide it if it does.
    #[arg(long)]
    no_think: bool,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    device: DeviceArgs,
    /// Context length in tokens [default: the least of what the model was trained on, 8192, and what fits into memory].
    /// More than the model was trained on is allowed, with a warning.
    #[arg(long, value_name = "TOKENS", allow_negative_numbers = true, value_parser = numbers::at_least::<usize>(1))]
    ctx: Option<usize>,
    #[command(flatten)]
    say: Verbosity,
}

const HELP: &str = "\
Enter sends the message. Alt-Enter, or a backslash before Enter, begins another line; pasted lines are one message.
/reset          forget the conversation
/system TEXT    set the system message and begin again; without TEXT, remove it
/stats          tokens and times so far
/help           this
/quit           end (also Ctrl-D)
Ctrl-C          stop the answer";

/// The running answer, for Ctrl-C.
type Running = Arc<Mutex<Option<Canceller>>>;

pub(crate) fn run(args: &ChatArgs) -> Result<(), Failure> {
    let mut generating = args.sampling.check()?;
    let source = args.model.source()?;
    if matches!(source, Source::BuiltIn) {
        let next = "gristmill chat -m model.gguf";
        let can = "continue a story with gristmill run \"Once upon a time\", or name a chat model with -m, as in:";
        return Err(Failure::new(format!("the built-in model tells stories and cannot talk; {can} {next}")));
    }
    let (engine, load_time) = load::engine(source, &args.device, args.ctx, &args.say)?;
    if engine.model().template().is_none() {
        let remedy = "continue a text with gristmill run --raw";
        return Err(Failure::new(format!("the model file has no chat template; {remedy}")));
    }
    generating.bias.check(engine.model())?;
    generating.adopt(&args.sampling, recommended::sampling(source, engine.model().file(), &args.say), &args.say);
    let running = Running::default();
    stop_answer_on_interrupt(&running);
    let mut lines = Lines::open(&args.say);
    if lines.interactive() {
        args.say.info(format_args!("context: {} tokens; /help lists the commands", engine.context()));
    }
    let mut session = Session {
        engine,
        load_time,
        generating,
        no_think: args.no_think,
        quiet: args.say.quiet,
        running,
        system: args.system.clone(),
        turns: vec![],
        last: None,
    };
    while let Some(message) = lines.next()? {
        if !session.take(&message)? {
            break;
        }
    }
    Ok(())
}

/// Ctrl-C ends the running answer; without one, the program.
fn stop_answer_on_interrupt(running: &Running) {
    let running = running.clone();
    // The only handler of this process, set once.
    let _ = ctrlc::set_handler(move || {
        let answer = running.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        match answer {
            Some(answer) => answer.cancel(),
            None => interrupt::end(SIGINT),
        }
    });
}

/// Whether a word is written as the commands are: `/reset`. A path or a comment of C is not.
fn is_command(word: &str) -> bool {
    let name = word.strip_prefix('/').unwrap_or_default();
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphabetic())
}

/// A conversation.
struct Session {
    engine: Engine,
    load_time: Duration,
    generating: Generating,
    no_think: bool,
    quiet: bool,
    running: Running,
    system: Option<String>,
    /// Messages after the system message, in turns of user and assistant.
    turns: Vec<Message>,
    last: Option<Finish>,
}

impl Session {
    /// Takes a message: a command, or something said. Returns whether the conversation goes on.
    fn take(&mut self, message: &str) -> Result<bool, Failure> {
        let line = message.trim();
        let (command, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        match command {
            "" => {}
            "/quit" | "/exit" => return Ok(false),
            "/help" => console::note(format_args!("{HELP}")),
            "/stats" => self.stats(),
            "/reset" => {
                self.turns.clear();
                console::note(format_args!("the conversation is forgotten"));
            }
            "/system" => {
                self.system = Some(rest.trim().to_owned()).filter(|text| !text.is_empty());
                self.turns.clear();
                let what = if self.system.is_some() { "set" } else { "removed" };
                console::note(format_args!("the system message is {what}; the conversation begins again"));
            }
            _ if is_command(command) && !line.contains('\n') => {
                console::note(format_args!("{command} is not a command; /help lists them"));
            }
            _ => self.answer(message.trim_end())?,
        }
        Ok(true)
    }

    fn stats(&self) {
        let context = self.engine.context();
        match &self.last {
            Some(finish) => {
                let used = finish.usage.prompt_tokens + finish.usage.generated_tokens;
                let rates = run::rates(finish);
                let costs = run::costs(self.load_time);
                console::note(format_args!("{rates}; context {used} of {context} tokens, {costs}"));
            }
            None => {
                console::note(format_args!("no answer yet; context {context} tokens, {}", run::costs(self.load_time)))
            }
        }
    }

    fn chat(&self) -> Chat {
        let system = self.system.iter().map(|text| Message::new("system", text));
        let mut chat = Chat::new(system.chain(self.turns.iter().cloned()).collect());
        chat.thinking = self.no_think.then_some(false);
        chat
    }

    /// Says something and prints the answer. A request that is refused is taken back; the conversation goes on.
    fn answer(&mut self, message: &str) -> Result<(), Failure> {
        self.turns.push(Message::new("user", message));
        match self.generate() {
            Ok(answer) => self.turns.push(Message::new("assistant", answer)),
            Err(Answer::Refused(error)) => {
                self.turns.pop();
                let remedy = match error {
                    EngineError::PromptTooLong { .. } => "; /reset forgets the conversation",
                    _ => "",
                };
                console::note(format_args!("error: {error}{remedy}"));
            }
            Err(Answer::Failed(failure)) => return Err(failure),
        }
        Ok(())
    }

    /// Prints the answer as it comes, thinking dimmed, and returns it without the thinking, which is for no later turn.
    fn generate(&mut self) -> Result<String, Answer> {
        let chat = self.chat();
        let thinking = Thinking::after(&self.engine.render(&chat)?);
        let mut request = Request::new(Prompt::Chat(chat));
        request.control_tokens = thinking.marks_are_control_tokens();
        let mut printer = Printer::new(thinking, if self.no_think { Show::Answer } else { Show::All });
        request.sampling = self.generating.sampling;
        request.max_tokens = self.generating.max_tokens;
        request.stop = self.generating.stop.clone();
        self.generating.bias.apply(&mut request, self.engine.model()).map_err(Answer::Failed)?;
        let generation = self.engine.generate(request)?;
        self.set_running(Some(generation.canceller()));
        let outcome = print_all(generation, &mut printer);
        self.set_running(None);
        let finish = outcome?;
        let answer = printer.finish().map_err(Answer::Failed)?.answer;
        match finish {
            Some(finish) => {
                self.last = Some(finish);
                self.tell_cut(&finish);
            }
            None => console::note(format_args!("(stopped)")),
        }
        Ok(answer)
    }

    /// Says why an answer has no end.
    fn tell_cut(&self, finish: &Finish) {
        let tokens = finish.usage.generated_tokens;
        match (finish.reason, self.generating.max_tokens) {
            _ if self.quiet => {}
            (FinishReason::Length, Some(most)) if tokens >= most => {
                console::note(format_args!("(cut after {tokens} tokens, by -n)"));
            }
            (FinishReason::Length, _) => {
                let context = self.engine.context();
                console::note(format_args!(
                    "(cut: the context of {context} tokens is full; /reset forgets the conversation)"
                ));
            }
            _ => {}
        }
    }

    fn set_running(&self, canceller: Option<Canceller>) {
        *self.running.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = canceller;
    }
}

/// Prints the pieces as they come. How the answer ended; `None` if it was stopped.
fn print_all(generation: Generation, printer: &mut Printer) -> Result<Option<Finish>, Answer> {
    let mut finish = None;
    for piece in generation {
        let piece = piece?;
        printer.push(&piece.text).map_err(Answer::Failed)?;
        finish = piece.finish;
    }
    Ok(finish)
}

/// Why there is no answer.
enum Answer {
    /// This request cannot be served, another may.
    Refused(EngineError),
    Failed(Failure),
}

impl From<EngineError> for Answer {
    fn from(error: EngineError) -> Answer {
        match error {
            EngineError::Stopped => Answer::Failed(error.into()),
            error => Answer::Refused(error),
        }
    }
}
