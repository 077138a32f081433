//! Models that are split over devices: requests alone and together, with forks, prefixes, rejected drafts and preemption.

use std::sync::Arc;

use gristmill_engine::model::Split;
use gristmill_engine::{LoadOptions, Model};
use gristmill_kernels::kv::KvFormat;
use gristmill_kernels::reference::Reference;

use super::preemption::{LONG, check};
use super::speech;
use super::tiny::{Random, Tiny};

fn on_ranks(mut tiny: Tiny, ranks: usize, split: Split) -> Arc<Model> {
    speech::teach(&mut tiny);
    let backends = (0..ranks).map(|_| Arc::new(Reference::backend())).collect();
    let options = LoadOptions { split: Some(split), ..LoadOptions::default() };
    let file = tiny.file(&mut Random::fresh());
    Arc::new(Model::with_backends(file, backends, options).expect("a good model"))
}

#[test]
fn few_blocks_change_no_result_on_ranks() {
    let cases = [
        (Tiny::qwen3moe(), 3, Split::Experts),
        (Tiny::llama(), 2, Split::Tensor),
        (Tiny::lfm2(), 2, Split::Tensor),
        (Tiny::llama(), 2, Split::Layers),
    ];
    for (tiny, ranks, split) in cases {
        check(&on_ranks(tiny, ranks, split), 6, LONG + 20, KvFormat::F16, 12);
    }
}
