//! `replay`: the texts of a receipt once more.

use std::path::PathBuf;
use std::slice;

use clap::Args;
use gristmill_cpu::{Level, MAX_THREADS};
use gristmill_engine::receipt::{Conditions, Receipt, RecordedChoice, Recorder, build};
use gristmill_engine::{Engine, Limits, Request};
use serde::Serialize;
use serde_json::Value;

use crate::args::{DeviceArgs, KernelsArg};
use crate::failure::Failure;
use crate::source::{QuantizeArg, Source};
use crate::verbosity::Verbosity;
use crate::{console, load, numbers};

/// Generate the texts of a receipt again, and compare them.
///
/// A server returns a receipt in `usage.gristmill.receipt` if the request has `"receipt": true`; `run --receipt FILE`
/// writes one. On a CPU, the same build and model generate the same bytes. The texts are printed on stdout as the model
/// wrote them, with the marks around reasoning and calls. A line on stderr reports for each text whether it is equal.
/// If a text differs, the exit code is 1.
#[derive(Args)]
pub(crate) struct ReplayArgs {
    /// A file with the receipt, or with the complete reply that contains it, as JSON or as events; - reads stdin.
    #[arg(value_name = "RECEIPT")]
    receipt: PathBuf,
    /// The model that the receipt names: a GGUF file (any part of a split model), a folder of Hugging Face or MLX, or
    /// ORG/REPO[:QUANT] of the hub [default: the built-in model].
    #[arg(short, long, value_name = "MODEL", help_heading = "Model")]
    model: Option<PathBuf>,
    #[command(flatten)]
    quantize: QuantizeArg,
    /// Threads, which do not change the text [default: one for each physical core that this process can use].
    #[arg(
        short, long, value_name = "N", allow_negative_numbers = true,
        value_parser = numbers::between(1, MAX_THREADS),
        help_heading = "Device"
    )]
    threads: Option<usize>,
    /// The device: auto, cpu, cuda, cuda:N, metal or metal:N [default: cpu for the receipt of a CPU, otherwise auto].
    #[arg(long, help_heading = "Device")]
    device: Option<String>,
    /// Context length in tokens [default: the context of the receipt]. A shorter context needs less memory, and can
    /// change the text.
    #[arg(long, value_name = "TOKENS", allow_negative_numbers = true, value_parser = numbers::at_least::<usize>(1), help_heading = "Length and sampling")]
    ctx: Option<usize>,
    /// Print one JSON object with the texts and the differences.
    #[arg(long, help_heading = "Output")]
    json: bool,
    #[command(flatten)]
    log: Verbosity,
}

/// The output of `--json`.
#[derive(Serialize)]
struct Report {
    equal: bool,
    choices: Vec<Replayed>,
}

/// One text.
#[derive(Serialize)]
struct Replayed {
    equal: bool,
    text: String,
    now: RecordedChoice,
    receipt: RecordedChoice,
}

pub(crate) fn run(args: &ReplayArgs) -> Result<(), Failure> {
    let receipt = read(&console::read_text(&args.receipt, console::LONGEST_TEXT)?)?;
    let source = args.quantize.of(Source::of(args.model.as_deref()))?;
    check_model(&receipt, source, &args.log)?;
    let device = args.device(&receipt.conditions);
    let context = Some(args.ctx.unwrap_or(receipt.conditions.context));
    let limits = Limits { context, kv_format: receipt.conditions.kv_format, ..Limits::default() };
    let engine = Engine::start(load::model(source, &device, limits, &args.log)?, limits)?;
    warn(&receipt, &engine.conditions(), &args.log);

    let mut choices = Vec::new();
    for (number, (request, expected)) in receipt.requests().zip(&receipt.choices).enumerate() {
        let replayed = Replayed::new(&engine, request, expected)
            .map_err(|failure| failure.about(&format!("choice {number} cannot be replayed")))?;
        if !args.json {
            let end = if replayed.text.ends_with('\n') { "" } else { "\n" };
            console::print(format_args!("{}{end}", replayed.text))?;
        }
        replayed.tell(number, &args.log);
        choices.push(replayed);
    }
    let (all, different) = (choices.len(), choices.iter().filter(|choice| !choice.equal).count());
    if args.json {
        console::print_json(&Report { equal: different == 0, choices })?;
    }
    match different {
        0 => Ok(()),
        _ => Err(Failure::new(format!("{different} of {all} texts differ from the receipt"))),
    }
}

/// The receipt in a text: itself, or in a reply, as JSON or as events.
fn read(text: &str) -> Result<Receipt, Failure> {
    let parts: Vec<Value> = match serde_json::from_str(text) {
        Ok(json) => vec![json],
        Err(error) => {
            let data = text.lines().filter_map(|line| line.strip_prefix("data:"));
            let events: Vec<Value> = data.filter_map(|data| serde_json::from_str(data).ok()).collect();
            match events.is_empty() {
                true => return Err(Failure::new(format!("the receipt is not valid JSON: {error}"))),
                false => events,
            }
        }
    };
    let found = parts.iter().rev().find_map(find);
    let remedy = "request one with \"receipt\": true";
    Ok(Receipt::read(found.ok_or_else(|| Failure::new(format!("this contains no receipt; {remedy}")))?)?)
}

fn find(json: &Value) -> Option<&Value> {
    const IN_REPLIES: [&str; 2] = ["/usage/gristmill/receipt", "/response/usage/gristmill/receipt"];
    let is_one = ["format", "conditions", "requests"].iter().any(|field| json.get(field).is_some());
    IN_REPLIES.iter().find_map(|place| json.pointer(place)).or_else(|| is_one.then_some(json))
}

/// Refuses another model before it is loaded.
fn check_model(receipt: &Receipt, source: Source, log: &Verbosity) -> Result<(), Failure> {
    match source.open(log)?.fingerprint() {
        found if found == receipt.model => Ok(()),
        found => Err(Failure::new(format!(
            "the receipt is of the model with fingerprint {}, but {source} has {found}; give the receipt's model with \
             -m",
            receipt.model
        ))),
    }
}

/// The level of a CPU, if this one has it.
fn level(conditions: &Conditions) -> Option<Level> {
    let name = Level::NAMES.iter().find(|name| conditions.arithmetic.first().is_some_and(|found| found == *name))?;
    Level::named(name).ok()
}

/// Tells why the texts may differ.
fn warn(receipt: &Receipt, here: &Conditions, log: &Verbosity) {
    let there = &receipt.conditions;
    let context = |conditions: &Conditions| format!("{} tokens", conditions.context);
    let pairs = [
        ("build", receipt.build.clone(), build()),
        ("device", there.device.clone(), here.device.clone()),
        ("arithmetic", there.arithmetic.join(" "), here.arithmetic.join(" ")),
        ("context", context(there), context(here)),
    ];
    for (what, there, here) in pairs.into_iter().filter(|(_, there, here)| there != here) {
        log.info(format_args!("warning: the {what} is {here}, but {there} in the receipt; texts can differ"));
    }
    let depends = match level(here) {
        Some(level) => !level.is_deterministic(),
        None => here.device != "cpu" && !here.is_deterministic(),
    };
    if depends {
        let device = &here.device;
        log.info(format_args!("warning: on {device} texts depend on what else runs at the same time, and may differ"));
    }
}

impl ReplayArgs {
    /// The device and number formats of the receipt, unless the arguments set them.
    fn device(&self, conditions: &Conditions) -> DeviceArgs {
        let usual = if conditions.device == "cpu" { "cpu" } else { "auto" };
        let device = self.device.clone().unwrap_or_else(|| usual.to_owned());
        DeviceArgs {
            threads: self.threads,
            cpu_level: level(conditions).filter(|_| device == "cpu"),
            device,
            kv: conditions.kv_format.into(),
            precision: conditions.precision.into(),
            experts_on: conditions.experts_on,
            split: None,
            expert_load: None,
            gpu_memory: None,
            cpu_memory: None,
            kernels: KernelsArg::default(),
            ranks: None,
            prediction_heads: false,
            draft_model: None,
            shared: None,
            deterministic: conditions.is_deterministic(),
        }
    }
}

impl Replayed {
    fn new(engine: &Engine, request: Request, expected: &RecordedChoice) -> Result<Replayed, Failure> {
        // Neither log-probabilities nor draft tokens change a text.
        let request = Request { logprobs: None, prompt_logprobs: None, draft: 0, ..request };
        let mut recorder = Recorder::new(engine, slice::from_ref(&request));
        let mut text = String::new();
        for piece in engine.generate(request)? {
            let piece = piece?;
            recorder.push(0, &piece);
            text += &piece.text;
        }
        let now = recorder.finish().and_then(|receipt| receipt.choices.into_iter().next());
        let mut now = now.ok_or_else(|| Failure::new("the generation ended early; run it again"))?;
        now.request = expected.request;
        Ok(Replayed { equal: now == *expected, text, now, receipt: expected.clone() })
    }

    fn tell(&self, number: usize, log: &Verbosity) {
        let end = |choice: &RecordedChoice| format!("{} tokens ({})", choice.tokens, choice.finish_reason.name());
        let (now, then) = (end(&self.now), end(&self.receipt));
        match self.equal {
            true => log.info(format_args!("choice {number}: the same, {now}")),
            false if now == then => console::note(format_args!("choice {number}: another text, {now}")),
            false => console::note(format_args!("choice {number}: another text, {now} instead of {then}")),
        }
    }
}
