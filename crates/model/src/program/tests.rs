use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::build::build;
use super::node::Node;
use super::scratch::{NEVER, Placed, place};
use super::*;
use crate::{ModelInfo, family};
use tiny::{Random, Tiny};

#[allow(dead_code)]
#[path = "../../tests/model/tiny.rs"]
mod tiny;

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
    let file = tiny.file(&mut Random(7));
    build(&family::spec(&family::Source::new(&file)).expect("a good spec"), &file)
}

/// What a backend can run as one launch is one node.
#[test]
fn layers_are_compositions() {
    let of = |tiny: Tiny| names(&program(&tiny).layers[1]);
    assert_eq!(of(Tiny::llama()), ["NormMatmul", "Attend", "Matmul", "NormAct", "GateUp", "Matmul"]);
    assert_eq!(of(Tiny::qwen3moe()), ["NormMatmul", "Attend", "Matmul", "NormMatmul", "Experts"]);
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
    assert_eq!((spec.layers.len(), build(&spec, &file).layers.len()), (400, 4));
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
        let program = build(&spec, &file);
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
