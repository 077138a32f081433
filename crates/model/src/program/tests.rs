use std::ops::Range;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::build::build;
use super::node::Node;
use super::scratch::{NEVER, Placed, place};
use super::tensors::Cut;
use super::*;
use crate::ranks::{RankPart, Split, own_spec};
use crate::tiny::{Random, Tiny};
use crate::{ModelInfo, family};

/// The names of a part's nodes.
fn names(part: &Part) -> Vec<String> {
    let name = |node: &Node| format!("{node:?}").split([' ', '(']).next().unwrap_or_default().to_owned();
    part.nodes.iter().map(name).collect()
}

fn program(tiny: &Tiny) -> Program {
    ModelInfo::read(&tiny.file(&mut Random(7))).expect("a good model");
    program_of(tiny)
}

/// The program of a model whose tensors may have bad values.
fn program_of(tiny: &Tiny) -> Program {
    part_of(tiny, &RankPart::WHOLE)
}

/// A rank's part of the program.
fn part_of(tiny: &Tiny, part: &RankPart) -> Program {
    let file = tiny.file(&mut Random(7));
    let spec = family::spec(&family::Source::new(&file)).expect("a good spec");
    build(&own_spec(&spec, &file, part), &spec, &file, part)
}

/// What a backend can run as one launch is one node.
#[test]
fn layers_are_compositions() {
    let of = |tiny: Tiny| names(&program(&tiny).layers[1]);
    assert_eq!(of(Tiny::llama()), ["NormMatmul", "Attend", "Matmul", "NormAct", "GateUp", "Matmul"]);
    assert_eq!(of(Tiny::qwen3moe()), ["NormMatmul", "Attend", "Matmul", "NormMatmul", "Experts"]);
}

/// Each part of a sum is summed once, and what is added to the same rows is summed together.
#[test]
fn parts_of_sums_are_summed_over_ranks() {
    let of = |tiny: Tiny, split| {
        let parts =
            [0, 1].map(|rank| names(&part_of(&tiny, &RankPart { rank, ranks: 2, split, load: None }).layers[1]));
        assert_eq!(parts[0], parts[1], "ranks must make the same sums");
        parts[0].clone()
    };
    let attention = ["NormMatmul", "Attend", "Matmul", "AllReduce", "Add"];
    let mlp = ["NormAct", "GateUp", "Matmul", "AllReduce", "Add"];
    let experts = ["NormMatmul", "Experts", "AllReduce", "Add"];
    assert_eq!(of(Tiny::llama(), Split::Experts), ["NormMatmul", "Attend", "Matmul", "NormAct", "GateUp", "Matmul"]);
    assert_eq!(of(Tiny::llama(), Split::Tensor), [attention, mlp].concat());
    assert_eq!(of(Tiny::qwen3moe(), Split::Experts), [&attention[..3], &experts].concat());
    assert_eq!(of(Tiny::qwen3moe(), Split::Tensor), [&attention[..], &experts].concat());
    // Routed experts and a shared expert.
    let part = RankPart { rank: 0, ranks: 2, split: Split::Experts, load: None };
    let names = names(&part_of(&Tiny::dots1(), &part).layers[2]);
    assert_eq!(names.iter().filter(|name| *name == "AllReduce").count(), 1, "{names:?}");
}

/// The ranks have all experts, heads and columns together, each once.
#[test]
fn ranks_have_disjoint_parts_of_everything_that_is_cut() {
    for (name, tiny) in Tiny::all() {
        for (split, ranks) in [(Split::Experts, 2), (Split::Tensor, 2), (Split::Tensor, 3)] {
            let parts: Vec<Program> =
                (0..ranks).map(|rank| part_of(&tiny, &RankPart { rank, ranks, split, load: None })).collect();
            for at in 0..parts[0].tensors.matrices.len() {
                let cuts = |of: fn(&Cut) -> Option<Range<usize>>| -> Vec<Range<usize>> {
                    let first = parts.iter().filter_map(|part| of(&part.tensors.matrices[at].tensors.first()?.cut));
                    first.collect()
                };
                for cuts in [cuts(|cut| cut.experts.clone()), cuts(|cut| cut.columns.clone())] {
                    let is_joined = cuts.windows(2).all(|pair| pair[0].end == pair[1].start);
                    let is_all = cuts.is_empty() || (cuts.len() == ranks && cuts[0].start == 0);
                    assert!(is_joined && is_all, "{name}, {split} over {ranks}: {cuts:?}");
                }
            }
        }
    }
}

/// The input of a matrix with an order of columns is gathered once, and the activations that only it read are not prepared.
#[test]
fn inputs_are_gathered_for_matrices_with_an_order_of_columns() {
    let mut tiny = Tiny::llama();
    ["attn_q", "attn_k", "attn_v"].iter().for_each(|name| tiny.tensor(&format!("blk.0.{name}.column_order"), &[48]));
    tiny.tensor("blk.0.ffn_down.column_order", &[80]);
    tiny.tensor("blk.1.attn_output.column_order", &[48]);
    let program = program_of(&tiny);
    let attention = ["RmsNorm", "GatherColumns", "Prepare", "Matmul", "Attend", "Matmul"];
    let mlp = ["NormAct", "GateUp", "GatherColumns", "Prepare", "Matmul"];
    assert_eq!(names(&program.layers[1]), [&attention[..], &mlp[..]].concat());
    let attention = ["NormMatmul", "Attend", "GatherColumns", "Prepare", "Matmul"];
    assert_eq!(names(&program.layers[2]), [&attention[..], &["NormAct", "GateUp", "Matmul"]].concat());
    assert_eq!(program.tensors.orders.len(), 3);
    // Experts of a layer with one order, and a router that reads the same input as it is.
    let mut tiny = Tiny::qwen3moe();
    ["ffn_gate_exps", "ffn_up_exps"].iter().for_each(|name| tiny.tensor(&format!("blk.0.{name}.column_order"), &[64]));
    let expected = ["NormMatmul", "Attend", "Matmul", "NormAct", "GatherColumns", "Prepare", "Matmul", "Experts"];
    assert_eq!(names(&program_of(&tiny).layers[1]), expected);
}

/// The activations of a product's input are read by that product; those of the output matrix have no named reader.
#[test]
fn readers_are_named() {
    let program = program(&Tiny::llama());
    for part in &program.layers[1..] {
        for (node, names) in part.nodes.iter().zip(&part.names) {
            assert_eq!(names.len(), node.prepared().acts.len(), "{node:?}");
            assert!(names.iter().all(|(_, readers)| readers.len() == 1), "{node:?}");
        }
    }
    assert!(program.norm.names.iter().all(Vec::is_empty));
}

/// A file with many tensors can name as many layers, but a program has only the layers of which there are tensors.
#[test]
fn a_program_ends_where_tensors_are_missing() {
    let mut tiny = Tiny::llama();
    tiny.set("llama.block_count", 400_u32);
    (0..400).for_each(|i| tiny.tensor(&format!("filler.{i}"), &[1]));
    let file = tiny.file(&mut Random(7));
    let spec = family::spec(&family::Source::new(&file)).expect("a good spec");
    // The embedding, two layers, and the first that lacks tensors.
    assert_eq!((spec.layers.len(), build(&spec, &spec, &file, &RankPart::WHOLE).layers.len()), (400, 4));
    let error = ModelInfo::read(&file).expect_err("tensors are missing").to_string();
    assert!(error.contains("`blk.2.attn_norm.weight`") && error.contains("is missing"), "{error}");
}

/// Spec and program of a model with the layers of Qwen3-30B-A3B take less than 5 ms of loading. The fastest of some runs
/// counts, because other tests run meanwhile.
#[test]
fn a_program_is_built_in_milliseconds() {
    let mut tiny = Tiny::qwen3moe();
    let layer: Vec<_> = tiny.tensors.iter().filter(|(name, ..)| name.starts_with("blk.1.")).cloned().collect();
    for number in 2..48 {
        let named = layer.iter().map(|(name, format, shape)| {
            (name.replacen("blk.1.", &format!("blk.{number}."), 1), *format, shape.clone())
        });
        tiny.tensors.extend(named);
    }
    tiny.set("qwen3moe.block_count", 48_u32);
    let file = tiny.file(&mut Random(7));
    let run = |_| {
        let start = Instant::now();
        let spec = family::spec(&family::Source::new(&file)).expect("a good spec");
        let read = start.elapsed();
        let program = build(&spec, &spec, &file, &RankPart::WHOLE);
        // The embedding precedes the layers.
        assert_eq!(program.layers.len(), 49);
        (start.elapsed(), read)
    };
    let (both, read) = (0..50).map(run).min().expect("some runs");
    println!("spec {read:?}, program {:?}", both - read);
    assert!(both < Duration::from_millis(5), "{both:?}");
}

/// Values of one node never share a buffer, in any program.
#[test]
fn values_of_a_node_have_buffers_of_their_own() {
    for (_, tiny) in Tiny::all() {
        let program = program(&tiny);
        for node in program.parts().flat_map(|part| &part.nodes) {
            let values = node.values();
            for (at, a) in values.rows.iter().enumerate() {
                for b in &values.rows[..at] {
                    let (first, second) = (program.slots.of_rows(*a), program.slots.of_rows(*b));
                    assert!(a == b || first != second, "{node:?}");
                }
            }
        }
    }
}

proptest! {
    /// Values that are live at the same time have different slots, and a slot is as large as its largest value.
    #[test]
    fn places_do_not_overlap(values in prop::collection::vec((0_usize..3, 0_usize..50, 0_usize..20, 0_usize..6), 0..40)) {
        let of = |&(kind, size, first, len): &(usize, usize, usize, usize)| {
            Placed { kind, size, what: "a test", life: (first, first + len) }
        };
        let mut placed: Vec<Placed<usize>> = values.iter().map(of).collect();
        placed.extend(placed.first().map(|one| Placed { life: NEVER, ..*one }));
        let (slot_of, slots) = place(&placed);
        for (at, a) in placed.iter().enumerate().filter(|(_, a)| a.life != NEVER) {
            let slot = &slots[slot_of[at]];
            prop_assert!(slot.kind == a.kind && slot.size >= a.size);
            for (other, b) in placed.iter().enumerate().filter(|(_, b)| b.life != NEVER) {
                let overlap = a.life.0 <= b.life.1 && b.life.0 <= a.life.1;
                prop_assert!(at == other || !overlap || slot_of[at] != slot_of[other]);
            }
        }
        // No more than without sharing.
        prop_assert!(slots.iter().map(|slot| slot.size).sum::<usize>() <= placed.iter().map(|one| one.size).sum());
    }
}
