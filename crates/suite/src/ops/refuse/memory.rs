//! Allocations, views and copies.

use super::common::*;
use gristmill_kernels::kv::{KvFormat, KvSpec};

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
    let spec = KvSpec { heads: 8, key_width: 128, value_width: 128, format: KvFormat::F16, values_in_keys: false };
    expect(suite, "alloc_kv", Kind::OutOfMemory, b.alloc_kv(spec, usize::MAX / 64));
    let eight_bits = KvSpec { format: KvFormat::Q8_0, ..spec };
    expect(suite, "alloc_kv: 8 bits", Kind::OutOfMemory, b.alloc_kv(eight_bits, usize::MAX / 64));
    expect(suite, "alloc_kv: no heads", Kind::Range, b.alloc_kv(KvSpec { heads: 0, ..spec }, 1));
    expect(suite, "alloc_kv: no keys", Kind::Range, b.alloc_kv(KvSpec { key_width: 0, ..spec }, 1));
    expect(suite, "alloc_kv: no values", Kind::Range, b.alloc_kv(KvSpec { value_width: 0, ..spec }, 1));
    let longer = KvSpec { value_width: 129, values_in_keys: true, ..spec };
    expect(suite, "alloc_kv: values longer than the keys they are in", Kind::Range, b.alloc_kv(longer, 1));
    let wide = KvSpec { heads: usize::MAX / 4, ..spec };
    expect(suite, "alloc_kv: heads", Kind::OutOfMemory, b.alloc_kv(wide, 1));
    expect(suite, "alloc_groups", Kind::Range, b.alloc_groups(1025, 1));
    expect(suite, "alloc_groups: none", Kind::Range, b.alloc_groups(0, 1));
    expect(suite, "alloc_groups: none grouped", Kind::Range, b.alloc_groups_of(3..3, 8, 1));
    expect(suite, "alloc_groups: beyond", Kind::Range, b.alloc_groups_of(3..9, 8, 1));
    expect(suite, "alloc_groups: pairs", Kind::OutOfMemory, b.alloc_groups(8, usize::MAX));

    let mut some = b.alloc::<f32>(10, "a case").expect("alloc_f32");
    expect(suite, "upload", Kind::Shape, b.upload(&[0.0; 11], &mut some));
    expect(suite, "upload_at", Kind::Shape, b.upload_at(&[0.0; 2], &mut some, 9));
    expect(suite, "upload_at: overflow", Kind::Shape, b.upload_at(&[0.0; 2], &mut some, usize::MAX));
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
