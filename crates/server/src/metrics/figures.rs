//! The engine's statistics, for Prometheus.

use std::fmt::Result;

use gristmill_engine::KvUsage;
use gristmill_engine::engine::{Distribution, Stats, Times};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::PREFIX;

/// Tokens of a block of the KV cache.
pub(super) const BLOCK: usize = gristmill_engine::KV_BLOCK;

/// Blocks of this number of tokens.
pub(super) fn blocks(tokens: usize) -> usize {
    tokens / BLOCK
}

/// The part of the KV cache that sequences have.
pub(super) fn ratio(used: usize, capacity: usize) -> f64 {
    used as f64 / capacity.max(1) as f64
}

/// The figures of one moment.
pub(super) fn registry(stats: Stats) -> Registry {
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(Figures(stats)));
    registry
}

#[derive(Debug)]
struct Figures(Stats);

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result {
        let Stats { waiting, running, kv: KvUsage { used, cached, capacity }, .. } = self.0;
        let free = capacity.saturating_sub(used + cached);
        for (name, help, value) in [
            ("requests_waiting", "Requests that wait for a sequence", waiting),
            ("requests_running", "Sequences in use, of which a request for embeddings has one for each text", running),
            ("kv_cache_used_tokens", "Tokens of the KV cache's blocks that sequences have", used),
            ("kv_cache_prefix_tokens", "Tokens of the KV cache's blocks that only the prefix cache has", cached),
            ("kv_cache_free_tokens", "Tokens of the KV cache's blocks that nothing has", free),
            ("kv_cache_capacity_tokens", "Tokens of all blocks of the KV cache", capacity),
        ] {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            metric.encode_gauge(&(value as u64))?;
        }
        let help = "The part of the KV cache's blocks that sequences have, from 0 to 1";
        let mut metric = encoder.encode_descriptor("kv_cache_usage_ratio", help, None, MetricType::Gauge)?;
        metric.encode_gauge(&ratio(used, capacity))?;
        let help = "Blocks of the KV cache, and tokens of a block; always 1";
        let mut metric = encoder.encode_descriptor("cache_info", help, None, MetricType::Gauge)?;
        let size = [("block_size", BLOCK.to_string()), ("blocks", blocks(capacity).to_string())];
        metric.encode_family(&size)?.encode_gauge(&1u64)?;
        let Times { steps, forward, draw, .. } = self.0.times;
        for (name, help, time) in [
            ("step_seconds", "Seconds of steps", steps),
            ("forward_seconds", "Seconds of forward passes; on a GPU until the device has their work", forward),
            ("draw_seconds", "Seconds of drawing tokens; on a GPU until the device has done its work", draw),
        ] {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            metric.encode_counter::<NoLabelSet, f64, u64>(&time.as_secs_f64(), None)?;
        }
        let help = "Steps that were submitted before the tokens of the previous step were known";
        let mut metric = encoder.encode_descriptor("overlapped_steps", help, None, MetricType::Counter)?;
        metric.encode_counter::<NoLabelSet, u64, u64>(&self.0.overlapped_steps, None)?;
        for (name, help, distribution) in [
            ("step_requests", "Requests in a step", &self.0.step_requests),
            ("step_tokens", "Tokens in a step", &self.0.step_tokens),
        ] {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
            metric.encode_histogram::<NoLabelSet>(
                distribution.sum as f64,
                distribution.count(),
                &buckets(distribution),
                None,
            )?;
        }
        let loads = self.0.experts.iter().filter_map(|load| Some((load.layer, load.imbalance()?)));
        let loads: Vec<(usize, f64)> = loads.collect();
        if !loads.is_empty() {
            let help = "Tokens of a layer's busiest expert over the mean of its experts";
            let mut metric = encoder.encode_descriptor("expert_imbalance", help, None, MetricType::Gauge)?;
            for (layer, imbalance) in loads {
                metric.encode_family(&[("layer", layer.to_string())])?.encode_gauge(&imbalance)?;
            }
        }
        Ok(())
    }
}

/// With the last bucket, which has all.
fn buckets(distribution: &Distribution) -> Vec<(f64, u64)> {
    let bounded = distribution.buckets.iter().map(|&(bound, count)| (bound as f64, count));
    bounded.chain([(f64::INFINITY, 0)]).collect()
}
