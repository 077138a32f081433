//! `run`: one prompt, one answer.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::slice;
use std::time::Duration;

use clap::Args;
use gristmill_engine::receipt::{Receipt, Recorder};
use gristmill_engine::{Drafting, Finish, FinishReason, Usage};
use gristmill_engine::{Engine, GenerationOptions, Prompt, ReplyParser, Request, machine};
use gristmill_files::gguf::{WriteError, write_atomically};
use gristmill_lab::drafts_line;
use gristmill_text::template::{Message, Role};
use serde::Serialize;

use crate::answer::{self, Answer, Printer, Show};
use crate::args::{ContextArg, DeviceArgs, SamplingArgs};
use crate::console::Beginning;
use crate::draft::Without;
use crate::failure::Failure;
use crate::grammar::GrammarArgs;
use crate::mmproj::MmprojArg;
use crate::source::{ANSWERS, ModelOption, QuantizeArg, Source, TextArgument};
use crate::special::SpecialArgs;
use crate::template::{self, TemplateArg};
use crate::verbosity::Verbosity;
use crate::{console, image, load, prompt, recommended};

/// Answer a prompt, or continue a text.
///
/// If the file has a chat template, it is applied; --raw continues the text without it. The text is printed on stdout,
/// and its speed on stderr. On a terminal, a continued text starts with the prompt, dimmed.
///
/// The first argument is the model if it ends in .gguf, has the form ORG/REPO, or is a file or folder. Otherwise it is
/// the prompt.
///
/// A prompt, a file (-f) and piped text are joined in this order, with an empty line between them: an instruction, then
/// its texts. The last line end of a file or of stdin is dropped.
#[derive(Args)]
pub(crate) struct RunArgs {
    /// The model: a GGUF file (any part of a split model), a folder of Hugging Face or MLX, or a model of the hub.
    /// ORG/REPO[:QUANT] must be in the cache (`gristmill pull`); hf:ORG/REPO[:QUANT] is downloaded if it is missing
    /// [default: the built-in model, which tells short stories].
    #[arg(value_name = "MODEL")]
    first: Option<OsString>,
    /// The prompt, in quotes; - reads stdin. Text from a pipe or a file on stdin follows the prompt. Without a prompt,
    /// stdin is the prompt unless it is a terminal.
    #[arg(value_name = "PROMPT")]
    second: Option<String>,
    /// Words of a prompt without quotes, which is an error.
    #[arg(hide = true)]
    more: Vec<String>,
    #[command(flatten)]
    model: ModelOption,
    #[command(flatten)]
    quantize: QuantizeArg,
    #[command(flatten)]
    mmproj: MmprojArg,
    /// The prompt; it can start with a hyphen or look like a model.
    #[arg(short, long, value_name = "PROMPT", allow_hyphen_values = true)]
    prompt: Option<String>,
    /// A file with the prompt, or with the text that the prompt refers to; - reads stdin.
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// An image (PNG, JPEG, WebP, GIF or BMP) that the prompt is about, for a model with a vision tower. Can be repeated.
    #[arg(long, value_name = "FILE", conflicts_with = "raw")]
    image: Vec<PathBuf>,
    /// The system message, which sets the model's role.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, conflicts_with = "raw")]
    system: Option<String>,
    /// Continue the text without a chat template. Control tokens in the text are parsed.
    #[arg(long, conflicts_with = "chat_template")]
    raw: bool,
    #[command(flatten)]
    special: SpecialArgs,
    /// Turn thinking off, if the chat template has a switch for it; hide it otherwise.
    #[arg(long, conflicts_with = "raw")]
    no_think: bool,
    #[command(flatten)]
    template: TemplateArg,
    #[command(flatten)]
    grammar: GrammarArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    context: ContextArg,
    /// Print one JSON object with the text, the reason why it ended, and the times.
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// Write a receipt to FILE, from which `gristmill replay` generates the same text again. It contains the whole
    /// prompt.
    #[arg(long, value_name = "FILE")]
    receipt: Option<PathBuf>,
    #[command(flatten)]
    log: Verbosity,
}

const PROMPT: TextArgument = TextArgument {
    name: "prompt",
    alternative: "pass it with -p if it is the prompt, with -f if it contains the prompt",
};

/// The output of `--json`.
#[derive(Serialize)]
struct Report<'a> {
    text: &'a str,
    thinking: Option<&'a str>,
    finish_reason: &'a str,
    mode: &'a str,
    seed: u64,
    prompt_tokens: usize,
    generated_tokens: usize,
    draft: Option<&'a str>,
    drafts: usize,
    drafted_tokens: usize,
    accepted_tokens: usize,
    acceptance_by_place: Vec<f64>,
    prompt_tokens_per_second: Option<f64>,
    decode_tokens_per_second: Option<f64>,
    load_seconds: f64,
    peak_memory_bytes: Option<u64>,
}

pub(crate) fn run(args: &RunArgs) -> Result<(), Failure> {
    let mut options = args.sampling.check()?;
    let grammar = args.grammar.read()?;
    let images = args.image.iter().map(|path| image::read(path)).collect::<Result<Vec<_>, _>>()?;
    let chat_template = args.template.read()?;
    let (source, Beginning { text, is_cut }) = args.input()?;
    let is_question = text.trim_end().ends_with('?');
    let source = args.quantize.of(source)?;
    let drafts = args.sampling.draft.or(Without::Mtp);
    let (engine, load_time) = load::engine(source, &args.device, args.context.ctx, drafts, &args.mmproj, &args.log)?;
    if is_cut {
        // The model says how long it is at least.
        engine.prompt_tokens(&Prompt::Text { text, options: args.special.options() })?;
        let most = console::bytes(console::LONGEST_PROMPT);
        return Err(Failure::new(format!("the prompt is too long (found more than {most}); shorten it")));
    }
    let engine = template::replaced(engine, chat_template.as_deref());
    let chat = !args.raw && engine.template().is_some();
    if chat {
        template::report(&engine, &args.log);
    }
    let mut prompt = None;
    let (mut request, parser) = match chat {
        true => {
            if let Some(option) = args.special.given() {
                return Err(Failure::new(format!("{option} needs --raw: a chat template writes the control tokens")));
            }
            let turns = [Message { images: vec![0; images.len()], ..Message::new(Role::User, text) }];
            let images = image::prepared(&engine, &images)?;
            let asked = answer::Asked { system: args.system.as_deref(), turns: &turns, images };
            let conversation = answer::conversation(&engine, asked, args.no_think, grammar)?;
            (conversation.request(GenerationOptions::default()), conversation.parser())
        }
        false if !images.is_empty() => {
            let remedy = "pass one with --chat-template FILE";
            return Err(Failure::new(format!("{source} has no chat template, which --image needs; {remedy}")));
        }
        false if args.system.is_some() => {
            let remedy = "leave --system out, or write its text into the prompt";
            return Err(Failure::new(format!("{source} has no chat template, which --system needs; {remedy}")));
        }
        false => {
            prompt = Some(text.clone());
            let text = Prompt::Text { text, options: args.special.options() };
            (Request { grammar, ..Request::new(text) }, ReplyParser::plain())
        }
    };
    options.resolve(&args.sampling, recommended::sampling(source, engine.model()), &args.log);
    options.apply(&mut request, engine.model())?;
    request.draft = drafts.most(engine.model());

    let mut recorder = args.receipt.as_ref().map(|_| Recorder::new(&engine, slice::from_ref(&request)));
    let mut printer = Printer::new(parser, args.show());
    printer.echo(prompt.as_deref().unwrap_or_default())?;
    let (answer, finish) = generate(&engine, request, printer, recorder.as_mut())?;
    if let (Some(path), Some(receipt)) = (&args.receipt, recorder.and_then(Recorder::finish)) {
        save(&receipt, path)?;
    }
    if matches!(source, Source::BuiltIn) && (is_question || answer.text.trim().is_empty()) {
        let how = format!("gristmill run {ANSWERS} \"…\" downloads one that does (0.6 GB)");
        args.log.info(format_args!("the built-in model tells stories and answers no questions; {how}"));
    }
    args.log.detail(format_args!("seed: {}", finish.seed));
    load::tell_slots(engine.model().backend(), &args.log);
    if args.json {
        let mode = if chat { "chat" } else { "raw" };
        console::print_json(&Report::new(&answer, &finish, mode, load_time))?;
    }
    if args.log.verbose {
        let mode = if chat { "chat template" } else { "raw text" };
        args.log.info(format_args!("{mode}: {}, {}", rates(&finish), costs(load_time)));
    } else {
        args.log.info(format_args!("{}", outcome(&finish, &engine, options.max_tokens)));
    }
    Ok(())
}

impl RunArgs {
    /// The model and the prompt.
    fn input(&self) -> Result<(Source<'_>, Beginning), Failure> {
        let more = self.second.iter().chain(&self.more);
        let (source, words) = self.model.split(PROMPT, self.first.as_deref(), more)?;
        let words = match (words, self.prompt.as_deref()) {
            (Some(words), Some(prompt)) => {
                return Err(Failure::new(format!("\"{words}\" and -p \"{prompt}\" are two prompts; use one of them")));
            }
            (words, prompt) => words.or(prompt),
        };
        Ok((source, prompt::read(words, self.file.as_deref())?))
    }

    fn show(&self) -> Show {
        match (self.json, self.no_think) {
            (true, _) => Show::Nothing,
            (_, true) => Show::Answer,
            _ => Show::All,
        }
    }
}

impl<'a> Report<'a> {
    fn new(answer: &'a Answer, finish: &Finish, mode: &'a str, load_time: Duration) -> Report<'a> {
        Report {
            text: &answer.text,
            thinking: Some(answer.thinking.as_str()).filter(|text| !text.is_empty()),
            finish_reason: finish.reason.name(),
            mode,
            seed: finish.seed,
            prompt_tokens: finish.usage.prompt_tokens,
            generated_tokens: finish.usage.generated_tokens,
            draft: finish.usage.drafting.map(Drafting::name),
            drafts: finish.usage.drafts,
            drafted_tokens: finish.usage.drafted_tokens,
            accepted_tokens: finish.usage.accepted_tokens,
            acceptance_by_place: finish.usage.acceptance_by_place().collect(),
            prompt_tokens_per_second: finish.usage.prefill_rate(),
            decode_tokens_per_second: finish.usage.decode_rate(),
            load_seconds: load_time.as_secs_f64(),
            peak_memory_bytes: machine::peak_memory(),
        }
    }
}

fn save(receipt: &Receipt, path: &Path) -> Result<(), Failure> {
    let json = serde_json::to_string_pretty(receipt)?;
    write_atomically(path, |out| Ok(writeln!(out, "{json}").map_err(WriteError::from)?))
}

/// Generates to the end and prints the text as it is generated.
fn generate(
    engine: &Engine,
    request: Request,
    mut printer: Printer,
    mut recorder: Option<&mut Recorder>,
) -> Result<(Answer, Finish), Failure> {
    let mut end = None;
    for piece in engine.generate(request)? {
        let piece = piece?;
        if let Some(recorder) = &mut recorder {
            recorder.push(0, &piece);
        }
        printer.push(&piece)?;
        end = piece.finish;
    }
    let answer = printer.finish()?;
    let end = end.ok_or_else(|| Failure::new("the generation ended early; run it again"))?;
    Ok((answer, end))
}

/// `38 tokens at 45.1 tok/s`, and the limit that truncated the text.
fn outcome(finish: &Finish, engine: &Engine, max_tokens: Option<usize>) -> String {
    let rate = finish.usage.decode_rate().map(|rate| format!(" at {rate:.1} tok/s")).unwrap_or_default();
    let limit = match (finish.reason, answer::limit(finish, max_tokens, engine)) {
        (FinishReason::Length, limit) if limit.is_context => format!("; {limit}"),
        (FinishReason::Length, _) => "; truncated by -n".to_owned(),
        _ => String::new(),
    };
    let tokens = finish.usage.generated_tokens;
    format!("{tokens} {}{rate}{limit}", if tokens == 1 { "token" } else { "tokens" })
}

/// Tokens and rates of a generation.
pub(crate) fn rates(finish: &Finish) -> String {
    let Usage { prompt_tokens, reused_tokens, generated_tokens, .. } = finish.usage;
    let rate = |rate: Option<f64>| rate.map(|r| format!(" at {r:.1} tok/s")).unwrap_or_default();
    let reused = if reused_tokens > 0 { format!(" ({reused_tokens} of them cached)") } else { String::new() };
    let prefill = rate(finish.usage.prefill_rate());
    let decode = rate(finish.usage.decode_rate());
    let reason = finish.reason.name();
    let drafts = drafts_line(&finish.usage).map(|line| format!(", {line}")).unwrap_or_default();
    format!(
        "prompt {prompt_tokens} tokens{reused}{prefill}, decode {generated_tokens} tokens{decode}{drafts} ({reason})"
    )
}

/// Load time and memory.
pub(crate) fn costs(load_time: Duration) -> String {
    let memory = machine::peak_memory().map(|n| format!(", memory {}", console::bytes(n))).unwrap_or_default();
    format!("load {:.2} s{memory}", load_time.as_secs_f64())
}
