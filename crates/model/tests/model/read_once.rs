//! The vocabulary of a file, which can take longer than the rest, is read once, wherever experts are placed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gristmill_model::gguf::GgufFile;
use gristmill_model::{ExpertPlacement, Limits, LoadOptions, Model, ModelInfo, PlacementNote, Plan, Precision};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Counts the events of this name.
struct Count(&'static str, Arc<AtomicUsize>);

impl Subscriber for Count {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        if event.metadata().target() == self.0 {
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn a_model_that_is_placed_reads_its_vocabulary_once() {
    let path = crate::disk::path("qwen3moe-q4_k_m");
    let file = GgufFile::open(&path).unwrap();
    let mut info = ModelInfo::read(&file).unwrap();
    let limits = Limits { context: Some(64), batch_tokens: 8, ..Limits::default() };
    let backend = crate::disk::cpu();
    let total = |info: &ModelInfo| Plan::new(info, &limits, Precision::Fast, &backend).unwrap().total();
    let all = total(&info);
    info.place(&file, ExpertPlacement::disk(1)).unwrap();
    let memory = total(&info);
    assert!(memory < all, "{memory} {all}");

    let options = LoadOptions { device: "cpu".to_owned(), cpu_memory: Some(memory), ..LoadOptions::default() };
    let reads = Arc::new(AtomicUsize::new(0));
    let opened = tracing::subscriber::with_default(Count("gristmill_model::vocabulary", reads.clone()), || {
        Model::open_for(&path, options, limits)
    });
    let (model, _, notes) = opened.unwrap();
    assert_eq!(model.experts(), ExpertPlacement::disk(1));
    assert!(matches!(notes[..], [PlacementNote::Experts(experts)] if experts == model.experts()), "{notes:?}");
    assert_eq!(reads.load(Ordering::Relaxed), 1);
}
