//! What must be refused: the right error, and nothing written.

use super::*;
use crate::framed::{Element, buffer};
use crate::weights::tensor;
use gristmill_kernels::Error;
use gristmill_kernels::kv::{KV_BLOCK, KvFormat, KvSpec, Placement};
use gristmill_kernels::tensor::{DeviceId, SharedBytes};
use gristmill_kernels::weight::Role;
use std::slice::from_ref;

/// The variants that calls are refused with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    View,
    Shape,
    Range,
    Id,
    Bytes,
    Foreign,
    Layout,
    OutOfMemory,
}

fn kind_of(error: &Error) -> Option<Kind> {
    match error {
        Error::View { .. } => Some(Kind::View),
        Error::Shape { .. } | Error::TooSmall { .. } => Some(Kind::Shape),
        Error::ForeignLayout { .. } => Some(Kind::Layout),
        Error::Range { .. } => Some(Kind::Range),
        Error::Id { .. } => Some(Kind::Id),
        Error::Bytes { .. } => Some(Kind::Bytes),
        Error::ForeignBuffer { .. } => Some(Kind::Foreign),
        Error::OutOfMemory { .. } => Some(Kind::OutOfMemory),
        _ => None,
    }
}

/// Fails unless a call was refused for this kind of reason, in words. A GPU finds ids in its own memory: it accepts the
/// call, and the next download says what was wrong.
fn expect<T>(suite: &Suite, case: &str, kind: Kind, result: gristmill_kernels::Result<T>) {
    let result = match result {
        Ok(_) if kind == Kind::Id => {
            buffer(suite.backend(), &[0_u32]).view(1, 1).and_then(|word| suite.backend().download(word, &mut [0]))
        }
        other => other.map(drop),
    };
    match result {
        Ok(()) => suite.fail(&case, "was accepted"),
        Err(error) if kind_of(&error) != Some(kind) => suite.fail(&case, format_args!("{kind:?}, not {error:?}")),
        Err(error) => assert!(error.to_string().len() > 10, "{case}: says only {error}"),
    }
}

/// Runs a call on a fresh poisoned output and makes sure that it stays so. Where a GPU found an id, it has written the
/// other rows: then only what is around the output must be as it was.
fn refused<T: Element>(
    suite: &Suite,
    case: &str,
    kind: Kind,
    (rows, cols): (usize, usize),
    call: impl FnOnce(&Backend, &mut Framed<T>) -> gristmill_kernels::Result<()>,
) {
    let b = suite.backend();
    let mut out = Framed::poisoned(b, rows, cols, Frame::ODD);
    expect(suite, case, kind, call(b, &mut out));
    if kind == Kind::Id && b.device() != DeviceId::Cpu {
        out.read(b);
    } else {
        out.assert_untouched(b, case);
    }
}

/// Dense products and weights.
pub fn matrices(suite: &Suite) {
    let rng = &mut suite.rng("refuse");
    let b = suite.backend();
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
    let narrow = tensor(rng, Format::Q8_0, 1, 19, 64);
    expect(suite, "prepare: unlike halves", Kind::Shape, prepare(&[dense.clone(), narrow], Role::GateUp));
    expect(suite, "prepare: table of experts", Kind::Shape, prepare(from_ref(&expert), Role::Table));
    expect(suite, "prepare: tied experts", Kind::Shape, prepare(from_ref(&expert), Role::Tied));
    expect(suite, "prepare: two tied", Kind::Shape, prepare(&[dense.clone(), dense.clone()], Role::Tied));
    expect(suite, "prepare: two tables", Kind::Shape, prepare(&[dense.clone(), dense.clone()], Role::Table));

    let one = std::slice::from_ref(&dense);
    let matrix = prepare(one, Role::Matrix).expect("prepare");
    let table = prepare(one, Role::Table).expect("prepare");
    let pair = prepare(&[dense.clone(), dense.clone()], Role::GateUp).expect("prepare");
    let experts = prepare(from_ref(&expert), Role::Matrix).expect("prepare");
    let pairs = prepare(&[expert.clone(), expert], Role::GateUp).expect("prepare");
    let foreign = gristmill_kernels::reference::Reference::backend().prepare(one, Role::Matrix).expect("prepare");
    for precision in PRECISIONS {
        let act = activations(b, precision, &rng.normals(4 * 64), 4, 64);
        let narrow = activations(b, precision, &rng.normals(4 * 32), 4, 32);
        let bias = buffer(b, &rng.normals(21));
        refused(suite, "matmul: rows", Kind::Shape, (5, 20), |b, y| b.run(Matmul::new(&matrix, &act, y.view_mut())));
        refused(suite, "matmul: columns", Kind::Shape, (4, 19), |b, y| b.run(Matmul::new(&matrix, &act, y.view_mut())));
        refused(suite, "matmul: inputs", Kind::Shape, (4, 20), |b, y| {
            b.run(Matmul::new(&matrix, &narrow, y.view_mut()))
        });
        refused(suite, "matmul: bias", Kind::Shape, (4, 20), |b, y| {
            b.run(Matmul { bias: Some(&bias), ..Matmul::new(&matrix, &act, y.view_mut()) })
        });
        refused(suite, "matmul: table", Kind::Range, (4, 20), |b, y| b.run(Matmul::new(&table, &act, y.view_mut())));
        refused(suite, "matmul: experts", Kind::Range, (4, 20), |b, y| {
            b.run(Matmul::new(&experts, &act, y.view_mut()))
        });
        if b.name() != "reference" {
            let case = "matmul: another backend's layout";
            let kind = if b.device() == DeviceId::Cpu { Kind::Layout } else { Kind::Foreign };
            refused(suite, case, kind, (4, 20), |b, y| b.run(Matmul::new(&foreign, &act, y.view_mut())));
        }

        let ids = |ids: &[u32]| Framed::of(b, ids, ids.len(), 1, Frame::ODD);
        let (good, far) = (ids(&[0, 3]), ids(&[0, 4]));
        let wide = Framed::of(b, &[0_u32, 1, 2, 3], 2, 2, Frame::ODD);
        let rows = |ids: &Framed<u32>, y: &mut Framed<f32>| {
            b.run(Matmul { rows: Some(ids.view()), ..Matmul::new(&matrix, &act, y.view_mut()) })
        };
        refused(suite, "matmul_rows: id", Kind::Id, (2, 20), |_, y| rows(&far, y));
        refused(suite, "matmul_rows: count", Kind::Shape, (3, 20), |_, y| rows(&good, y));
        refused(suite, "matmul_rows: two columns", Kind::Shape, (2, 20), |_, y| rows(&wide, y));
        refused(suite, "matmul_rows: columns", Kind::Shape, (2, 21), |_, y| rows(&good, y));

        let gate_up = |w, x, h: &mut Framed<f32>| {
            b.run(GateUp { weight: w, x, bias: None, activation: Activation::SwiGlu, h: h.view_mut() })
        };
        refused(suite, "gate_up: a matrix", Kind::Range, (4, 20), |_, h| gate_up(&matrix, &act, h));
        refused(suite, "gate_up: experts", Kind::Range, (4, 20), |_, h| gate_up(&pairs, &act, h));
        refused(suite, "gate_up: both halves", Kind::Shape, (4, 40), |_, h| gate_up(&pair, &act, h));
        refused(suite, "gate_up: rows", Kind::Shape, (3, 20), |_, h| gate_up(&pair, &act, h));
        refused(suite, "gate_up: inputs", Kind::Shape, (4, 20), |_, h| gate_up(&pair, &narrow, h));
        refused(suite, "gate_up: bias", Kind::Shape, (4, 20), |b, h| {
            b.run(GateUp {
                weight: &pair,
                x: &act,
                bias: Some([&bias, &bias]),
                activation: Activation::SwiGlu,
                h: h.view_mut(),
            })
        });
        let unbounded = Activation::ClampedSwiGlu { alpha: 1.0, limit: -1.0 };
        refused(suite, "gate_up: limit", Kind::Range, (4, 20), |b, h| {
            b.run(GateUp { weight: &pair, x: &act, bias: None, activation: unbounded, h: h.view_mut() })
        });

        let x = Framed::of(b, &rng.normals(5 * 64), 5, 64, Frame::ODD);
        let mut small = b.alloc_act(precision, 4, 64).expect("alloc_act");
        expect(
            suite,
            "prepare_activations: room",
            Kind::Shape,
            b.run(PrepareActivations { x: x.view(), act: &mut small }),
        );
    }

    let far = Framed::of(b, &[0, 20], 2, 1, Frame::ODD);
    let good = Framed::of(b, &[0, 19], 2, 1, Frame::ODD);
    refused(suite, "embed: id", Kind::Id, (2, 64), |b, y| {
        b.run(Embed { table: &table, rows: far.view(), scale: 1.0, out: y.view_mut() })
    });
    let padding = Framed::of(b, &[u32::MAX], 1, 1, Frame::ODD);
    let embed =
        |y: &mut Framed<f32>| b.run(Embed { table: &table, rows: padding.view(), scale: 1.0, out: y.view_mut() });
    if b.device() == DeviceId::Cpu {
        refused(suite, "embed: padding", Kind::Id, (1, 64), |_, y| embed(y));
    } else {
        // A recorded step has rows past its last token: they read nothing, and nobody complains.
        let mut y = Framed::poisoned(b, 1, 64, Frame::ODD);
        embed(&mut y).expect("padding");
        assert!(y.read(b).iter().all(|&y| y == 0.0), "the row of padding is not zero");
    }
    refused(suite, "embed: count", Kind::Shape, (3, 64), |b, y| {
        b.run(Embed { table: &table, rows: good.view(), scale: 1.0, out: y.view_mut() })
    });
    refused(suite, "embed: columns", Kind::Shape, (2, 63), |b, y| {
        b.run(Embed { table: &table, rows: good.view(), scale: 1.0, out: y.view_mut() })
    });
    refused(suite, "embed: a matrix", Kind::Range, (2, 64), |b, y| {
        b.run(Embed { table: &matrix, rows: good.view(), scale: 1.0, out: y.view_mut() })
    });
}

/// Routing and expert products.
pub fn experts(suite: &Suite) {
    let rng = &mut suite.rng("refuse experts");
    let b = suite.backend();
    let route = |case: &str, kind, experts: usize, routing: Routing, bias: Option<usize>, columns: usize| {
        let logits = Framed::of(b, &vec![1.0; 2 * experts], 2, experts, Frame::ODD);
        let bias = bias.map(|len| buffer(b, &vec![0.0; len]));
        let mut ids = Framed::<u32>::poisoned(b, 2, columns, Frame::ODD);
        let mut weights = Framed::<f32>::poisoned(b, 2, columns, Frame::ODD);
        let result = b.run(Route {
            logits: logits.view(),
            routing: &routing,
            selection_bias: bias.as_ref(),
            ids: ids.view_mut(),
            weights: weights.view_mut(),
        });
        expect(suite, case, kind, result);
        ids.assert_untouched(b, case);
        weights.assert_untouched(b, case);
    };
    let plain = Routing::softmax(2, true);
    route("route: top 0", Kind::Range, 8, Routing { top_k: 0, ..plain }, None, 0);
    route("route: top 9 of 8", Kind::Range, 8, Routing { top_k: 9, ..plain }, None, 9);
    route("route: no experts", Kind::Range, 0, plain, None, 2);
    route("route: 1,025 experts", Kind::Range, 1025, plain, None, 2);
    route("route: no groups", Kind::Range, 8, Routing { groups: 0, ..plain }, None, 2);
    route("route: 3 groups of 8", Kind::Range, 8, Routing { groups: 3, ..plain }, None, 2);
    route("route: no top groups", Kind::Range, 8, Routing { groups: 4, top_groups: 0, ..plain }, None, 2);
    route("route: top 5 of 4 groups", Kind::Range, 8, Routing { groups: 4, top_groups: 5, ..plain }, None, 2);
    for near in [f32::NAN, -0.02] {
        route("route: near", Kind::Range, 6, Routing { gating: Gating::SparseMixer { near }, ..plain }, None, 2);
    }
    let few = Routing { top_k: 3, groups: 4, gating: Gating::Sigmoid, ..plain };
    route("route: groups too small", Kind::Range, 8, few, None, 3);
    route("route: columns", Kind::Shape, 8, plain, None, 3);
    route("route: bias", Kind::Shape, 8, plain, Some(7), 2);

    let mut groups = b.alloc_groups(3, 8).expect("alloc_groups");
    let ids = |rows: usize, ids: &[u32]| Framed::of(b, ids, rows, ids.len() / rows, Frame::ODD);
    let good = ids(4, &[0, 1, 2, 1, 0, 2, 1, u32::MAX]);
    b.run(GroupByExpert { ids: good.view(), groups: &mut groups }).expect("group_by_expert");
    let far = ids(2, &[0, 1, 2, 3]);
    let many = ids(3, &[0; 9]);
    expect(suite, "group_by_expert: id", Kind::Id, b.run(GroupByExpert { ids: far.view(), groups: &mut groups }));
    expect(suite, "group_by_expert: room", Kind::Shape, b.run(GroupByExpert { ids: many.view(), groups: &mut groups }));
    let logits = Framed::of(b, &[1.0; 8], 2, 4, Frame::ODD);
    let mut ids = Framed::<u32>::poisoned(b, 2, 2, Frame::ODD);
    let mut weights = Framed::<f32>::poisoned(b, 2, 2, Frame::ODD);
    let route = Route {
        logits: logits.view(),
        routing: &plain,
        selection_bias: None,
        ids: ids.view_mut(),
        weights: weights.view_mut(),
    };
    expect(suite, "route_and_group: experts", Kind::Shape, b.run(RouteAndGroup { route, groups: &mut groups }));
    ids.assert_untouched(b, "route_and_group: experts");

    // What was refused has left the groups alone, unless a GPU found it: 4 tokens, top 2.
    if b.device() != DeviceId::Cpu {
        b.run(GroupByExpert { ids: good.view(), groups: &mut groups }).expect("group_by_expert");
    }
    let t = tensor(rng, Format::Q8_0, 3, 20, 64);
    let four = tensor(rng, Format::Q8_0, 4, 20, 64);
    let w = b.prepare(std::slice::from_ref(&t), Role::Matrix).expect("prepare");
    let wide = b.prepare(&[four], Role::Matrix).expect("prepare");
    let pair = b.prepare(&[t.clone(), t], Role::GateUp).expect("prepare");
    let [act, five, narrow] =
        [(4, 64), (5, 64), (4, 32)].map(|(r, c)| activations(b, Precision::Fast, &vec![1.0; r * c], r, c));
    let bias = buffer(b, &[0.0; 59]);
    let moe = |case: &str, kind, w, x, k, bias, shape| {
        refused(suite, case, kind, shape, |b, out| {
            b.run(MoeMatmul { weight: w, x, groups: &groups, top_k: k, bias, out: out.view_mut() })
        });
    };
    moe("moe_matmul: pairs", Kind::Shape, &w, &act, 2, None, (7, 20));
    moe("moe_matmul: columns", Kind::Shape, &w, &act, 2, None, (8, 21));
    moe("moe_matmul: top 0", Kind::Range, &w, &act, 0, None, (8, 20));
    moe("moe_matmul: top 3 of 8 pairs", Kind::Range, &w, &act, 3, None, (8, 20));
    moe("moe_matmul: tokens", Kind::Shape, &w, &five, 2, None, (8, 20));
    moe("moe_matmul: other top-k", Kind::Shape, &w, &act, 4, None, (8, 20));
    moe("moe_matmul: inputs", Kind::Shape, &w, &narrow, 2, None, (8, 20));
    moe("moe_matmul: experts", Kind::Shape, &wide, &act, 2, None, (8, 20));
    moe("moe_matmul: a pair", Kind::Range, &pair, &act, 2, None, (8, 20));
    moe("moe_matmul: bias", Kind::Shape, &w, &act, 2, Some(&bias), (8, 20));
    let gate_up = |case: &str, kind, w, x, k, bias, shape| {
        refused(suite, case, kind, shape, |b, h| {
            b.run(MoeGateUp {
                weight: w,
                x,
                groups: &groups,
                top_k: k,
                bias,
                activation: Activation::SwiGlu,
                h: h.view_mut(),
            })
        });
    };
    gate_up("moe_gate_up: a matrix", Kind::Range, &w, &act, 2, None, (8, 20));
    gate_up("moe_gate_up: pairs", Kind::Shape, &pair, &act, 2, None, (9, 20));
    gate_up("moe_gate_up: columns", Kind::Shape, &pair, &act, 2, None, (8, 40));
    gate_up("moe_gate_up: tokens", Kind::Shape, &pair, &five, 2, None, (8, 20));
    gate_up("moe_gate_up: bias", Kind::Shape, &pair, &act, 2, Some([&bias, &bias]), (8, 20));
    let endless = Activation::ClampedSwiGlu { alpha: f32::NAN, limit: 7.0 };
    refused(suite, "moe_gate_up: alpha", Kind::Range, (8, 20), |b, h| {
        b.run(MoeGateUp {
            weight: &pair,
            x: &act,
            groups: &groups,
            top_k: 2,
            bias: None,
            activation: endless,
            h: h.view_mut(),
        })
    });

    let combine = |case: &str, pairs: (usize, usize), weights: (usize, usize), y| {
        refused(suite, case, Kind::Shape, y, |b, y: &mut Framed<f32>| {
            let out = Framed::of(b, &vec![1.0; pairs.0 * pairs.1], pairs.0, pairs.1, Frame::ODD);
            let weights = Framed::of(b, &vec![1.0; weights.0 * weights.1], weights.0, weights.1, Frame::ODD);
            b.run(MoeCombine { out: out.view(), weights: weights.view(), epilogue: Epilogue::Store, y: y.view_mut() })
        });
    };
    combine("moe_combine: pairs", (5, 9), (3, 2), (3, 9));
    combine("moe_combine: tokens", (6, 9), (3, 2), (2, 9));
    combine("moe_combine: columns", (6, 9), (3, 2), (3, 8));
}

/// Row by row operations, sampling included.
pub fn rows(suite: &Suite) {
    let b = suite.backend();
    let x = Framed::of(b, &[1.0; 12], 3, 4, Frame::ODD);
    let vector = |len: usize| buffer(b, &vec![1.0; len]);
    let norm = |case: &str, kind, weight: usize, eps: f32, shape| {
        refused(suite, case, kind, shape, |b, out| {
            b.run(RmsNorm { x: x.view(), weight: &vector(weight), eps, out: out.view_mut() })
        });
    };
    norm("rms_norm: weight", Kind::Shape, 5, 1e-6, (3, 4));
    norm("rms_norm: rows", Kind::Shape, 4, 1e-6, (2, 4));
    norm("rms_norm: columns", Kind::Shape, 4, 1e-6, (3, 5));
    norm("rms_norm: epsilon", Kind::Range, 4, f32::NAN, (3, 4));
    norm("rms_norm: negative epsilon", Kind::Range, 4, -1e-6, (3, 4));
    let norm = |case: &str, kind, weight: usize, bias: usize, eps: f32, shape| {
        refused(suite, case, kind, shape, |b, out| {
            b.run(LayerNorm { x: x.view(), weight: &vector(weight), bias: &vector(bias), eps, out: out.view_mut() })
        });
    };
    norm("layer_norm: weight", Kind::Shape, 5, 4, 1e-6, (3, 4));
    norm("layer_norm: bias", Kind::Shape, 4, 3, 1e-6, (3, 4));
    norm("layer_norm: rows", Kind::Shape, 4, 4, 1e-6, (2, 4));
    norm("layer_norm: columns", Kind::Shape, 4, 4, 1e-6, (3, 5));
    norm("layer_norm: epsilon", Kind::Range, 4, 4, f32::NAN, (3, 4));
    refused(suite, "qk_norm: weight", Kind::Range, (3, 4), |b, x| {
        b.run(QkNorm { x: x.view_mut(), weight: &vector(3), eps: 1e-6 })
    });
    refused(suite, "qk_norm: no weight", Kind::Range, (3, 4), |b, x| {
        b.run(QkNorm { x: x.view_mut(), weight: &vector(0), eps: 1e-6 })
    });
    refused(suite, "qk_norm: epsilon", Kind::Range, (3, 4), |b, x| {
        b.run(QkNorm { x: x.view_mut(), weight: &vector(4), eps: f32::INFINITY })
    });

    let rope = |case: &str, kind, width: usize, pairs: usize, positions: usize| {
        refused(suite, case, kind, (3, 8), |b, x: &mut Framed<f32>| {
            let positions = Framed::of(b, &vec![0; positions], positions, 1, Frame::ODD);
            let rotary = Rotary { style: RopeStyle::Halves, frequencies: vector(pairs), magnitude: 1.0 };
            b.run(Rope { x: x.view_mut(), head_width: width, positions: positions.view(), rotary: &rotary })
        });
    };
    rope("rope: head width", Kind::Range, 3, 1, 3);
    rope("rope: no head width", Kind::Range, 0, 0, 3);
    rope("rope: frequencies", Kind::Range, 4, 3, 3);
    rope("rope: positions", Kind::Shape, 4, 2, 2);

    refused(suite, "add: rows", Kind::Shape, (2, 4), |b, y| b.run(Add { x: x.view(), scale: 1.0, y: y.view_mut() }));
    refused(suite, "add: columns", Kind::Shape, (3, 5), |b, y| b.run(Add { x: x.view(), scale: 1.0, y: y.view_mut() }));
    refused(suite, "add: scale", Kind::Range, (3, 4), |b, y| {
        b.run(Add { x: x.view(), scale: f32::NAN, y: y.view_mut() })
    });
    refused(suite, "scale: infinite", Kind::Range, (3, 4), |b, y: &mut Framed<f32>| {
        b.run(Scale { factor: f32::INFINITY, y: y.view_mut() })
    });
    let gate = Framed::of(b, &[1.0; 2], 2, 1, Frame::ODD);
    refused(suite, "add_gated: gates", Kind::Shape, (3, 4), |b, y| {
        b.run(AddGated { x: x.view(), gate: gate.view(), y: y.view_mut() })
    });
    let gate = Framed::of(b, &[1.0; 6], 3, 2, Frame::ODD);
    refused(suite, "add_gated: columns", Kind::Shape, (3, 4), |b, y| {
        b.run(AddGated { x: x.view(), gate: gate.view(), y: y.view_mut() })
    });
    refused(suite, "argmax: rows", Kind::Shape, (2, 1), |b, out| b.run(Argmax { x: x.view(), out: out.view_mut() }));
    refused(suite, "argmax: columns", Kind::Shape, (3, 2), |b, out| b.run(Argmax { x: x.view(), out: out.view_mut() }));
    let empty = Framed::of(b, &[], 3, 0, Frame::ODD);
    refused(suite, "argmax: of nothing", Kind::Range, (3, 1), |b, out| {
        b.run(Argmax { x: empty.view(), out: out.view_mut() })
    });
    sampling(suite);
}

fn sampling(suite: &Suite) {
    let b = suite.backend();
    let plain = Sampling {
        mask: None,
        bias: &[],
        counts: &[],
        repeat_penalty: 1.0,
        presence_penalty: 0.0,
        frequency_penalty: 0.0,
        temperature: 1.0,
        top_k: 0,
        top_p: 1.0,
        min_p: 0.0,
        seed: 0,
        position: 0,
    };
    let check = |case: &str, kind, bad: Sampling| {
        refused(suite, case, kind, (2, 1), |b, out: &mut Framed<u32>| {
            let mut logits = Framed::<f32>::poisoned(b, 2, 40, Frame::ODD);
            // The first row is in order: it must not be drawn either.
            let result = b.run(Sample { logits: logits.view_mut(), parameters: &[plain, bad], out: out.view_mut() });
            logits.assert_untouched(b, case);
            result
        });
    };
    check("sample: temperature", Kind::Range, Sampling { temperature: -1.0, ..plain });
    check("sample: NaN temperature", Kind::Range, Sampling { temperature: f32::NAN, ..plain });
    check("sample: top-p", Kind::Range, Sampling { top_p: 1.5, ..plain });
    check("sample: min-p", Kind::Range, Sampling { min_p: f32::NAN, ..plain });
    check("sample: repeat penalty", Kind::Range, Sampling { repeat_penalty: 0.0, ..plain });
    check("sample: presence penalty", Kind::Range, Sampling { presence_penalty: f32::INFINITY, ..plain });
    check("sample: frequency penalty", Kind::Range, Sampling { frequency_penalty: f32::NAN, ..plain });
    check("sample: biased token", Kind::Id, Sampling { bias: &[(40, 1.0)], ..plain });
    check("sample: NaN bias", Kind::Range, Sampling { bias: &[(1, f32::NAN)], ..plain });
    check("sample: counted token", Kind::Id, Sampling { counts: &[(u32::MAX, 1)], ..plain });
    check("sample: short mask", Kind::Shape, Sampling { mask: Some(&[1]), ..plain });
    check("sample: long mask", Kind::Shape, Sampling { mask: Some(&[1, 0, 0]), ..plain });
    // Bits past the vocabulary allow nothing.
    check("sample: empty mask", Kind::Range, Sampling { mask: Some(&[0, 0xffff_ff00]), ..plain });
    refused(suite, "sample: rows", Kind::Shape, (3, 1), |b, out: &mut Framed<u32>| {
        b.run(Sample {
            logits: Framed::poisoned(b, 2, 40, Frame::ODD).view_mut(),
            parameters: &[plain; 2],
            out: out.view_mut(),
        })
    });
    refused(suite, "sample: parameters", Kind::Shape, (2, 1), |b, out: &mut Framed<u32>| {
        b.run(Sample {
            logits: Framed::poisoned(b, 2, 40, Frame::ODD).view_mut(),
            parameters: &[plain; 3],
            out: out.view_mut(),
        })
    });
    let none = b.run(Sample {
        logits: Framed::poisoned(b, 1, 0, Frame::ODD).view_mut(),
        parameters: &[plain],
        out: Framed::<u32>::poisoned(b, 1, 1, Frame::ODD).view_mut(),
    });
    expect(suite, "sample: no vocabulary", Kind::Range, none);
}

/// The cache and attention.
pub fn attention(suite: &Suite) {
    let b = suite.backend();
    let spec = KvSpec { heads: 2, key_width: 8, value_width: 4, format: KvFormat::F16 };
    let place = |slots: &[u32], positions: &[u32], table: &[u32], (table_rows, table_cols): (usize, usize)| Placement {
        slots: buffer(b, slots),
        positions: buffer(b, positions),
        table: buffer(b, table),
        table_rows,
        table_cols,
        context_columns: usize::MAX,
        one_token_per_sequence: false,
    };
    let limit = 2 * KV_BLOCK as u32;
    let table = [0, 1, 2, 3];
    let placements = [
        ("slot", Kind::Id, place(&[0, 2], &[0, 0], &table, (2, 2))),
        ("position", Kind::Id, place(&[0, 1], &[0, limit], &table, (2, 2))),
        ("block", Kind::Id, place(&[0, 1], &[0, 16], &[0, 1, 2, 4], (2, 2))),
        ("too few slots", Kind::Shape, place(&[0], &[0, 0], &table, (2, 2))),
        ("too few positions", Kind::Shape, place(&[0, 0], &[0], &table, (2, 2))),
        ("a short table", Kind::Shape, place(&[0, 1], &[0, 0], &table[..3], (2, 2))),
        ("a huge table", Kind::OutOfMemory, place(&[0, 1], &[0, 0], &table, (usize::MAX, 2))),
        ("no table", Kind::Id, place(&[0, 1], &[0, 0], &[], (0, 0))),
    ];
    let mut cache = b.alloc_kv(spec, 4).expect("alloc_kv");
    let matrix = |rows: usize, cols: usize| Framed::of(b, &vec![1.0; rows * cols], rows, cols, Frame::ODD);
    let plain = || AttentionOptions { heads: 4, scale: 1.0, window: None, sinks: None, softcap: None };
    let attend =
        |case: &str, kind, cache: &_, place: &Placement, q: (usize, usize), out, options: &AttentionOptions| {
            refused(suite, case, kind, out, |b, out| {
                b.run(Attention {
                    q: matrix(q.0, q.1).view(),
                    cache,
                    placement: place,
                    options: *options,
                    out: out.view_mut(),
                })
            });
        };
    for (case, kind, place) in &placements {
        let (k, v) = (matrix(2, 16), matrix(2, 8));
        expect(
            suite,
            &format!("kv_write: {case}"),
            *kind,
            b.run(KvWrite { cache: &mut cache, k: k.view(), v: v.view(), placement: place }),
        );
        attend(&format!("attention: {case}"), *kind, &cache, place, (2, 32), (2, 16), &plain());
        // On a GPU the token whose ids are wrong gets zeros, and nothing of it is written; the first is in order.
        if *kind == Kind::Id && b.device() != DeviceId::Cpu && place.table_rows > 0 {
            let mut out = Framed::<f32>::poisoned(b, 2, 16, Frame::ODD);
            let result = b.run(Attention {
                q: matrix(2, 32).view(),
                cache: &cache,
                placement: place,
                options: plain(),
                out: out.view_mut(),
            });
            expect(suite, case, *kind, result);
            let (first, second) = ([1.0; 16], [0.0; 16]);
            suite.same(case, &out.read(b).into(), &[first, second].concat().into());
        }
    }
    bad_block(suite);
    let good = place(&[0, 1], &[0, 31], &table, (2, 2));
    for (case, k, v) in [("keys", (2, 15), (2, 8)), ("values", (2, 16), (2, 7)), ("rows", (2, 16), (1, 8))] {
        let (k, v) = (matrix(k.0, k.1), matrix(v.0, v.1));
        expect(
            suite,
            &format!("kv_write: {case}"),
            Kind::Shape,
            b.run(KvWrite { cache: &mut cache, k: k.view(), v: v.view(), placement: &good }),
        );
    }
    let sinks = buffer(b, &[0.0; 3]);
    attend("attention: queries", Kind::Shape, &cache, &good, (2, 31), (2, 16), &plain());
    attend("attention: rows", Kind::Shape, &cache, &good, (2, 32), (1, 16), &plain());
    attend("attention: columns", Kind::Shape, &cache, &good, (2, 32), (2, 17), &plain());
    attend("attention: heads", Kind::Range, &cache, &good, (2, 24), (2, 12), &AttentionOptions { heads: 3, ..plain() });
    attend(
        "attention: no heads",
        Kind::Range,
        &cache,
        &good,
        (2, 0),
        (2, 0),
        &AttentionOptions { heads: 0, ..plain() },
    );
    attend(
        "attention: window",
        Kind::Range,
        &cache,
        &good,
        (2, 32),
        (2, 16),
        &AttentionOptions { window: Some(0), ..plain() },
    );
    attend(
        "attention: scale",
        Kind::Range,
        &cache,
        &good,
        (2, 32),
        (2, 16),
        &AttentionOptions { scale: f32::NAN, ..plain() },
    );
    let flat = AttentionOptions { softcap: Some(0.0), ..plain() };
    attend("attention: softcap", Kind::Range, &cache, &good, (2, 32), (2, 16), &flat);
    let short = AttentionOptions { sinks: Some(&sinks), ..plain() };
    attend("attention: sinks", Kind::Shape, &cache, &good, (2, 32), (2, 16), &short);
    // A block below a window is not read, and may be gone.
    let gone = place(&[0, 1], &[31, 31], &[9, 1, 9, 3], (2, 2));
    attend("attention: a block of the past", Kind::Id, &cache, &gone, (2, 32), (2, 16), &plain());
    let mut out = Framed::<f32>::poisoned(b, 2, 16, Frame::ODD);
    let window = AttentionOptions { window: Some(KV_BLOCK), ..plain() };
    b.run(Attention { q: matrix(2, 32).view(), cache: &cache, placement: &gone, options: window, out: out.view_mut() })
        .expect("only the last block is seen");
    expect(suite, "kv_copy: from", Kind::Id, b.run(KvCopy { cache: &mut cache, blocks: &[(0, 1), (4, 0)] }));
    expect(suite, "kv_copy: to", Kind::Id, b.run(KvCopy { cache: &mut cache, blocks: &[(0, 4)] }));
}

/// A block that is not there, of one of two sequences: the other is as it is without. Of the last tokens, and of all, by widths
/// and formats for which a GPU may have kernels of their own.
fn bad_block(suite: &Suite) {
    let b = suite.backend();
    let rng = &mut suite.rng("refuse_attention");
    let each = KV_BLOCK as u32 + 4;
    let all: Vec<(u32, u32)> = (0..2).flat_map(|slot| (0..each).map(move |position| (slot, position))).collect();
    let last: Vec<(u32, u32)> = all.iter().copied().filter(|(_, position)| position + 1 == each).collect();
    for (key_width, value_width, format) in
        [(8, 4, KvFormat::F16), (64, 64, KvFormat::Q8_0), (128, 128, KvFormat::F16), (160, 136, KvFormat::F16)]
    {
        let spec = KvSpec { heads: 2, key_width, value_width, format };
        let (k_cols, v_cols, q_cols, out_cols) = (2 * key_width, 2 * value_width, 4 * key_width, 4 * value_width);
        let place = |tokens: &[(u32, u32)], table: &[u32]| Placement {
            slots: buffer(b, &tokens.iter().map(|token| token.0).collect::<Vec<_>>()),
            positions: buffer(b, &tokens.iter().map(|token| token.1).collect::<Vec<_>>()),
            table: buffer(b, table),
            table_rows: 2,
            table_cols: 2,
            context_columns: 2,
            one_token_per_sequence: tokens.len() == 2,
        };
        let (good, bad) = ([0, 1, 2, 3], [0, 1, 2, 4]);
        let mut random = |rows: usize, cols: usize| Framed::of(b, &rng.normals(rows * cols), rows, cols, Frame::ODD);
        let (keys, values) = (random(all.len(), k_cols), random(all.len(), v_cols));
        let mut cache = b.alloc_kv(spec, 4).expect("alloc_kv");
        b.run(KvWrite { cache: &mut cache, k: keys.view(), v: values.view(), placement: &place(&all, &good) })
            .expect("kv_write");
        for tokens in [&last, &all] {
            let q = random(tokens.len(), q_cols);
            let parameters = AttentionOptions { heads: 4, scale: 1.0, window: None, sinks: None, softcap: None };
            let attend = |table: &[u32]| {
                let mut out = Framed::<f32>::poisoned(b, tokens.len(), out_cols, Frame::ODD);
                let result = b.run(Attention {
                    q: q.view(),
                    cache: &cache,
                    placement: &place(tokens, table),
                    options: parameters,
                    out: out.view_mut(),
                });
                (result, out)
            };
            let first = |out: &Framed<f32>| out.read(b)[..tokens.len() / 2 * out_cols].to_vec();
            let (result, out) = attend(&good);
            result.expect("all blocks are there");
            let expected = first(&out);
            let (result, out) = attend(&bad);
            let case = format!("attention: a bad block of {} tokens, {spec:?}", tokens.len());
            expect(suite, &case, Kind::Id, result);
            if b.device() != DeviceId::Cpu {
                suite.same(&case, &expected.into(), &first(&out).into());
            }
        }
    }
}

/// Sizes that no machine has, and views that leave their buffers.
pub fn memory(suite: &Suite) {
    let b = suite.backend();
    let huge = usize::MAX / 2;
    expect(suite, "alloc_f32", Kind::OutOfMemory, b.alloc::<f32>(huge, "a case"));
    expect(suite, "alloc_u32", Kind::OutOfMemory, b.alloc::<u32>(usize::MAX, "a case"));
    for precision in PRECISIONS {
        expect(suite, "alloc_act", Kind::OutOfMemory, b.alloc_act(precision, huge, 1 << 20));
        expect(suite, "alloc_act: one column", Kind::OutOfMemory, b.alloc_act(precision, usize::MAX, 1));
    }
    let spec = KvSpec { heads: 8, key_width: 128, value_width: 128, format: KvFormat::F16 };
    expect(suite, "alloc_kv", Kind::OutOfMemory, b.alloc_kv(spec, usize::MAX / 64));
    let eight_bits = KvSpec { format: KvFormat::Q8_0, ..spec };
    expect(suite, "alloc_kv: 8 bits", Kind::OutOfMemory, b.alloc_kv(eight_bits, usize::MAX / 64));
    expect(suite, "alloc_kv: no heads", Kind::Range, b.alloc_kv(KvSpec { heads: 0, ..spec }, 1));
    expect(suite, "alloc_kv: no keys", Kind::Range, b.alloc_kv(KvSpec { key_width: 0, ..spec }, 1));
    expect(suite, "alloc_kv: no values", Kind::Range, b.alloc_kv(KvSpec { value_width: 0, ..spec }, 1));
    let wide = KvSpec { heads: usize::MAX / 4, ..spec };
    expect(suite, "alloc_kv: heads", Kind::OutOfMemory, b.alloc_kv(wide, 1));
    expect(suite, "alloc_groups", Kind::Range, b.alloc_groups(1025, 1));
    expect(suite, "alloc_groups: none", Kind::Range, b.alloc_groups(0, 1));
    expect(suite, "alloc_groups: pairs", Kind::OutOfMemory, b.alloc_groups(8, usize::MAX));

    let mut some = b.alloc::<f32>(10, "a case").expect("alloc_f32");
    expect(suite, "upload", Kind::Shape, b.upload(&[0.0; 11], &mut some));
    expect(suite, "view", Kind::View, some.view(3, 4));
    expect(suite, "view: overflow", Kind::View, some.view(usize::MAX, usize::MAX));
    expect(suite, "view: mutable", Kind::View, some.view_mut(11, 1));
    let view = some.view(2, 5).expect("within");
    expect(suite, "columns", Kind::View, view.columns(3..6));
    #[allow(clippy::reversed_empty_ranges)]
    let reversed = view.columns(4..2);
    expect(suite, "columns: reversed", Kind::View, reversed);
    expect(suite, "download", Kind::Shape, b.download(view, &mut [0.0; 9]));
    expect(suite, "download: more", Kind::Shape, b.download(view, &mut [0.0; 11]));
    for len in [0, 1] {
        let zeroed = b.alloc::<f32>(len, "a case").expect("alloc_f32");
        let mut values = vec![1.0; len];
        b.download(zeroed.view(1, len).expect("within"), &mut values).expect("download");
        if values.iter().any(|&v| v != 0.0) {
            suite.fail(&"alloc_f32", "is not zeroed");
        }
    }
}
