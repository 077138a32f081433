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
use gristmill_engine::gguf::GgufFile;
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

/// A random model with the tokenizer of another.
fn model(file: &GgufFile, template: Option<String>) -> Result<Model, Box<dyn Error>> {
    let mut tiny = Tiny::llama();
    let tokenizer = file.metadata().iter().filter(|(key, _)| key.starts_with("tokenizer."));
    tokenizer.for_each(|(key, value)| tiny.set(key, value.clone()));
    if let Some(template) = template {
        tiny.set("tokenizer.chat_template", template);
    }
    // One head of one layer, because programs have long prompts.
    tiny.tensors.retain(|(name, ..)| !name.starts_with("blk.1."));
    for (key, value) in [("block_count", 1), ("attention.head_count", 1), ("attention.head_count_kv", 1)] {
        tiny.set(&format!("llama.{key}"), value);
    }
    for (part, shape) in [("q", [48, 8]), ("k", [48, 8]), ("v", [48, 8]), ("output", [8, 48])] {
        tiny.tensor(&format!("blk.0.attn_{part}.weight"), &shape);
    }
    let tokens = file.metadata().required::<&[String]>("tokenizer.ggml.tokens")?.len();
    tiny.set("llama.context_length", 1_u32 << 20);
    tiny.tensor("token_embd.weight", &[48, tokens as u64]);
    let options = LoadOptions { device: "cpu".to_owned(), ..LoadOptions::default() };
    Ok(Model::from_file(tiny.file(&mut Random(1)), options)?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: scripted MODEL.gguf SCRIPT.json";
    let (file, script) = (arguments.next().ok_or(usage)?, arguments.next().ok_or(usage)?);
    let Setup { context, template, aliases, rules, log } = serde_json::from_slice(&fs::read(script)?)?;
    let model = Arc::new(model(&GgufFile::open(file)?, template)?);
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
