//! The engine's statistics, for Prometheus.

use std::fmt::Result;
use std::time::Duration;

use gristmill_engine::KvUsage;
use gristmill_engine::{Distribution, Stats};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::of_model::Labels;

/// The prefix of the names of all metrics.
pub(super) const PREFIX: &str = "gristmill";

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

/// The figures of one moment, by the names of models.
pub(super) fn registry(stats: Vec<(String, Stats)>) -> Registry {
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(Figures(stats)));
    registry
}

#[derive(Debug)]
struct Figures(Vec<(String, Stats)>);

/// A family: its name, its meaning, and the value of an engine.
type Row<T> = (&'static str, &'static str, fn(&Stats) -> T);

const GAUGES: [Row<usize>; 6] = [
    ("requests_waiting", "Requests that wait for a sequence", |stats| stats.waiting),
    ("requests_running", "Sequences in use, of which a request for embeddings has one for each text", |stats| {
        stats.running
    }),
    ("kv_cache_used_tokens", "Tokens of the KV cache's blocks that sequences have", |stats| stats.kv.used),
    ("kv_cache_prefix_tokens", "Tokens of the KV cache's blocks that only the prefix cache has", |stats| {
        stats.kv.cached
    }),
    ("kv_cache_free_tokens", "Tokens of the KV cache's blocks that nothing has", |stats| {
        let KvUsage { used, cached, capacity } = stats.kv;
        capacity.saturating_sub(used + cached)
    }),
    ("kv_cache_capacity_tokens", "Tokens of all blocks of the KV cache", |stats| stats.kv.capacity),
];

const SECONDS: [Row<Duration>; 3] = [
    ("step_seconds", "Seconds of steps", |stats| stats.times.steps),
    ("forward_seconds", "Seconds of forward passes; on a GPU until the device has their work", |stats| {
        stats.times.forward
    }),
    ("draw_seconds", "Seconds of drawing tokens; on a GPU until the device has done its work", |stats| {
        stats.times.draw
    }),
];

/// Families without a value for an engine are left out.
const COUNTS: [Row<Option<u64>>; 6] = [
    ("overlapped_steps", "Steps that were submitted before the tokens of the previous step were known", |stats| {
        Some(stats.overlapped_steps)
    }),
    ("expert_slot_hits", "Choices of routers whose expert was in a slot", |stats| Some(stats.slots?.hits)),
    ("expert_slot_misses", "Choices of routers whose expert was in no slot", |stats| Some(stats.slots?.misses)),
    ("expert_slot_insertions", "Experts that were copied to slots", |stats| Some(stats.slots?.insertions)),
    ("expert_read_bytes", "Bytes of experts that were read from the model's file", |stats| {
        Some(stats.slots?.read_bytes)
    }),
    ("expert_slot_freed_bytes", "Bytes of slots that were freed, because the GPU's memory was too little", |stats| {
        Some(stats.slots?.freed_bytes)
    }),
];

const DISTRIBUTIONS: [Row<Distribution>; 2] = [
    ("step_requests", "Requests in a step", |stats| stats.step_requests.clone()),
    ("step_tokens", "Tokens in a step", |stats| stats.step_tokens.clone()),
];

/// The label of a model.
fn label(model: &str) -> Labels {
    vec![("model", model.to_owned())]
}

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result {
        for (name, help, value) in GAUGES {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (model, stats) in &self.0 {
                family.encode_family(&label(model))?.encode_gauge(&(value(stats) as u64))?;
            }
        }
        let help = "The part of the KV cache's blocks that sequences have, from 0 to 1";
        let mut family = encoder.encode_descriptor("kv_cache_usage_ratio", help, None, MetricType::Gauge)?;
        for (model, stats) in &self.0 {
            family.encode_family(&label(model))?.encode_gauge(&ratio(stats.kv.used, stats.kv.capacity))?;
        }
        let help = "Blocks of the KV cache, and tokens of a block; always 1";
        let mut family = encoder.encode_descriptor("cache_info", help, None, MetricType::Gauge)?;
        for (model, stats) in &self.0 {
            let size = [("block_size", BLOCK.to_string()), ("blocks", blocks(stats.kv.capacity).to_string())];
            let labels: Labels = label(model).into_iter().chain(size).collect();
            family.encode_family(&labels)?.encode_gauge(&1u64)?;
        }
        for (name, help, time) in SECONDS {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (model, stats) in &self.0 {
                let seconds = time(stats).as_secs_f64();
                family.encode_family(&label(model))?.encode_counter::<NoLabelSet, f64, u64>(&seconds, None)?;
            }
        }
        for (name, help, count) in COUNTS {
            let counted: Vec<_> = self.0.iter().filter_map(|(model, stats)| Some((model, count(stats)?))).collect();
            if counted.is_empty() {
                continue;
            }
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (model, count) in counted {
                family.encode_family(&label(model))?.encode_counter::<NoLabelSet, u64, u64>(&count, None)?;
            }
        }
        for (name, help, distribution) in DISTRIBUTIONS {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
            for (model, stats) in &self.0 {
                let distribution = distribution(stats);
                let sum = distribution.sum as f64;
                let count = distribution.count();
                let labels = label(model);
                let mut metric = family.encode_family(&labels)?;
                metric.encode_histogram::<NoLabelSet>(sum, count, &buckets(&distribution), None)?;
            }
        }
        self.experts(&mut encoder)
    }
}

impl Figures {
    fn experts(&self, encoder: &mut DescriptorEncoder) -> Result {
        let of_model = |(model, stats): &(String, Stats)| {
            let loads = stats.experts.iter().filter_map(|load| Some((load.layer, load.imbalance()?)));
            loads.map(|(layer, imbalance)| (model.clone(), layer, imbalance)).collect::<Vec<_>>()
        };
        let loads: Vec<(String, usize, f64)> = self.0.iter().flat_map(of_model).collect();
        if loads.is_empty() {
            return Ok(());
        }
        let help = "Tokens of a layer's busiest expert over the mean of its experts";
        let mut family = encoder.encode_descriptor("expert_imbalance", help, None, MetricType::Gauge)?;
        for (model, layer, imbalance) in loads {
            family.encode_family(&[("model", model), ("layer", layer.to_string())])?.encode_gauge(&imbalance)?;
        }
        Ok(())
    }
}

/// With the last bucket, which has all.
fn buckets(distribution: &Distribution) -> Vec<(f64, u64)> {
    let bounded = distribution.buckets.iter().map(|&(bound, count)| (bound as f64, count));
    bounded.chain([(f64::INFINITY, 0)]).collect()
}
