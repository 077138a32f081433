//! Weights, activations and dense products.

use super::common::*;
use crate::weights::tensor;
use gristmill_kernels::reference::Reference;
use gristmill_kernels::tensor::{Buffer, SharedBytes};
use gristmill_kernels::weight::{Role, Weight};
use std::slice::from_ref;

/// [`Backend::prepare`], dense products of activations of both precisions, and embedding.
pub fn matrices(suite: &Suite) {
    prepare(suite);
    let weights = Weights::new(suite);
    for precision in PRECISIONS {
        let operands = Operands::new(suite, precision);
        matmul(suite, &weights, &operands);
        matmul_rows(suite, &weights, &operands);
        gate_up(suite, &weights, &operands);
        let x = ones(suite.backend(), 5, 64);
        let mut small = suite.backend().alloc_act(precision, 4, 64).expect("alloc_act");
        let result = suite.backend().run(PrepareActivations { x: x.view(), act: &mut small });
        expect(suite, "prepare_activations: capacity", Kind::Shape, result);
    }
    embed(suite, &weights);
}

fn prepare(suite: &Suite) {
    let b = suite.backend();
    let rng = &mut suite.rng("refuse");
    let prepare = |tensors: &[TensorView], role| b.prepare(tensors, role);
    let dense = tensor(rng, Format::Q8_0, 1, 20, 64);
    let other = tensor(rng, Format::Q8_0, 1, 20, 32);
    let expert = tensor(rng, Format::Q8_0, 3, 20, 64);
    let short = TensorView { bytes: SharedBytes::from(dense.bytes.as_slice()[1..].to_vec()), ..dense.clone() };
    let ragged = TensorView { cols: 63, ..dense.clone() };
    let huge = TensorView { rows: usize::MAX / 2, cols: 1 << 40, ..dense.clone() };
    let none = TensorView { rows: 0, bytes: SharedBytes::from(vec![]), ..dense.clone() };
    expect(suite, "prepare: a byte short", Kind::Bytes, prepare(&[short], Role::Matrix));
    expect(suite, "prepare: broken blocks", Kind::Bytes, prepare(&[ragged], Role::Matrix));
    expect(suite, "prepare: overflow", Kind::Bytes, prepare(&[huge], Role::Matrix));
    expect(suite, "prepare: no rows", Kind::Bytes, prepare(&[none], Role::Table));
    expect(suite, "prepare: nothing", Kind::Range, prepare(&[], Role::Matrix));
    expect(suite, "prepare: other columns", Kind::Shape, prepare(&[dense.clone(), other], Role::Matrix));
    expect(suite, "prepare: other experts", Kind::Shape, prepare(&[dense.clone(), expert.clone()], Role::Matrix));
    expect(suite, "prepare: half a pair", Kind::Shape, prepare(from_ref(&dense), Role::GateUp));
    let two = [dense.clone(), dense.clone()];
    expect(suite, "prepare: two up matrices", Kind::Shape, prepare(&two, Role::Up));
    let narrow = tensor(rng, Format::Q8_0, 1, 19, 64);
    expect(suite, "prepare: unlike halves", Kind::Shape, prepare(&[dense.clone(), narrow], Role::GateUp));
    expect(suite, "prepare: table of experts", Kind::Shape, prepare(from_ref(&expert), Role::Table));
    expect(suite, "prepare: tied experts", Kind::Shape, prepare(from_ref(&expert), Role::Tied));
    expect(suite, "prepare: two tied", Kind::Shape, prepare(&[dense.clone(), dense.clone()], Role::Tied));
    expect(suite, "prepare: two tables", Kind::Shape, prepare(&[dense.clone(), dense.clone()], Role::Table));
}

/// Weights of 20 × 64 in every role, with three experts, and by another backend.
pub(super) struct Weights {
    pub(super) matrix: Weight,
    pub(super) table: Weight,
    pub(super) pair: Weight,
    pub(super) up: Weight,
    pub(super) experts: Weight,
    pub(super) pairs: Weight,
    pub(super) foreign: Weight,
}

impl Weights {
    pub(super) fn new(suite: &Suite) -> Self {
        let rng = &mut suite.rng("refuse weights");
        let [dense, expert] = [1, 3].map(|experts| tensor(rng, Format::Q8_0, experts, 20, 64));
        let prepare = |tensors: &[TensorView], role| suite.backend().prepare(tensors, role).expect("prepare");
        Self {
            matrix: prepare(from_ref(&dense), Role::Matrix),
            table: prepare(from_ref(&dense), Role::Table),
            pair: prepare(&[dense.clone(), dense.clone()], Role::GateUp),
            up: prepare(from_ref(&dense), Role::Up),
            experts: prepare(from_ref(&expert), Role::Matrix),
            pairs: prepare(&[expert.clone(), expert], Role::GateUp),
            foreign: Reference::backend().prepare(&[dense], Role::Matrix).expect("prepare"),
        }
    }
}

/// Four rows of 64 activations, four of 32, and a bias that is one too long.
pub(super) struct Operands {
    pub(super) act: Act,
    pub(super) narrow: Act,
    pub(super) bias: Buffer<f32>,
}

impl Operands {
    pub(super) fn new(suite: &Suite, precision: Precision) -> Self {
        let b = suite.backend();
        let rng = &mut suite.rng("refuse operands");
        let [act, narrow] = [64, 32].map(|cols| activations(b, precision, &rng.normals(4 * cols), 4, cols));
        Self { act, narrow, bias: buffer(b, &rng.normals(21)) }
    }
}

fn matmul(suite: &Suite, weights: &Weights, Operands { act, narrow, bias }: &Operands) {
    let b = suite.backend();
    let Weights { matrix, table, experts, foreign, .. } = weights;
    refused(suite, "matmul: rows", Kind::Shape, (5, 20), |b, y| b.run(Matmul::new(matrix, act, y.view_mut())));
    refused(suite, "matmul: columns", Kind::Shape, (4, 19), |b, y| b.run(Matmul::new(matrix, act, y.view_mut())));
    refused(suite, "matmul: inputs", Kind::Shape, (4, 20), |b, y| b.run(Matmul::new(matrix, narrow, y.view_mut())));
    refused(suite, "matmul: bias", Kind::Shape, (4, 20), |b, y| {
        b.run(Matmul { bias: Some(bias), ..Matmul::new(matrix, act, y.view_mut()) })
    });
    refused(suite, "matmul: table", Kind::Range, (4, 20), |b, y| b.run(Matmul::new(table, act, y.view_mut())));
    refused(suite, "matmul: experts", Kind::Range, (4, 20), |b, y| b.run(Matmul::new(experts, act, y.view_mut())));
    if b.name() != "reference" {
        let case = "matmul: another backend's layout";
        let kind = if b.device() == DeviceId::Cpu { Kind::Layout } else { Kind::Foreign };
        refused(suite, case, kind, (4, 20), |b, y| b.run(Matmul::new(foreign, act, y.view_mut())));
    }
}

fn matmul_rows(suite: &Suite, Weights { matrix, .. }: &Weights, Operands { act, .. }: &Operands) {
    let b = suite.backend();
    let (good, far) = (ids(b, &[0, 3]), ids(b, &[0, 4]));
    let wide = Guarded::of(b, &[0_u32, 1, 2, 3], 2, 2, Guard::ODD);
    let rows = |ids: &Guarded<u32>, y: &mut Guarded<f32>| {
        b.run(Matmul { rows: Some(ids.view()), ..Matmul::new(matrix, act, y.view_mut()) })
    };
    refused(suite, "matmul_rows: id", Kind::Id, (2, 20), |_, y| rows(&far, y));
    refused(suite, "matmul_rows: count", Kind::Shape, (3, 20), |_, y| rows(&good, y));
    refused(suite, "matmul_rows: two columns", Kind::Shape, (2, 20), |_, y| rows(&wide, y));
    refused(suite, "matmul_rows: columns", Kind::Shape, (2, 21), |_, y| rows(&good, y));
}

fn gate_up(suite: &Suite, weights: &Weights, Operands { act, narrow, bias }: &Operands) {
    let b = suite.backend();
    let Weights { matrix, pair, pairs, up, .. } = weights;
    let gate_up = |w, x, h: &mut Guarded<f32>| {
        b.run(GateUp { weight: w, x, bias: None, activation: Activation::SwiGlu, h: h.view_mut() })
    };
    refused(suite, "gate_up: a matrix", Kind::Range, (4, 20), |_, h| gate_up(matrix, act, h));
    refused(suite, "gate_up: experts", Kind::Range, (4, 20), |_, h| gate_up(pairs, act, h));
    refused(suite, "gate_up: both halves", Kind::Shape, (4, 40), |_, h| gate_up(pair, act, h));
    refused(suite, "gate_up: rows", Kind::Shape, (3, 20), |_, h| gate_up(pair, act, h));
    refused(suite, "gate_up: inputs", Kind::Shape, (4, 20), |_, h| gate_up(pair, narrow, h));
    refused(suite, "gate_up: bias", Kind::Shape, (4, 20), |b, h| {
        b.run(GateUp {
            weight: pair,
            x: act,
            bias: Some([bias, bias]),
            activation: Activation::SwiGlu,
            h: h.view_mut(),
        })
    });
    let without_gate = |weight: &Weight, bias: Option<[&Buffer<f32>; 2]>, h: &mut Guarded<f32>| {
        b.run(GateUp { weight, x: act, bias, activation: Activation::SquaredRelu, h: h.view_mut() })
    };
    refused(suite, "gate_up: no gate", Kind::Range, (4, 20), |_, h| gate_up(up, act, h));
    refused(suite, "gate_up: a matrix without gate", Kind::Range, (4, 20), |_, h| without_gate(matrix, None, h));
    refused(suite, "gate_up: a gate that is not used", Kind::Range, (4, 20), |_, h| without_gate(pair, None, h));
    let of_up = buffer(b, &[0.0; 20]);
    refused(suite, "gate_up: biases without gate", Kind::Range, (4, 20), |_, h| {
        without_gate(up, Some([&of_up, &of_up]), h)
    });
    for unbounded in [Activation::ClampedSwiGlu { alpha: 1.0, limit: -1.0 }, Activation::LimitedSwiGlu { limit: 0.0 }] {
        refused(suite, "gate_up: limit", Kind::Range, (4, 20), |b, h| {
            b.run(GateUp { weight: pair, x: act, bias: None, activation: unbounded, h: h.view_mut() })
        });
    }
}

fn embed(suite: &Suite, Weights { matrix, table, .. }: &Weights) {
    let b = suite.backend();
    let (far, good) = (ids(b, &[0, 20]), ids(b, &[0, 19]));
    refused(suite, "embed: id", Kind::Id, (2, 64), |b, y| {
        b.run(Embed { table, rows: far.view(), scale: 1.0, out: y.view_mut() })
    });
    let padding = ids(b, &[u32::MAX]);
    let embed = |y: &mut Guarded<f32>| b.run(Embed { table, rows: padding.view(), scale: 1.0, out: y.view_mut() });
    if b.device() == DeviceId::Cpu {
        refused(suite, "embed: padding", Kind::Id, (1, 64), |_, y| embed(y));
    } else {
        // A captured step has rows past its last token: they read nothing and are no error.
        let mut y = Guarded::poisoned(b, 1, 64, Guard::ODD);
        embed(&mut y).expect("padding");
        assert!(y.read(b).iter().all(|&y| y == 0.0), "the row of padding is not zero");
    }
    refused(suite, "embed: count", Kind::Shape, (3, 64), |b, y| {
        b.run(Embed { table, rows: good.view(), scale: 1.0, out: y.view_mut() })
    });
    refused(suite, "embed: columns", Kind::Shape, (2, 63), |b, y| {
        b.run(Embed { table, rows: good.view(), scale: 1.0, out: y.view_mut() })
    });
    refused(suite, "embed: a matrix", Kind::Range, (2, 64), |b, y| {
        b.run(Embed { table: matrix, rows: good.view(), scale: 1.0, out: y.view_mut() })
    });
}
