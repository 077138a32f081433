//! A server whose completions a script chooses, for tests of programs that call tools: a random model of one layer has
//! the tokenizer of `MODEL.gguf`, and everything else is as `gristmill serve` does it.
//!
//! ```sh
//! cargo run --release -p gristmill-server --example scripted -- MODEL.gguf SCRIPT.json
//! ```
//! The first line that it prints is its address. It ends when its standard input does.

#[allow(dead_code)]
#[path = "../../model/tests/model/tiny.rs"]
mod tiny;

use std::error::Error;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use gristmill_engine::Script;
use gristmill_engine::gguf::{Array, GgufFile, Value};
use gristmill_engine::{Engine, Limits, LoadOptions, Model};
use gristmill_server::{OfferedModel, Options, Server};
use serde::Deserialize;
use serde_json::json;
use tiny::{Random, Tiny};
use tokio::runtime::Runtime;

/// What is served.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Setup {
    /// Tokens of the context.
    context: usize,
    /// The chat template; without it, that of the model file.
    template: Option<String>,
    /// A tower of LFM2-VL: the model reads images.
    tower: Option<PathBuf>,
    /// Other names of the model.
    #[serde(default)]
    aliases: Vec<String>,
    rules: Vec<Rule>,
    /// A file that gets a line of JSON for each completion.
    log: PathBuf,
}

/// A completion, and when it is chosen: of all rules, the one whose `when` comes last in the prompt. So a rule follows
/// the newest event of a conversation: what the user says, or what a tool returned.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    when: String,
    reply: String,
}

#[derive(Debug)]
struct Rules {
    rules: Vec<Rule>,
    log: Mutex<File>,
}

impl Script for Rules {
    fn completion(&self, prompt: &str) -> Option<String> {
        let last = |rule: &&Rule| match rule.when.len() {
            // It comes before all others.
            0 => Some(0),
            length => prompt.rfind(&rule.when).map(|at| at + length),
        };
        let rule = self.rules.iter().filter(|rule| last(rule).is_some()).max_by_key(last)?;
        let line = json!({"when": rule.when, "prompt": prompt});
        // A log that cannot be written fails the test that reads it.
        let _ = writeln!(self.log.lock().unwrap_or_else(PoisonError::into_inner), "{line}");
        Some(rule.reply.clone())
    }
}

/// The marks of images and their placeholder.
const IMAGES: [&str; 3] = ["<|image_start|>", "<image>", "<|image_end|>"];
/// A control token.
const CONTROL: i64 = 3;

/// A random model with the tokenizer of another. With a tower, it also has the marks of images.
fn model(file: &GgufFile, template: Option<String>, tower: Option<PathBuf>) -> Result<Model, Box<dyn Error>> {
    let (mut tiny, hidden, width) = match tower {
        None => (Tiny::llama(), 48, 8),
        // As wide as the tower's rows.
        Some(_) => (Tiny::qwen3(), 64, 12),
    };
    let architecture = if tower.is_some() { "qwen3" } else { "llama" };
    let tokenizer = file.metadata().iter().filter(|(key, _)| key.starts_with("tokenizer."));
    tokenizer.for_each(|(key, value)| tiny.set(key, value.clone()));
    let mut tokens = file.metadata().required::<&[String]>("tokenizer.ggml.tokens")?.to_vec();
    if tower.is_some() {
        let Some(Value::Array(types)) = file.metadata().value("tokenizer.ggml.token_type") else {
            return Err("the model has no types of tokens".into());
        };
        let types = Array::integers(types).ok_or("types of tokens are integers")?;
        let types = types.map(i64::try_from).chain(IMAGES.map(|_| Ok(CONTROL))).collect::<Result<Vec<i64>, _>>()?;
        tokens.extend(IMAGES.map(String::from));
        tiny.set("tokenizer.ggml.token_type", types.into_iter().map(|kind| kind as i32).collect::<Vec<i32>>());
        tiny.set("tokenizer.ggml.tokens", tokens.clone());
        tiny.tensor("output.weight", &[hidden, tokens.len() as u64]);
    }
    if let Some(template) = template {
        tiny.set("tokenizer.chat_template", template);
    }
    // One head of one layer, because programs have long prompts.
    tiny.tensors.retain(|(name, ..)| !name.starts_with("blk.1."));
    for (key, value) in [("block_count", 1), ("attention.head_count", 1), ("attention.head_count_kv", 1)] {
        tiny.set(&format!("{architecture}.{key}"), value);
    }
    for (part, shape) in
        [("q", [hidden, width]), ("k", [hidden, width]), ("v", [hidden, width]), ("output", [width, hidden])]
    {
        tiny.tensor(&format!("blk.0.attn_{part}.weight"), &shape);
    }
    tiny.set(&format!("{architecture}.context_length"), 1_u32 << 20);
    tiny.tensor("token_embd.weight", &[hidden, tokens.len() as u64]);
    let options = LoadOptions { device: "cpu".to_owned(), ..LoadOptions::default() };
    let model = Model::from_file(tiny.file(&mut Random(1)), options)?;
    match tower {
        Some(tower) => Ok(model.with_tower(GgufFile::open(tower)?)?),
        None => Ok(model),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: scripted MODEL.gguf SCRIPT.json";
    let (file, script) = (arguments.next().ok_or(usage)?, arguments.next().ok_or(usage)?);
    let Setup { context, template, tower, aliases, rules, log } = serde_json::from_slice(&fs::read(script)?)?;
    let model = Arc::new(model(&GgufFile::open(file)?, template, tower)?);
    let limits = Limits { context: Some(context), sequences: 8, kv_tokens: Some(4 * context), ..Limits::default() };
    let log = Mutex::new(File::create(log)?);
    let engine = Engine::start(model, limits)?.with_queue(64).with_script(Arc::new(Rules { rules, log }));
    let models = vec![OfferedModel::loaded("scripted", engine).with_aliases(aliases)];
    Runtime::new()?.block_on(async {
        let server = Server::bind("127.0.0.1:0", models, Options::default()).await?;
        println!("http://{}", server.address()?);
        let end = async { drop(tokio::task::spawn_blocking(|| io::copy(&mut io::stdin(), &mut io::sink())).await) };
        server.run(end).await;
        Ok(())
    })
}
