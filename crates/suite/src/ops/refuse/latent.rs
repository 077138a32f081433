//! [`LatentWrite`], and [`AttentionAct`] by head.

use super::attention::{placement, placements};
use super::common::*;
use super::compositions::{assert_empty, empty};
use gristmill_kernels::kv::{KvFormat, KvSpec, Placement};

/// Arguments for two tokens, next to their placement.
#[derive(Clone, Copy)]
struct Step {
    spec: KvSpec,
    rows: (usize, usize),
    queries: (usize, usize),
    heads: usize,
    norm: usize,
    eps: f32,
    frequencies: usize,
    plain: (usize, usize),
    rotated: (usize, usize),
}

/// Latent rows of 8 and 4 columns, three heads of queries of 6 and 4.
const STEP: Step = Step {
    spec: KvSpec { heads: 1, key_width: 12, value_width: 8, format: KvFormat::F16, values_in_keys: true },
    rows: (2, 12),
    queries: (2, 30),
    heads: 3,
    norm: 8,
    eps: 1e-6,
    frequencies: 2,
    plain: (6, 6),
    rotated: (6, 4),
};

impl Step {
    fn refused(self, suite: &Suite, case: &str, kind: Kind, placement: &Placement) {
        let b = suite.backend();
        let case = &format!("latent_write: {case}");
        let mut rows = ones(b, self.rows.0, self.rows.1);
        let (count, columns) = self.queries;
        let mut queries = buffer(b, &vec![1.0; count * columns]);
        let norm = &buffer(b, &vec![1.0; self.norm]);
        let rotary =
            &Rotary { style: RopeStyle::Halves, frequencies: buffer(b, &vec![0.5; self.frequencies]), magnitude: 1.0 };
        let mut plain = empty(b, self.plain);
        let mut rotated = Guarded::poisoned(b, self.rotated.0, self.rotated.1, Guard::ODD);
        let cache = &mut b.alloc_kv(self.spec, 4).expect("alloc_kv");
        let call = LatentWrite {
            rows: rows.view_mut(),
            queries: queries.view_mut(count, columns).expect("all of them"),
            heads: self.heads,
            norm,
            eps: self.eps,
            rotary: Some(rotary),
            cache,
            placement,
            plain: &mut plain,
            rotated: rotated.view_mut(),
        };
        expect(suite, case, kind, b.run(call));
        assert_refused(b, case, kind, &rotated);
        assert_empty(b, case, kind, &plain);
    }
}

/// Bad arguments of [`LatentWrite`], and rows that [`AttentionAct`] cannot split by head.
pub(super) fn latent(suite: &Suite) {
    let b = suite.backend();
    for (case, kind, placement) in &placements(b) {
        STEP.refused(suite, case, *kind, placement);
    }
    let good = &placement(b, &[0, 1], &[0, 31]);
    for (case, kind, call) in [
        ("columns", Kind::Shape, Step { rows: (2, 13), ..STEP }),
        ("rows of the queries", Kind::Shape, Step { queries: (1, 30), ..STEP }),
        ("columns of the queries", Kind::Range, Step { queries: (2, 31), ..STEP }),
        ("narrow queries", Kind::Range, Step { queries: (2, 9), ..STEP }),
        ("no heads", Kind::Range, Step { heads: 0, ..STEP }),
        ("no norm", Kind::Range, Step { norm: 0, ..STEP }),
        ("a long norm", Kind::Range, Step { norm: 13, ..STEP }),
        ("epsilon", Kind::Range, Step { eps: f32::NAN, ..STEP }),
        ("frequencies", Kind::Range, Step { frequencies: 3, ..STEP }),
        ("activations", Kind::Shape, Step { plain: (5, 6), ..STEP }),
        ("rows of rotated columns", Kind::Shape, Step { rotated: (5, 4), ..STEP }),
        ("rotated columns", Kind::Shape, Step { rotated: (6, 5), ..STEP }),
        ("values of their own", Kind::Range, Step { spec: KvSpec { values_in_keys: false, ..STEP.spec }, ..STEP }),
        ("two KV heads", Kind::Range, Step { spec: KvSpec { heads: 2, ..STEP.spec }, ..STEP }),
    ] {
        call.refused(suite, case, kind, good);
    }
    let q = ones(b, 2, 24);
    let mut out = Guarded::poisoned(b, 2, 16, Guard::ODD);
    let mut act = empty(b, (4, 8));
    let cache = &b.alloc_kv(STEP.spec, 4).expect("alloc_kv");
    let options = AttentionOptions::new(2, 1.0, Precision::Exact);
    let attention = Attention { q: q.view(), cache, placement: good, options, out: out.view_mut() };
    let case = "attention_act: rows by head that are not adjacent";
    expect(suite, case, Kind::View, b.run(AttentionAct { attention, act: &mut act, by_head: true }));
    assert_refused(b, case, Kind::View, &out);
    assert_empty(b, case, Kind::View, &act);
}
