//! SmolLM2-135M-Instruct as it is shipped (Q4_1): greedy text and logits against transformers', perplexity against
//! llama.cpp's. `scripts/golden/smollm2.py` wrote what is compared with.
//!
//! The model is not in the repository. Without it these tests say so and pass.

mod perplexity;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use gristmill_cpu::Level;
use gristmill_engine::template::{Chat, ChatTemplate, Message, RenderOptions, Role};
use gristmill_engine::tokenizer::EncodeOptions;
use gristmill_engine::{Batch, Limits, LoadOptions, Model, Outputs, Precision, Runner};
use gristmill_suite::rng::Rng;
use gristmill_suite::testing;
use serde::Deserialize;

use perplexity::perplexity;

/// How far from transformers' logits ours may be.
struct Tolerance {
    precision: Precision,
    /// The largest NMSE of the sampled logits after all prompts.
    nmse: f64,
    /// Top-2 gap below which another token than transformers' is excused: what two logits may be off together.
    gap: f32,
    /// The share of positions that may be excused.
    excused: f64,
}

/// Single logits are off by up to 0.012, from the f16 cache and rounding.
const EXACT: Tolerance = Tolerance { precision: Precision::Exact, nmse: 1e-6, gap: 0.02, excused: 0.01 };

/// Activations of 8 bits put single logits of so small a model off by up to 0.86 (NMSE 6e-4), whichever matrix
/// operation reads them: with only the output head's quantised (NMSE 4e-5), 0.9% of positions were excused still. So
/// the rule's 1% is asserted for exact activations; here 2.7% were excused at the best level (13 of 487, the largest
/// gap 0.71). llama.cpp, whose activations have 8 bits too, leaves transformers' text at 14 of 431 (3.2%), the largest
/// gap 1.42.
const FAST: Tolerance = Tolerance { precision: Precision::Fast, nmse: 1e-3, gap: 1.0, excused: 0.04 };

/// The largest relative difference from llama.cpp's perplexity.
const PERPLEXITY_TOLERANCE: f64 = 0.005;

/// The largest relative difference of a window's from transformers' with exact activations.
const PERPLEXITY_TOLERANCE_EXACT: f64 = 0.001;

/// Prompts that are continued at a CPU level that is not the best, for these are slow. The logits after the prompts are
/// compared for all.
const CONTINUED_AT_SLOW_LEVELS: usize = 4;

#[derive(Deserialize)]
struct Golden {
    /// One in this number of logits is kept.
    stride: usize,
    prompts: Vec<Prompt>,
}

#[derive(Deserialize)]
struct Prompt {
    /// Messages of which the chat template makes the prompt.
    #[serde(default)]
    messages: Vec<Said>,
    prompt: String,
    ids: Vec<u32>,
    /// The greedy continuation, up to an end-of-sequence token.
    expected: Vec<u32>,
    /// The difference of the two highest logits at each position of it.
    gaps: Vec<f32>,
    /// A sample of the logits after the prompt.
    logits: Vec<f32>,
}

#[derive(Deserialize)]
struct Said {
    role: String,
    content: String,
}

#[derive(Deserialize)]
struct Perplexity {
    text: String,
    window: usize,
    windows: usize,
    tokens: usize,
    tokens_scored: usize,
    #[serde(rename = "llama.cpp")]
    llama_cpp: Measured,
    transformers: Measured,
}

#[derive(Deserialize)]
struct Measured {
    perplexity: f64,
    /// The perplexity of each window, in the same order.
    #[serde(default)]
    windows: Vec<f64>,
}

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden")
}

fn read<T: for<'a> Deserialize<'a>>(name: &str) -> T {
    serde_json::from_slice(&std::fs::read(golden().join(name)).unwrap()).unwrap()
}

/// Where the model is, if it has been fetched.
fn model_path() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let path = root.join("target/models/smollm2-135m-instruct-q4_1.gguf");
    if !path.exists() {
        println!("skipped: no model; cargo xtask model fetches it");
        return None;
    }
    Some(path)
}

fn load(path: &Path, level: Option<&str>, precision: Precision) -> Arc<Model> {
    let level = level.map(str::to_owned);
    Arc::new(Model::open(path, LoadOptions { level, precision, ..LoadOptions::default() }).unwrap())
}

/// Every level of this CPU, the best last. Levels that it lacks are named: they are skipped, not passed.
fn levels() -> Vec<&'static str> {
    let has = |name: &&'static str| match Level::named(name) {
        Ok(_) => true,
        Err(error) => {
            println!("skipped: {error}");
            false
        }
    };
    let best = Level::best().name();
    let mut levels: Vec<_> = Level::NAMES.iter().copied().filter(has).filter(|&name| name != best).collect();
    levels.push(best);
    levels
}

/// A comparison of all prompts.
#[derive(Default)]
struct Outcome {
    positions: usize,
    excused: usize,
    /// Sums of squares of the differences and of the expected logits.
    error: f64,
    expected: f64,
    max_error: f32,
}

impl Outcome {
    fn nmse(&self) -> f64 {
        self.error / self.expected
    }

    fn add_logits(&mut self, found: &[f32], expected: &[f32]) {
        assert_eq!(found.len(), expected.len());
        for (&found, &expected) in found.iter().zip(expected) {
            self.error += f64::from(found - expected).powi(2);
            self.expected += f64::from(expected).powi(2);
            self.max_error = self.max_error.max((found - expected).abs());
        }
    }
}

/// Computes the logits after all prompts, and continues the last `continued` as one batch. A continuation is compared
/// up to its first excused position.
fn compare(model: &Arc<Model>, Golden { stride, prompts }: &Golden, continued: usize, gap: f32) -> Outcome {
    let longest = prompts.iter().map(|p| p.ids.len() + p.expected.len()).max().unwrap();
    let limits = Limits { context: Some(longest), sequences: prompts.len(), ..Limits::default() };
    let mut runner = Runner::new(model.clone(), limits).unwrap();
    let mut outcome = Outcome::default();
    let mut batch = Batch::new();

    // Each prompt that still runs: its sequence, and what goes in next.
    let mut running = Vec::new();
    for prompt in prompts {
        let sequence = runner.open_sequence().unwrap();
        batch.clear();
        let mut logits = runner.forward(batch.push(sequence, &prompt.ids, Outputs::Last)).unwrap();
        let sample: Vec<f32> = logits.to_vec().unwrap().into_iter().step_by(*stride).collect();
        outcome.add_logits(&sample, &prompt.logits);
        running.push((prompt, sequence, logits.argmax().unwrap()[0]));
    }
    running.drain(..prompts.len() - continued);
    for position in 0.. {
        running.retain(|&(prompt, _, found)| {
            let (Some(&expected), Some(&top2)) = (prompt.expected.get(position), prompt.gaps.get(position)) else {
                return false;
            };
            outcome.positions += 1;
            if found != expected {
                let what = format!("token {position} after {:?} is {found}, not {expected}", prompt.prompt);
                assert!(top2 < gap, "{what}; the gap to the second best is {top2}, no tie within {gap}");
                println!("  excused: {what}; gap {top2}");
                outcome.excused += 1;
            }
            found == expected
        });
        if running.is_empty() {
            break;
        }
        batch.clear();
        for &(_, sequence, token) in &running {
            batch.push(sequence, &[token], Outputs::Last);
        }
        let found = runner.forward(&batch).unwrap().argmax().unwrap();
        for (prompt, found) in running.iter_mut().zip(found) {
            prompt.2 = found;
        }
    }
    outcome
}

fn check(path: &Path, level: &str, golden: &Golden, continued: usize, tolerance: &Tolerance) {
    let start = Instant::now();
    let &Tolerance { precision, nmse, gap, excused: share } = tolerance;
    let outcome = compare(&load(path, Some(level), precision), golden, continued, gap);
    let Outcome { positions, excused, max_error, .. } = outcome;
    println!(
        "{level} {precision:?}: logits after {} prompts NMSE {:.1e}, largest error {max_error:.1e}; {continued} continued, \
         {excused} of {positions} positions excused; {:.1} s",
        golden.prompts.len(),
        outcome.nmse(),
        start.elapsed().as_secs_f64()
    );
    assert!(outcome.nmse() <= nmse, "{level} {precision:?}: NMSE {:.1e} > {nmse:.0e}", outcome.nmse());
    // The share is computed over all prompts, because a few positions would not be significant.
    if continued == golden.prompts.len() {
        let most = positions as f64 * share;
        assert!(excused as f64 <= most, "{level} {precision:?}: {excused} of {positions} positions excused");
    }
}

fn role(name: &str) -> Role {
    let roles = [Role::System, Role::User, Role::Assistant, Role::Tool];
    roles.into_iter().find(|role| role.name() == name).unwrap()
}

#[test]
fn prompts_become_the_same_tokens() {
    let Some(path) = model_path() else { return };
    let golden: Golden = read("smollm2.json");
    let model = load(&path, None, Precision::Fast);
    let template = ChatTemplate::new(model.template().unwrap()).unwrap();
    assert_eq!(golden.prompts.len(), 20);
    for prompt in &golden.prompts {
        if !prompt.messages.is_empty() {
            let messages = prompt.messages.iter().map(|m| Message::new(role(&m.role), &m.content));
            let chat = Chat::new(messages.collect());
            let options = RenderOptions { add_generation_prompt: true, ..RenderOptions::default() };
            assert_eq!(template.render(&chat, &options).unwrap(), prompt.prompt);
        }
        let options = EncodeOptions { add_special: true, parse_special: true };
        let ids = model.tokenizer().unwrap().encode(&prompt.prompt, options).unwrap();
        assert_eq!(ids, prompt.ids, "{:?}", prompt.prompt);
    }
}

/// The best level with both precisions, and one of the others with one of them, drawn.
#[test]
fn greedy_text_is_that_of_transformers() {
    let Some(path) = model_path() else { return };
    let golden: Golden = read("smollm2.json");
    let levels = levels();
    let (best, slow) = levels.split_last().unwrap();
    for tolerance in [&EXACT, &FAST] {
        check(&path, best, &golden, golden.prompts.len(), tolerance);
    }
    let mut rng = Rng::new(testing::seed());
    if !slow.is_empty() {
        check(&path, rng.pick(slow), &golden, CONTINUED_AT_SLOW_LEVELS, rng.pick(&[&EXACT, &FAST]));
    }
}

#[test]
#[ignore = "minutes"]
fn greedy_text_is_that_of_transformers_on_every_level() {
    let Some(path) = model_path() else { return };
    let golden: Golden = read("smollm2.json");
    for tolerance in [&EXACT, &FAST] {
        for level in levels() {
            check(&path, level, &golden, CONTINUED_AT_SLOW_LEVELS, tolerance);
        }
    }
}

#[test]
fn perplexity_is_that_of_llama_cpp() {
    let Some(path) = model_path() else { return };
    let expected: Perplexity = read("smollm2.perplexity.json");
    assert!(expected.windows >= 32 && expected.window == 512);
    let text = std::fs::read_to_string(golden().join("text").join(&expected.text)).unwrap();
    let (all, exact) = (&expected.llama_cpp, &expected.transformers);
    let tokens = {
        let model = load(&path, None, Precision::Fast);
        // llama.cpp drops the newline that ends a file.
        let text = text.strip_suffix('\n').unwrap();
        let tokens = model.tokenizer().unwrap().encode(text, EncodeOptions::default()).unwrap();
        assert_eq!((tokens.len(), tokens.len() / expected.window), (expected.tokens, expected.windows));
        let start = Instant::now();
        let (found, scored) = perplexity(&model, &tokens, expected.window);
        assert_eq!(scored, expected.tokens_scored);
        let rate = (expected.windows * expected.window) as f64 / start.elapsed().as_secs_f64();
        println!(
            "Fast: perplexity {found:.4}; llama.cpp {:.4}, transformers {:.4}; {rate:.0} tok/s",
            all.perplexity, exact.perplexity
        );
        near(found, all.perplexity, PERPLEXITY_TOLERANCE, "Fast");
        tokens
    };
    // Some windows say as much when each is compared by itself, in a quarter of the time.
    let model = load(&path, None, Precision::Exact);
    assert_eq!(exact.windows.len(), expected.windows);
    for at in (0..expected.windows).step_by(4) {
        let (found, _) = perplexity(&model, &tokens[at * expected.window..][..expected.window], expected.window);
        near(found, exact.windows[at], PERPLEXITY_TOLERANCE_EXACT, &format!("Exact, window {at}"));
    }
}

fn near(found: f64, expected: f64, tolerance: f64, what: &str) {
    let off = found / expected - 1.0;
    assert!(off.abs() <= tolerance, "{what}: perplexity {found}, not {expected}, is off by {:.3}%", off * 100.0);
}
