//! Synthetic models of mixtures choose their experts as published models do.

use std::ops::{ControlFlow, RangeInclusive};
use std::sync::Arc;

use gristmill_cpu::{Cpu, Level};
use gristmill_engine::{Batch, Limits, LoadOptions, Model as Loaded, Outputs, RoutingTrace, Runner};
use gristmill_files::gguf::GgufFile;

use super::super::channels::Channels;
use super::super::mix::find_mix;
use super::super::mixers::Mixers;
use super::super::shapes::Model;
use super::*;
use crate::random::Random;

/// Tokens of a prompt.
const PROMPT: usize = 512;
/// Layers of a model in these tests.
const LAYERS: u32 = 4;

/// Ranges of the share of experts that a prompt uses, of the share that has 90% of the choices, and of the share that
/// the next token uses again, by the least number of experts for each that is used. A model of few experts cannot be as
/// uneven, and one of many cannot use all and reuse as much where tokens are random.
const RANGES: [([RangeInclusive<f64>; 3], u32); 3] = [
    ([0.96..=1.0, 0.55..=0.85, 0.08..=0.15], 17),
    ([0.97..=1.0, 0.42..=0.52, 0.18..=0.25], 16),
    ([0.99..=1.0, 0.60..=0.90, 0.18..=0.35], 0),
];

/// A model with the experts of `model` and all else small.
fn shrunk(model: &Model) -> Synthetic {
    let mut model = *model;
    model.layers = model.layers.min(LAYERS);
    (model.hidden, model.inner, model.vocabulary) = (256, 64, 4096);
    (model.heads, model.kv_heads, model.head_width) = (8, 2, 64);
    model.special.rotated = model.special.rotated.map(|_| 64);
    model.special.sections = model.special.sections.map(|_| [11, 11, 10, 0]);
    if let Mixers::Channels(channels) = &mut model.special.mixers {
        channels.width = 32;
    }
    if let Mixers::Gemma4(gemma) = &mut model.special.mixers {
        gemma.windowed_width = 32;
    }
    if let Mixers::Latent(latent) | Mixers::Channels(Channels { latent, .. }) = &mut model.special.mixers {
        (latent.latent, latent.rotated, latent.value_width) = (64, 32, 64);
        latent.query_rank = latent.query_rank.min(64);
    }
    if let Some(experts) = &mut model.experts {
        experts.inner = 32;
        experts.shared = experts.shared.min(32);
    }
    Synthetic { model, mix: find_mix("Q8_0").unwrap(), codes: None }
}

/// The routers' choices for random tokens, as benchmarks have them.
fn trace(synthetic: &Synthetic, path: &std::path::Path) -> RoutingTrace {
    synthetic.write(path, &|_, _| ControlFlow::Continue(())).unwrap();
    let file = match synthetic.codes {
        Some(_) => gristmill_convert::open_folder(path, &Default::default(), 1).unwrap().0,
        None => GgufFile::open(path).unwrap(),
    };
    let backend = Arc::new(Cpu::backend(Level::best(), 2).unwrap());
    let model = Arc::new(Loaded::with_backend(file, backend, LoadOptions::default()).unwrap());
    let limits = Limits { context: Some(PROMPT), sequences: 1, batch_tokens: PROMPT, ..Limits::default() };
    let mut runner = Runner::new(model, limits).unwrap();
    let sequence = runner.open_sequence().unwrap();
    let mut random = Random::named("routing");
    let tokens: Vec<u32> = (0..PROMPT).map(|_| random.below(4096) as u32).collect();
    let mut batch = Batch::new();
    batch.push(sequence, &tokens, Outputs::Last);
    runner.forward(&batch).unwrap();
    runner.routing().unwrap()
}

/// What a layer's choices of a prompt are like.
#[derive(Debug)]
struct Choices {
    /// The share of experts that are used.
    used: f64,
    /// The share of experts that has 90% of the choices.
    most: f64,
    /// The mean share of a token's experts that the next token uses too.
    reused: f64,
}

impl Choices {
    fn of(trace: &RoutingTrace, layer: usize) -> Option<Choices> {
        let counts = trace.counts().into_iter().nth(layer).filter(|counts| !counts.is_empty())?;
        let experts = counts.len() as f64;
        let mut sorted = counts.clone();
        sorted.sort_unstable_by(|a, b| b.cmp(a));
        let mut sum = 0;
        let most = sorted.iter().take_while(|&&count| {
            let before = f64::from(sum);
            sum += count;
            before < 0.9 * f64::from(counts.iter().sum::<u32>())
        });
        let most = most.count() as f64 / experts;
        let of_token = |token: usize| trace.of_token(token).swap_remove(layer);
        let reused = |token: usize| {
            let [before, now] = [of_token(token - 1), of_token(token)];
            now.iter().filter(|(id, _)| before.iter().any(|(other, _)| other == id)).count() as f64 / now.len() as f64
        };
        let reused = (1..trace.tokens()).map(reused).sum::<f64>() / (trace.tokens() - 1) as f64;
        let used = counts.iter().filter(|&&count| count > 0).count() as f64 / experts;
        Some(Choices { used, most, reused })
    }
}

/// Whether a prompt uses experts as it does in a published model with so many.
fn check(name: &str, synthetic: &Synthetic, path: &std::path::Path) {
    let trace = trace(synthetic, path);
    let all: Vec<Choices> = (0..LAYERS as usize).filter_map(|layer| Choices::of(&trace, layer)).collect();
    assert!(!all.is_empty());
    let mean = |of: fn(&Choices) -> f64| all.iter().map(of).sum::<f64>() / all.len() as f64;
    let [used, most, reused] = [mean(|it| it.used), mean(|it| it.most), mean(|it| it.reused)];
    let what = format!("{name}: used {used:.3}, 90% in {most:.3}, reused {reused:.3}");
    println!("{what}");
    let experts = synthetic.model.experts.unwrap();
    let ([all_used, most_in, reuse], _) =
        RANGES.iter().find(|(_, least)| experts.count >= least * experts.used).unwrap();
    assert!(all_used.contains(&used) && most_in.contains(&most) && reuse.contains(&reused), "{what}");
}

#[test]
fn a_prompt_uses_nearly_all_experts_unevenly() {
    for model in models::MODELS.iter().filter(|model| model.experts.is_some()) {
        let path = Remove(scratch(&format!("routing-{}", model.name)));
        check(model.name, &shrunk(model), &path.0);
    }
}

#[test]
fn a_prompt_uses_nearly_all_experts_of_a_folder() {
    for codes in ["GPTQ", "FP8"] {
        let mut synthetic = Synthetic::parse(&format!("qwen3-30b-a3b:{codes}"), None).unwrap();
        synthetic.model = shrunk(&synthetic.model).model;
        synthetic.model.experts.iter_mut().for_each(|experts| experts.inner = 128);
        let folder = scratch(&format!("routing-{codes}"));
        check(codes, &synthetic, &folder);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
