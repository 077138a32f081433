//! Counters and histograms of each model.

use std::fmt::Result;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use gristmill_engine::Usage;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

/// How requests end: texts as OpenAI names it, the other ways as they are.
pub(super) const OUTCOMES: [&str; 5] = ["stop", "length", "embedded", "cancelled", "error"];
/// The most places of a draft that are counted.
const PLACES: usize = 64;

/// Labels, by name.
pub(super) type Labels = Vec<(&'static str, String)>;

/// A family of figures: its name, its meaning, and the figure of a model.
pub(super) type Row = (&'static str, &'static str, fn(&OfModel) -> &dyn EncodeMetric);

const ROWS: [Row; 14] = [
    ("requests", "Requests that run or wait", |model| &model.requests),
    ("prompt_tokens", "Tokens of the prompts of ended requests", |model| &model.prompt_tokens),
    ("prompt_tokens_reused", "Prompt tokens from the prefix cache", |model| &model.reused_tokens),
    ("generated_tokens", "Tokens generated", |model| &model.generated_tokens),
    ("drafts", "Drafts of ended requests: steps with draft tokens", |model| &model.drafts),
    ("drafted_tokens", "Draft tokens of ended requests", |model| &model.drafted_tokens),
    ("accepted_tokens", "Draft tokens that the model accepted", |model| &model.accepted_tokens),
    (
        "preemptions",
        "Times that ended requests were interrupted because the KV cache was full or for another key",
        |model| &model.preemptions,
    ),
    ("time_to_first_token_seconds", "Seconds from a request to its first token", |model| &model.to_first_token),
    ("time_between_tokens_seconds", "Seconds from one token of a generation to the next", |model| {
        &model.between_tokens
    }),
    ("queue_seconds", "Seconds that ended requests waited for a sequence", |model| &model.queue_seconds),
    ("request_seconds", "Seconds from a request to the end of its reply", |model| &model.whole),
    ("request_queue_seconds", "Seconds that an ended request waited for a sequence", |model| &model.queued),
    ("model_load_seconds", "Seconds of the model's loads", |model| &model.loads),
];

/// Figures of all models.
#[derive(Debug, Clone, Default)]
pub(super) struct OfModels(Arc<Mutex<Vec<OfModel>>>);

/// Figures of one model.
#[derive(Debug, Clone)]
pub(crate) struct OfModel(Arc<Figures>);

/// See [`OfModel`].
#[derive(Debug)]
pub(crate) struct Figures {
    pub(super) name: String,
    pub(super) requests: Gauge,
    pub(super) prompt_tokens: Counter,
    pub(super) reused_tokens: Counter,
    pub(super) generated_tokens: Counter,
    pub(super) drafts: Counter,
    pub(super) drafted_tokens: Counter,
    pub(super) accepted_tokens: Counter,
    pub(super) preemptions: Counter,
    queue_seconds: Counter<f64, AtomicU64>,
    pub(super) to_first_token: Histogram,
    pub(super) between_tokens: Histogram,
    pub(super) whole: Histogram,
    pub(super) queued: Histogram,
    loads: Histogram,
    /// Requests that have ended, by [`OUTCOMES`].
    ended: [AtomicU64; OUTCOMES.len()],
    /// Accepted draft tokens by their place in the draft, and the number of places that were drafted.
    places: [AtomicU64; PLACES],
    drafted_places: AtomicU64,
}

impl OfModels {
    /// The figures of the model with this name, which are new.
    pub(super) fn of(&self, name: &str) -> OfModel {
        // Each starts at this number of seconds and doubles: to 65 s, 1.6 s, 9 minutes, 65 s and 17 minutes.
        let histogram = |first: f64, count: u16| Histogram::new(exponential_buckets(first, 2.0, count));
        let model = OfModel(Arc::new(Figures {
            name: name.to_owned(),
            requests: Gauge::default(),
            prompt_tokens: Counter::default(),
            reused_tokens: Counter::default(),
            generated_tokens: Counter::default(),
            drafts: Counter::default(),
            drafted_tokens: Counter::default(),
            accepted_tokens: Counter::default(),
            preemptions: Counter::default(),
            queue_seconds: Counter::default(),
            to_first_token: histogram(1e-3, 17),
            between_tokens: histogram(1e-4, 15),
            whole: histogram(1e-3, 20),
            queued: histogram(1e-3, 17),
            loads: histogram(1e-3, 21),
            ended: Default::default(),
            places: std::array::from_fn(|_| AtomicU64::new(0)),
            drafted_places: AtomicU64::new(0),
        }));
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(model.clone());
        model
    }

    pub(super) fn all(&self) -> Vec<OfModel> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Deref for OfModel {
    type Target = Figures;

    fn deref(&self) -> &Figures {
        &self.0
    }
}

impl Figures {
    pub(super) fn count(&self, usage: &Usage) {
        self.prompt_tokens.inc_by(usage.prompt_tokens as u64);
        self.reused_tokens.inc_by(usage.reused_tokens as u64);
        self.drafts.inc_by(usage.drafts as u64);
        self.drafted_tokens.inc_by(usage.drafted_tokens as u64);
        for (place, counts) in
            usage.draft_places.iter().take(PLACES).enumerate().filter(|(_, counts)| counts.drafted > 0)
        {
            self.drafted_places.fetch_max(place as u64 + 1, Ordering::Relaxed);
            self.places[place].fetch_add(counts.accepted as u64, Ordering::Relaxed);
        }
        self.accepted_tokens.inc_by(usage.accepted_tokens as u64);
        self.preemptions.inc_by(usage.preemptions as u64);
        self.queue_seconds.inc_by(usage.queue.as_secs_f64());
        self.queued.observe(usage.queue.as_secs_f64());
    }

    /// Counts a request that has ended, by one of [`OUTCOMES`].
    pub(super) fn end(&self, outcome: &'static str) {
        if let Some((_, count)) = OUTCOMES.iter().zip(&self.ended).find(|(name, _)| **name == outcome) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a load that took this number of seconds.
    pub(crate) fn load(&self, seconds: f64) {
        self.loads.observe(seconds);
    }

    /// Requests that have ended, by how.
    pub(super) fn ended(&self) -> impl Iterator<Item = (&'static str, u64)> {
        OUTCOMES.into_iter().zip(self.ended.iter().map(|count| count.load(Ordering::Relaxed)))
    }

    /// Accepted draft tokens, by their place in the draft.
    pub(super) fn places(&self) -> impl Iterator<Item = (usize, u64)> {
        let places = self.drafted_places.load(Ordering::Relaxed) as usize;
        self.places.iter().take(places).map(|count| count.load(Ordering::Relaxed)).enumerate()
    }
}

impl Collector for OfModels {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result {
        let models = self.all();
        let labels = |model: &OfModel| vec![("model", model.name.clone())];
        write_rows(&mut encoder, &models, &ROWS, labels)?;
        let ended =
            |model: &OfModel| model.ended().map(|(outcome, count)| ("outcome", outcome.to_owned(), count)).collect();
        write_counts(&mut encoder, &models, ("ended_requests", "Requests that have ended, by how"), labels, ended)?;
        let places =
            |model: &OfModel| model.places().map(|(place, count)| ("position", place.to_string(), count)).collect();
        let help = "Draft tokens that the model accepted, by their place in the draft, the first at 0";
        write_counts(&mut encoder, &models, ("accepted_tokens_by_place", help), labels, places)
    }
}

/// Writes families, each with the figure of each model.
pub(super) fn write_rows(
    encoder: &mut DescriptorEncoder,
    models: &[OfModel],
    rows: &[Row],
    labels: impl Fn(&OfModel) -> Labels,
) -> Result {
    let Some(first) = models.first() else { return Ok(()) };
    for (name, help, figure) in rows {
        let mut family = encoder.encode_descriptor(name, help, None, figure(first).metric_type())?;
        for model in models {
            figure(model).encode(family.encode_family(&labels(model))?)?;
        }
    }
    Ok(())
}

/// Writes a family of counters, with several counters of each model that a further label distinguishes.
pub(super) fn write_counts(
    encoder: &mut DescriptorEncoder,
    models: &[OfModel],
    (name, help): (&str, &str),
    labels: impl Fn(&OfModel) -> Labels,
    counts: impl Fn(&OfModel) -> Vec<(&'static str, String, u64)>,
) -> Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for model in models {
        for (label, value, count) in counts(model) {
            let mut labels = labels(model);
            labels.push((label, value));
            family.encode_family(&labels)?.encode_counter::<NoLabelSet, u64, u64>(&count, None)?;
        }
    }
    Ok(())
}
