//! The same figures by the names of vLLM, for dashboards and for routers that know those.

use std::fmt::Result;

use gristmill_engine::KvUsage;
use gristmill_engine::Stats;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::figures::{BLOCK, blocks};
use super::of_model::{Labels, OfModel, OfModels, Row, write_counts, write_rows};

const ROWS: [Row; 13] = [
    ("vllm:prompt_tokens", "Tokens of prompts", |model| &model.prompt_tokens),
    ("vllm:generation_tokens", "Tokens generated", |model| &model.generated_tokens),
    ("vllm:num_preemptions", "Interruptions because the KV cache was full or for another key", |model| {
        &model.preemptions
    }),
    ("vllm:spec_decode_num_drafts", "Drafts", |model| &model.drafts),
    ("vllm:spec_decode_num_draft_tokens", "Draft tokens", |model| &model.drafted_tokens),
    ("vllm:spec_decode_num_accepted_tokens", "Draft tokens that were accepted", |model| &model.accepted_tokens),
    ("vllm:prefix_cache_queries", "Prompt tokens that were looked for in the prefix cache", |model| {
        &model.prompt_tokens
    }),
    ("vllm:prefix_cache_hits", "Prompt tokens that were in the prefix cache", |model| &model.reused_tokens),
    ("vllm:time_to_first_token_seconds", "Seconds to the first token", |model| &model.to_first_token),
    ("vllm:inter_token_latency_seconds", "Seconds from one token to the next", |model| &model.between_tokens),
    ("vllm:time_per_output_token_seconds", "Seconds from one token to the next", |model| &model.between_tokens),
    ("vllm:e2e_request_latency_seconds", "Seconds of whole requests", |model| &model.whole),
    ("vllm:request_queue_time_seconds", "Seconds that requests waited", |model| &model.queued),
];

/// What vLLM calls the end of a request; ends by errors are no successes there.
fn finished_reasons(model: &OfModel) -> Vec<(&'static str, String, u64)> {
    let count =
        |outcomes: &[&str]| model.ended().filter(|(name, _)| outcomes.contains(name)).map(|(_, count)| count).sum();
    let reasons: [(&str, &[&str]); 3] =
        [("stop", &["stop", "embedded"]), ("length", &["length"]), ("abort", &["cancelled"])];
    reasons.map(|(reason, outcomes)| ("finished_reason", reason.to_owned(), count(outcomes))).to_vec()
}

/// The labels that each of vLLM's figures has.
fn labels(model: &str) -> Labels {
    vec![("model_name", model.to_owned()), ("engine", "0".to_owned())]
}

/// The server's counters and histograms.
pub(super) fn registry(models: &OfModels) -> Registry {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Counters(models.clone())));
    registry
}

/// The engines' figures of one moment, by the names of their models.
pub(super) fn moment(stats: Vec<(String, Stats)>) -> Registry {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Moment(stats)));
    registry
}

#[derive(Debug)]
struct Counters(OfModels);

impl Collector for Counters {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result {
        let models = self.0.all();
        let labels = |model: &OfModel| labels(&model.name);
        write_rows(&mut encoder, &models, &ROWS, labels)?;
        let help = "Draft tokens that were accepted, by their place in the draft";
        let name = "vllm:spec_decode_num_accepted_tokens_per_pos";
        let places =
            |model: &OfModel| model.places().map(|(place, count)| ("position", place.to_string(), count)).collect();
        write_counts(&mut encoder, &models, (name, help), labels, places)?;
        let success = ("vllm:request_success", "Requests that have ended, by how");
        write_counts(&mut encoder, &models, success, labels, finished_reasons)
    }
}

#[derive(Debug)]
struct Moment(Vec<(String, Stats)>);

/// A family of gauges: its name, its meaning, and the value of an engine.
type Gauge = (&'static str, &'static str, fn(&Stats) -> f64);

const GAUGES: [Gauge; 3] = [
    ("vllm:num_requests_running", "Requests that run", |stats| stats.running as f64),
    ("vllm:num_requests_waiting", "Requests that wait", |stats| stats.waiting as f64),
    ("vllm:kv_cache_usage_perc", "The used part of the KV cache, from 0 to 1", |stats| {
        let KvUsage { used, capacity, .. } = stats.kv;
        super::figures::ratio(used, capacity)
    }),
];

impl Collector for Moment {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result {
        for (name, help, value) in GAUGES {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (model, stats) in &self.0 {
                family.encode_family(&labels(model))?.encode_gauge(&value(stats))?;
            }
        }
        let help = "Blocks of the KV cache";
        let mut family = encoder.encode_descriptor("vllm:cache_config_info", help, None, MetricType::Gauge)?;
        for (model, stats) in &self.0 {
            let blocks = blocks(stats.kv.capacity).to_string();
            let size = [("block_size", BLOCK.to_string()), ("num_gpu_blocks", blocks)];
            let labels: Labels = labels(model).into_iter().chain(size).collect();
            family.encode_family(&labels)?.encode_gauge(&1u64)?;
        }
        Ok(())
    }
}
