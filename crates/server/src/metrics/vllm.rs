//! The same figures by the names of vLLM, for dashboards and for routers that know those.

use std::fmt::Result;

use gristmill_engine::KvUsage;
use gristmill_engine::engine::Stats;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::figures::{BLOCK, blocks};
use super::{Metrics, Outcome};

/// What vLLM calls the end of a request; ends by errors are no successes there.
pub(super) fn finished_reason(outcome: &str) -> Option<&'static str> {
    match outcome {
        "stop" | "embedded" => Some("stop"),
        "length" => Some("length"),
        "cancelled" => Some("abort"),
        _ => None,
    }
}

/// The labels that each of vLLM's figures has.
fn labels(model: &str) -> [(&'static str, String); 2] {
    [("model_name", model.to_owned()), ("engine", "0".to_owned())]
}

/// The server's counters and histograms.
pub(super) fn registry(metrics: &Metrics, model: &str, ended: &Family<Outcome, Counter>) -> Registry {
    let labels = labels(model).map(|(name, value)| (name.into(), value.into()));
    let mut registry = Registry::with_labels(labels.into_iter());
    for (name, help, counter) in [
        ("vllm:prompt_tokens", "Tokens of prompts", &metrics.prompt_tokens),
        ("vllm:generation_tokens", "Tokens generated", &metrics.generated_tokens),
        ("vllm:num_preemptions", "Interruptions because the KV cache was full", &metrics.preemptions),
        ("vllm:spec_decode_num_drafts", "Drafts", &metrics.drafts),
        ("vllm:spec_decode_num_draft_tokens", "Draft tokens", &metrics.drafted_tokens),
        ("vllm:spec_decode_num_accepted_tokens", "Draft tokens that were accepted", &metrics.accepted_tokens),
        ("vllm:prefix_cache_queries", "Prompt tokens that were looked for in the prefix cache", &metrics.prompt_tokens),
        ("vllm:prefix_cache_hits", "Prompt tokens that were in the prefix cache", &metrics.reused_tokens),
    ] {
        registry.register(name, help, counter.clone());
    }
    let help = "Draft tokens that were accepted, by their place in the draft";
    let name = "vllm:spec_decode_num_accepted_tokens_per_pos";
    registry.register(name, help, metrics.accepted_by_place.clone());
    registry.register("vllm:request_success", "Requests that have ended, by how", ended.clone());
    for (name, help, histogram) in [
        ("vllm:time_to_first_token_seconds", "Seconds to the first token", &metrics.to_first_token),
        ("vllm:inter_token_latency_seconds", "Seconds from one token to the next", &metrics.between_tokens),
        ("vllm:time_per_output_token_seconds", "Seconds from one token to the next", &metrics.between_tokens),
        ("vllm:e2e_request_latency_seconds", "Seconds of whole requests", &metrics.whole),
        ("vllm:request_queue_time_seconds", "Seconds that requests waited", &metrics.queued),
    ] {
        registry.register(name, help, histogram.clone());
    }
    registry
}

/// The engine's figures of one moment.
#[derive(Debug)]
pub(super) struct Moment {
    pub(super) stats: Stats,
    pub(super) model: String,
}

impl Collector for Moment {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result {
        let Stats { waiting, running, kv: KvUsage { used, capacity, .. }, .. } = self.stats;
        for (name, help, value) in [
            ("vllm:num_requests_running", "Requests that run", running as f64),
            ("vllm:num_requests_waiting", "Requests that wait", waiting as f64),
            (
                "vllm:kv_cache_usage_perc",
                "The used part of the KV cache, from 0 to 1",
                super::figures::ratio(used, capacity),
            ),
        ] {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            metric.encode_family(&labels(&self.model))?.encode_gauge(&value)?;
        }
        let help = "Blocks of the KV cache";
        let mut metric = encoder.encode_descriptor("vllm:cache_config_info", help, None, MetricType::Gauge)?;
        let size = [("block_size", BLOCK.to_string()), ("num_gpu_blocks", blocks(capacity).to_string())];
        let all: Vec<(&str, String)> = labels(&self.model).into_iter().chain(size).collect();
        metric.encode_family(&all)?.encode_gauge(&1u64)
    }
}
