use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use gristmill_cpu::{Cpu, Level};
use gristmill_engine::{DraftSource, Drafts};
use gristmill_engine::{Engine, KvFormat, Limits, LoadOptions, Model, ModelInfo};
use gristmill_files::gguf::GgufFile;

use super::cost::{Cost, Span, StepSpans};
use super::measure::{LayerRouting, Workload};
use super::report::Row;
use super::{machine, measure, mixed};
use crate::error::LabError;
use crate::routing::RoutingArg;
use crate::synthetic::Synthetic;

/// A small synthetic model, removed at the end of the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(test: &str, spec: &str, layers: u32) -> Scratch {
        let path = std::env::temp_dir().join(format!("gristmill-bench-{}-{test}.gguf", std::process::id()));
        Synthetic::parse(spec, Some(layers)).unwrap().write(&path, &|_, _| ControlFlow::Continue(())).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn span(start: usize, count: usize) -> Span {
    Span { start, count, output: true }
}

#[test]
fn one_token_costs_what_the_tensors_say() {
    let path = Scratch::new("cost", "mini-moe:F16", 2);
    let file = GgufFile::open(&path.0).unwrap();
    let info = ModelInfo::read(&file).unwrap();
    let cost = Cost::of(&info.spec, &info.tensor_uses(), &file, KvFormat::F16);
    let (hidden, heads, kv_heads, head, inner) = (256.0, 8.0, 2.0, 64.0, 256.0);
    let (experts, top_k, vocab) = (16.0, 4.0, 4096.0);
    let attention = 2.0 * hidden * heads * head + 2.0 * hidden * kv_heads * head;
    let router = hidden * experts;
    let norms = 2.0 * hidden + 2.0 * head;
    let expert = 3.0 * hidden * inner;
    let cached = 10.0;

    let reads = |distinct: [f64; 2]| distinct.map(|distinct| LayerRouting { distinct, choices: Vec::new() });

    let work = cost.of_steps(&[vec![(0, span(9, 1))]], &reads([4.0, 4.0]));
    let products = 2.0 * (attention + router + top_k * expert) + hidden * vocab + 2.0 * heads * 2.0 * head * cached;
    assert_eq!(work.ops, 2.0 * products);
    let f16 = 2.0 * (attention + top_k * expert) + hidden * vocab + hidden + 2.0 * kv_heads * 2.0 * head * cached;
    let f32 = 2.0 * (router + norms) + hidden;
    assert!((work.bytes - (2.0 * f16 + 4.0 * f32)).abs() < 1e-3, "{work:?}");
    assert_eq!(work.tokens, 1);

    // Two tokens with one common expert, in the second layer.
    let pair: StepSpans = vec![(0, span(0, 1)), (1, span(0, 1))];
    let [distinct, shared] =
        [8.0, 7.0].map(|second| cost.of_steps(std::slice::from_ref(&pair), &reads([8.0, second])).bytes);
    assert_eq!(distinct - shared, 2.0 * expert);
    // A step without logits does not read the head.
    let silent = cost.of_steps(&[vec![(0, Span { output: false, ..span(9, 1) })]], &reads([4.0, 4.0]));
    assert_eq!(work.bytes - silent.bytes, 2.0 * hidden * vocab);
}

#[test]
fn a_step_of_a_sweep_has_decode_and_a_prompt() {
    let path = Scratch::new("sweep", "mini-moe", 1);
    let file = GgufFile::open(&path.0).unwrap();
    let backend = Arc::new(Cpu::backend(Level::best(), 1).unwrap());
    let model = Arc::new(Model::with_backend(file, backend, LoadOptions::default()).unwrap());
    let plan = super::sweep::Plan { sizes: 1..=2, steps: 2, repeats: 1, depth: 20, prompt: Some(7) };
    let workload = plan.workload(512).unwrap();
    let mut bench = measure::Bench::new(model, workload, workload.limits().unwrap(), None, None).unwrap();
    for (sequences, lengths) in [(1, [21, 20, 27]), (2, [21, 21, 27])] {
        assert_eq!(bench.prompt_steps_of(sequences, 7, 3).unwrap().len(), 3);
        assert_eq!(bench.lengths(), lengths);
    }
}

#[test]
fn a_bench_keeps_its_depth_and_reports_every_repetition() {
    let path = Scratch::new("run", "mini-moe", 1);
    let file = GgufFile::open(&path.0).unwrap();
    let backend = Arc::new(Cpu::backend(Level::best(), 1).unwrap());
    let model = Arc::new(Model::with_backend(file, backend, LoadOptions::default()).unwrap());
    let workload = Workload { batch: 3, depth: 20, prompt: 5, decode: 2, chunk: 512 };
    let mut bench = measure::Bench::new(model.clone(), workload, workload.limits().unwrap(), None, None).unwrap();
    let [prefill, decode] = bench.warm_up().unwrap();
    // 15 tokens, and 2 steps of 3 tokens, that choose 4 of 16 experts each.
    let [of_prompt, of_decode] = [&prefill, &decode].map(|ran| ran.routing.first().expect("one layer"));
    assert!((4.0..=16.0).contains(&of_prompt.distinct) && of_prompt.distinct.fract() == 0.0, "{prefill:?}");
    assert!((4.0..=12.0).contains(&of_decode.distinct), "{decode:?}");
    assert_eq!([of_prompt, of_decode].map(|layer| layer.choices.iter().sum::<u64>()), [15 * 4, 6 * 4]);
    let ran = [bench.prefill().unwrap(), bench.decode().unwrap(), bench.prefill().unwrap()];
    assert!(ran.iter().all(|ran| ran.routing.is_empty()));
    let seconds = ran.map(|ran| ran.seconds).to_vec();
    let machine = machine::Machine { level: "", read_bytes_per_second: 1e9, numbers: "", ops_per_second: 1e9 };
    let work = Cost::of(model.spec(), &model.tensor_uses(), model.file(), KvFormat::F16)
        .of_steps(&bench.prefill_steps(), &prefill.routing);
    assert_eq!(work.tokens, 15);
    let row = serde_json::to_value(Row::new(&work, &prefill.routing, seconds.clone(), &machine)).unwrap();
    assert_eq!(row["seconds"].as_array().unwrap().len(), 3);
    let fastest = seconds.iter().copied().fold(f64::MAX, f64::min);
    assert_eq!(row["max_tokens_per_second"].as_f64().unwrap(), 15.0 / fastest);
    assert_eq!(row["mean_distinct_experts"].as_f64().unwrap(), of_prompt.distinct);
    let busiest = *of_prompt.choices.iter().max().unwrap() as f64 / 60.0;
    assert_eq!(row["mean_busiest_share"].as_f64().unwrap(), busiest);
    let limit = 15.0 / (work.bytes / 1e9).max(work.ops / 1e9);
    assert_eq!(row["limit_tokens_per_second"].as_f64().unwrap(), limit);
    assert!(Row::new(&work, &[], vec![], &machine).is_none());
}

/// A trace of a model's own choices, and generated experts: the counts of each expert are theirs, in prompts and in decode.
#[test]
fn forced_experts_are_those_that_are_read() {
    let path = Scratch::new("routing", "mini-moe", 2);
    let file = GgufFile::open(&path.0).unwrap();
    let backend = Arc::new(Cpu::backend(Level::best(), 1).unwrap());
    let model = Arc::new(Model::with_backend(file, backend, LoadOptions::default()).unwrap());
    let routers = model.spec().routers();
    let workload = Workload { batch: 2, depth: 3, prompt: 5, decode: 4, chunk: 512 };
    let arg: RoutingArg = "strong:3".parse().unwrap();
    let mut expected = arg.open(&routers, workload.batch).unwrap();
    let routing = Some(arg.open(&routers, workload.batch).unwrap());
    let mut bench = measure::Bench::new(model, workload, workload.limits().unwrap(), None, routing).unwrap();
    let ran = bench.warm_up().unwrap();
    let mut counts = |tokens: usize| -> Vec<Vec<u64>> {
        let mut counts: Vec<_> = routers.iter().map(|router| vec![0; router.experts]).collect();
        for sequence in 0..workload.batch {
            for ids in (0..tokens).map(|_| expected.next(sequence).ids) {
                let layers = counts.iter_mut().zip(ids.chunks(routers[0].top_k));
                layers.for_each(|(counts, ids)| ids.iter().for_each(|&id| counts[id as usize] += 1));
            }
        }
        counts
    };
    counts(workload.depth);
    for (ran, tokens) in ran.iter().zip([workload.prompt, workload.decode]) {
        let found: Vec<_> = ran.routing.iter().map(|layer| layer.choices.clone()).collect();
        assert_eq!(found, counts(tokens));
    }
    let none = arg.open(&[Default::default()], 1).err().expect("a model without experts");
    assert!(matches!(none, LabError::NoExperts));
}

/// The cache keeps a batch of 512 tokens and a window of 32; the prompt of 600 tokens is longer.
#[test]
fn dropped_positions_are_read_again() {
    let path = Scratch::new("window", "mini-oss", 2);
    let file = GgufFile::open(&path.0).unwrap();
    let backend = Arc::new(Cpu::backend(Level::best(), 1).unwrap());
    let model = Arc::new(Model::with_backend(file, backend, LoadOptions::default()).unwrap());
    for depth in [0, 700] {
        let workload = Workload { batch: 2, depth, prompt: 600, decode: 2, chunk: 512 };
        let mut bench = measure::Bench::new(model.clone(), workload, workload.limits().unwrap(), None, None).unwrap();
        for _ in 0..2 {
            bench.prefill().unwrap();
            assert_eq!(bench.lengths(), [depth + 600; 2]);
            bench.decode().unwrap();
            assert_eq!(bench.lengths(), [depth + 2; 2], "it started at the depth");
        }
    }
}

#[test]
fn requests_are_served_whatever_their_lengths() {
    let path = Scratch::new("requests", "mini-moe", 1);
    let file = GgufFile::open(&path.0).unwrap();
    let backend = Arc::new(Cpu::backend(Level::best(), 1).unwrap());
    let model = Arc::new(Model::with_backend(file, backend, LoadOptions::default()).unwrap());
    let workload = Workload { batch: 3, depth: 0, prompt: 20, decode: 5, chunk: 512 };
    let limits = Limits { context: Some(25), output_rows: Some(9), ..workload.limits().unwrap() };
    // A model that drafts for itself is always right.
    let engine = Engine::start_with_drafts(model.clone(), Drafts::always(DraftSource::Model(model)), limits).unwrap();
    for (mixed, draft) in [(false, 0), (false, 2), (true, 0)] {
        let served = mixed::serve(&engine, workload, 30, mixed, draft).unwrap();
        let served = serde_json::to_value(served).unwrap();
        assert_eq!(served["requests"], 30);
        assert!(served["free_after"].is_null());
        let times =
            ["first_token", "between_tokens"].map(|of| ["p50", "p99"].map(|at| served[of][at].as_f64().unwrap()));
        assert!(times.iter().all(|[median, most]| 0.0 < *median && median <= most), "{served}");
        assert!(
            served["steps"].as_u64() > Some(10) && served["host_seconds_per_step"].as_f64() > Some(0.0),
            "{served}"
        );
        assert_eq!(served["drafted_tokens"] != 0, draft > 0);
        assert_eq!(served["drafted_tokens"], served["accepted_tokens"]);
        let (prompts, answers) =
            (served["prompt_tokens"].as_u64().unwrap(), served["generated_tokens"].as_u64().unwrap());
        match mixed {
            false => assert_eq!((served["cancelled"].as_u64(), prompts, answers), (Some(0), 600, 150)),
            // The random numbers are the same in each run.
            true => assert!(served["cancelled"] != 0 && prompts < 600 && answers < 150, "{served}"),
        }
    }
}

#[test]
fn the_machine_has_a_bandwidth_and_a_rate_at_every_level() {
    for level in Level::available() {
        let machine = machine::measure_with(level, 2, 32 << 20);
        // Bounds for any machine, however busy, that a wrong unit is beyond.
        assert!((1e6..1e13).contains(&machine.read_bytes_per_second), "{machine:?}");
        assert!((1e6..1e14).contains(&machine.ops_per_second), "{machine:?}");
    }
}
