//! `/metrics`: names that dashboards and pickers know.

use std::collections::BTreeMap;

use gristmill_engine::{DraftSource, Drafts};
use gristmill_engine::{Engine, Limits};
use gristmill_server::{LoadedModel, OfferedModel, Options};
use serde_json::json;

use crate::server::{CONTEXT, Running, engine, model, options, without_model};

/// The samples of a text, by name and labels. Each family has a type, and each name belongs to one.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let families: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let mut samples = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').expect("a value");
        let bare = name.split('{').next().expect("a name");
        assert!(families.iter().any(|family| bare.starts_with(family)), "{bare} has no type");
        assert!(samples.insert(name.to_owned(), value.parse().expect("a number")).is_none(), "{name} is there twice");
    }
    samples
}

#[test]
fn figures_of_caches_and_builds() {
    let server = Running::new(engine(&model(), 2), options());
    let blocks = CONTEXT.div_ceil(16) * 2;
    let start = samples(&without_model(&server.get("/metrics").text));
    assert_eq!(start["gristmill_kv_cache_usage_ratio"], 0.0);
    assert_eq!(start[&format!("gristmill_cache_info{{block_size=\"16\",blocks=\"{blocks}\"}}")], 1.0);
    let build = format!("gristmill_build_info{{version=\"{}\",model=\"tiny\"}}", env!("CARGO_PKG_VERSION"));
    assert!(server.get("/metrics").text.lines().any(|line| line == format!("{build} 1")));
    assert!(!start.keys().any(|name| name.contains("vllm")));
    let running = server.begin("/v1/completions", &json!({"prompt": "abc", "max_tokens": 1400, "ignore_eos": true}));
    let wait = std::time::Instant::now();
    let ratio = loop {
        match server.metric("gristmill_kv_cache_usage_ratio") {
            ratio if ratio > 0.0 => break ratio,
            _ => assert!(wait.elapsed().as_secs() < 20, "nothing runs"),
        }
    };
    // At most one sequence's half.
    assert!(ratio <= 0.5, "{ratio}");
    drop(running);
}

#[test]
fn histograms_of_requests() {
    let server = Running::new(engine(&model(), 1), options());
    let body = json!({"prompt": "abc", "max_tokens": 20, "ignore_eos": true});
    std::thread::scope(|scope| (0..3).for_each(|_| drop(scope.spawn(|| server.ask("/v1/completions", &body)))));
    server.ask("/v1/embeddings", &json!({"input": "abc"}));
    let samples = samples(&without_model(&server.get("/metrics").text));
    let whole = samples["gristmill_request_seconds_sum"];
    let queued = samples["gristmill_request_queue_seconds_sum"];
    assert_eq!(samples["gristmill_request_seconds_count"], 4.0);
    assert_eq!(samples["gristmill_request_queue_seconds_count"], 4.0);
    assert!(0.0 < queued && queued < whole, "{queued} of {whole} s");
    let first = samples["gristmill_time_to_first_token_seconds_sum"];
    assert!(first < whole && (queued - samples["gristmill_queue_seconds_total"]).abs() < 1e-6, "{first} of {whole} s");
}

/// Draft tokens in the usage, and by the names of vLLM and ours in the figures.
#[test]
fn draft_tokens_are_counted_by_place() {
    let limits = Limits { context: Some(CONTEXT), batch_tokens: 64, output_rows: Some(3), ..Limits::default() };
    let drafts = Drafts::always(DraftSource::Lookup);
    let engine = Engine::start_with_drafts(model(), drafts, limits).expect("it fits");
    let server = Running::of(
        vec![OfferedModel::loaded("tiny", LoadedModel { draft: 2, ..LoadedModel::from(engine) })],
        Options { vllm_metrics: true, ..options() },
    );
    let body = json!({"prompt": "ab ab ab ab ab ab", "max_tokens": 30, "ignore_eos": true, "temperature": 0});
    let reply = server.ask("/v1/completions", &body);
    let choice = &reply["usage"]["gristmill"]["choices"][0];
    assert_eq!((&choice["draft"], choice.get("draft_off_because")), (&json!("lookup"), None));
    let samples = samples(&without_model(&server.get("/metrics").text));
    let labels = "model_name=\"tiny\",engine=\"0\"";
    let mut accepted = 0.0;
    for place in 0..2 {
        // A place where no token was accepted has no row.
        let ours = samples.get(&format!("gristmill_accepted_tokens_by_place_total{{position=\"{place}\"}}"));
        let name = format!("vllm:spec_decode_num_accepted_tokens_per_pos_total{{{labels},position=\"{place}\"}}");
        assert_eq!(samples.get(&name), ours, "{samples:?}");
        accepted += ours.unwrap_or(&0.0);
    }
    assert_eq!(samples["gristmill_accepted_tokens_total"], accepted);
    assert_eq!(choice["accepted_tokens"].as_f64(), Some(accepted));
    assert!(samples["gristmill_drafts_total"] >= 1.0);
    let off = server.ask("/v1/completions", &json!({"prompt": "ab ab", "max_tokens": 9, "dry_multiplier": 0.8}));
    let choice = &off["usage"]["gristmill"]["choices"][0];
    assert_eq!((&choice["draft"], &choice["draft_off_because"]), (&json!("off"), &json!("DRY")));
    assert_eq!(choice["drafted_tokens"], 0);
}

/// The names of vLLM's own exporter, with its labels.
#[test]
fn names_of_vllm() {
    let server = Running::new(engine(&model(), 2), Options { vllm_metrics: true, ..options() });
    let body = json!({"prompt": "a prompt of more than one block", "max_tokens": 3, "ignore_eos": true});
    (0..2).for_each(|_| drop(server.ask("/v1/completions", &body)));
    let samples = samples(&without_model(&server.get("/metrics").text));
    let labels = "{model_name=\"tiny\",engine=\"0\"}";
    for (theirs, ours) in [
        ("num_requests_running", "requests_running"),
        ("num_requests_waiting", "requests_waiting"),
        ("kv_cache_usage_perc", "kv_cache_usage_ratio"),
        ("prompt_tokens_total", "prompt_tokens_total"),
        ("generation_tokens_total", "generated_tokens_total"),
        ("num_preemptions_total", "preemptions_total"),
        ("spec_decode_num_drafts_total", "drafts_total"),
        ("spec_decode_num_draft_tokens_total", "drafted_tokens_total"),
        ("spec_decode_num_accepted_tokens_total", "accepted_tokens_total"),
        ("prefix_cache_queries_total", "prompt_tokens_total"),
        ("prefix_cache_hits_total", "prompt_tokens_reused_total"),
        ("time_to_first_token_seconds_count", "time_to_first_token_seconds_count"),
        ("inter_token_latency_seconds_count", "time_between_tokens_seconds_count"),
        ("time_per_output_token_seconds_sum", "time_between_tokens_seconds_sum"),
        ("e2e_request_latency_seconds_sum", "request_seconds_sum"),
        ("request_queue_time_seconds_count", "request_queue_seconds_count"),
    ] {
        let theirs = samples.get(&format!("vllm:{theirs}{labels}"));
        assert_eq!(theirs, samples.get(&format!("gristmill_{ours}")), "{ours} in {samples:?}");
        assert!(theirs.is_some(), "{ours} in {samples:?}");
    }
    assert!(samples[&format!("vllm:prefix_cache_hits_total{labels}")] > 0.0, "{samples:?}");
    let success = samples.iter().filter(|(name, _)| name.starts_with("vllm:request_success_total{"));
    let counts: Vec<f64> = ["stop", "length", "abort"]
        .iter()
        .flat_map(|reason| {
            let label = format!("finished_reason=\"{reason}\"");
            success.clone().filter(move |(name, _)| name.contains(&label)).map(|(_, &count)| count)
        })
        .collect();
    assert_eq!(counts, [0.0, 2.0, 0.0]);
    let info = samples.keys().find(|name| name.starts_with("vllm:cache_config_info{")).expect("sizes");
    assert!(info.contains("block_size=\"16\"") && info.contains("num_gpu_blocks=\""), "{info}");
}
