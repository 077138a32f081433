//! The cache and attention.

use super::common::*;
use gristmill_kernels::Result;
use gristmill_kernels::kv::{BatchRuns, KV_BLOCK, KvCache, KvFormat, KvSpec, Placement};
use gristmill_kernels::tensor::Buffer;

/// [`KvWrite`], [`KvCopy`] and [`Attention`].
pub fn attention(suite: &Suite) {
    for (case, kind, placement) in &placements(suite.backend()) {
        placed(suite, case, *kind, placement);
    }
    bad_block(suite);
    written(suite);
    options(suite);
    past(suite);
}

/// Two heads of keys of 8 and values of 4 elements.
pub(super) const SPEC: KvSpec =
    KvSpec { heads: 2, key_width: 8, value_width: 4, format: KvFormat::F16, values_in_keys: false };
const TABLE: &[u32] = &[0, 1, 2, 3];

pub(super) fn cache(b: &Backend) -> KvCache {
    b.alloc_kv(SPEC, 4).expect("alloc_kv")
}

/// A block table of any shape over these ids.
fn tabled(
    b: &Backend,
    slots: &[u32],
    positions: &[u32],
    table: &[u32],
    (table_rows, table_cols): (usize, usize),
) -> Placement {
    Placement {
        slots: buffer(b, slots),
        positions: buffer(b, positions),
        table: buffer(b, table),
        table_rows,
        table_cols,
        context_columns: usize::MAX,
        runs: BatchRuns::Any,
    }
}

/// Two tokens of two sequences of two blocks.
pub(super) fn placement(b: &Backend, slots: &[u32], positions: &[u32]) -> Placement {
    tabled(b, slots, positions, TABLE, (2, 2))
}

/// Placements of two tokens in [`cache`] that are refused.
pub(super) fn placements(b: &Backend) -> Vec<(&'static str, Kind, Placement)> {
    let limit = 2 * KV_BLOCK as u32;
    vec![
        ("slot", Kind::Id, placement(b, &[0, 2], &[0, 0])),
        ("position", Kind::Id, placement(b, &[0, 1], &[0, limit])),
        ("block", Kind::Id, tabled(b, &[0, 1], &[0, 16], &[0, 1, 2, 4], (2, 2))),
        ("too few slots", Kind::Shape, placement(b, &[0], &[0, 0])),
        ("too few positions", Kind::Shape, placement(b, &[0, 0], &[0])),
        ("a short table", Kind::Shape, tabled(b, &[0, 1], &[0, 0], &TABLE[..3], (2, 2))),
        ("a huge table", Kind::OutOfMemory, tabled(b, &[0, 1], &[0, 0], TABLE, (usize::MAX, 2))),
        ("no table", Kind::Id, tabled(b, &[0, 1], &[0, 0], &[], (0, 0))),
    ]
}

/// Four query heads and nothing else.
pub(super) const fn plain() -> AttentionOptions<'static> {
    AttentionOptions {
        heads: 4,
        scale: 1.0,
        temperature: None,
        window: None,
        first: 0,
        ends: None,
        sinks: None,
        softcap: None,
        precision: Precision::Exact,
    }
}

fn attend(
    b: &Backend,
    placement: &Placement,
    options: AttentionOptions,
    q: (usize, usize),
    out: &mut Guarded<f32>,
) -> Result<()> {
    let q = ones(b, q.0, q.1);
    b.run(Attention { q: q.view(), cache: &cache(b), placement, options, out: out.view_mut() })
}

fn write(b: &Backend, placement: &Placement, k: (usize, usize), v: (usize, usize)) -> Result<()> {
    let (k, v) = (ones(b, k.0, k.1), ones(b, v.0, v.1));
    b.run(KvWrite { cache: &mut cache(b), k: k.view(), v: Some(v.view()), placement })
}

/// A placement that is refused.
fn placed(suite: &Suite, case: &str, kind: Kind, placement: &Placement) {
    let b = suite.backend();
    expect(suite, &format!("kv_write: {case}"), kind, write(b, placement, (2, 16), (2, 8)));
    refused(suite, &format!("attention: {case}"), kind, (2, 16), |b, out| attend(b, placement, plain(), (2, 32), out));
    // On a GPU the token with bad ids gets zeros and is not cached; the first token is computed.
    if found_late(b, kind) && placement.table_rows > 0 {
        let (k, v, q) = (ones(b, 2, 16), ones(b, 2, 8), ones(b, 2, 32));
        let mut cache = cache(b);
        let mut out = Guarded::<f32>::poisoned(b, 2, 16, Guard::ODD);
        let result = b.run(KvWrite { cache: &mut cache, k: k.view(), v: Some(v.view()), placement });
        expect(suite, case, kind, result);
        let result = b.run(Attention { q: q.view(), cache: &cache, placement, options: plain(), out: out.view_mut() });
        expect(suite, case, kind, result);
        let (first, second) = ([1.0; 16], [0.0; 16]);
        suite.same(&case, &out.read(b).into(), &[first, second].concat().into());
    }
}

fn written(suite: &Suite) {
    let b = suite.backend();
    let good = placement(b, &[0, 1], &[0, 31]);
    for (case, k, v) in [("keys", (2, 15), (2, 8)), ("values", (2, 16), (2, 7)), ("rows", (2, 16), (1, 8))] {
        expect(suite, &format!("kv_write: {case}"), Kind::Shape, write(b, &good, k, v));
    }
    let mut cache = cache(b);
    expect(suite, "kv_copy: from", Kind::Id, b.run(KvCopy { cache: &mut cache, blocks: &[(0, 1), (4, 0)] }));
    expect(suite, "kv_copy: to", Kind::Id, b.run(KvCopy { cache: &mut cache, blocks: &[(0, 4)] }));
}

fn tempered(temperature: Temperature) -> AttentionOptions<'static> {
    AttentionOptions { temperature: Some(temperature), ..plain() }
}

/// Options that are refused, with shapes of queries and output that fit them.
pub(super) fn bad_options<'a>(three_sinks: &'a Buffer<f32>) -> [(&'static str, Kind, AttentionOptions<'a>); 10] {
    [
        ("heads", Kind::Range, AttentionOptions { heads: 3, ..plain() }),
        ("no heads", Kind::Range, AttentionOptions { heads: 0, ..plain() }),
        ("window", Kind::Range, AttentionOptions { window: Some(Window::Last(0)), ..plain() }),
        ("chunk", Kind::Range, AttentionOptions { window: Some(Window::Chunk(0)), ..plain() }),
        ("temperature", Kind::Range, tempered(Temperature { scale: f32::INFINITY, length: 1, offset: 0 })),
        ("temperature's length", Kind::Range, tempered(Temperature { scale: 0.1, length: 0, offset: 0 })),
        ("temperature's offset", Kind::Range, tempered(Temperature { scale: 0.1, length: 1, offset: 1 << 31 })),
        ("scale", Kind::Range, AttentionOptions { scale: f32::NAN, ..plain() }),
        ("softcap", Kind::Range, AttentionOptions { softcap: Some(0.0), ..plain() }),
        ("sinks", Kind::Shape, AttentionOptions { sinks: Some(three_sinks), ..plain() }),
    ]
}

fn options(suite: &Suite) {
    let b = suite.backend();
    let good = placement(b, &[0, 1], &[0, 31]);
    let shaped = |case: &str, q, out| {
        refused(suite, case, Kind::Shape, out, |b, out| attend(b, &good, plain(), q, out));
    };
    shaped("attention: queries", (2, 31), (2, 16));
    shaped("attention: rows", (2, 32), (1, 16));
    shaped("attention: columns", (2, 32), (2, 17));
    for (case, kind, ends) in [("few ends", Kind::Shape, &[31][..]), ("an end", Kind::Id, &[32, 31])] {
        let ends = buffer(b, ends);
        let options = AttentionOptions { ends: Some(&ends), ..plain() };
        refused(suite, &format!("attention: {case}"), kind, (2, 16), |b, out| attend(b, &good, options, (2, 32), out));
    }
    for (case, kind, options) in bad_options(&buffer(b, &[0.0; 3])) {
        let (q, out) = ((2, 8 * options.heads), (2, 4 * options.heads));
        refused(suite, &format!("attention: {case}"), kind, out, |b, out| attend(b, &good, options, q, out));
    }
}

/// A block below a window is not read, and may be gone.
fn past(suite: &Suite) {
    let b = suite.backend();
    let gone = tabled(b, &[0, 1], &[31, 31], &[9, 1, 9, 3], (2, 2));
    refused(suite, "attention: a block of the past", Kind::Id, (2, 16), |b, out| {
        attend(b, &gone, plain(), (2, 32), out)
    });
    let mut out = Guarded::<f32>::poisoned(b, 2, 16, Guard::ODD);
    for window in [Window::Last(KV_BLOCK), Window::Chunk(KV_BLOCK)] {
        let options = AttentionOptions { window: Some(window), ..plain() };
        attend(b, &gone, options, (2, 32), &mut out).expect("only the last block is seen");
    }
}

/// A bad block of one of two sequences leaves the other's output unchanged: of the last tokens, and of all, by widths
/// and formats for which a GPU may have kernels of their own.
fn bad_block(suite: &Suite) {
    let b = suite.backend();
    let rng = &mut suite.rng("refuse_attention");
    let each = KV_BLOCK as u32 + 4;
    let all: Vec<(u32, u32)> = (0..2).flat_map(|slot| (0..each).map(move |position| (slot, position))).collect();
    let last: Vec<(u32, u32)> = all.iter().copied().filter(|(_, position)| position + 1 == each).collect();
    for (key_width, value_width, format, values_in_keys) in [
        (8, 4, KvFormat::F16, false),
        (64, 64, KvFormat::Q8_0, false),
        (128, 128, KvFormat::F16, false),
        (160, 136, KvFormat::F16, false),
        (40, 32, KvFormat::F16, true),
    ] {
        let spec = KvSpec { heads: 2, key_width, value_width, format, values_in_keys };
        let (k_cols, v_cols, q_cols, out_cols) = (2 * key_width, 2 * value_width, 4 * key_width, 4 * value_width);
        let place = |tokens: &[(u32, u32)], table: &[u32]| Placement {
            slots: buffer(b, &tokens.iter().map(|token| token.0).collect::<Vec<_>>()),
            positions: buffer(b, &tokens.iter().map(|token| token.1).collect::<Vec<_>>()),
            table: buffer(b, table),
            table_rows: 2,
            table_cols: 2,
            context_columns: 2,
            runs: if tokens.len() == 2 { BatchRuns::Single } else { BatchRuns::Any },
        };
        let (good, bad) = ([0, 1, 2, 3], [0, 1, 2, 4]);
        let mut random = |rows: usize, cols: usize| Guarded::of(b, &rng.normals(rows * cols), rows, cols, Guard::ODD);
        let (keys, values) = (random(all.len(), k_cols), random(all.len(), v_cols));
        let mut cache = b.alloc_kv(spec, 4).expect("alloc_kv");
        let v = (!values_in_keys).then(|| values.view());
        b.run(KvWrite { cache: &mut cache, k: keys.view(), v, placement: &place(&all, &good) }).expect("kv_write");
        for tokens in [&last, &all] {
            let q = random(tokens.len(), q_cols);
            let attend = |table: &[u32]| {
                let mut out = Guarded::<f32>::poisoned(b, tokens.len(), out_cols, Guard::ODD);
                let result = b.run(Attention {
                    q: q.view(),
                    cache: &cache,
                    placement: &place(tokens, table),
                    options: plain(),
                    out: out.view_mut(),
                });
                (result, out)
            };
            let first = |out: &Guarded<f32>| out.read(b)[..tokens.len() / 2 * out_cols].to_vec();
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
